"""``reactive-kafka dashboards``: writes a Grafana dashboard and Prometheus alert rules."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import click

from reactive_kafka.cli.dashboards.grafana_json import dashboard_json
from reactive_kafka.cli.dashboards.panels import ROWS
from reactive_kafka.cli.errors import CommandFailed

DASHBOARD = "reactive-kafka-dashboard.json"
ALERTS = "reactive-kafka-alerts.yml"


@click.command(name="dashboards", short_help="Write a Grafana dashboard and alert rules.")
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder to write into. It is made if it does not exist.",
)
@click.option("--force", is_flag=True, help="Replace files that are there and differ.")
def dashboards(folder: Path, force: bool) -> None:
    """Write a Grafana dashboard and Prometheus alert rules for the metrics of a service.

    reactive-kafka-dashboard.json is for Grafana 11 and newer: Dashboards, New, Import.
    reactive-kafka-alerts.yml is for rule_files in the configuration of Prometheus. A file that you
    have changed is kept, unless you say --force.

    \b
    Examples:
      reactive-kafka dashboards --to monitoring
      reactive-kafka dashboards --to monitoring --force
    """
    texts = {DASHBOARD: dashboard_text(), ALERTS: alerts_text()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        changed = [name for name, text in texts.items() if _differs(folder / name, text)]
        if changed and not force:
            raise CommandFailed(
                f"{', '.join(str(folder / name) for name in changed)}: there already, with another "
                "content; --force replaces it"
            )
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
            click.echo(folder / name)
    except OSError as error:
        raise CommandFailed(f"cannot write {error.filename}: {error.strerror}") from error


def dashboard_text() -> str:
    """Return the dashboard as JSON text."""
    return json.dumps(dashboard_json(ROWS), indent=2) + "\n"


def alerts_text() -> str:
    """Return the alert rules as YAML text."""
    folder = files("reactive_kafka.cli.dashboards").joinpath("files")
    return folder.joinpath(ALERTS).read_text("utf-8")


def _differs(file: Path, text: str) -> bool:
    return file.exists() and file.read_text("utf-8", errors="replace") != text

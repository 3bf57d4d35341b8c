"""The command ``reactive-kafka asyncapi``."""

from __future__ import annotations

import inspect
import json
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.asyncapi.asyncapi_document import Info, document
from reactive_kafka.cli.asyncapi.flows import flows_of
from reactive_kafka.config.yaml_text import yaml_of


@click.command(name="asyncapi", short_help="Print the AsyncAPI 3.0 document of an application.")
@options.target
@options.app_config
@options.app_dir
@click.option("--title", metavar="TEXT", help="Name of the application. Default: its MODULE:APP.")
@click.option(
    "--api-version",
    metavar="TEXT",
    help="Version of the application. Default: that of the installed package with MODULE, or "
    "0.0.0.",
)
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML; needs the extra [yaml].")
def asyncapi(
    target: str,
    config: Path | None,
    app_dir: Path,
    title: str | None,
    api_version: str | None,
    as_yaml: bool,
) -> None:
    """Print the AsyncAPI 3.0 document of an application, without connecting.

    It has the topics that are read and written, including those of dead letters and delayed
    retries, and the annotated types as JSON Schemas. Credentials and memory channels are left out.

    \b
    Examples:
      reactive-kafka asyncapi billing:app > asyncapi.json
      reactive-kafka asyncapi billing:app --yaml --title Billing --api-version 1.2.0
    """
    app = load_app(target, app_dir)
    app.configure(config)
    module = target.partition(":")[0]
    info = Info(
        title or target,
        api_version or _version_of(module),
        inspect.getdoc(sys.modules[module]) or "",
    )
    content = document(info, flows_of(app.plan))
    click.echo(yaml_of(content).rstrip("\n") if as_yaml else json.dumps(content, indent=2))


def _version_of(module: str) -> str:
    """Return the version of the package that installed a module; 0.0.0 without one."""
    packages = packages_distributions().get(module.partition(".")[0], ())
    return version(packages[0]) if packages else "0.0.0"

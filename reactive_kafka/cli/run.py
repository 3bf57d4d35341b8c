"""``reactive-kafka run``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.finding import load_app
from reactive_kafka.cli.spark_progress import bottom_of_the_terminal, show_spark
from reactive_kafka.observe.logs import configure_logging


@click.command(name="run")
@options.target
@options.app_config
@options.port(
    "REACTIVE_KAFKA_PORT", "Port of /health and /metrics; 0 takes a free one. Default: the port in [http], or 9000."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="REACTIVE_KAFKA_LOG_FORMAT",
    show_envvar=True,
    help="Format of the log lines on stderr.",
)
@click.option(
    "--exit-on-failure",
    is_flag=True,
    envvar="REACTIVE_KAFKA_EXIT_ON_FAILURE",
    show_envvar=True,
    help="Exit with 1 when a channel has failed, so that a supervisor can restart the process. Without this option the "
    "other channels continue, and /health/live is DOWN.",
)
@options.app_dir
@click.option("--workers", type=int, hidden=True)
@click.option("--reload", is_flag=True, hidden=True)
def run(
    target: str,
    config: Path | None,
    port: int | None,
    log_format: Literal["text", "json"],
    exit_on_failure: bool,
    app_dir: Path,
    workers: int | None,
    reload: bool,
) -> None:
    """Run an application until SIGINT (Ctrl-C) or SIGTERM.

    MODULE:APP names the application: billing:app is the App called app in billing.py.

    The first signal drains: fetching stops, running handlers may finish, what is done is committed, and the
    process exits with 0. A second signal exits immediately, with 1.

    \b
    Examples:
      reactive-kafka run billing:app
      reactive-kafka run shop.billing:app --config prod.toml --port 9100
      REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS=kafka:9092 reactive-kafka run billing:app --log-format json
    """
    if workers is not None:
        raise click.UsageError("--workers is not supported yet: start the command once for each process")
    if reload:
        raise click.UsageError("--reload is not supported yet")
    with bottom_of_the_terminal() if log_format == "text" else nullcontext() as bottom:
        configure_logging(log_format)
        app = load_app(target, app_dir)
        app.configure(config, overrides=None if port is None else {"http": {"port": port}})
        if bottom is not None:
            show_spark(app, bottom)
        app.run(exit_on_failure=exit_on_failure)

"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path

import click

target = click.argument("target", metavar="MODULE:APP")

config = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Configuration file (.toml, .yaml, .json). Replaces the argument of App(...). If neither is given: "
    "$REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml.",
)

app_dir = click.option(
    "--app-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    envvar="REACTIVE_KAFKA_APP_DIR",
    show_envvar=True,
    metavar="DIR",
    help="Folder in which MODULE is looked up. Default: the current folder.",
)

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="REACTIVE_KAFKA_LOG_FORMAT",
    show_envvar=True,
    help="Format of the log lines on stderr.",
)

"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path

import click

target = click.argument("target", metavar="MODULE:APP")

config = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Configuration file (.toml, .yaml, .json). Replaces what App(...) was given; without either, "
    "$REACTIVE_KAFKA_CONFIG, else ./reactive-kafka.toml.",
)

app_dir = click.option(
    "--app-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    envvar="REACTIVE_KAFKA_APP_DIR",
    show_envvar=True,
    metavar="DIR",
    help="Where MODULE is looked for; by default the current folder.",
)

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="REACTIVE_KAFKA_LOG_FORMAT",
    show_envvar=True,
    help="How log lines on stderr look.",
)

"""Options, arguments and the question that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reactive_kafka.cli.errors import Failure

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def config(help_text: str) -> Decorator:
    """``--config FILE``."""
    file = click.Path(path_type=Path, dir_okay=False, exists=True)
    return click.option("--config", type=file, metavar="FILE", help=help_text)


def servers(help_text: str) -> Decorator:
    """``--bootstrap-servers HOST:PORT``."""
    variable = "REACTIVE_KAFKA_BOOTSTRAP_SERVERS"
    return click.option("--bootstrap-servers", envvar=variable, show_envvar=True, metavar="HOST:PORT", help=help_text)


def port(variable: str, help_text: str, *, lowest: int = 0) -> Decorator:
    """``--port PORT``, or the environment's *variable*."""
    number = click.IntRange(lowest, 65535)
    return click.option("--port", type=number, envvar=variable, show_envvar=True, metavar="PORT", help=help_text)


def as_json(help_text: str = "Print JSON.") -> Decorator:
    """``--json``, as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


target = click.argument("target", metavar="MODULE:APP")

topics = click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic. May be repeated.")

app_config = config(
    "Configuration file (.toml, .yaml, .json). Replaces the argument of App(...). If neither is given: "
    "$REACTIVE_KAFKA_CONFIG, or ./reactive-kafka.toml."
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

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be changed.")


def check_can_ask(*, yes: bool, dry_run: bool) -> None:
    """Check, before any work, that a question can be asked if there will be one.

    Raises:
        UsageError: Neither a terminal nor ``--yes``.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("there is no terminal to ask on: --yes goes ahead without asking, --dry-run only shows")


def ask(question: str, *, yes: bool) -> None:
    """Ask, on stderr, unless *yes* is the answer; a no raises Failure."""
    if not yes and not click.confirm(question, err=True):
        raise Failure("nothing was changed")

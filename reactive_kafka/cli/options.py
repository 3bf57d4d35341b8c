"""Options, arguments and the confirmation that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from reactive_kafka.cli.errors import CommandFailed

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


def config(help_text: str) -> Decorator:
    """Add ``--config FILE``, which may be repeated; the command gets a tuple of paths, or None."""
    return click.option(
        "--config",
        type=_FILE,
        metavar="FILE",
        multiple=True,
        callback=lambda _, __, given: given or None,
        help=help_text,
    )


def properties(help_text: str) -> Decorator:
    """Add ``--from-quarkus FILE``."""
    return click.option("--from-quarkus", type=_FILE, metavar="FILE", help=help_text)


def servers(help_text: str) -> Decorator:
    """Add ``--bootstrap-servers HOST:PORT``."""
    variable = "REACTIVE_KAFKA_BOOTSTRAP_SERVERS"
    return click.option(
        "--bootstrap-servers",
        envvar=variable,
        show_envvar=True,
        metavar="HOST:PORT",
        help=help_text,
    )


def port(variable: str, help_text: str, *, lowest: int = 0) -> Decorator:
    """Add ``--port PORT``, which the environment may give as *variable*."""
    number = click.IntRange(lowest, 65535)
    return click.option(
        "--port", type=number, envvar=variable, show_envvar=True, metavar="PORT", help=help_text
    )


def as_json(help_text: str = "Print JSON.") -> Decorator:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def format_option(help_text: str) -> Decorator:
    """Add ``--format FORMAT``; the command gets it as *format_name*."""
    return click.option(
        "--format",
        "format_name",
        metavar="FORMAT",
        help=f"Format of the values, as a channel names it. {help_text}",
    )


target = click.argument("target", metavar="MODULE:APP")

maybe_target = click.argument("target", metavar="[MODULE:APP]", required=False)

topic = click.argument("topic", metavar="TOPIC")

topics = click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic. May be repeated."
)

app_config = config(
    "Configuration file (.toml, .yaml, .json, .properties). May be repeated: later files win key "
    "by key. Replaces the argument of App(...). If neither is given: $REACTIVE_KAFKA_CONFIG, or "
    "./reactive-kafka.toml."
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

_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be changed.")


def confirmed(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--dry-run`` and ``--yes``, and refuse the command if it has neither and no terminal."""

    @wraps(command)
    def called(**given: Any) -> None:
        if not (given["yes"] or given["dry_run"] or sys.stdin.isatty()):
            raise click.UsageError(
                "there is no terminal for the question: use --yes to go ahead without it, or "
                "--dry-run to change nothing"
            )
        command(**given)

    return _dry_run(_yes(called))


def asks(instead: str) -> Decorator:
    """Add ``--yes``, and refuse the command without it and without a terminal.

    Args:
        instead: What to do to change nothing, for the error.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            if not (given["yes"] or sys.stdin.isatty()):
                raise click.UsageError(
                    "there is no terminal for the question: use --yes to go ahead without it, or "
                    f"{instead} to change nothing"
                )
            command(**given)

        return _yes(called)

    return decorate


def ask(question: str, *, yes: bool) -> None:
    """Ask on stderr, unless *yes*. Raises CommandFailed if the answer is no."""
    if not yes and not click.confirm(question, err=True):
        raise CommandFailed("nothing was changed")

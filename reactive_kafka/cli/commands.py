"""The commands by name. The module of a command is imported only when it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from reactive_kafka.cli.errors import CommandFailed, WrongUsage
from reactive_kafka.errors import ConfigError, MissingExtraError, ReactiveKafkaError, escaped
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.near_names import near_names

MODULES = {
    "run": "reactive_kafka.cli.run_command",
    "check": "reactive_kafka.cli.check_command",
    "schema": "reactive_kafka.cli.schema_command",
    "asyncapi": "reactive_kafka.cli.asyncapi.asyncapi_command",
    "channels": "reactive_kafka.cli.channels_command",
    "topics": "reactive_kafka.cli.topics.topics_command",
    "produce": "reactive_kafka.cli.records.produce_command",
    "tail": "reactive_kafka.cli.records.tail_command",
    "groups": "reactive_kafka.cli.groups_command",
    "lag": "reactive_kafka.cli.lag_command",
    "offsets": "reactive_kafka.cli.offsets.offsets_command",
    "dlq": "reactive_kafka.cli.dlq.dlq_command",
    "control": "reactive_kafka.cli.control.control_command",
    "dashboards": "reactive_kafka.cli.dashboards.dashboards_command",
    "init": "reactive_kafka.cli.new_project.init_command",
    "broker": "reactive_kafka.cli.developer_commands",
    "spark": "reactive_kafka.cli.developer_commands",
    "demo": "reactive_kafka.cli.developer_commands",
    "completion": "reactive_kafka.cli.completion_command",
}
"""Command -> the module with the function of its name, in the order of the help."""


class Commands(click.Group):
    """Imports a command's module when it is called.

    Errors of the package end the command with their text alone. Any other exception is a bug, and
    keeps its traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            if ctx.resilient_parsing or cmd_name.startswith("-"):
                # A shell completes the name, or it is an option.
                return None
            near = near_names(cmd_name, MODULES)
            instead = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(MODULES)}"
            raise click.UsageError(f"No such command {cmd_name!r}. {instead}", ctx)
        command: click.Command = getattr(import_module(MODULES[cmd_name]), cmd_name)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _printable():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _printable():
            try:
                return super().invoke(ctx)
            except (ConfigError, MissingExtraError, FormatError) as error:
                raise WrongUsage(str(error)) from error
            except ReactiveKafkaError as error:
                raise CommandFailed(str(error)) from error


@contextmanager
def _printable() -> Iterator[None]:
    """Escape control characters in the text of an error, which a terminal would obey.

    Such texts quote arguments, names of files, and records.
    """
    try:
        yield
    except click.ClickException as error:
        # click declares the message as final, which is meant for subclasses.
        error.message = "\n".join(map(escaped, error.message.split("\n")))  # type: ignore[misc]
        raise


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="reactive-kafka", message="reactive-kafka %(version)s")
def commands() -> None:
    """Run async Kafka handlers that commit only what is done.

    \b
    First steps:
      reactive-kafka demo                 see everything at work, no Kafka needed
      reactive-kafka init billing         make a project that runs and tests itself
      reactive-kafka check billing:app    check the configuration of the App
      reactive-kafka run billing:app      run the App named app in billing.py

    Exit codes: 0 success, 1 ran and failed, 2 wrong usage or configuration.
    """

"""The command line. Only here is the environment read, output written and the process ended."""

from __future__ import annotations


def main() -> None:
    """Run the command that the process was started with, and exit."""
    from reactive_kafka.cli.commands import commands

    commands()

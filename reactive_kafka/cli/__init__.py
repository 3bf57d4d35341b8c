"""The command line. Only here are the environment read, the streams written and the process
ended.
"""

from __future__ import annotations


def main() -> None:
    """Run the command that the process was started with, and exit."""
    from reactive_kafka.cli.commands import commands

    commands()

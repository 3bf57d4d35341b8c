"""The ``--help`` texts in ``docs/cli.md``.

``python -m tests.cli.reference docs/cli.md`` writes them anew between their markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from reactive_kafka.cli.commands import MODULES, commands

WIDTH = 100
_MARKED = re.compile(r"(<!-- help: ([\w -]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def help_texts() -> dict[str, str]:
    """Command -> its ``--help``; that of all commands under ``reactive-kafka``, of a group's under
    ``spark jars``.
    """
    top = commands.make_context("reactive-kafka", [], resilient_parsing=True, terminal_width=WIDTH)
    texts = {"reactive-kafka": commands.get_help(top)}
    for name in MODULES:
        command = commands.get_command(top, name)
        if command is not None:
            texts.update(_texts_of(name, command, top))
    return texts


def _texts_of(name: str, command: click.Command, parent: click.Context) -> dict[str, str]:
    """Those of a command; of a group, those of its commands: ``spark jars``."""
    context = click.Context(command, parent, info_name=name, terminal_width=WIDTH)
    if not isinstance(command, click.Group):
        return {name: command.get_help(context)}
    texts = {}
    for inner, its in command.commands.items():
        texts.update(
            {f"{name} {key}": text for key, text in _texts_of(inner, its, context).items()}
        )
    return texts


def with_help(page: str) -> str:
    """The page with each marked block replaced by its help text."""
    texts = help_texts()
    return _MARKED.sub(lambda match: f"{match[1]}```\n{texts[match[2]]}\n```\n{match[3]}", page)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_help(file.read_text()))

"""Shows long texts in a pager, and tables with a bold head, if stdout is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click


def has_colour() -> bool:
    """Return whether stdout takes colours.

    It must be a terminal, and NO_COLOR (https://no-color.org) must not be set.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return (
        is_terminal
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in ("dumb", "unknown")
    )


def coloured(text: str, colour: str) -> str:
    """Return the text in a colour, if stdout takes colours."""
    return click.style(text, fg=colour) if has_colour() else text


def echo_table(lines: Sequence[str]) -> None:
    """Print the lines of a table. On a terminal its head is bold."""
    head, *rows = lines
    click.echo(click.style(head, bold=True) if has_colour() else head)
    if rows:
        click.echo("\n".join(rows))


def show_lines(lines: Sequence[str]) -> None:
    """Print lines. On a terminal that is too small for them they are shown in a pager.

    The variable PAGER chooses the pager.
    """
    is_interactive = (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout is not None
        and sys.stdout.isatty()
    )
    if is_interactive and len(lines) >= shutil.get_terminal_size().lines:
        click.echo_via_pager("\n".join(lines) + "\n")
    elif lines:
        click.echo("\n".join(lines))

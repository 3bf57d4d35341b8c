"""The errors that end a command: a text, and an exit code that says who must act."""

from __future__ import annotations

import click


class CommandFailed(click.ClickException):
    """The command ran and failed: exit code 1."""

    exit_code = 1


class WrongUsage(click.ClickException):
    """The command cannot begin: exit code 2.

    For mistakes in the user's files. For wrong options there is click's UsageError.
    """

    exit_code = 2

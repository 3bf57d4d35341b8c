"""What a command ends with when something is wrong: a text that says who must act, and the
contract's exit code.
"""

from __future__ import annotations

import click


class CommandFailed(click.ClickException):
    """The command ran and failed: exit code 1."""

    exit_code = 1


class WrongUsage(click.ClickException):
    """The command cannot begin: exit code 2. For what is wrong in the user's files; flags have
    click's UsageError.
    """

    exit_code = 2

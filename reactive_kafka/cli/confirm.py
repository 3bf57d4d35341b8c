"""Asking before something is changed."""

from __future__ import annotations

import sys

import click

from reactive_kafka.cli.errors import Failure

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
    """Ask, on stderr; with *yes* the answer is given.

    Raises:
        Failure: The answer is no.
    """
    if not yes and not click.confirm(question, err=True):
        raise Failure("nothing was changed")

"""Runs the demo, and prints what of it holds."""

from __future__ import annotations

import asyncio
import signal
import sys

from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.runtime.signals import exit_now

from .checks import Outcome, checks, summary
from .play import Play
from .screen import make_screen


def main(seconds: float) -> None:
    """Run for so many seconds after everything is ready; exits with 1 if a check fails.

    Raises:
        CommandFailed: It did not get ready, or was asked to end early.
    """
    outcome = asyncio.run(_play(seconds))
    if outcome is None:
        raise CommandFailed("ended early: nothing was checked")
    done = checks(outcome)
    print("\n".join(summary(done)))
    if not all(check.ok for check in done):
        sys.exit(1)


async def _play(seconds: float) -> Outcome | None:
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _ask, asked)
    screen = make_screen()
    try:
        return await Play(seconds, screen, asked).run()
    finally:
        screen.close()


def _ask(asked: asyncio.Event) -> None:
    """The first signal asks for an early end, the second one forces it."""
    if asked.is_set():
        exit_now(1)
    asked.set()

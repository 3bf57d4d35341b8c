"""Signals of a process whose children run the application."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial


@contextmanager
def handling(
    numbers: Sequence[signal.Signals], handle: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """Call *handle* on the event loop for each signal, within this block."""
    loop = asyncio.get_running_loop()
    # nohup ignores SIGHUP, and so does what it starts.
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, partial(handle, number))
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def how_ended(code: int) -> str:
    """Return how a process has ended, for people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

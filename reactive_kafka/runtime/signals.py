"""SIGTERM and SIGINT: the first one drains, a second one exits at once, and nothing delays the exit for ever."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

logger = logging.getLogger("reactive_kafka")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
BLOCKED_S = 2.0
"""An event loop that has not turned for this long counts as blocked."""
CLOSING_S = 15.0
"""How long the last commit, leaving the group and closing the clients may take after the drain."""


class StopSignals:
    """Handles the signals while its block runs, on the main thread; elsewhere it does nothing.

    Args:
        stop: Called once, in the signal handler, so it may only ask for a stop.
        drain_s: How long a stop may wait for handlers.
        last_turn: When the event loop turned last, by the monotonic clock.
    """

    def __init__(self, stop: Callable[[], object], drain_s: float, last_turn: Callable[[], float]) -> None:
        self._stop = stop
        self._drain_s = drain_s
        self._last_turn = last_turn
        self._asked = False
        self._over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._asked:
            return  # the process is about to end, and another signal still has to end it at once
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            exit_now(1)
        self._asked = True
        threading.Thread(target=self._watch, name="exit watchdog", daemon=True).start()
        self._stop()

    def _watch(self) -> None:
        """End the process if the event loop does not: a handler blocks it, or a client does not close."""
        deadline = time.monotonic() + self._drain_s
        while not self._over.wait(0.1):
            now = time.monotonic()
            is_blocked = now - self._last_turn() > BLOCKED_S
            if (now > deadline and is_blocked) or now > deadline + CLOSING_S:
                why = "the event loop is blocked" if is_blocked else "closing did not end"
                logger.warning("exit after the drain's deadline: %s; what was in flight stays uncommitted", why)
                exit_now(0)


def exit_now(code: int) -> None:
    """End the process at once, whatever its threads do; output and log lines are flushed."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # closed or broken
    os._exit(code)

"""Runs an application as a process, until a signal or a failure ends it.

The first SIGTERM, SIGINT or SIGHUP drains. A second one exits at once. Nothing delays the exit for
ever: a thread ends the process if the event loop does not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from reactive_kafka.config.settings import Settings
from reactive_kafka.handlers.blocking_calls import calls_in_threads
from reactive_kafka.observe.events import SafeCaller
from reactive_kafka.runtime.run import Run

logger = logging.getLogger("reactive_kafka")

# The terminal of the process is gone. Windows has no such signal.
HANGUP = getattr(signal, "SIGHUP", None)
SIGNALS = tuple(filter(None, (signal.SIGTERM, signal.SIGINT, HANGUP)))
BLOCKED_S = 2.0
"""An event loop that has not turned for this long counts as blocked."""
FLUSHED_S = 1.0
"""How long the last output of a process may take."""
CLOSING_S = 15.0
"""How long the last commit, leaving the group and closing the clients may take after the drain."""


def run_as_process(
    settings: Settings,
    make: Callable[[], Run],
    *,
    start: Callable[[Run], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
) -> None:
    """Run an application until SIGINT, SIGTERM or SIGHUP, a failure, or a handler's SystemExit.

    Args:
        make: Makes the run, on the event loop. It is made before it starts, because a signal may
            come while it is starting.

    Raises:
        SystemExit: The exit code is not 0.
        RuntimeError: An event loop runs in this thread already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # There must be no loop.
        pass
    else:
        raise RuntimeError(
            "app.run() has a loop of its own; where one runs already, use `async with app: ...`"
        )

    async def main() -> Run:
        run = make()
        # The loop calls it, and not the signal handler, which may run between any two lines of code
        # on this loop.
        ask_to_stop = partial(asyncio.get_running_loop().call_soon_threadsafe, run.ask_to_stop)
        with StopSignals(ask_to_stop, run.drain_s, lambda: run.lag.last_turn, run.exit_code):
            await start(run)
            if not run.has_ended:
                _tell_started(settings, run)
            await run.wait_asked()
            await stop()
        return run

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        run = runner.run(main())
        code = run.exit_code()
        if run.left or calls_in_threads():
            # Closing the loop, or the interpreter, would wait for these tasks and threads.
            exit_now(code)
    if code:
        raise SystemExit(code)


def _tell_started(settings: Settings, run: Run) -> None:
    SafeCaller().call(
        logger.info,
        "started: configuration %s, brokers %s, %d incoming and %d outgoing channels, HTTP %s",
        settings.source,
        # These are hosts and ports, and no secrets.
        settings.bootstrap_servers,
        len(settings.incoming),
        len(settings.outgoing),
        run.http_text,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loops of uvloop, if that is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class StopSignals:
    """Handles the signals while its block runs. Outside the main thread it does nothing.

    Args:
        stop: Called once, in the signal handler: it may only ask for a stop.
        drain_s: Returns how long the stop may take to drain. Called in the signal handler, because
            channels may have been added since the start.
        last_turn: Returns when the event loop turned last (monotonic). None: that is not known, as
            before and after everything else runs.
        code: Returns the exit code. Called in another thread if the stop does not end.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        drain_s: Callable[[], float],
        last_turn: Callable[[], float | None],
        code: Callable[[], int] = lambda: 0,
    ) -> None:
        self._stop = stop
        self._code = code
        self._drain_s = drain_s
        self._last_turn = last_turn
        self._asked = False
        self._over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number == HANGUP and signal.getsignal(number) == signal.SIG_IGN:
                    # The process was started with nohup.
                    continue
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._asked:
            # The process is about to end. Until then another signal has to end it at once.
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked and number == HANGUP:
            # When a terminal closes, the shell sends SIGHUP to its jobs, and so does the kernel.
            return
        if self._asked:
            exit_now(1)
        self._asked = True
        watch = partial(self._watch, time.monotonic() + self._drain_s())
        # If the machine has no thread left, the stop has no watchdog.
        with suppress(RuntimeError):
            threading.Thread(target=watch, name="exit watchdog", daemon=True).start()
        self._stop()

    def _watch(self, deadline: float) -> None:
        """End the process if the event loop does not end it in time.

        A handler may block the loop, or a client may not close.

        Args:
            deadline: The end of the drain (monotonic).
        """
        while not self._over.wait(0.1):
            now = time.monotonic()
            last_turn = self._last_turn()
            is_blocked = last_turn is not None and now - last_turn > BLOCKED_S
            if (now > deadline and is_blocked) or now > deadline + CLOSING_S:
                why = "the event loop is blocked" if is_blocked else "closing did not end"
                text = "exit after the drain's deadline: %s; what was in flight stays uncommitted"
                self._exit(partial(SafeCaller().call, logger.warning, text, why))

    def _exit(self, tell: Callable[[], object]) -> None:
        """End the process, with 1 if its exit code cannot be had: it may be logged why it is 1."""
        exits = threading.Thread(target=lambda: exit_now(self._code(), tell), daemon=True)
        try:
            exits.start()
            exits.join(2 * FLUSHED_S)
        finally:
            os._exit(1)


def exit_now(code: int, tell: Callable[[], object] = lambda: None) -> None:
    """End the process at once, whatever its threads do. Output and log lines are flushed.

    Args:
        tell: Called before that. It may log.
    """

    def flush() -> None:
        tell()
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            # The stream may be closed or broken.
            with suppress(OSError, ValueError):
                stream.flush()

    # This runs in a thread because it may block for ever. If no process reads the output, a thread
    # of the application may be blocked in a write, and hold the lock of its logging handler.
    flushing = threading.Thread(target=flush, name="last output", daemon=True)
    try:
        flushing.start()
        flushing.join(FLUSHED_S)
    finally:
        # The process has to end even if no thread could be started.
        os._exit(code)

"""An application as a process: on a loop of its own, until a signal or a failure ends it.

The first SIGTERM, SIGINT or SIGHUP drains, a second one exits at once, and nothing delays the exit
for ever.
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

# Its terminal is gone; Windows has none.
HANGUP = getattr(signal, "SIGHUP", None)
SIGNALS = tuple(filter(None, (signal.SIGTERM, signal.SIGINT, HANGUP)))
BLOCKED_S = 2.0
"""An event loop that has not turned for this long counts as blocked."""
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

    *make* makes the run that *start* starts, on the loop: a signal may come while it is starting.
      An exit code other
    than 0 is raised as a SystemExit. RuntimeError: a loop runs in this thread already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        # As it should be.
        pass
    else:
        raise RuntimeError(
            "app.run() has a loop of its own; where one runs already, use `async with app: ...`"
        )

    async def main() -> Run:
        run = make()
        # In the loop, not in the signal handler: that may run between any two steps of anything on
        # this loop.
        ask_to_stop = partial(asyncio.get_running_loop().call_soon_threadsafe, run.ask_to_stop)
        drain_s = max(
            (channel.drain_timeout_s for channel in settings.incoming.values()), default=0.0
        )
        with StopSignals(ask_to_stop, drain_s, lambda: run.lag.last_turn, run.exit_code):
            await start(run)
            SafeCaller().call(
                logger.info,
                "started: configuration %s, brokers %s, %d incoming and %d outgoing channels, HTTP %s",
                settings.source,
                # Hosts and ports, nothing secret.
                settings.bootstrap_servers,
                len(settings.incoming),
                len(settings.outgoing),
                run.http.url if run.http is not None else "off",
            )
            await run.wait_asked()
            await stop()
        return run

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        run = runner.run(main())
        code = run.exit_code()
        if run.left or calls_in_threads():
            # Closing the loop, or the interpreter, would wait for them.
            exit_now(code)
    if code:
        raise SystemExit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's if it is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class StopSignals:
    """Handles the signals while its block runs, on the main thread; elsewhere it does nothing.

    *stop* is called once, in the signal handler, so it may only ask for a stop; *last_turn* is by
    the monotonic clock; *code* is asked in another thread, when the stop does not come to its end.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        drain_s: float,
        last_turn: Callable[[], float],
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
            # Else nohup.
            used = [
                one for one in SIGNALS if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN
            ]
            self._before = {number: signal.signal(number, self._handle) for number in used}
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._asked:
            # The process is about to end, and another signal still has to end it at once.
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked and number == HANGUP:
            # When a terminal goes, the shell sends one to its jobs, and the kernel another one.
            return
        if self._asked:
            exit_now(1)
        self._asked = True
        threading.Thread(target=self._watch, name="exit watchdog", daemon=True).start()
        self._stop()

    def _watch(self) -> None:
        """End the process if the event loop does not: a handler blocks it, or a client does not
        close.
        """
        deadline = time.monotonic() + self._drain_s
        while not self._over.wait(0.1):
            now = time.monotonic()
            is_blocked = now - self._last_turn() > BLOCKED_S
            if (now > deadline and is_blocked) or now > deadline + CLOSING_S:
                why = "the event loop is blocked" if is_blocked else "closing did not end"
                text = "exit after the drain's deadline: %s; what was in flight stays uncommitted"
                SafeCaller().call(logger.warning, text, why)
                exit_now(self._code())


def exit_now(code: int) -> None:
    """End the process at once, whatever its threads do; output and log lines are flushed."""
    try:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            # Closed or broken.
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        # Whatever a logging handler raises.
        os._exit(code)

"""Watches how late the event loop turns, and lets the garbage collector stop it less often."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from reactive_kafka.clock import Clock
from reactive_kafka.observe.events import LoopBlocked, Observer

TICK_S = 0.1
WINDOW = 100
"""How many ticks count for the worst lag that is reported: ten seconds."""
WARNED_S = 1.0
"""A longer lag is reported as an event. Heartbeats wait meanwhile, and by default a session times
out after 45 s.
"""
LOOKS_PER_WARNING = 4
"""How often a thread looks before a loop counts as blocked. Each look wakes an idle process."""
FRAMES_NAMED = 4
"""How many frames are named at each end of a stack."""


YOUNG_OBJECTS = 20_000
"""How many new objects there may be before the collector looks at them, while an application runs.

Each record in flight is such an object. By default the collector runs for every 700 records, and
finds nothing: records form no cycles. That is a fifth of what a record costs (see ``make bench``).
"""

YOUNG_OBJECTS_EACH = 8
"""How many more there may be for each handler that may run at once: for its coroutines and timer.

Handlers that wait come and go in waves, and the collector would run for each wave, for 30 ms.
"""

MOST_YOUNG_OBJECTS = 500_000
"""How many new objects there may be at most, however many handlers may run at once.

A very large ``concurrency`` means "no limit". Garbage in cycles, such as exceptions with their
tracebacks, stays in memory until the collector runs.
"""


class LoopLag:
    """Measures the lag of the loop that it runs on."""

    def __init__(self, clock: Clock, observer: Observer, each_tick: Callable[[], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._each_tick = each_tick
        self._lags: deque[float] = deque([0.0], maxlen=WINDOW)
        # When the loop turned last. None: that is not measured.
        self.last_turn: float | None = None

    @property
    def worst_s(self) -> float:
        """The longest lag in the window."""
        return max(self._lags)

    async def measure(self) -> None:
        """Measure until it is cancelled."""
        # A timer, not a sleep: a sleep takes one more turn of the loop for its task, and these are
        # most turns of an idle process.
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        timer: asyncio.TimerHandle

        def turned(due: float) -> None:
            nonlocal timer
            try:
                self._look(due, watch.turned())
            except Exception as error:
                failed.set_exception(error)
            else:
                timer = loop.call_later(TICK_S, turned, self._clock.monotonic() + TICK_S)

        with LoopWatch() as watch:
            timer = loop.call_later(TICK_S, turned, self._clock.monotonic() + TICK_S)
            self.last_turn = self._clock.monotonic()
            try:
                await failed
            finally:
                timer.cancel()
                self.last_turn = None

    def _look(self, due: float, where: str) -> None:
        now = self._clock.monotonic()
        self.last_turn = now
        self._lags.append(max(0.0, now - due))
        if self._lags[-1] >= WARNED_S:
            self._observer.on(LoopBlocked(lag_s=self._lags[-1], where=where))
        self._each_tick()


class LoopWatch:
    """Looks from a thread of its own where the loop's thread is, while the loop does not turn.

    When the loop turns again, nothing on it can tell that any more. It goes by real time, even if
    tests have a clock of their own.
    """

    def __init__(self, warned_s: float = WARNED_S) -> None:
        self._look_s = warned_s / LOOKS_PER_WARNING
        self._thread_id = threading.get_ident()
        self._is_over = threading.Event()
        self._turns = 0
        self._where = ""
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def __enter__(self) -> LoopWatch:
        # If the machine has no thread left, blocked loops are reported without their place.
        with suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def turned(self) -> str:
        """Note that the loop has turned; return where it was blocked, or an empty string."""
        self._turns += 1
        where = self._where
        self._where = ""
        return where

    def _watch(self) -> None:
        seen = self._turns
        looks = 0
        while not self._is_over.wait(self._look_s):
            looks = looks + 1 if self._turns == seen else 0
            seen = self._turns
            if looks == LOOKS_PER_WARNING - 2 and (
                frame := sys._current_frames().get(self._thread_id)
            ):
                self._where = where_in(frame)


def where_in(frame: FrameType | None) -> str:
    """Return a stack as text, from the user's code on: ``shop.py:12 handle > ssl.py:1295 recv``."""
    places: list[str] = []
    while frame is not None and not (places and _turns_the_loop(frame)):
        places.append(
            f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        )
        frame = frame.f_back
    places.reverse()
    if len(places) > 2 * FRAMES_NAMED:
        places[FRAMES_NAMED:-FRAMES_NAMED] = ["..."]
    return " > ".join(places)


def _turns_the_loop(frame: FrameType) -> bool:
    """Return whether a frame belongs to asyncio or to this package, which call the user's code."""
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] in ("asyncio", "reactive_kafka")


@contextmanager
def fewer_collections(at_once: int) -> Iterator[None]:
    """Let the collector run less often while the block runs, unless the user has set its threshold.

    Args:
        at_once: How many handlers may run at once.
    """
    before = gc.get_threshold()
    # The defaults of CPython, which depend on its version.
    if not gc.isenabled() or before[0] not in (700, 2000):
        yield
        return
    young_objects = min(YOUNG_OBJECTS + YOUNG_OBJECTS_EACH * at_once, MOST_YOUNG_OBJECTS)
    raised = (young_objects, *before[1:])
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

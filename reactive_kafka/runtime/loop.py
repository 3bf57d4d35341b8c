"""The event loop: how late it turns, for every handler, heartbeat and probe; and fewer stops for
garbage.
"""

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
"""Ticks of which the worst is reported: ten seconds."""
WARNED_S = 1.0
"""A longer lag is an event: heartbeats wait as well, and a session times out after 45 s by
default.
"""
LOOKS_PER_WARNING = 4
"""How often the loop is looked at, from outside, in the time after which it is said to be blocked.
Each look of an idle process wakes it up."""
# At each end of a stack.
FRAMES_NAMED = 4


YOUNG_OBJECTS = 20_000
"""New containers before the youngest generation is collected, while an application runs.

Each record in flight is a container to the collector, so that by default it runs for every 700
records read, and finds nothing: records form no cycles. That is a fifth of what a record costs
(``make bench`` shows it).
"""

YOUNG_OBJECTS_EACH = 8
"""As many more for each handler that may run at once: its coroutines, its timer, and what that
holds.

Handlers that wait come and go in waves, and the collector would follow each of them, at 30 ms a
look.
"""


class LoopLag:
    """Measures the lag of the loop that it runs on."""

    def __init__(self, clock: Clock, observer: Observer, each_tick: Callable[[], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._each_tick = each_tick
        self._lags: deque[float] = deque([0.0], maxlen=WINDOW)
        # When the loop turned last.
        self.last_turn = clock.monotonic()

    @property
    def worst_s(self) -> float:
        """The longest lag in the window."""
        return max(self._lags)

    async def measure(self) -> None:
        """Measure until it is cancelled."""
        # By timers: a sleep takes a second turn of the loop for its task, and these are most turns
        # of an idle one.
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
            try:
                await failed
            finally:
                timer.cancel()

    def _look(self, due: float, where: str) -> None:
        self.last_turn = self._clock.monotonic()
        self._lags.append(max(0.0, self.last_turn - due))
        if self._lags[-1] >= WARNED_S:
            self._observer.on(LoopBlocked(lag_s=self._lags[-1], where=where))
        self._each_tick()


class LoopWatch:
    """Looks, from a thread of its own, at where the loop's thread is while the loop does not turn.

    By the time when the loop turns again nothing on it can tell any more. Its time is the real one.
    """

    def __init__(self, warned_s: float = WARNED_S) -> None:
        self._look_s = warned_s / LOOKS_PER_WARNING
        self._thread_id = threading.get_ident()
        self._is_over = threading.Event()
        self._turns = 0
        self._where = ""
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def __enter__(self) -> LoopWatch:
        # A machine that has no thread left: nobody looks.
        with suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def turned(self) -> str:
        """The loop has turned: where it has stood until now, or nothing."""
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
    """A stack in words, from the code of users to where it stands: ``shop.py:12 handle >
    ssl.py:1295 recv``.
    """
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
    """Whether a frame is of this package, or of asyncio: what called the code that blocks."""
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] in ("asyncio", "reactive_kafka")


@contextmanager
def fewer_collections(at_once: int) -> Iterator[None]:
    """Raise the youngest generation's threshold while the block runs, unless somebody has set one.

    *at_once* is how many handlers may run.
    """
    before = gc.get_threshold()
    # CPython's own defaults, by version.
    if not gc.isenabled() or before[0] not in (700, 2000):
        yield
        return
    raised = (YOUNG_OBJECTS + YOUNG_OBJECTS_EACH * at_once, *before[1:])
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

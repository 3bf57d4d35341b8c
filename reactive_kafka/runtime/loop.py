"""The event loop: how late it turns, for every handler, heartbeat and probe; and fewer stops for garbage."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reactive_kafka.clock import Clock
from reactive_kafka.observe.events import LoopBlocked, Observer

TICK_S = 0.1
WINDOW = 100
"""Ticks of which the worst is reported: ten seconds."""
WARNED_S = 1.0
"""A longer lag is an event: heartbeats wait as well, and a session times out after 45 s by default."""


YOUNG_OBJECTS = 20_000
"""New containers before the youngest generation is collected, while an application runs.

Each record in flight is a container to the collector, so that by default it runs for every 700 records read, and
finds nothing: records form no cycles. That is a fifth of what a record costs (``make bench`` shows it).
"""


class LoopLag:
    """Measures the lag of the loop that it runs on."""

    def __init__(self, clock: Clock, observer: Observer, each_tick: Callable[[], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._each_tick = each_tick
        self._lags: deque[float] = deque([0.0], maxlen=WINDOW)
        self.last_turn = clock.monotonic()  # when the loop turned last

    @property
    def worst_s(self) -> float:
        """The longest lag in the window."""
        return max(self._lags)

    async def measure(self) -> None:
        """Measure until it is cancelled."""
        while True:
            due = self._clock.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self.last_turn = self._clock.monotonic()
            self._lags.append(max(0.0, self.last_turn - due))
            if self._lags[-1] >= WARNED_S:
                self._observer.on(LoopBlocked(lag_s=self._lags[-1]))
            self._each_tick()


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Raise the youngest generation's threshold while the block runs, unless somebody has set one."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] not in (700, 2000):  # CPython's own defaults, by version
        yield
        return
    raised = (YOUNG_OBJECTS, *before[1:])
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

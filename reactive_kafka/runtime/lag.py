"""How late the event loop turns: the wait of every handler, heartbeat and probe."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from reactive_kafka.clock import Clock
from reactive_kafka.observe.events import LoopBlocked, Observer

TICK_S = 0.1
WINDOW = 100
"""Ticks of which the worst is reported: ten seconds."""
WARNED_S = 1.0
"""A longer lag is an event: heartbeats wait as well, and a session times out after 45 s by default."""


class LoopLag:
    """Measures the lag of the loop that it runs on.

    Args:
        each_tick: Also called at each tick.

    Attributes:
        last_turn: When the loop turned last, by the monotonic clock.
    """

    def __init__(self, clock: Clock, observer: Observer, each_tick: Callable[[], None]) -> None:
        self._clock = clock
        self._observer = observer
        self._each_tick = each_tick
        self._lags: deque[float] = deque([0.0], maxlen=WINDOW)
        self.last_turn = clock.monotonic()

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

"""Asks from time to time whether the brokers of an outgoing channel answer.

A channel that sends nothing would not notice an outage otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

from reactive_kafka.clock import Clock
from reactive_kafka.errors import BrokerError
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.tasks import aligned_wait_s

CHECK_S = 2.0
"""How often a broker is asked. An answer takes 2.5 s at most, so readiness is DOWN within 5 s."""


class BrokerWatch:
    """Asks the brokers of one outgoing channel whether they are there.

    Args:
        check: Raises BrokerError where no broker answers, after 2.5 s at most.
        answered: Called after each check that was answered.
    """

    def __init__(
        self,
        channel: str,
        check: Callable[[], Awaitable[None]],
        clock: Clock,
        observer: Observer,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._clock = clock
        self._outages = OutageReports(channel, observer)
        self._answered = answered
        self._heard_at = -inf
        # Why no broker answers; None: one does.
        self.silence: str | None = None

    def heard(self) -> None:
        """Note that a broker has confirmed a write, so that the next question can be saved."""
        self._heard_at = self._clock.monotonic()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(aligned_wait_s(CHECK_S, self._clock.monotonic()))
            if self.silence is None and self._clock.monotonic() - self._heard_at < CHECK_S:
                continue
            try:
                await self._check()
            except BrokerError as error:
                self._is_away(str(error))
            else:
                self._is_back()
                self._answered()

    def _is_away(self, reason: str) -> None:
        self.silence = reason
        self._outages.away(self, reason, self._clock.monotonic())

    def _is_back(self) -> None:
        self.silence = None
        self._outages.back(self, self._clock.monotonic())

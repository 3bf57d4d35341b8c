"""Which failed attempts to reach brokers are told: one for each outage and each of its reasons.
Pure.
"""

from __future__ import annotations

import re

from reactive_kafka.observe.events.base import Observer
from reactive_kafka.observe.events.channel import BrokerAvailable, BrokerUnavailable

MOST_REASONS = 10
"""How many reasons of one outage are told. Readiness has the last one in any case."""

_NUMBERS = re.compile(r"\d+")


class OutageReports:
    """Tells the outages of one channel, whose clients look for the brokers each for itself, again
    and again.

    The reason may change with each attempt: a port, the id of a node, the time that was waited for.
    So reasons that differ in numbers only are one, and one that was told is not told again before
    the outage is over.
    """

    def __init__(self, channel: str, observer: Observer) -> None:
        self._channel = channel
        self._observer = observer
        self._since = 0.0
        self._away: set[object] = set()
        self._told: set[str] = set()

    def away(self, client: object, reason: str, now: float) -> None:
        """A client does not reach the brokers, or is refused by them."""
        if not self._away:
            self._since = now
        self._away.add(client)
        kind = _NUMBERS.sub("#", reason)
        if kind not in self._told and len(self._told) < MOST_REASONS:
            self._told.add(kind)
            self._observer.on(BrokerUnavailable(channel=self._channel, reason=reason))

    def back(self, client: object, now: float) -> None:
        """A client can work. The outage is over when all of them can."""
        if client not in self._away:
            return
        self._away.remove(client)
        if not self._away:
            self._told.clear()
            self._observer.on(BrokerAvailable(channel=self._channel, away_s=now - self._since))

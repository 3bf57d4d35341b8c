"""Reports outages of brokers, once for each reason of an outage. Pure."""

from __future__ import annotations

import re

from reactive_kafka.observe.events.base import Observer
from reactive_kafka.observe.events.channel_events import BrokerAvailable, BrokerUnavailable

MOST_REASONS = 10
"""How many reasons of one outage are reported. Readiness shows the last one in any case."""

_NUMBERS = re.compile(r"\d+")


class OutageReports:
    """Reports the outages of one channel, each of whose clients tries to connect again and again.

    A reason may contain numbers that change with each attempt: a port, the id of a node, the time
    that was waited. So reasons that differ only in numbers count as one. Each is reported once in
    an outage.

    The clients of an incoming channel are given by their names: a restart makes others of the same
    names.
    """

    def __init__(self, channel: str, observer: Observer) -> None:
        self._channel = channel
        self._observer = observer
        self._started_at = 0.0
        self._clients_away: set[object] = set()
        # With their numbers replaced.
        self._reported_reasons: set[str] = set()

    def away(self, client: object, reason: str, now: float) -> None:
        """Note that a client does not reach the brokers, or that they refuse it."""
        if not self._clients_away:
            self._started_at = now
        self._clients_away.add(client)
        kind = _NUMBERS.sub("#", reason)
        if kind not in self._reported_reasons and len(self._reported_reasons) < MOST_REASONS:
            self._reported_reasons.add(kind)
            self._observer.on(BrokerUnavailable(channel=self._channel, reason=reason))

    def is_away(self, client: object) -> bool:
        """Return whether the client worked no more when it was heard of last."""
        return client in self._clients_away

    def back(self, client: object, now: float) -> None:
        """Note that a client works. The outage is over when all of them do."""
        if client not in self._clients_away:
            return
        self._clients_away.remove(client)
        if not self._clients_away:
            self._reported_reasons.clear()
            away_s = now - self._started_at
            self._observer.on(BrokerAvailable(channel=self._channel, away_s=away_s))

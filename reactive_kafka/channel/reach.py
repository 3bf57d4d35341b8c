"""Finds what a client cannot read: missing topics, leaders that do not answer. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.client import Sight
from reactive_kafka.observe.events import (
    LeadersAway,
    LeadersBack,
    Observer,
    RackHasNoEffect,
    TopicFound,
    TopicMissing,
)
from reactive_kafka.observe.open_problems import OpenProblems
from reactive_kafka.observe.wording import first_of
from reactive_kafka.partitions.log_state import LeaderAway
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition

AWAY_S = 5.0
"""How long a leader may be away before the channel is not ready. An election takes some time."""

MISSING_S = 2.0
"""How long a topic may be missing before it is reported. A broker that creates topics takes some
time.
"""

MOST_NAMED = 10
"""How many partitions are named in one reason."""


class Reach:
    """Keeps the results of the last looks, for readiness, and reports changes.

    That a broker answers does not say that everything can be read. So topics and leaders are looked
    for with each check of the broker.
    """

    def __init__(
        self,
        channel: str,
        table: PartitionTable,
        observer: Observer,
        told: OpenProblems,
        *,
        tells_topics: bool = True,
    ) -> None:
        self._channel = channel
        # The client's partitions. Each keeps since when its leader does not answer.
        self._table = table
        # Of several clients that read the same topics only one reports them.
        self._tells_topics = tells_topics
        self._observer = observer
        # Topic -> why it cannot be read, and since when.
        self._missing: dict[str, tuple[str, float]] = {}
        # What of it was reported, also before the last restart of the channel.
        self._told = told
        # What the last look said about client_rack.
        self._rack_problem: str | None = None
        # Reasons why not everything can be read.
        self.not_ready: list[str] = []

    @property
    def is_unsure(self) -> bool:
        """Whether something is newly missing or silent, so that the next look should come soon."""
        is_new = any(topic not in self._told.missing_topics for topic in self._missing)
        return is_new or (
            not self._told.leaders_away
            and any(partition.log.leader_away for partition in self._table)
        )

    def found(self, sight: Sight, asked_at: float, now: float) -> None:
        """Note the result of a look that began at *asked_at*. What it does not name can be read."""
        self._missing = {
            topic: (why, self._missing[topic][1] if topic in self._missing else asked_at)
            for topic, why in _why_missing(sight).items()
        }
        for partition in self._table:
            before = partition.log.leader_away
            since = asked_at if before is None else before.since
            away_now = None
            if partition.id in sight.silent:
                away_now = LeaderAway(_why_silent(sight.silent[partition.id]), since)
            partition.log.note_leader(away_now)
        away = {
            partition.id: partition.log.leader_away.reason
            for partition in self._table
            if partition.log.leader_away and now - partition.log.leader_away.since >= AWAY_S
        }
        self.not_ready = [why for why, _ in self._missing.values()] + _by_reason(away)
        self._tell_topics(now)
        self._tell_leaders(away)
        self._tell_rack(sight.rack_problem)

    def over(self) -> None:
        """Forget the partitions, because the client is being replaced. The next one looks again."""
        for partition in self._table:
            partition.log.note_leader(None)

    def _tell_topics(self, now: float) -> None:
        for topic, (reason, since) in self._missing.items():
            if topic not in self._told.missing_topics and now - since >= MISSING_S:
                self._told.missing_topics.add(topic)
                self._tell_topic(TopicMissing(channel=self._channel, topic=topic, reason=reason))
        for topic in sorted(self._told.missing_topics - self._missing.keys()):
            self._told.missing_topics.discard(topic)
            self._tell_topic(TopicFound(channel=self._channel, topic=topic))

    def _tell_topic(self, event: TopicMissing | TopicFound) -> None:
        if self._tells_topics:
            self._observer.on(event)

    def _tell_rack(self, problem: str | None) -> None:
        if problem is not None and self._rack_problem is None and self._tells_topics:
            self._observer.on(RackHasNoEffect(channel=self._channel, reason=problem))
        self._rack_problem = problem

    def _tell_leaders(self, away: Mapping[TopicPartition, str]) -> None:
        if away and not self._told.leaders_away:
            reason = "; ".join(_by_reason(away))
            self._observer.on(
                LeadersAway(channel=self._channel, partitions=frozenset(away), reason=reason)
            )
        elif self._told.leaders_away and not away:
            self._observer.on(LeadersBack(channel=self._channel))
        self._told.leaders_away = bool(away)


def _why_missing(sight: Sight) -> dict[str, str]:
    missing = "the topic {!r} does not exist and the broker creates none: create it"
    forbidden = "the topic {!r} may not be read: the right to describe and read it is missing"
    return {topic: missing.format(topic) for topic in sorted(sight.missing)} | {
        topic: forbidden.format(topic) for topic in sorted(sight.forbidden)
    }


def _why_silent(node: str | None) -> str:
    return "no node leads it" if node is None else f"its leader, node {node}, does not answer"


def _by_reason(away: Mapping[TopicPartition, str]) -> list[str]:
    reasons: dict[str, list[TopicPartition]] = {}
    for partition, why in sorted(away.items()):
        reasons.setdefault(why, []).append(partition)
    return [
        f"{first_of(partitions, MOST_NAMED)} cannot be read: {why}"
        for why, partitions in reasons.items()
    ]

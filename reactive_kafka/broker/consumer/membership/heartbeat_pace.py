"""How often members send heartbeats, in both protocols. Pure.

A member learns of a rebalance only from the answer to a heartbeat. The partitions of a member that
has left have no owner until the last of the others has learned of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import floor

from reactive_kafka.records import TopicPartition

QUICK_BEAT_S = 0.75
"""Seconds between two heartbeats. Java's clients wait 3 s in a classic group.

In the consumer protocol brokers ask for one every 5 s.
"""

ALL_OWNED_BEAT_S = 2.0
"""The same for a member that owns all partitions of its topics: no partition can come to it."""

SETTLING_BEAT_S = 0.25
"""The same while the group settles.

One rebalance often follows another. A cooperative member gives up partitions, and the group has to
rebalance again. A service stops and is started again.
"""

SETTLING_S = 4.0
"""For how many seconds after a rebalance the group is expected to settle."""


def usual_beat_s(
    owned: Collection[TopicPartition],
    topics: Iterable[str],
    partitions: Mapping[str, Iterable[int]],
) -> float:
    """Return the seconds between two heartbeats of a member in a settled group.

    Args:
        owned: What the member owns.
        topics: What it reads.
        partitions: Topic -> its partitions, for the topics that the client has seen.
    """
    owns_all = all(
        topic in partitions
        and all(TopicPartition(topic, number) in owned for number in partitions[topic])
        for topic in topics
    )
    return ALL_OWNED_BEAT_S if owns_all else QUICK_BEAT_S


def next_beat_at(now: float, changed_at: float, interval_s: float) -> float:
    """Return when the heartbeat after the one of *now* is to be sent.

    It is at a multiple of the interval, so that all members of a process wake its loop together:
    with a hundred channels at rest these wakes are most of the cost.

    Args:
        now: A monotonic time, in seconds.
        changed_at: The time of the last rebalance.
        interval_s: In a settled group.
    """
    if now < changed_at + SETTLING_S:
        interval_s = min(interval_s, SETTLING_BEAT_S)
    return (floor(now / interval_s) + 1) * interval_s

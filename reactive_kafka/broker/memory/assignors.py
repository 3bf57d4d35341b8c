"""The assignors: which member of a group gets which partitions. Pure.

``topics``: topic -> number of partitions. ``members``: member id -> topics that it subscribes to.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.records import TopicPartition

Shares = dict[str, frozenset[TopicPartition]]


def range_shares(topics: Mapping[str, int], members: Mapping[str, frozenset[str]]) -> Shares:
    """Return member id -> its partitions: of each topic a range, one more for the first members.

    Source: Kafka's RangeAssignor.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for topic, partitions in topics.items():
        takers = sorted(member for member, read in members.items() if topic in read)
        first = 0
        for index, taker in enumerate(takers):
            past = first + partitions // len(takers) + (index < partitions % len(takers))
            shares[taker].update(TopicPartition(topic, number) for number in range(first, past))
            first = past
    return {member: frozenset(share) for member, share in shares.items()}


def sticky_shares(
    topics: Mapping[str, int],
    members: Mapping[str, frozenset[str]],
    owners: Mapping[TopicPartition, str],
) -> Shares:
    """Return member id -> its partitions: what it owns already, as far as shares stay even.

    ``owners``: partition -> member id that owns it. Both may not exist any more.

    Source: Kafka's CooperativeStickyAssignor, in what it achieves.
    """
    shares: dict[str, set[TopicPartition]] = {member: set() for member in sorted(members)}
    readers = {
        topic: [member for member in shares if topic in members[member]] for topic in sorted(topics)
    }
    partitions = [
        TopicPartition(topic, number) for topic in readers for number in range(topics[topic])
    ]
    for partition in partitions:
        if owners.get(partition) in readers[partition.topic]:
            shares[owners[partition]].add(partition)
    for partition in partitions:
        takers = readers[partition.topic]
        if takers and owners.get(partition) not in takers:
            shares[min(takers, key=lambda member: len(shares[member]))].add(partition)
    while _move_one(shares, members):
        pass
    return {member: frozenset(share) for member, share in shares.items()}


def _move_one(
    shares: dict[str, set[TopicPartition]], members: Mapping[str, frozenset[str]]
) -> bool:
    """Move a partition to a member with at least two less. False if no member has too many."""
    by_size = sorted(shares, key=lambda member: len(shares[member]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            movable = [
                partition for partition in shares[giver] if partition.topic in members[taker]
            ]
            if movable:
                moved = max(movable)
                shares[giver].remove(moved)
                shares[taker].add(moved)
                return True
    return False

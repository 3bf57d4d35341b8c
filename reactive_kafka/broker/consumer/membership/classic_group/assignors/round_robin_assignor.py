"""The ``roundrobin`` assignor: all partitions are dealt to the members in turn. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
    Shares,
    ordered,
    readers_of,
)
from reactive_kafka.records import TopicPartition


class RoundRobinAssignor:
    """Deals partitions like cards, and passes over members that do not read the topic.

    Gives the same result as Java's ``RoundRobinAssignor``.
    """

    name = "roundrobin"
    is_cooperative = False

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> Shares:
        shares: Shares = {member_id: set() for member_id in members}
        readers = readers_of(members, partitions)
        turns = deque(ordered(members))
        for topic in sorted(partitions):
            # Without a reader the search for one would have no end.
            if not readers[topic]:
                continue
            for number in partitions[topic]:
                while topic not in members[turns[0]].topics:
                    turns.rotate(-1)
                shares[turns[0]].add(TopicPartition(topic, number))
                turns.rotate(-1)
        return shares

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        return b""

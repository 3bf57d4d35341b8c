"""What an assignor is given, and what it returns. Pure.

The leader of a classic group calls the assignor that all members offer. To write one, implement
:class:`Assignor`; it needs no base class:

    class EverythingToTheFirst:
        name = "everything-to-the-first"
        is_cooperative = False

        def assign(self, members, partitions, replica_racks):
            shares = {member_id: set() for member_id in members}
            first = ordered(members)[0]
            for topic in members[first].topics:
                shares[first].update(
                    TopicPartition(topic, number) for number in partitions.get(topic, ())
                )
            return shares

        def user_data(self, owned, generation):
            return b""
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reactive_kafka.records import TopicPartition

# The generation of a member that has not been in the group before, or does not say.
NO_GENERATION = -1

Shares = dict[str, set[TopicPartition]]
"""Member id -> the partitions that it gets."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member has told the leader when it joined.

    Source: ``ConsumerProtocolSubscription``, versions 0 to 3.
    """

    # The topics that it reads. Some may not exist.
    topics: frozenset[str]
    # What the assignor of that member has added, see Assignor.user_data().
    user_data: bytes = b""
    # What it owned when it joined. A member that revokes everything before it joins owns nothing.
    owned: frozenset[TopicPartition] = frozenset()
    # The generation in which it was assigned that.
    generation: int = NO_GENERATION
    rack: str | None = None
    # The ``group.instance.id`` of a static member.
    instance_id: str | None = None


class Assignor(Protocol):
    """Distributes the partitions of a group among its members. Runs in the leader only.

    The same input must give the same result in every process: the leader may change at any time.
    """

    @property
    def name(self) -> str:
        """The name under which the members of a group agree on this assignor."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members may keep their partitions while they join again (KIP-429).

        If so, assign() must not give a partition to a member while another one still owns it.
        """

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> Shares:
        """Return the partitions of each member; an empty set for a member that gets none.

        Args:
            members: Member id -> what it told when it joined. Never empty.
            partitions: Topic -> its partitions in ascending order. Has every topic that a member
                reads and that exists.
            replica_racks: Partition -> racks in which it has a replica. Empty if racks are unknown.
        """

    def user_data(self, owned: frozenset[TopicPartition], generation: int) -> bytes:
        """Return what this member tells the leader's assignor when it joins.

        Args:
            owned: What this member owned last, also if it has revoked that to join.
            generation: The generation in which it was assigned that, -1 if there is none.
        """


def ordered(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return member ids in the order in which Java's assignors go through them.

    Static members come first, by their instance ids: their places survive a restart, which changes
    the member id. Other members follow by member id. Source: ``AbstractPartitionAssignor``.
    """

    def key(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].instance_id
        is_dynamic = instance_id is None
        return is_dynamic, java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=key)


def java_order(text: str) -> bytes:
    """Return a key that sorts as Java's strings do, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def readers_of(
    members: Mapping[str, MemberSubscription], topics: Iterable[str]
) -> dict[str, list[str]]:
    """Return topic -> ids of the members that read it, in their order."""
    readers: dict[str, list[str]] = {topic: [] for topic in topics}
    for member_id in ordered(members):
        for topic in members[member_id].topics:
            if topic in readers:
                readers[topic].append(member_id)
    return readers

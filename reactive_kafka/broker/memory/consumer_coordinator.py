"""The coordinator of a group with the consumer protocol (KIP-848): epochs and assignments. Pure.

Source: Kafka's ``GroupMetadataManager`` and ``CurrentAssignmentBuilder`` (4.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    JOINS,
    STATIC_LEAVES,
    TopicIdPartition,
)

SESSION_S = 45.0
"""Kafka's default of group.consumer.session.timeout.ms."""
INTERVAL_MS = 5_000
"""Kafka's default of group.consumer.heartbeat.interval.ms."""
UNKNOWN_MEMBER_ID = 25
FENCED_INSTANCE_ID = 82
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111


@dataclass
class KnownMember:
    """What the coordinator knows of a member."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    topics: frozenset[str] = frozenset()
    assigned: frozenset[TopicIdPartition] = frozenset()
    pending_revocation: frozenset[TopicIdPartition] = frozenset()
    session_ends_at: float = 0.0
    rebalance_timeout_s: float = inf
    # When a revocation has to be over.
    revoked_by: float = inf
    has_left_for_a_while: bool = False
    # It sends the requests of the classic protocol, whose generation is its member epoch.
    is_classic: bool = False


@dataclass
class ConsumerCoordinator:
    """The rules of one group: it answers heartbeats, and assigns.

    A member that gives up partitions says so with a heartbeat, and only then another one gets them.
    Members that are not concerned are not touched.

    A group may have members of the classic protocol, too, as long as it has one of the consumer
    protocol. They join again after each change of the epoch.

    Args:
        topics: Topic -> its id and the number of its partitions.
    """

    topics: dict[str, tuple[bytes, int]]
    members: dict[str, KnownMember] = field(default_factory=dict)
    group_epoch: int = 0
    target_epoch: int = 0
    target: dict[str, frozenset[TopicIdPartition]] = field(default_factory=dict)

    def heartbeat(self, values: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Answer a heartbeat."""
        epoch = values["member_epoch"]
        member_id = values["member_id"]
        if epoch < 0:
            return self._leave(values)
        member = self.members.get(member_id)
        if epoch == JOINS:
            refusal = self._join(values)
            if refusal:
                return refused(refusal)
            member = self.members[member_id]
        elif member is None:
            return refused(UNKNOWN_MEMBER_ID)
        owned = _partitions(values["topic_partitions"])
        if epoch and epoch != member.epoch:
            is_repeated = epoch == member.previous_epoch
            if not is_repeated or owned is None or not owned <= member.assigned:
                return refused(FENCED_MEMBER_EPOCH)
        member.session_ends_at = now + SESSION_S
        if values["rebalance_timeout_ms"] >= 0:
            member.rebalance_timeout_s = values["rebalance_timeout_ms"] / 1000
        topics = values["subscribed_topic_names"]
        if topics is not None and frozenset(topics) != member.topics:
            # A new member, which has neither, has raised the epoch already.
            self.group_epoch += bool(member.topics or member.epoch)
            member.topics = frozenset(topics)
        self._update_target()
        before = member.assigned
        self._reconcile(member, owned, now)
        is_full = topics is not None and owned is not None
        has_assignment = epoch == 0 or is_full or member.assigned != before
        return {
            "error_code": 0,
            "error_message": None,
            "member_id": member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": INTERVAL_MS,
            "assignment": _assignment(member.assigned) if has_assignment else None,
        }

    def take_over(
        self,
        generation: int,
        topics: Mapping[str, frozenset[str]],
        assigned: Mapping[str, frozenset[TopicIdPartition]],
        rebalance_timeouts_s: Mapping[str, float],
    ) -> None:
        """Become the coordinator of a group that was classic, and may be empty.

        Its members stay members. What they own stays theirs until they join again.

        Args:
            generation: The last generation of the classic group, which becomes the group's epoch.
            topics: Member id -> the topics that it reads.
            assigned: Member id -> what it owns.
            rebalance_timeouts_s: Member id -> how long it may take to join again.
        """
        self.group_epoch = generation
        self.target_epoch = generation
        self.target = dict(assigned)
        self.members = {
            member_id: KnownMember(
                member_id,
                epoch=generation,
                previous_epoch=generation,
                topics=read,
                assigned=assigned[member_id],
                session_ends_at=inf,
                rebalance_timeout_s=rebalance_timeouts_s[member_id],
                is_classic=True,
            )
            for member_id, read in topics.items()
        }

    def hand_over(self) -> set[str]:
        """Give all members to a classic group, whose generation is the group's epoch.

        Returns:
            The ids of members that are behind that epoch.
        """
        behind = {one.member_id for one in self.members.values() if one.epoch != self.group_epoch}
        self.members = {}
        self.target = {}
        return behind

    def has_only_classic_members(self) -> bool:
        """True if the last member of the consumer protocol has gone, and others are left."""
        return bool(self.members) and all(one.is_classic for one in self.members.values())

    def add_classic(
        self, member_id: str, topics: frozenset[str], rebalance_timeout_s: float
    ) -> None:
        """Take in a member of the classic protocol, which has to join again to be in the epoch."""
        self.members[member_id] = KnownMember(
            member_id,
            topics=topics,
            session_ends_at=inf,
            rebalance_timeout_s=rebalance_timeout_s,
            is_classic=True,
        )
        self.group_epoch += 1

    def must_rejoin(self, member_id: str, now: float) -> bool:
        """Answer a heartbeat of a classic member. True: a rebalance is in progress.

        From then on it has its ``rebalance_timeout_ms`` to join again.
        """
        member = self.members[member_id]
        taken = self._taken_by_others(member)
        coming = self.target.get(member_id, frozenset()) - member.assigned
        if (
            # It was told before, or has to say what it has given up.
            member.revoked_by < inf
            or member.epoch < self.group_epoch
            or (coming and not coming & taken)
        ):
            member.revoked_by = min(member.revoked_by, now + member.rebalance_timeout_s)
            return True
        return False

    def rejoin(
        self, member_id: str, topics: frozenset[str], owned: frozenset[TopicIdPartition], now: float
    ) -> KnownMember:
        """Answer the JoinGroup and the SyncGroup of a classic member.

        Args:
            member_id: The member.
            topics: What it reads.
            owned: What it owns and will give up only after it knows its assignment. An eager member
                has given up everything.
            now: Of the loop's clock.
        """
        member = self.members[member_id]
        if topics != member.topics:
            self.group_epoch += 1
            member.topics = topics
        self._update_target()
        member.revoked_by = inf
        self._reconcile(member, owned, now)
        return member

    def expire(self, now: float) -> list[str]:
        """Remove members whose session, or whose time for a revocation, is over.

        Returns their ids.
        """
        over = [one.member_id for one in self.members.values() if now >= _ends_at(one)]
        for member_id in over:
            self.remove(member_id)
        return over

    def next_end(self) -> float:
        """Return when the first member has to be removed unless it sends a heartbeat."""
        return min(map(_ends_at, self.members.values()), default=inf)

    def renew_sessions(self, now: float) -> None:
        """Give each member a whole session, as a coordinator does that has been restarted.

        What it has to revoke, it has its whole time for, too.
        """
        for member in self.members.values():
            member.session_ends_at = max(member.session_ends_at, now + SESSION_S)
            if member.revoked_by < inf:
                member.revoked_by = max(member.revoked_by, now + member.rebalance_timeout_s)

    def remove(self, member_id: str) -> None:
        """Remove a member, whose partitions are free at once.

        With the last member of the consumer protocol the group becomes classic, in the same epoch.
        """
        self.members.pop(member_id, None)
        self.target.pop(member_id, None)
        if not self.has_only_classic_members():
            self.group_epoch += 1

    def begin_epoch(self) -> None:
        """Assign anew with the next heartbeat, although nothing has changed."""
        self.group_epoch += 1

    def change_topics(self, topics: Mapping[str, tuple[bytes, int]]) -> None:
        """Take in which topics there are now. If a member reads one that changed, assign anew."""
        read = {topic for member in self.members.values() for topic in member.topics}
        if any(self.topics.get(topic) != topics.get(topic) for topic in read):
            self.group_epoch += 1
        self.topics = dict(topics)

    def is_stable(self) -> bool:
        """True if each member has what it should have."""
        return not self.members or (
            self.target_epoch == self.group_epoch
            and all(
                one.epoch == self.target_epoch
                and not one.pending_revocation
                and one.assigned == self.target.get(one.member_id, frozenset())
                for one in self.members.values()
            )
        )

    def state(self) -> str:
        """Return the state of the group, in Kafka's words."""
        if not self.members:
            return "Empty"
        if self.target_epoch != self.group_epoch:
            return "Assigning"
        return "Stable" if self.is_stable() else "Reconciling"

    def _join(self, values: Mapping[str, Any]) -> int:
        """Take in a member. Returns the error code of a refusal, or 0."""
        member_id = values["member_id"]
        instance_id = values["instance_id"]
        if instance_id is not None:
            others = [
                one
                for one in self.members.values()
                if one.instance_id == instance_id and one.member_id != member_id
            ]
            for other in others:
                if not other.has_left_for_a_while:
                    return UNRELEASED_INSTANCE_ID
                # The new member takes the place, and the partitions, of the static one.
                del self.members[other.member_id]
                self.target[member_id] = self.target.pop(other.member_id, frozenset())
                self.members[member_id] = KnownMember(
                    member_id, instance_id, topics=other.topics, assigned=other.assigned
                )
        if member_id not in self.members:
            self.members[member_id] = KnownMember(member_id, instance_id)
            self.group_epoch += 1
        return 0

    def _leave(self, values: Mapping[str, Any]) -> dict[str, Any]:
        member = self.members.get(values["member_id"])
        if member is None:
            return refused(UNKNOWN_MEMBER_ID)
        if values["member_epoch"] == STATIC_LEAVES:
            member.has_left_for_a_while = True
            member.epoch = STATIC_LEAVES
        else:
            self.remove(member.member_id)
        return {
            "error_code": 0,
            "error_message": None,
            "member_id": values["member_id"],
            "member_epoch": values["member_epoch"],
            "heartbeat_interval_ms": 0,
            "assignment": None,
        }

    def _update_target(self) -> None:
        """Assign all partitions, and leave them where they are as far as that is balanced."""
        if self.target_epoch == self.group_epoch:
            return
        self.target_epoch = self.group_epoch
        kept: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in self.members}
        for topic, (topic_id, count) in sorted(self.topics.items()):
            readers = sorted(one.member_id for one in self.members.values() if topic in one.topics)
            if not readers:
                continue
            least, larger_shares = divmod(count, len(readers))
            of_topic: dict[str, int] = dict.fromkeys(readers, 0)
            free = []
            for number in range(count):
                partition = TopicIdPartition(topic_id, number)
                owner = next(
                    (one for one in readers if partition in self.target.get(one, ())), None
                )
                is_larger = owner is not None and of_topic[owner] == least
                if owner is None or of_topic[owner] > least or (is_larger and not larger_shares):
                    free.append(partition)
                    continue
                larger_shares -= is_larger
                of_topic[owner] += 1
                kept[owner].append(partition)
            for partition in free:
                owner = min(readers, key=lambda one: (of_topic[one], one))
                of_topic[owner] += 1
                kept[owner].append(partition)
        self.target = {member_id: frozenset(owned) for member_id, owned in kept.items()}

    def _reconcile(
        self, member: KnownMember, owned: frozenset[TopicIdPartition] | None, now: float
    ) -> None:
        """Bring a member as near to its target as the others allow."""
        if member.pending_revocation:
            still_owns = owned is None or bool(owned & member.pending_revocation)
            if still_owns:
                return
            member.pending_revocation = frozenset()
            member.revoked_by = inf
        target = self.target.get(member.member_id, frozenset())
        stays = member.assigned & target
        goes = member.assigned - target
        if goes and (owned is None or owned & goes):
            member.assigned = stays
            member.pending_revocation = goes
            member.revoked_by = now + member.rebalance_timeout_s
            return
        member.assigned = stays | (target - self._taken_by_others(member))
        if member.epoch != self.target_epoch:
            member.previous_epoch = member.epoch
            member.epoch = self.target_epoch

    def _taken_by_others(self, member: KnownMember) -> set[TopicIdPartition]:
        """Return what other members own, or have not given up yet."""
        return {
            partition
            for one in self.members.values()
            if one is not member
            for partition in one.assigned | one.pending_revocation
        }


def _ends_at(member: KnownMember) -> float:
    return min(member.session_ends_at, member.revoked_by)


def _partitions(topics: Any) -> frozenset[TopicIdPartition] | None:
    if topics is None:
        return None
    return frozenset(
        TopicIdPartition(topic["topic_id"], number)
        for topic in topics
        for number in topic["partitions"]
    )


def _assignment(partitions: frozenset[TopicIdPartition]) -> dict[str, Any]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(number)
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in by_topic.items()
        ]
    }


def refused(code: int) -> dict[str, Any]:
    """Return the answer that refuses a heartbeat with an error code."""
    return {
        "error_code": code,
        "error_message": None,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval_ms": 0,
        "assignment": None,
    }

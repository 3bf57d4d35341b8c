"""What the leader of a generation does: it distributes the partitions among all members. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    Assignor,
    MemberSubscription,
    Shares,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.cooperative_assignor import (
    generation_of,
)
from reactive_kafka.broker.consumer.membership.classic_group.subscription_codec import (
    MemberDataError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from reactive_kafka.records import TopicPartition

STABLE_GROUP = "Stable"
"""The state of a group whose members have their assignments, in an answer to DescribeGroups."""


class AssignorError(ValueError):
    """An assignor has raised, or its result cannot be used. The text names the assignor."""


@dataclass(frozen=True, slots=True)
class LedGroup:
    """The members of a generation, as their leader sees them."""

    assignor: Assignor
    members: Mapping[str, MemberSubscription]
    # What is wrong with members whose metadata cannot be read. They get no partitions.
    problems: Sequence[str] = field(default=())

    @property
    def topics(self) -> frozenset[str]:
        """All topics that a member reads."""
        return frozenset[str]().union(*(member.topics for member in self.members.values()))

    def plan(
        self,
        partitions: Mapping[str, Sequence[int]],
        replica_racks: Mapping[TopicPartition, frozenset[str]],
    ) -> list[dict[str, Any]]:
        """Return the assignments of all members, as values of a SyncGroup request.

        Args:
            partitions: Topic -> its partitions in ascending order, for the topics that exist.
            replica_racks: Partition -> racks of its replicas.

        Raises:
            AssignorError: The assignor has raised, has given a partition to two members, or has
                given what is no partition.
        """
        name = self.assignor.name
        read = {topic: partitions[topic] for topic in self.topics if partitions.get(topic)}
        try:
            shares = self.assignor.assign(self.members, read, replica_racks)
            problem = self._problem_of(shares)
        except Exception as error:
            # The user's own assignor may raise anything.
            raise AssignorError(
                f"the assignor {name!r} has raised {type(error).__name__}: {error}"
            ) from error
        if problem is not None:
            raise AssignorError(f"the assignor {name!r} {problem}")
        return [
            {"member_id": member_id, "assignment": self._encoded(shares.get(member_id, ()))}
            for member_id in self.members
        ]

    def _encoded(self, share: Collection[TopicPartition]) -> bytes:
        try:
            return encode_assignment(share)
        except (TypeError, ValueError) as error:
            name = self.assignor.name
            raise AssignorError(
                f"the assignor {name!r} has given what is no set of partitions: {error}"
            ) from error

    def _problem_of(self, shares: Shares) -> str | None:
        """Return why the shares cannot be used, None if they can."""
        if strangers := shares.keys() - self.members.keys():
            return f"has given partitions to {min(strangers)!r}, which is no member"
        takers: dict[TopicPartition, str] = {}
        for member_id, share in shares.items():
            for partition in share:
                if (other := takers.setdefault(partition, member_id)) != member_id:
                    return f"has given {partition} to both {other!r} and {member_id!r}"
        if not self.assignor.is_cooperative:
            return None
        for member_id, member in self.members.items():
            for partition in member.owned:
                taker = takers.get(partition, member_id)
                if taker != member_id and not _owns_it_by_now(
                    self.members[taker], member, partition
                ):
                    return f"has given {partition} to {taker!r} while {member_id!r} owns it"
        return None


def _owns_it_by_now(
    taker: MemberSubscription, other: MemberSubscription, partition: TopicPartition
) -> bool:
    """Return whether the other member says that it owns the partition, but has lost it before."""
    return partition in taker.owned and generation_of(taker) > generation_of(other)


def led_group(answer: Mapping[str, Any], assignors: Iterable[Assignor]) -> LedGroup:
    """Return the group of a JoinGroup answer that makes this member the leader."""
    chosen = {assignor.name: assignor for assignor in assignors}[answer["protocol_name"]]
    members = {}
    problems = []
    for entry in answer["members"]:
        member_id = entry["member_id"]
        instance_id = entry["group_instance_id"]
        try:
            members[member_id] = decode_subscription(
                bytes(entry["metadata"]), member_id, instance_id
            )
        except MemberDataError as error:
            problems.append(str(error))
            # It is a member of the group, so it must be in the answer.
            members[member_id] = MemberSubscription(frozenset(), instance_id=instance_id)
    return LedGroup(chosen, members, tuple(problems))


def partitions_kept(answer: Mapping[str, Any]) -> frozenset[TopicPartition] | None:
    """Return the partitions that the members of a stable group have.

    Args:
        answer: The values of an answer to DescribeGroups, about one group.

    Returns:
        None: the coordinator does not tell, or the group rebalances.
    """
    [group] = answer["groups"]
    if group["error_code"] or group["group_state"] != STABLE_GROUP:
        return None
    kept: set[TopicPartition] = set()
    for member in group["members"]:
        name = f"the leader of member {member['member_id']!r}"
        with suppress(MemberDataError):
            kept |= decode_assignment(bytes(member["member_assignment"]), name)
    return frozenset(kept)

"""Groups for assignors: drawn from a seed, described for Java, and judged."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    Assignor,
    MemberSubscription,
    Shares,
)
from reactive_kafka.broker.jars import find_java, kafka_jars
from reactive_kafka.records import TopicPartition

PROGRAM = Path(__file__).parent / "Assignments.java"


@dataclass(frozen=True)
class GroupCase:
    """What an assignor is given."""

    members: dict[str, MemberSubscription]
    partitions: dict[str, Sequence[int]]
    racks: dict[TopicPartition, frozenset[str]]

    def assign(self, assignor: Assignor) -> Shares:
        return assignor.assign(self.members, self.partitions, self.racks)

    def existing(self) -> set[TopicPartition]:
        """The partitions of topics that a member reads."""
        read = set().union(*(member.topics for member in self.members.values()))
        return {
            TopicPartition(topic, number)
            for topic, numbers in self.partitions.items()
            for number in numbers
            if topic in read
        }

    def owners(self) -> dict[TopicPartition, str]:
        return {it: name for name, member in self.members.items() for it in member.owned}

    def with_owned(
        self, shares: Mapping[str, Iterable[TopicPartition]], generation: int
    ) -> GroupCase:
        """The same group after a generation: each member says what it was given."""
        members = {
            name: replace(member, owned=frozenset(shares.get(name, ())), generation=generation)
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def with_user_data(self, assignor: Assignor) -> GroupCase:
        """The same group as eager members describe it: nothing is owned, the rest is user data."""
        members = {
            name: replace(
                member,
                owned=frozenset(),
                generation=-1,
                user_data=assignor.user_data(member.owned, member.generation),
            )
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def described(self, assignor: str) -> str:
        """The lines that Assignments.java reads."""
        lines = [f"case {assignor}"]
        for topic, numbers in self.partitions.items():
            racks = [
                ",".join(sorted(self.racks.get(TopicPartition(topic, number), ()))) or "-"
                for number in numbers
            ]
            lines.append(" ".join(["topic", topic, *racks]))
        for name, member in self.members.items():
            words = [
                "member",
                name,
                member.instance_id or "-",
                member.rack or "-",
                str(member.generation),
                member.user_data.hex() or "-",
                ",".join(sorted(member.topics)) or "-",
                *(f"{topic}:{number}" for topic, number in sorted(member.owned)),
            ]
            lines.append(" ".join(words))
        return "\n".join([*lines, "end", ""])


def drawn_case(
    draw: random.Random, *, are_equal: bool = False, with_racks: bool = False, most: int = 8
) -> GroupCase:
    """A group of a few members and topics. The members own nothing yet."""
    topics = [f"t{number}" for number in range(draw.randint(1, 5))]
    sizes = {topic: range(draw.randint(1, most)) for topic in topics}
    if draw.random() < 0.5:
        sizes = dict.fromkeys(topics, sizes["t0"])
    zones = [f"rack{number}" for number in range(draw.randint(1, 4))]
    members = {}
    for number in range(draw.randint(1, most)):
        read = (
            topics if are_equal else draw.sample([*topics, "missing"], draw.randint(1, len(topics)))
        )
        members[f"m{draw.randint(0, 99)}-{number}"] = MemberSubscription(
            topics=frozenset(read),
            rack=draw.choice([*zones, "elsewhere", None]) if with_racks else None,
            instance_id=f"i{99 - number}" if draw.random() < 0.3 else None,
        )
    racks = {}
    if with_racks:
        width = draw.randint(1, len(zones))
        for topic, numbers in sizes.items():
            for number in numbers:
                racks[TopicPartition(topic, number)] = frozenset(draw.sample(zones, width))
    return GroupCase(members, dict(sizes), racks)


def changed_case(draw: random.Random, case: GroupCase) -> GroupCase:
    """The same group after members came or left, a topic grew, or a member reads other topics."""
    members = dict(case.members)
    partitions = dict(case.partitions)
    for _ in range(draw.randint(0, 3)):
        if len(members) > 1:
            del members[draw.choice(list(members))]
    for number in range(draw.randint(0, 3)):
        topics = draw.choice(list(case.members.values())).topics
        members[f"new{draw.randint(0, 9)}-{number}"] = MemberSubscription(topics)
    if draw.random() < 0.3:
        topic = draw.choice(list(partitions))
        partitions[topic] = range(len(partitions[topic]) + draw.randint(1, 5))
    return replace(case, members=members, partitions=partitions)


def spread(case: GroupCase, shares: Shares) -> list[int]:
    """The sizes of the shares, the largest first: a smaller list is better balanced."""
    return sorted((len(shares.get(name, ())) for name in case.members), reverse=True)


def moves(owners: Mapping[TopicPartition, str], shares: Shares) -> int:
    """How many partitions another member gets than the one that owns it."""
    return sum(1 for name, share in shares.items() for it in share if owners.get(it, name) != name)


def lines_by_java(told: Iterable[str]) -> list[str]:
    """What Assignments.java prints for these lines."""
    run = [find_java(), "-cp", f"{kafka_jars()}/*", str(PROGRAM)]
    done = subprocess.run(run, input="".join(told), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def by_java(described: Iterable[str]) -> list[Shares]:
    """What Java's assignors make of cases. Members without partitions are missing."""
    found: list[Shares] = []
    shares: Shares = {}
    for line in lines_by_java(described):
        if line == "end":
            found.append(shares)
            shares = {}
        else:
            member_id, topic, number = line.split()
            shares.setdefault(member_id, set()).add(TopicPartition(topic, int(number)))
    return found


def without_empty(shares: Shares) -> Shares:
    return {name: share for name, share in shares.items() if share}

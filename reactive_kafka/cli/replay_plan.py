"""What ``dlq replay`` writes, and which groups store how far it got. No I/O.

How far a topic of dead letters was replayed is the position of a group of our own: one for replays to the topics of
origin, and one for each topic that ``--to`` has named. Both may lead a record to the same topic; so a record that one
of them has written is skipped by the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from reactive_kafka.cli.letters import Refused, ReplayTarget, target_of
from reactive_kafka.cli.offsets_plan import Log
from reactive_kafka.records import RawRecord, TopicPartition

GROUP = "reactive-kafka-replay"
MOST_NAMED = 10

Reached = Mapping[TopicPartition, int]
"""partition of the dead letters -> the position up to which they were replayed."""


def memory_of(letters: str, to: str | None) -> str:
    """The group that stores how far dead letters were replayed: to one topic, or, with None, to their origins."""
    return f"{GROUP}:{letters}" if to is None else f"{GROUP}:{letters}:{to}"


def rest(logs: Mapping[TopicPartition, Log], reached: Reached) -> dict[TopicPartition, Log]:
    """What is left to be replayed.

    Raises:
        ValueError: A position is behind the end of its log; the text names both.
    """
    ranges = {}
    for partition, log in logs.items():
        at = max(reached.get(partition, 0), log.start)
        if at > log.end:
            raise ValueError(f"{partition} ends at {log.end}, and was replayed up to {at}")
        ranges[partition] = Log(at, log.end)
    return ranges


@dataclass(slots=True)
class ReplayPlan:
    """What a replay writes: counted first, confirmed, and then carried out by the same rules.

    Attributes:
        letters: The topic of dead letters.
        to: Where all of them go; None: each to its origin.
        sizes: topic -> number of partitions, of the topics that exist.
        ranges: What is read.
        reached: What this way has passed before it.
        others: What the other ways have passed, by target: with *to*, that of the way to the origins under *to*;
            else those of ``--to`` under the topic that they named.
        counts: target topic -> records that are written there.
        refused: How many stay, and the first of them: partition, offset, why.
        done: Records that were replayed before.
    """

    letters: str
    to: str | None
    sizes: Mapping[str, int]
    ranges: dict[TopicPartition, Log]
    reached: Reached = field(default_factory=dict)
    others: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    refused_count: int = 0
    done: int = 0

    @property
    def memory(self) -> str:
        """The group that stores its position."""
        return memory_of(self.letters, self.to)

    @property
    def memories(self) -> dict[str, Reached]:
        """Every group that the plan has looked at -> its positions then."""
        ways = {memory_of(self.letters, to if self.to is None else None): its for to, its in self.others.items()}
        return {self.memory: self.reached, **ways}

    @property
    def total(self) -> int:
        """Records that are written."""
        return sum(self.counts.values())

    def wanted(self, record: RawRecord) -> tuple[ReplayTarget | Refused, bool]:
        """Where a record would go if it was not replayed before, and whether that is its origin's topic."""
        origin = target_of(record.headers, self.letters, self.sizes)
        if isinstance(origin, ReplayTarget) and self.to in (None, origin.topic):
            return origin, True
        return (origin if self.to is None else ReplayTarget(self.to, None)), False

    def target(self, partition: TopicPartition, record: RawRecord) -> ReplayTarget | Refused | None:
        """Where a record goes; None: it was replayed before."""
        wanted, is_origin = self.wanted(record)
        if isinstance(wanted, Refused) or not is_origin:
            return wanted
        return None if record.offset < self.others.get(wanted.topic, {}).get(partition, 0) else wanted

    def count(self, partition: TopicPartition, record: RawRecord) -> None:
        """Count a record that will be read."""
        target = self.target(partition, record)
        if target is None:
            self.done += 1
        elif isinstance(target, ReplayTarget):
            self.counts[target.topic] += 1
        else:
            self.refused_count += 1
            if len(self.refused) < MOST_NAMED:
                self.refused.append((partition, record.offset, target.why))

    def cut(self, partition: TopicPartition, until: int) -> None:
        """Read no further than this: what comes after it, and all later partitions, are left to another replay."""
        start, _ = self.ranges[partition]
        self.ranges = {tp: log for tp, log in self.ranges.items() if tp < partition} | {partition: Log(start, until)}

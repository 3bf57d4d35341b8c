"""What a channel or a client reads: topics by name, topics by pattern, or partitions without a group's assignment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from reactive_kafka.records import TopicPartition

INTERNAL = "__"  # the names of the broker's own topics begin with it


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics, shared with the other members of the group."""

    topics: tuple[str, ...]

    def reads(self, topic: str) -> bool:
        """Whether records of *topic* are read, of all of its partitions or some."""
        return topic in self.topics

    def includes(self, partition: TopicPartition) -> bool:
        """Whether this partition is read, by this member of the group or by another one."""
        return self.reads(partition.topic)


@dataclass(frozen=True, slots=True)
class Pattern:
    """All topics whose whole name matches a regular expression, also those created later.

    The broker's own topics never match, or ``.*`` would read ``__consumer_offsets``: each commit would be a record
    to read, and reading it would cause the next commit.
    """

    regex: str
    topics: ClassVar[tuple[str, ...]] = ()  # none is known by name

    def reads(self, topic: str) -> bool:
        return not topic.startswith(INTERNAL) and re.fullmatch(self.regex, topic) is not None

    def includes(self, partition: TopicPartition) -> bool:
        return self.reads(partition.topic)


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions and no others, without joining a group."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Their topics, each once, in the order in which they are named."""
        return tuple(dict.fromkeys(partition.topic for partition in self.partitions))

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def includes(self, partition: TopicPartition) -> bool:
        return partition in self.partitions


Subscription = Topics | Pattern | Partitions  # a client reads exactly one of the three

"""What a channel or a client reads: topics by name, topics by pattern, or partitions without a
group's assignment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from reactive_kafka.records import TopicPartition

# The names of the broker's own topics begin with it.
INTERNAL = "__"


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

    The broker's own topics never match, or ``.*`` would read ``__consumer_offsets``: each commit
    would be a record to read, and reading it would cause the next commit.
    """

    regex: str
    # None is known by name.
    topics: ClassVar[tuple[str, ...]] = ()

    def reads(self, topic: str) -> bool:
        return not topic.startswith(INTERNAL) and re.fullmatch(self.regex, topic) is not None

    def includes(self, partition: TopicPartition) -> bool:
        return self.reads(partition.topic)


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions, and all of whole topics (also those that appear later), without joining a
    group.
    """

    partitions: tuple[TopicPartition, ...]
    whole: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """Their topics, each once, in the order in which they are named; whole ones last."""
        return tuple(
            dict.fromkeys([*(partition.topic for partition in self.partitions), *self.whole])
        )

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def includes(self, partition: TopicPartition) -> bool:
        return partition in self.partitions or partition.topic in self.whole


# A client reads exactly one of the three.
Subscription = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True)
class Ranges:
    """The offsets of one partition that are read: each pair from its start up to its end, which is
    not read.

    The pairs ascend, and there is a hole between one and the next.
    """

    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Ranges as they are given; those that touch become one. ValueError: not in order, or of no
        offset.
        """
        joined: list[tuple[int, int]] = []
        for start, end in pairs:
            if end <= start:
                raise ValueError(
                    f"{start}..{end} ends before it begins"
                    if end < start
                    else f"{start}..{end} is empty"
                )
            if joined and start < joined[-1][1]:
                what = "begins before the end of" if end > joined[-1][0] else "comes after"
                raise ValueError(f"{start}..{end} {what} {joined[-1][0]}..{joined[-1][1]}")
            if joined and start == joined[-1][1]:
                start = joined.pop()[0]
            joined.append((start, end))
        return cls(tuple(joined))

    @property
    def start(self) -> int:
        return self.pairs[0][0]

    @property
    def end(self) -> int:
        """The position behind the last offset that is read."""
        return self.pairs[-1][1]

    @property
    def has_holes(self) -> bool:
        return len(self.pairs) > 1

    def after(self, position: int) -> int:
        """Where reading goes on from a position: there, at the start of the next range, or at the
        end of the last.
        """
        at = bisect_right(self.pairs, position, key=lambda pair: pair[1])
        return self.end if at == len(self.pairs) else max(position, self.pairs[at][0])

    def until(self, position: int) -> int:
        """The end of the range that a position lies in, or that comes after it: no hole lies before
        it.
        """
        at = bisect_right(self.pairs, position, key=lambda pair: pair[1])
        return self.pairs[min(at, len(self.pairs) - 1)][1]

    def count(self, start: int, end: int) -> int:
        """How many of the offsets from *start* up to *end* are read."""
        return sum(max(0, min(end, last) - max(start, first)) for first, last in self.pairs)


def read_up_to(
    ranges: Mapping[TopicPartition, Ranges], log_ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where reading comes to its end in these logs: at the end of its ranges, where that comes
    before the log's.
    """
    return {
        one: min(end, ranges[one].end) if one in ranges else end for one, end in log_ends.items()
    }

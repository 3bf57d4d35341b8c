"""What a channel reads: topics by name or by pattern, or fixed partitions, and offset ranges."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from reactive_kafka.records import TopicPartition

# The names of the broker's internal topics begin with it.
INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics, shared with the other members of the group."""

    topics: tuple[str, ...]

    def reads(self, topic: str) -> bool:
        """True if records of *topic* are read, of all of its partitions or some."""
        return topic in self.topics

    def includes(self, partition: TopicPartition) -> bool:
        """True if this partition is read, by this member of the group or by another one."""
        return self.reads(partition.topic)


@dataclass(frozen=True, slots=True)
class Pattern:
    """All topics whose whole name matches a regular expression, also those created later.

    The broker's internal topics never match. Otherwise ``.*`` would read ``__consumer_offsets``:
    each commit would be a record to read, and reading it would cause the next commit.
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
    """Fixed partitions, and all partitions of whole topics, without joining a group.

    Of whole topics, partitions that appear later are read, too.
    """

    partitions: tuple[TopicPartition, ...]
    whole: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """Their topics, each once, in the order in which they are named. Whole topics come last."""
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
    """The offsets of one partition that are read. Each pair is a start and an end (excluded).

    The pairs ascend, and there is a gap between one and the next.
    """

    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Create ranges from pairs. Pairs that touch become one.

        Raises:
            ValueError: The pairs are not in order, or one is empty.
        """
        joined: list[tuple[int, int]] = []
        for start, end in pairs:
            if end < start:
                raise ValueError(f"{start}..{end} ends before it begins")
            if end == start:
                raise ValueError(f"{start}..{end} is empty")
            if joined and start < joined[-1][1]:
                overlaps = end > joined[-1][0]
                what = "begins before the end of" if overlaps else "comes after"
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
        """The position after the last offset that is read."""
        return self.pairs[-1][1]

    @property
    def has_holes(self) -> bool:
        return len(self.pairs) > 1

    def after(self, position: int) -> int:
        """Return where reading continues from *position*.

        That is *position* itself, the start of the next range, or the end of the last one.
        """
        index = bisect_right(self.pairs, position, key=lambda pair: pair[1])
        if index == len(self.pairs):
            return self.end
        return max(position, self.pairs[index][0])

    def until(self, position: int) -> int:
        """Return the end of the range that *position* is in, or of the next one."""
        index = bisect_right(self.pairs, position, key=lambda pair: pair[1])
        return self.pairs[min(index, len(self.pairs) - 1)][1]

    def count(self, start: int, end: int) -> int:
        """Return how many of the offsets from *start* to *end* (excluded) are read."""
        return sum(max(0, min(end, last) - max(start, first)) for first, last in self.pairs)


def read_up_to(
    ranges: Mapping[TopicPartition, Ranges], log_ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return partition -> where reading ends: at the end of its ranges or of its log.

    The earlier of the two counts.
    """
    return {
        partition: min(end, ranges[partition].end) if partition in ranges else end
        for partition, end in log_ends.items()
    }

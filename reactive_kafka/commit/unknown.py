"""Commits of which nobody knows whether they were stored: what has to go over them. No I/O, no clock.

Such a commit may land late, over a newer one, and move the position back. So the first one that succeeds after it is
sent again, at growing intervals, for as long as the other may be on its way.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from reactive_kafka.records import TopicPartition

REPEAT_AFTER_S, REPEAT_UNTIL_S = 1.0, 60.0
"""When the first commit that succeeded behind one of unknown outcome is sent again, each wait twice the one before;
and how long after it: a request that its connection has lost may still be on its way, and then it may not."""


class _Doubt(NamedTuple):
    since: float
    """When the first commit behind the one of unknown outcome succeeded."""
    next_at: float
    """When to send again what is stored by then."""


class UnknownCommits:
    """The partitions with a commit of unknown outcome, of one channel's client."""

    def __init__(self) -> None:
        # What became of the commits behind it (None: none was stored yet).
        self._unknown: dict[TopicPartition, _Doubt | None] = {}
        self._again: set[TopicPartition] = set()  # of those, where it has to be sent again though nothing is new
        self._may_land: dict[TopicPartition, int] = {}  # the lowest position of unknown outcome

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._unknown

    def __bool__(self) -> bool:
        return bool(self._unknown)

    def end(self) -> None:
        """The broker refuses what comes late from here on: the generation is over."""
        self._unknown, self._again = {}, set()

    def forget(self, partition: TopicPartition) -> None:
        """What may be stored for it is another's."""
        self._may_land.pop(partition, None)

    def lowest(self, partition: TopicPartition, position: int) -> int:
        """The lowest position that may be stored, or the one given if that is lower."""
        return min(position, self._may_land.get(partition, position))

    def begun_elsewhere(self, partition: TopicPartition) -> None:
        """A partition is read from another place: it takes a commit from there to end its doubts."""
        self._may_land.pop(partition, None)
        self._again.discard(partition)
        if partition in self._unknown:
            self._unknown[partition] = None

    def unknown(self, partition: TopicPartition, position: int, *, is_repeated: bool) -> None:
        """Nobody knows whether a position was stored.

        Args:
            is_repeated: It had been stored before: nothing new may come that would go over it.
        """
        if is_repeated and self._unknown.get(partition) is not None:
            self._again.add(partition)
        self._unknown[partition] = None
        self._may_land[partition] = min(position, self._may_land.get(partition, position))

    def stored(self, partition: TopicPartition, now: float, *, was_repeated: bool, is_last: bool) -> None:
        """A commit behind one of unknown outcome has succeeded: it ends the doubt, or is to be repeated."""
        if partition not in self._unknown:
            return
        doubt = self._unknown[partition]
        if doubt is None:
            self._again.discard(partition)
            self._unknown[partition] = _Doubt(now, now + REPEAT_AFTER_S)
        elif was_repeated and (is_last or now >= doubt.since + REPEAT_UNTIL_S):
            del self._unknown[partition]
        elif was_repeated:
            next_at = now + max(REPEAT_AFTER_S, now - doubt.since)
            self._unknown[partition] = _Doubt(doubt.since, min(next_at, doubt.since + REPEAT_UNTIL_S))

    def due(self, ours: Collection[TopicPartition], now: float, *, is_last: bool) -> frozenset[TopicPartition]:
        """Where what is stored has to be sent once more."""
        return frozenset(
            partition
            for partition, doubt in self._unknown.items()
            if partition in ours and (partition in self._again if doubt is None else is_last or now >= doubt.next_at)
        )

    def next_at(self, ours: Collection[TopicPartition]) -> float | None:
        """When something has to be sent once more; None: nothing has."""
        doubts = ((partition, doubt) for partition, doubt in self._unknown.items() if partition in ours)
        times = (
            0.0 if doubt is None else doubt.next_at for partition, doubt in doubts if doubt or partition in self._again
        )
        return min(times, default=None)

"""Partitions whose positions the broker refuses to store while it stores those of others. No I/O,
no clock.

A topic was deleted, or the right to read it was withdrawn. Such a partition is committed again by
itself, after a pause that grows: left in every request, it would make each of them fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

BACKOFF = Backoff(0.25, 5.0)


@dataclass(slots=True)
class _Refusal:
    """Why positions of a tracker are not stored, and when to try again by the monotonic clock."""

    tracker: OffsetTracker
    waits: Waits
    reason: str = ""
    again_at: float = -inf


class Refusals:
    """The partitions of one client whose last commit was refused."""

    def __init__(self) -> None:
        self._refused: dict[TopicPartition, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, tracker: OffsetTracker, reason: str, now: float) -> None:
        """A position of a tracker was refused at *now*."""
        known = self._refused.get(tracker.partition)
        if known is None or known.tracker is not tracker:
            known = self._refused[tracker.partition] = _Refusal(tracker, Waits(BACKOFF))
        known.reason = reason
        known.again_at = now + known.waits.next_s()

    def remove(self, partition: TopicPartition) -> None:
        """A position of a partition was stored."""
        self._refused.pop(partition, None)

    def keep(self, planned: Collection[TopicPartition], now: float) -> None:
        """Forget those that could have been tried again at *now*, and of which nothing is due any
        more.
        """
        for partition in [one for one, known in self._refused.items() if known.again_at <= now]:
            if partition not in planned:
                del self._refused[partition]

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether the last commit of a tracker was refused."""
        known = self._refused.get(tracker.partition)
        return known is not None and known.tracker is tracker

    def is_resting(self, tracker: OffsetTracker, now: float) -> bool:
        """Whether it is too early to try a tracker again."""
        return self.has(tracker) and now < self._refused[tracker.partition].again_at

    def again_at(self, trackers: Iterable[OffsetTracker]) -> float:
        """When the first of these trackers is to be tried again; infinite if none was refused."""
        return min(
            (self._refused[one.partition].again_at for one in trackers if self.has(one)),
            default=inf,
        )

    def reasons(self, trackers: Iterable[OffsetTracker]) -> Mapping[TopicPartition, str]:
        """partition -> why its position is not stored, of these trackers."""
        return {
            one.partition: self._refused[one.partition].reason for one in trackers if self.has(one)
        }

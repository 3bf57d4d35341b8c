"""Partitions whose positions the broker refuses, while it stores those of others. No I/O, no clock.

Their topic was deleted, or the right to read it was withdrawn. Such a partition is committed again
by itself, after a pause that grows: in every request it would make each of them fail.
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
    """Why a position of a tracker is not stored, and when to try again."""

    tracker: OffsetTracker
    waits: Waits
    reason: str = ""
    # Monotonic.
    again_at: float = -inf


class Refusals:
    """The partitions of one client whose last commit was refused; true if there are any."""

    def __init__(self) -> None:
        self._refused: dict[TopicPartition, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, tracker: OffsetTracker, reason: str, now: float) -> None:
        """A position of a tracker was refused at *now*."""
        refusal = self._refused.get(tracker.partition)
        if refusal is None or refusal.tracker is not tracker:
            refusal = _Refusal(tracker, Waits(BACKOFF))
            self._refused[tracker.partition] = refusal
        refusal.reason = reason
        refusal.again_at = now + refusal.waits.next_s()

    def remove(self, partition: TopicPartition) -> None:
        """A position of a partition was stored."""
        self._refused.pop(partition, None)

    def keep(self, planned: Collection[TopicPartition], now: float) -> None:
        """Forget the partitions that could be tried again at *now* and have nothing due any more.

        Args:
            planned: Partitions that have something due.
        """
        self._refused = {
            partition: refusal
            for partition, refusal in self._refused.items()
            if refusal.again_at > now or partition in planned
        }

    def has(self, tracker: OffsetTracker) -> bool:
        """Whether the last commit of a tracker was refused."""
        refusal = self._refused.get(tracker.partition)
        return refusal is not None and refusal.tracker is tracker

    def is_resting(self, tracker: OffsetTracker, now: float) -> bool:
        """Whether it is too early to try a tracker again."""
        return self.has(tracker) and now < self._refused[tracker.partition].again_at

    def again_at(self, trackers: Iterable[OffsetTracker]) -> float:
        """When the first of these trackers is to be tried again; infinite if none was refused."""
        times = [
            self._refused[tracker.partition].again_at for tracker in trackers if self.has(tracker)
        ]
        return min(times, default=inf)

    def reasons(self, trackers: Iterable[OffsetTracker]) -> Mapping[TopicPartition, str]:
        """partition -> why its position is not stored, of these trackers."""
        return {
            tracker.partition: self._refused[tracker.partition].reason
            for tracker in trackers
            if self.has(tracker)
        }

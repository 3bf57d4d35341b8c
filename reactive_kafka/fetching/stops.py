"""Which partitions are not fetched, whatever room there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reactive_kafka.commit.uncommitted import UncommittedBound
from reactive_kafka.fetching.read_failures import ReadFailures
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition


class FetchStops:
    """Puts together why partitions of one client are not fetched.

    Args:
        held_back: Returns the partitions that the application has paused, or that other rules of
            the channel hold back.
    """

    def __init__(
        self,
        table: PartitionTable,
        uncommitted: UncommittedBound,
        failures: ReadFailures,
        held_back: Callable[[], Iterable[TopicPartition]],
    ) -> None:
        self._table = table
        self.uncommitted = uncommitted
        self.failures = failures
        self._held_back = held_back

    def now(self, now: float) -> set[TopicPartition]:
        """The partitions that are not fetched at *now* (monotonic)."""
        if self.uncommitted.is_reached:
            return set(self._table.read_names)
        stopped = self.failures.held_back(now)
        stopped.update(self._held_back(), self.uncommitted.held_back())
        if self._table.ranges:
            stopped.update(
                partition.id for partition in self._table.reading if partition.is_read_out
            )
        return stopped

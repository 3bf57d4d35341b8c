"""A commit engine with the verbs of its table, for tests that play assignments without a client."""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka import Committed, IncomingSettings, TopicPartition
from reactive_kafka.commit import commit_engine
from reactive_kafka.commit.strategy import CommitStrategy, ThrottledCommits, strategy_for
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from reactive_kafka.tracking.metadata.user import check_metadata
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import UnknownCommits


def strategy_of(settings: IncomingSettings) -> CommitStrategy:
    """The strategy that the settings of a channel name."""
    return strategy_for(settings)


class CommitEngine(commit_engine.CommitEngine):
    """Of a table of its own."""

    def __init__(
        self,
        strategy: CommitStrategy | None = None,
        *,
        is_static: bool = False,
        unanswered: dict[TopicPartition, UnknownCommits] | None = None,
        metadata: MetadataPolicy | None = None,
    ) -> None:
        table = PartitionTable(is_static=is_static, policy=metadata, unanswered=unanswered)
        super().__init__(
            ThrottledCommits(5.0) if strategy is None else strategy, table, lambda partition: False
        )

    @property
    def trackers(self) -> dict[TopicPartition, OffsetTracker]:
        return self.table.trackers

    @property
    def generation(self) -> int:
        return self.table.generation

    def all_trackers(self) -> list[OffsetTracker]:
        return self.table.all_trackers()

    def has(self, tracker: OffsetTracker) -> bool:
        return self.table.has(tracker)

    def begin(self, generation: int, partitions: Iterable[TopicPartition]) -> list[OffsetTracker]:
        """As :meth:`Assignment.on_assigned`."""
        closed = [
            one.tracker
            for one in self.table.assign(generation, partitions)
            if one.tracker is not None
        ]
        if not self.table.is_static:
            self.end_request()
        return closed

    def replace(self, tracker: OffsetTracker, stored: int | None = None) -> None:
        one = self.table.get(tracker.partition)
        assert one is not None
        self.table.start(one, tracker, stored)

    def left(self, partition: TopicPartition) -> OffsetTracker | None:
        one = self.table.get(partition)
        return None if one is None else one.left

    def take_up(self, partition: TopicPartition, committed: int | None) -> OffsetTracker | None:
        one = self.table.get(partition)
        return None if one is None else self.table.retain(one, committed)

    def drop(self, partition: TopicPartition, *, is_ours: bool = False) -> OffsetTracker | None:
        one = self.table.get(partition)
        return None if one is None else self.table.drop(one, is_ours=is_ours)

    drop_left = drop

    def leave(self) -> list[OffsetTracker]:
        """As :meth:`Assignment.release`, of all partitions."""
        released = [one.tracker for one in self.table.revoke() if one.tracker is not None]
        self.end_request()
        return released

    def close(self) -> list[OffsetTracker]:
        return [one.tracker for one in self.table.close() if one.tracker is not None]

    def found(self, partition: TopicPartition, stored: Committed | None) -> None:
        one = self.table.get(partition)
        if one is not None:
            one.commits.metadata.found(one.live, stored)

    def stored(self, partition: TopicPartition) -> int | None:
        one = self.table.get(partition)
        return None if one is None else one.commits.stored

    def store_metadata(self, partition: TopicPartition, text: str) -> bool:
        check_metadata(text)
        one = self.table.get(partition)
        return one is not None and one.store_metadata(text)

    def metadata_of(self, partition: TopicPartition) -> Committed | None:
        one = self.table.get(partition)
        return None if one is None else one.user_metadata

    def metadata_units(self, tracker: OffsetTracker) -> int:
        one = self.table.partition_of(tracker)
        return 0 if one is None else one.commits.metadata.units(tracker)

    def lacks_plans(self, tracker: OffsetTracker) -> bool:
        one = self.table.partition_of(tracker)
        return one is not None and one.live is tracker and one.commits.lacks_plans(tracker)

    def divide(self, tracker: OffsetTracker) -> bool:
        one = self.table.partition_of(tracker)
        return one is not None and one.live is tracker and one.commits.divide_plan(tracker)

"""Starts to read one partition, once the broker has told what its log and its group have."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.observe.events import Observer, OffsetReset
from reactive_kafka.partitions.logs import Log
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice, Partition
from reactive_kafka.partitions.restore import StoredMetadata
from reactive_kafka.partitions.start import NoPositionError, Start, Where, chosen_position, start_position
from reactive_kafka.records import Committed, TopicPartition


class PartitionStarter:
    """Decides where one partition starts, and tracks it from there. Awaits nothing.

    Args:
        resets: Where to (earliest, latest) -> partitions whose position was reset by policy; counted here.
        fail: Nobody may choose a position: the channel stops.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        owned: OwnedPartitions,
        stored_metadata: StoredMetadata,
        observer: Observer,
        resets: dict[str, int],
        fail: Callable[[BaseException], bool],
    ) -> None:
        self._settings = settings
        self._owned = owned
        self._stored_metadata = stored_metadata
        self._observer = observer
        self._resets = resets
        self._fail = fail

    def start(
        self, one: Partition, stored: int | None, log: Log, *, wanted: int | None = None, is_new: bool = False
    ) -> Start | None:
        """Track a partition from *wanted*, or from what the group has *stored*, if the log has it.

        Returns:
            Where it starts; None if nobody may choose, and the channel stops.
        """
        start = self._decide(one.id, stored if wanted is None else wanted, log, is_new=is_new)
        if start is not None:
            committed = _passed(stored, start.position)
            tracker = OffsetTracker(one.id, start.position, committed=committed, commit_start=start.commit)
            self._owned.start(one, tracker)
        return start

    def start_where_chosen(self, one: Partition, stored: int | None, where: Where, log: Log) -> Start | None:
        """Track a partition from a start that somebody chose; that alone moves no committed position."""
        start = self._decide(one.id, chosen_position(where, log.start, log.end, log.at_time), log)
        one.sought = one.chosen = None  # nothing of that holds for a later client, or a later assignment
        if start is not None:
            # The first commit follows the first record that is settled, back too: the seek alone commits nothing. What
            # the group has is kept beside the tracker, so that a rebalance before that commit does not undo the seek.
            tracker = OffsetTracker(one.id, start.position, committed=_passed(stored, start.position))
            tracker.uncommitted_from = start.position
            self._owned.start(one, tracker, stored=stored)
        return start

    def _decide(self, partition: TopicPartition, wanted: int | None, log: Log, *, is_new: bool = False) -> Start | None:
        try:
            start = start_position(wanted, log.start, log.end, self._settings.auto_offset_reset, is_new=is_new)
        except NoPositionError:
            self._fail(_no_position(self._settings.name, partition, wanted, log))
            return None
        if start.reset is not None:
            self._tell_reset(partition, wanted, start)
        return start

    def _tell_reset(self, partition: TopicPartition, wanted: int | None, start: Start) -> None:
        assert start.reset is not None  # noqa: S101  # for the type checker
        self._resets[start.reset] += 1
        self._observer.on(
            OffsetReset(
                channel=self._settings.name,
                partition=partition,
                from_offset=wanted,
                to_offset=start.position,
                to=start.reset,
                skipped=start.lost if wanted is not None else None,
            )
        )

    def start_found(
        self, one: Partition, found: Committed | None, choice: Choice | None, log: Log, *, is_new: bool
    ) -> Start | None:
        stored = None if found is None else found.offset
        if choice is not None:
            start = self.start_where_chosen(one, stored, choice.where, log)
        else:
            start = self.start(one, stored, log, is_new=is_new)
        if start is None or one.tracker is None:
            return None
        one.metadata.found(one.live, found)
        if choice is None or choice.is_resumed:
            self._stored_metadata.hand_on(
                one.tracker, found, log.end,
                was_reset=start.reset is not None, is_resumed=choice is not None,
            )  # fmt: skip
        return start


def _passed(stored: int | None, start: int) -> int | None:
    """What the group has, as long as it has passed none of the records that are read from *start* on."""
    return stored if stored is not None and stored <= start else None


def _no_position(channel: str, partition: TopicPartition, wanted: int | None, log: Log) -> FatalBrokerError:
    had = "no committed position" if wanted is None else f"position {wanted}"
    return FatalBrokerError(
        f"channel {channel!r}: {partition} has {had}, its log goes from {log.start} to {log.end}, and "
        "auto_offset_reset = 'none' lets nobody choose: set a position, or auto_offset_reset = 'earliest' or 'latest'"
    )

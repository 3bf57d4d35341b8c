"""Starts to read one partition, once the broker has told what its log and its group have."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.observe.events import OffsetReset
from reactive_kafka.partitions.logs import Log
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice, Partition
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.restore import hand_on, left_behind
from reactive_kafka.partitions.start import NoPositionError, Start, Where, chosen_position, start_position
from reactive_kafka.records import Committed, TopicPartition


class PartitionStarter:
    """Decides where one partition starts, and tracks it from there. Awaits nothing.

    Args:
        fail: Nobody may choose a position: the channel stops.
    """

    def __init__(self, parts: ClientParts, owned: OwnedPartitions, fail: Callable[[BaseException], bool]) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._owned = owned
        self._fail = fail

    def start_found(
        self, one: Partition, found: Committed | None, choice: Choice | None, log: Log, *, is_new: bool
    ) -> Start | None:
        """Track a partition from where somebody chose, or from what the group has; None: nobody may choose."""
        stored = None if found is None else found.offset
        if choice is not None:
            start = self.start_where_chosen(one, stored, choice.where, log)
        else:
            start = self._start(one, stored, stored, log, is_new=is_new)
        if start is None or one.tracker is None:
            return None
        one.metadata.found(one.live, found)
        if choice is None or choice.is_resumed:
            was_reset, is_resumed = start.reset is not None, choice is not None
            hand_on(self._parts, one.tracker, found, log.end, was_reset=was_reset, is_resumed=is_resumed)
        return start

    def start_again(self, one: Partition, old: OffsetTracker, log: Log) -> Start | None:
        """Track a partition anew whose position is not in the log any more; None: nobody may choose where.

        Where the log still has what is unsettled, that is read again.
        """
        unsettled = old.committable
        is_there = log.start <= unsettled <= log.end and self._settings.auto_offset_reset != "none"
        left_behind(self._parts, old, log.start, log.end)
        return self._start(one, old.committed, unsettled if is_there else old.position, log)

    def _start(
        self, one: Partition, stored: int | None, wanted: int | None, log: Log, *, is_new: bool = False
    ) -> Start | None:
        start = self._decide(one.id, wanted, log, is_new=is_new)
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
            self._parts.history.resets[start.reset] += 1
            self._parts.observer.on(
                OffsetReset(
                    channel=self._settings.name,
                    partition=partition,
                    from_offset=wanted,
                    to_offset=start.position,
                    to=start.reset,
                    skipped=start.lost if wanted is not None else None,
                )
            )
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

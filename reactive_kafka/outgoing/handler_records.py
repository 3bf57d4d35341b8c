"""The single record that a handler made of an incoming one, on the fast path of a chain.

Their outcome reaches the incoming record without a receipt or a task. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reactive_kafka.outgoing.queue.record import QueuedRecord
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import ack_range, verdicts_of
from reactive_kafka.verdicts.message import new_message


class HandlerRecord(QueuedRecord):
    """A record made of the incoming record with the arrival number *index* of *tracker*.

    It acks nothing: the incoming record was settled otherwise. A write that fails is reported to
    the channel of the incoming record.
    """

    __slots__ = ("index", "is_over", "record", "tracker")

    is_over: bool
    tracker: OffsetTracker
    index: int
    record: RawRecord

    def written(self, at: TopicPartition, offset: int) -> None:
        self.is_over = True

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.is_over = True
            message = new_message(None, self.record, self.tracker, self.index)
            verdicts_of(self.tracker).channel.output_lost(message, error)


class AckingRecord(HandlerRecord):
    """A record that acks the incoming record when it is written, and nacks it when it fails."""

    __slots__ = ()

    def written(self, at: TopicPartition, offset: int) -> None:
        self.all_written((self,), at, offset)

    @classmethod
    def all_written(cls, records: Sequence[QueuedRecord], at: TopicPartition, offset: int) -> None:
        # Lanes run in order, so neighbours in a batch were neighbours when they arrived. They are
        # acked as ranges, which costs next to nothing for each record.
        failed: BaseException | None = None
        for tracker, start, stop in _ranges(cast("Sequence[AckingRecord]", records)):
            try:
                ack_range(tracker, start, stop)
            except BaseException as error:
                # The other ranges are acked all the same.
                failed = failed or error
        if failed is not None:
            raise failed

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.is_over = True
            message = new_message(None, self.record, self.tracker, self.index)
            channel = verdicts_of(self.tracker).channel
            channel.output_lost(message, error)
            channel.nacks.failed(message, error)


def _ranges(records: Sequence[AckingRecord]) -> list[tuple[OffsetTracker, int, int]]:
    """Mark records as over, and return their arrival numbers as ranges.

    Returns:
        ``(tracker, first, last + 1)`` of each range, without records that were over before.
    """
    ranges: list[tuple[OffsetTracker, int, int]] = []
    tracker: OffsetTracker | None = None
    start = 0
    stop = 0
    for record in records:
        if record.is_over:
            continue
        record.is_over = True
        if record.index == stop and record.tracker is tracker:
            stop += 1
            continue
        if tracker is not None:
            ranges.append((tracker, start, stop))
        tracker = record.tracker
        start = record.index
        stop = start + 1
    if tracker is not None:
        ranges.append((tracker, start, stop))
    return ranges

"""A record that waits to be written, and who is told what becomes of it. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.records import HeaderPairs, RawRecord, TopicPartition
from reactive_kafka.verdicts.acknowledger import ack_range, verdicts_of
from reactive_kafka.verdicts.message import new_message


class Waiting:
    """One record on its way: what is written, and who is told once what became of it.

    The line, the batch and whoever waits for the confirmation share this one object, because each
    further object would cost a tenth of a record's whole way. For the same reason there is no
    ``__init__``: who makes one sets its fields, which are those of
    :class:`~reactive_kafka.records.RecordBytes`.
    """

    __slots__ = ("headers", "key", "timestamp_ms", "value")

    value: bytes | None
    key: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None

    @property
    def is_over(self) -> bool:
        """Whether it was told, or nobody waits for it any more: what is not on its way yet is not
        written then.
        """
        raise NotImplementedError

    def written(self, at: TopicPartition, offset: int) -> None:
        """The broker has it."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """It will not be written."""
        raise NotImplementedError

    @classmethod
    def all_written(cls, waiting: Sequence[Waiting], at: TopicPartition, offset: int) -> None:
        """The broker has all of these, which are of one class, from *offset* on; -1: it does not
        say where.

        What one of them raises is raised when the others were told, too.
        """
        failed = None
        step = 0 if offset < 0 else 1
        for one in waiting:
            try:
                one.written(at, offset)
            except BaseException as error:
                # Of whoever is told.
                failed = failed or error
            offset += step
        if failed is not None:
            raise failed


class Settling(Waiting):
    """The one record that a handler has made of an incoming one: it settles that."""

    __slots__ = ("index", "is_over", "record", "tracker")

    is_over: bool
    tracker: OffsetTracker
    index: int
    record: RawRecord

    def written(self, at: TopicPartition, offset: int) -> None:
        self.all_written((self,), at, offset)

    @classmethod
    def all_written(cls, waiting: Sequence[Waiting], at: TopicPartition, offset: int) -> None:
        # Lanes run in order, so what stands in a batch one after the other came so, too: it is
        # settled as ranges.
        failed: BaseException | None = None
        for tracker, start, stop in _ranges(cast("Sequence[Settling]", waiting)):
            try:
                ack_range(tracker, start, stop)
            except BaseException as error:
                # The others are settled all the same.
                failed = failed or error
        if failed is not None:
            raise failed

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.is_over = True
            message = new_message(None, self.record, self.tracker, self.index)
            verdicts_of(self.tracker).channel.output_lost(message, error)
            verdicts_of(self.tracker).channel.failed(message, error)


def _ranges(waiting: Sequence[Settling]) -> list[tuple[OffsetTracker, int, int]]:
    """The arrival numbers of those that are not over yet, from first to last (exclusive); they are
    over then.
    """
    found: list[tuple[OffsetTracker, int, int]] = []
    tracker: OffsetTracker | None = None
    start = stop = 0
    for one in waiting:
        if one.is_over:
            continue
        one.is_over = True
        if one.index == stop and one.tracker is tracker:
            stop += 1
            continue
        if tracker is not None:
            found.append((tracker, start, stop))
        tracker = one.tracker
        start = one.index
        stop = start + 1
    if tracker is not None:
        found.append((tracker, start, stop))
    return found


class Telling(Waiting):
    """A record that settles nothing: its channel has told what became of it."""

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

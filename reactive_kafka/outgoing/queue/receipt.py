"""Receipts: what became of one or several records that were sent together. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.records import TopicPartition


class Receipt:
    """Reports once: either the broker has all of its records, or one of them has failed.

    A receipt that has reported, or that is void, drops its records that still wait: they are not
    written.

    Args:
        records: How many records belong to it; :meth:`expect` adds further ones.
    """

    __slots__ = ("_missing", "at", "is_over", "offset")

    def __init__(self, records: int = 1) -> None:
        self._missing = records
        self.is_over = False
        # Where the last record was written.
        self.at: TopicPartition | None = None
        self.offset = -1

    def report(self, error: BaseException | None) -> None:
        """Called once: None when all records are written, else the first error."""
        raise NotImplementedError

    def expect(self) -> None:
        """Count one more record."""
        self._missing += 1

    def written(self, at: TopicPartition, offset: int) -> None:
        """Note that the broker has one of the records."""
        self._missing -= 1
        if self._missing or self.is_over:
            return
        self.at = at
        self.offset = offset
        self.is_over = True
        self.report(None)

    def fail(self, error: BaseException) -> None:
        """Note that one of the records will not be written."""
        if not self.is_over:
            self.is_over = True
            self.report(error)

    def void(self) -> None:
        """Drop the records that still wait: they are not needed any more."""
        self.is_over = True


class CallbackReceipt(Receipt):
    """A receipt that calls *then*, for records that are added one by one until it is sealed."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[BaseException | None], None]) -> None:
        # The seal counts as a record, so that the receipt cannot report before it.
        super().__init__(records=1)
        self._then = then

    def report(self, error: BaseException | None) -> None:
        self._then(error)

    def seal(self) -> None:
        """Add no more records: report when those that were added are written."""
        self.part_done()

    def part_done(self) -> None:
        """Count one of the expected records as done, wherever it was written."""
        self._missing -= 1
        if not self._missing and not self.is_over:
            self.is_over = True
            self._then(None)


class ReceiptedRecord(QueuedRecord):
    """A queued record whose outcome goes to a receipt."""

    __slots__ = ("receipt",)

    receipt: Receipt

    @property
    def is_over(self) -> bool:
        return self.receipt.is_over

    def written(self, at: TopicPartition, offset: int) -> None:
        self.receipt.written(at, offset)

    def fail(self, error: BaseException) -> None:
        self.receipt.fail(error)


def receipted(outgoing: OutgoingRecord, receipt: Receipt) -> ReceiptedRecord:
    """Return the queued form of a record that *receipt* already expects."""
    queued = ReceiptedRecord()
    record = outgoing.record
    queued.value = record.value
    queued.key = record.key
    queued.headers = record.headers
    queued.timestamp_ms = record.timestamp_ms
    queued.receipt = receipt
    return queued

"""Records on their way to the broker, for tests of what is wrapped around them."""

from __future__ import annotations

from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, receipted
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.records import RecordBytes


def awaited_record() -> tuple[QueuedRecord, CallbackReceipt]:
    """A record of invoices in a queue, and the receipt of its sender, who can give it up."""
    receipt = CallbackReceipt(lambda error: None)
    receipt.expect()
    record = OutgoingRecord("invoices", RecordBytes(b"x", None, (), None))
    return receipted(record, receipt), receipt

"""What the tests of other rooms need of the rows of an outbox."""

from __future__ import annotations

from reactive_kafka.checkpoint.outbox import StoredEvent
from reactive_kafka.records import RecordBytes, TopicPartition
from tests.verdicts.events import OutboxEvent


def stored(number: int, value: bytes = b"made") -> StoredEvent:
    """The row of an event."""
    event = OutboxEvent(f"event {number}", "events", "events", None, RecordBytes(value))
    return StoredEvent(number, TopicPartition("orders", 0), event)

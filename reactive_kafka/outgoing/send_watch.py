"""What watches the records that an outgoing channel sends. Pure."""

from __future__ import annotations

from typing import Protocol

from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord


class SendWatch(Protocol):
    """Sees each record of a channel when it is accepted, and may change its headers.

    Tracing makes spans this way. It must not raise.
    """

    def queued(self, record: QueuedRecord, topic: str, partition: int | None) -> QueuedRecord:
        """Return the record to queue in place of *record*, and to which its outcome is passed on.

        Args:
            partition: Where the caller wants it; None: the key chooses.
        """

    def written(self, record: QueuedRecord, durations: DurationHistogram, took_s: float) -> None:
        """The broker has a batch. It is called before the records learn that.

        Args:
            record: The first one of the batch, as :meth:`queued` has returned it.
            durations: Counts the duration of the write.
        """

    def in_transaction(self, outgoing: OutgoingRecord) -> OutgoingRecord:
        """Return the record to write in a transaction in place of *outgoing*."""

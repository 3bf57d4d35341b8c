"""The open transactions of one channel, and which records are in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from reactive_kafka.checkpoint.owned_row import OwnedRow, PendingWrite
from reactive_kafka.checkpoint.store import Write
from reactive_kafka.errors import CheckpointError
from reactive_kafka.records import Committed
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery

_NO_VERDICT_INSIDE = (
    ": its end acks what it has stored, and a verdict inside of it would stand without that. To "
    "have the record fail, raise an error in the block"
)


class PartitionTransaction:
    """The records that one transaction has in one partition.

    It is made by the task that runs the block.

    Args:
        owned: The partition's row.
        tracker: The tracker of the records.
        deliveries: The records, ascending. None has a verdict when the transaction begins.
    """

    def __init__(
        self, owned: OwnedRow, tracker: OffsetTracker, deliveries: Sequence[Delivery]
    ) -> None:
        self.owned = owned
        self.tracker = tracker
        self.deliveries = deliveries
        self.indexes = frozenset(delivery.index for delivery in deliveries)
        self.last_offset = deliveries[-1].offset
        self.task = asyncio.current_task()
        # The lock of the row, while it is held.
        self._lock: asyncio.Lock | None = None
        # The commit of the transaction has been sent.
        self.is_ending = False
        # One of the records got another verdict: nothing is stored.
        self.is_refused = False
        # For a batch: index -> carries out the nack that the record got in the block.
        self.nacks: dict[int, Callable[[], asyncio.Future[bool]]] = {}
        # Indexes of the records whose nack is or was carried out.
        self.failed: set[int] = set()
        self.is_batch = False
        # What is stored for the partition; known when the block has ended.
        self.due: PendingCommit | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the store is known to have all of the records."""
        return self.owned.has_stored(self.last_offset)

    def pending_write(self) -> PendingWrite:
        """Return the write that stores the position after the records."""
        if self.due is None:
            return self.owned.pending_write(Committed(self.last_offset + 1))
        return self.owned.pending_write(self.due.stored)

    def final_write(self, entered: Write) -> PendingWrite:
        """Return the write with the present state and metadata.

        Args:
            entered: The write that the transaction was opened with. Its conditions and its token
                stay.
        """
        checkpoint = self.pending_write().write.checkpoint
        checkpoint = checkpoint._replace(token=entered.checkpoint.token)
        return PendingWrite(entered._replace(checkpoint=checkpoint), self.tracker)

    async def acquire(self) -> None:
        """Take the lock of the row."""
        # Remembered only once it is held. Meanwhile another tracker may bring another lock.
        lock = self.owned.lock
        await lock.acquire()
        self._lock = lock

    def release(self) -> None:
        """Release the lock of the row, if it is held here."""
        lock = self._lock
        self._lock = None
        if lock is not None:
            if self.owned.transaction is self.tracker:
                self.owned.transaction = None
            lock.release()


class OpenTransactions:
    """The open transactions of one channel. Only a transaction gives its records their verdict."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        # At most as many as there are handlers.
        self._open: list[PartitionTransaction] = []

    @contextmanager
    def opened(self, parts: Sequence[PartitionTransaction]) -> Iterator[None]:
        """Hold a transaction open. The locks of its partitions are released at its end.

        Raises:
            CheckpointError: It would wait for itself, or one of its records is in another one.
        """
        for part in parts:
            for other in self._open:
                if other.task is part.task:
                    raise CheckpointError(
                        f"channel {self._channel!r}: a transaction of {other.tracker.partition} is "
                        "open here: one inside of another cannot be; batch.transaction() is one "
                        "for many messages"
                    )
                if other.tracker is part.tracker:
                    shared = part.indexes & other.indexes
                    if shared:
                        raise self._open_error(part.tracker, min(shared), "")
        self._open += parts
        try:
            yield
        finally:
            for part in parts:
                self._open.remove(part)
                part.release()

    def of(self, tracker: OffsetTracker, index: int) -> PartitionTransaction | None:
        """Return the transaction that a record is in."""
        for part in self._open:
            if part.tracker is tracker and index in part.indexes:
                return part
        return None

    def check(self, tracker: OffsetTracker, index: int) -> None:
        """Raise CheckpointError if a record is in an open transaction."""
        if self.of(tracker, index) is not None:
            raise self._open_error(tracker, index, _NO_VERDICT_INSIDE)

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        """Raise CheckpointError if a record, or one before it, is in an open transaction."""
        for part in self._open:
            first = min(part.indexes)
            if part.tracker is tracker and first <= index:
                raise self._open_error(tracker, first, _NO_VERDICT_INSIDE)

    def _open_error(self, tracker: OffsetTracker, index: int, advice: str) -> CheckpointError:
        offset = f" offset {tracker.offset_of(index)}" if tracker.is_open(index) else ""
        return CheckpointError(
            f"channel {self._channel!r}: a transaction of {tracker.partition}{offset} is open"
            f"{advice}"
        )

"""The open transactions of one channel. Only the transaction gives its records their verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending
from reactive_kafka.checkpoint.store import Write
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import CheckpointError
from reactive_kafka.records import Committed
from reactive_kafka.verdicts.delivery import Delivery


class Part:
    """The records of one transaction in one partition. Made by the task that runs the block.

    Args:
        deliveries: Ascending; all without a verdict when the transaction begins.

    Attributes:
        indexes: The arrival numbers of the records.
        last: The highest offset.
        lock: The row's, while it is held.
        is_ending: Its commit has been sent.
        is_refused: One of its records got another verdict: it stores nothing.
        due: What is stored for the partition, once the block has ended.
    """

    def __init__(self, claim: OwnedRow, tracker: OffsetTracker, deliveries: Sequence[Delivery]) -> None:
        self.claim = claim
        self.tracker = tracker
        self.deliveries = deliveries
        self.indexes = frozenset(delivery.index for delivery in deliveries)
        self.last = deliveries[-1].offset
        self.task = asyncio.current_task()
        self.lock: asyncio.Lock | None = None
        self.is_ending = self.is_refused = False
        self.due: PendingCommit | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the store is known to have all of it."""
        return self.claim.has_stored(self.last)

    def sending(self) -> Sending:
        """The write that stores the position behind it."""
        return self.claim.write(Committed(self.last + 1) if self.due is None else self.due.stored)

    def sending_over(self, entered: Write) -> Sending:
        """The same with the state and metadata of now, over the row as it was when the transaction was entered."""
        checkpoint = self.sending().write.checkpoint._replace(token=entered.checkpoint.token)
        return Sending(entered._replace(checkpoint=checkpoint), self.tracker)

    async def acquire(self) -> None:
        """Take the row's lock."""
        lock = self.claim.lock  # of now: another tracker brings another lock
        await lock.acquire()
        self.lock = lock

    def release(self) -> None:
        """Let go of the row, if its lock is held; else it may be another transaction's."""
        lock, self.lock = self.lock, None
        if lock is not None:
            if self.claim.transaction is self.tracker:
                self.claim.transaction = None
            lock.release()


class OpenTransactions:
    """The open transactions of one channel."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._open: list[Part] = []  # as many as there are handlers at most

    @contextmanager
    def opened(self, parts: Sequence[Part]) -> Iterator[None]:
        """A transaction of these begins. It may still have to wait for the locks of its partitions.

        Raises:
            CheckpointError: It would wait for itself: its task has an open one already, or a record is in one.
        """
        for part in parts:
            for other in self._open:
                if other.task is part.task:
                    raise CheckpointError(
                        f"channel {self._channel!r}: a transaction of {other.tracker.partition} is open here: one "
                        "inside of another cannot be; batch.transaction() is one for many messages"
                    )
                if other.tracker is part.tracker and (both := part.indexes & other.indexes):
                    raise self._is_open(part.tracker, min(both), "")
        self._open += parts
        try:
            yield
        finally:
            for part in parts:
                self._open.remove(part)
                part.release()

    def of(self, tracker: OffsetTracker, index: int) -> Part | None:
        """The transaction that a record is in."""
        return next((part for part in self._open if part.tracker is tracker and index in part.indexes), None)

    def check(self, tracker: OffsetTracker, index: int) -> None:
        if self.of(tracker, index) is not None:
            raise self._is_open(tracker, index, _NO_VERDICT)

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        for part in self._open:
            if part.tracker is tracker and (first := min(part.indexes)) <= index:
                raise self._is_open(tracker, first, _NO_VERDICT)

    def _is_open(self, tracker: OffsetTracker, index: int, advice: str) -> CheckpointError:
        where = f" offset {tracker.offset_of(index)}" if tracker.is_open(index) else ""
        return CheckpointError(
            f"channel {self._channel!r}: a transaction of {tracker.partition}{where} is open{advice}"
        )


_NO_VERDICT = (
    ": its end acks what it has stored, and a verdict inside of it would stand without that. To have the record fail, "
    "raise an error in the block"
)

"""The open transactions of one channel. Only the transaction gives its records their verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import CheckpointError


class OpenTransaction:
    """The records of one open transaction in one partition.

    Args:
        indexes: The arrival numbers of the records.
        task: The task that runs the block.

    Attributes:
        lock: The row's, while it is held.
        is_ending: Its commit has been sent.
        is_refused: One of its records got another verdict: it stores nothing.
    """

    def __init__(self, tracker: OffsetTracker, indexes: Iterable[int], task: asyncio.Task[object] | None) -> None:
        self.tracker = tracker
        self.indexes = frozenset(indexes)
        self.task = task
        self.lock: asyncio.Lock | None = None
        self.is_ending = False
        self.is_refused = False

    def release(self) -> None:
        """Release the row's lock, if it is held."""
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()


class OpenTransactions:
    """The open transactions of one channel."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._open: list[OpenTransaction] = []  # as many as there are handlers at most

    def begin(self, blocks: Iterable[OpenTransaction]) -> None:
        """A transaction begins. It may still have to wait for the locks of its partitions.

        Raises:
            CheckpointError: It would wait for itself: its task has an open one already, or a record is in one.
        """
        new = list(blocks)
        for block in new:
            for other in self._open:
                if other.task is block.task:
                    raise CheckpointError(
                        f"channel {self._channel!r}: a transaction of {other.tracker.partition} is open here: one "
                        "inside of another cannot be; batch.transaction() is one for many messages"
                    )
                if other.tracker is block.tracker and (both := block.indexes & other.indexes):
                    raise self._is_open(block.tracker, min(both), "")
        self._open += new

    def end(self, block: OpenTransaction) -> None:
        """A transaction is over."""
        self._open.remove(block)
        block.release()

    def of(self, tracker: OffsetTracker, index: int) -> OpenTransaction | None:
        """The transaction that a record is in."""
        its = (block for block in self._open if block.tracker is tracker and index in block.indexes)
        return next(its, None)

    def check(self, tracker: OffsetTracker, index: int) -> None:
        """Raise if a record may not be acked or nacked by hand.

        Raises:
            CheckpointError: It is in an open transaction.
        """
        if self.of(tracker, index) is not None:
            raise self._is_open(tracker, index, _NO_VERDICT)

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        """The same for a record and those before it.

        Raises:
            CheckpointError: One of them is in an open transaction.
        """
        for block in self._open:
            if block.tracker is tracker and (its := [one for one in block.indexes if one <= index]):
                raise self._is_open(tracker, min(its), _NO_VERDICT)

    def _is_open(self, tracker: OffsetTracker, index: int, advice: str) -> CheckpointError:
        where = f" offset {tracker.offset_of(index)}" if tracker.is_open(index) else ""
        return CheckpointError(
            f"channel {self._channel!r}: a transaction of {tracker.partition}{where} is open{advice}"
        )


_NO_VERDICT = (
    ": its end acks what it has stored, and a verdict inside of it would stand without that. To have the record fail, "
    "raise an error in the block"
)

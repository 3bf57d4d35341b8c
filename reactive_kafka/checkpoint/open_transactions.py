"""Which records are in a transaction that is open: their verdict is the transaction's, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import CheckpointError


class OpenTransaction:
    """The records of one open transaction in one partition.

    Args:
        indexes: Their arrival numbers.
        task: Whose block it is.

    Attributes:
        lock: That of its partition, as long as it holds it.
        is_ending: Its commit is on its way.
        is_refused: A record of it has got another verdict: it ends in nothing.
    """

    def __init__(self, tracker: OffsetTracker, indexes: Iterable[int], task: asyncio.Task[object] | None) -> None:
        self.tracker = tracker
        self.indexes = frozenset(indexes)
        self.task = task
        self.lock: asyncio.Lock | None = None
        self.is_ending = False
        self.is_refused = False

    def release(self) -> None:
        """Hold its partition no longer."""
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()


class OpenTransactions:
    """Those of one channel; True while there is one."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._open: list[OpenTransaction] = []  # as many as there are handlers at most

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, blocks: Iterable[OpenTransaction]) -> None:
        """A transaction begins; the locks of its partitions may have to be waited for.

        Raises:
            CheckpointError: It would wait for itself: its task has another one, or a record is in another one.
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
        """It is over, however it ended."""
        self._open.remove(block)
        block.release()

    def of(self, tracker: OffsetTracker, index: int) -> OpenTransaction | None:
        """The one that has a record."""
        its = (block for block in self._open if block.tracker is tracker and index in block.indexes)
        return next(its, None)

    def check(self, tracker: OffsetTracker, index: int) -> None:
        """A verdict is given on a record.

        Raises:
            CheckpointError: It is in an open transaction.
        """
        if self.of(tracker, index) is not None:
            raise self._is_open(tracker, index, _NO_VERDICT)

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        """A verdict is given on a record and those before it.

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

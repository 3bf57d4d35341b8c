"""What a checkpoint store is: the protocol that built-in and custom ones share.

A store keeps one row for each partition of a group. Every owner of a partition takes a *token* of its own, one above
the one before, by writing it over the row that it has read; and each of its writes names the token that must still be
there. So a row is written by its last owner only: what an earlier one (a zombie) still sends is refused, and so is a
request of an owner's own that arrives late, over a newer position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from reactive_kafka.records import TopicPartition


class Checkpoint(NamedTuple):
    """The row of one partition.

    Attributes:
        token: Of the owner that has written it; from 1 on, one more with each new owner, and with each write of an
            owner's that does not move the position on.
        position: Offset of the next record to read; None: the owner has settled nothing yet, nor has one before it.
        state: The application's, encoded; None: there is none.
        metadata: The string that Kafka would keep beside the position.
    """

    token: int
    position: int | None = None
    state: str | None = None
    metadata: str = ""


class Write(NamedTuple):
    """One row that is to be written, if the one that is there is the one that the writer knows.

    Attributes:
        expected: The token that must be there now; 0: no row must be there.
        checkpoint: What to write. With the token that is there its position must not be lower than the one that is
            there, nor None over one; with another token it takes the row over, and may go back.
        position: The position that must be there now; None: none must be. Without it a row could be taken over with
            a position that was read before the last owner's transaction moved it, or one be written twice.
    """

    expected: int
    checkpoint: Checkpoint
    position: int | None = None


def allows(stored: Checkpoint | None, write: Write) -> bool:
    """Whether a row may be written over: the one rule of every store."""
    token, position = (0, None) if stored is None else stored[:2]
    if token != write.expected or position != write.position:
        return False
    if position is None or write.checkpoint.token != token:
        return True
    return write.checkpoint.position is not None and write.checkpoint.position >= position


class CheckpointStore(Protocol):
    """Keeps the rows. Each of its calls has a deadline of its own, and may be repeated and cancelled.

    All of them raise :class:`~reactive_kafka.errors.StoreAwayError` where the store cannot be reached, did not answer
    in time, or is full: what was sent may have been stored then. A row that cannot be read is a
    :class:`~reactive_kafka.errors.CorruptCheckpointError`.
    """

    async def read(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its row, without those that have none. The first call connects, and makes tables or folders."""

    async def write(self, group: str, writes: Mapping[TopicPartition, Write]) -> frozenset[TopicPartition]:
        """Write each row that :func:`allows` lets through, compared and written as one step, and durably.

        Returns:
            The partitions whose rows were refused.
        """

    async def close(self) -> None:
        """Close connections. It may be used again afterwards."""


@runtime_checkable
class TransactionalStore(CheckpointStore, Protocol):
    """A store that can write rows together with the user's own data."""

    def transaction(self, group: str, writes: Mapping[TopicPartition, Write]) -> AbstractAsyncContextManager[Any]:
        """A transaction that writes the rows at its end, after what the user has written through what it yields.

        What is in *writes* then counts: states and metadata may have changed since the entry, tokens may not.

        Raises:
            StoreAwayError: At the entry: nothing has happened. At the exit: the outcome is not known.
            CheckpointRefusedError: At the entry or the exit: a row was refused, and all of it is rolled back.
        """

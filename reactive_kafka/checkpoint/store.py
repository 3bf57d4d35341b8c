"""The protocol that built-in and custom checkpoint stores share.

A store keeps one row for each partition of a group. Every owner of a partition claims its row: it
writes a *token* of its own, one above the last, over the row that it has read. Each of its writes
names the token and the position that must still be there. So only the last owner can write a row:
what an earlier one (a zombie) still sends is rejected, and so is a late request of the owner
itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from reactive_kafka.errors import CheckpointRefusedError, CorruptCheckpointError
from reactive_kafka.records import TopicPartition


class Checkpoint(NamedTuple):
    """The row of one partition.

    Attributes:
        token: From 1 on; one more with each new owner, and with each write of an owner that does
            not move the position forward.
        position: Offset of the next record to read; None: no owner has settled anything.
        state: The application's, encoded; None: there is none.
        metadata: The string that Kafka would store with the position.
    """

    token: int
    position: int | None = None
    state: str | None = None
    metadata: str = ""


class Write(NamedTuple):
    """One row to write, if the row in the store is still the one that the writer knows.

    Attributes:
        expected: The token that must be there; 0: there must be no row.
        checkpoint: What to write. Under the same token the position must not become lower, or None;
            a new token claims the row, and may go back.
        position: The position that must be there; None: there must be none. Without it a claim
            could overwrite a position that the last owner's transaction stored after the row was
            read, or a write could land twice.
    """

    expected: int
    checkpoint: Checkpoint
    position: int | None = None


def allows(stored: Checkpoint | None, write: Write) -> bool:
    """Whether a write is accepted: the one rule of every store."""
    token, position = (0, None) if stored is None else stored[:2]
    if token != write.expected or position != write.position:
        return False
    if position is None or write.checkpoint.token != token:
        return True
    return write.checkpoint.position is not None and write.checkpoint.position >= position


class CheckpointStore(Protocol):
    """Keeps the rows. Each of its calls has a deadline of its own, and may be repeated and
    cancelled.

    All of them raise :class:`~reactive_kafka.errors.StoreAwayError` where the store cannot be
    reached, did not answer in time, or is full: what was sent may have been stored then. A row that
    cannot be read is a :class:`~reactive_kafka.errors.CorruptCheckpointError`.
    """

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its row, without those that have none. The first call connects, and makes
        tables or folders.
        """

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Write each row that :func:`allows` lets through, compared and written as one step, and
        durably.

        Returns:
            The partitions whose rows were refused.
        """

    async def close(self) -> None:
        """Close connections. It may be used again afterwards."""


@runtime_checkable
class TransactionalStore(CheckpointStore, Protocol):
    """A store that can write rows together with the user's own data."""

    def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AbstractAsyncContextManager[Any]:
        """A transaction that writes the rows at its end, after what the user has written through
        what it yields.

        What is in *writes* then counts: states and metadata may have changed since the entry,
        tokens may not.

        Raises:
            StoreAwayError: At the entry: nothing has happened. At the exit: the outcome is not
                known.
            CheckpointRefusedError: At the entry or the exit: a row was refused, and all of it is
                rolled back.
        """


def checked(
    place: str, token: object, position: object, state: object, metadata: object
) -> Checkpoint:
    """The row that a store has found at *place*, if it can be one of ours.

    Raises:
        CorruptCheckpointError: It cannot be.
    """
    problems = [
        problem
        for wrong, problem in (
            (not _is_number(token, 1), f"its token is {token!r}, and must be a number from 1 on"),
            (
                position is not None and not _is_number(position, 0),
                f"its position is {position!r}, and is no offset",
            ),
            (
                state is not None and not isinstance(state, str),
                f"its state is {type(state).__name__}, and not text",
            ),
            (
                not isinstance(metadata, str),
                f"its metadata is {type(metadata).__name__}, and not text",
            ),
        )
        if wrong
    ]
    if problems:
        raise CorruptCheckpointError(f"{place} cannot be read: {'; '.join(problems)}")
    # Looked at above.
    return Checkpoint(token, position, state, metadata)  # type: ignore[arg-type]


def refuse(group: str, refused: Collection[TopicPartition]) -> None:
    """Raise CheckpointRefusedError if there are rows that a transaction may not write."""
    if refused:
        names = ", ".join(map(str, sorted(refused)))
        raise CheckpointRefusedError(
            f"another owner has written the checkpoint of {names} in group {group!r} since"
        )


def may_be_allowed(write: Write) -> bool:
    """Whether :func:`allows` lets it through if the row that is there is the one that it
    expects.
    """
    expected = Checkpoint(write.expected, write.position) if write.expected else None
    return allows(expected, write)


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least

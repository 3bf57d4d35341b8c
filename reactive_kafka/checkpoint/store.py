"""What a checkpoint store has to do: the protocols, and the one rule that decides about a write.

A store keeps one row for each partition of a group. Each new owner of a partition claims its row:
it overwrites the row it has read with one whose *token* is higher by one. Each of its writes names
the token and the position that must still be in the row. So only the last owner can write a row. A
write that an earlier owner (a zombie) still sends is refused, and so is a request of the owner
itself that arrives late.
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
        token: 1 or more. Each new owner adds one; so does an owner whose write does not move the
            position forward.
        position: Offset of the next record to read; None: no owner has settled a record.
        state: The application's state as text; None: it has none.
        metadata: The string that Kafka would store with the position.
    """

    token: int
    position: int | None = None
    state: str | None = None
    metadata: str = ""


class Write(NamedTuple):
    """A row to write, on condition that the store still has the row that the writer knows.

    Attributes:
        expected: The token that the stored row must have; 0: there must be no row.
        checkpoint: The new row. If its token is the expected one, its position must not be lower
            than the stored one, or None. With a new token the position may go back.
        position: The position that the stored row must have; None: it must have none. Without this
            condition a claim could overwrite a position that the last owner's transaction stored
            after the row was read, or a write could be carried out twice.
    """

    expected: int
    checkpoint: Checkpoint
    position: int | None = None


def allows(stored: Checkpoint | None, write: Write) -> bool:
    """Return whether *write* may replace the row *stored* (None: no row). Every store asks this."""
    if stored is None:
        token = 0
        position = None
    else:
        token = stored.token
        position = stored.position
    if token != write.expected or position != write.position:
        return False
    if position is None or write.checkpoint.token != token:
        return True
    # Under one token positions only grow, so a late request cannot move the position back.
    return write.checkpoint.position is not None and write.checkpoint.position >= position


class CheckpointStore(Protocol):
    """Keeps the rows. Each call has a deadline of its own; callers may repeat and cancel it.

    Every method raises :class:`~reactive_kafka.errors.StoreAwayError` if the store cannot be
    reached, does not answer in time, or is full; a write may have been stored even so. It raises
    :class:`~reactive_kafka.errors.CorruptCheckpointError` if a row cannot be read.
    """

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """Return partition -> row, without the partitions that have no row.

        The first call connects and creates tables or folders.
        """

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Write each row that :func:`allows` accepts. Compare and write in one step, durably.

        Returns:
            The partitions whose rows were refused.
        """

    async def close(self) -> None:
        """Close connections. The store may be used again afterwards."""


@runtime_checkable
class TransactionalStore(CheckpointStore, Protocol):
    """A store that can write rows in one transaction with the user's own data."""

    def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AbstractAsyncContextManager[Any]:
        """Return a transaction. It yields what the user writes through; at its end it writes rows.

        The rows are taken from *writes* at the end: states and metadata may have changed since the
        beginning, tokens may not.

        Raises:
            StoreAwayError: At the beginning: nothing was written. At the end: the outcome is
                unknown.
            CheckpointRefusedError: At either: a row was refused, and everything is rolled back.
        """


def validated_row(
    place: str, token: object, position: object, state: object, metadata: object
) -> Checkpoint:
    """Return the row with these values, which a store has read at *place*.

    Raises:
        CorruptCheckpointError: The values cannot be those of a row of ours.
    """
    problems = []
    if not _is_number(token, 1):
        problems.append(f"its token is {token!r}, not a number from 1 on")
    if position is not None and not _is_number(position, 0):
        problems.append(f"its position is {position!r}, not an offset")
    if state is not None and not isinstance(state, str):
        problems.append(f"its state is {type(state).__name__}, not text")
    if not isinstance(metadata, str):
        problems.append(f"its metadata is {type(metadata).__name__}, not text")
    if problems:
        raise CorruptCheckpointError(f"{place} cannot be read: {'; '.join(problems)}")
    # The type checker does not see that the values were checked above.
    return Checkpoint(token, position, state, metadata)  # type: ignore[arg-type]


def raise_if_refused(group: str, refused: Collection[TopicPartition]) -> None:
    """Raise CheckpointRefusedError if *refused* names any partition."""
    if refused:
        names = ", ".join(map(str, sorted(refused)))
        raise CheckpointRefusedError(
            f"another owner has written the checkpoint of {names} in group {group!r} since"
        )


def may_be_allowed(write: Write) -> bool:
    """Return whether *write* is allowed if the store has exactly the row that it expects.

    A store whose statement compares only token and position asks this before it sends anything.
    """
    if write.expected:
        return allows(Checkpoint(write.expected, write.position), write)
    return allows(None, write)


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least

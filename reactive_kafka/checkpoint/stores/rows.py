"""What a row must look like, whatever it was kept in."""

from __future__ import annotations

from collections.abc import Collection

from reactive_kafka.checkpoint.store import Checkpoint, Write, allows
from reactive_kafka.errors import CheckpointRefusedError, CorruptCheckpointError
from reactive_kafka.records import TopicPartition


def checked(place: str, token: object, position: object, state: object, metadata: object) -> Checkpoint:
    """The row, if it can be one of ours.

    Args:
        place: Where it was found, for the error.

    Raises:
        CorruptCheckpointError: It cannot be.
    """
    problems = [
        problem
        for wrong, problem in (
            (not _is_number(token, 1), f"its token is {token!r}, and must be a number from 1 on"),
            (position is not None and not _is_number(position, 0), f"its position is {position!r}, and is no offset"),
            (state is not None and not isinstance(state, str), f"its state is {type(state).__name__}, and not text"),
            (not isinstance(metadata, str), f"its metadata is {type(metadata).__name__}, and not text"),
        )
        if wrong
    ]
    if problems:
        raise CorruptCheckpointError(f"{place} cannot be read: {'; '.join(problems)}")
    return Checkpoint(token, position, state, metadata)  # type: ignore[arg-type]  # looked at above


def refuse(group: str, refused: Collection[TopicPartition]) -> None:
    """Raise for rows that a transaction may not write; nothing where there are none.

    Raises:
        CheckpointRefusedError: There are some.
    """
    if refused:
        names = ", ".join(map(str, sorted(refused)))
        raise CheckpointRefusedError(f"another owner has written the checkpoint of {names} in group {group!r} since")


def may_be_allowed(write: Write) -> bool:
    """Whether :func:`allows` lets it through if the row that is there is the one that it expects."""
    expected = Checkpoint(write.expected, write.position) if write.expected else None
    return allows(expected, write)


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least

"""Where a user, the settings or a restart want the reading of a partition to start. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class By:
    """A start that is a number of offsets after the position, or before it: see :func:`by`."""

    records: int


def by(records: int) -> By:
    """For ``channel.seek``: this many records forward from the position; negative: back.

    The position is what would be committed: the first record without a verdict. Before reading has
    begun it is where that would be. What lies outside of the log is its beginning or its end.
    Offsets are counted, some of which have no record in a topic that is compacted or written in
    transactions.

    Raises:
        TypeError: It is not a whole number.
    """
    if isinstance(records, bool) or not isinstance(records, int):
        raise TypeError(f"by() takes a number of records, not {records!r}")
    return By(records)


Where = int | datetime | Literal["beginning", "end"] | By
"""A start that was chosen: an offset (0 is the log's beginning), an end of the log, the first
record at or after a time, or a number of records from the position."""


@dataclass(frozen=True, slots=True, eq=False)
class StartChoice:
    """Where reading is to start, if that was chosen.

    Choices are compared by identity: a second seek to the same place is another choice.
    """

    where: Where
    # A restarted channel continues here.
    is_resumed: bool = False
    # Why the group's position does not apply: the topic was deleted and created again, and is read
    # from here.
    void: str | None = None


_WANTED = "an offset, 'beginning', 'end', by(records) or an aware datetime is wanted"


def check_where(where: Where) -> None:
    """Check that this is a start.

    Raises:
        ValueError: A negative offset, a datetime without a time zone, or an unknown word.
        TypeError: Anything else that is no start.
    """
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise ValueError(
                f"{where!r} has no time zone: say which moment it is, for one with tzinfo=UTC"
            )
    elif isinstance(where, By):
        return
    elif isinstance(where, bool) or not isinstance(where, int | str):
        raise TypeError(f"{_WANTED}, not {where!r}")
    elif isinstance(where, int):
        if where < 0:
            raise ValueError(f"there is no offset {where}: they begin at 0; the log's end is 'end'")
    elif where not in ("beginning", "end"):
        raise ValueError(f"{_WANTED}, not {where!r}")


def timestamp_ms(moment: datetime) -> int:
    """The first Kafka timestamp (milliseconds since the epoch) that is not before the moment."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def chosen_position(
    where: Where, log_start: int, log_end: int, at_time: int | None, position: Callable[[], int]
) -> int:
    """The offset of a start that was chosen. It may lie outside of the log.

    Args:
        at_time: The offset of the first record at or after a time; None: there is no such record.
        position: Called for the position, if the start is counted from there.
    """
    if isinstance(where, By):
        return min(max(position() + where.records, log_start), log_end)
    if isinstance(where, datetime):
        return log_end if at_time is None else at_time
    if where == "end":
        return log_end
    if where == "beginning" or where == 0:
        return log_start
    return where

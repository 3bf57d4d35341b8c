"""Where reading begins in a partition that was just assigned, or whose position is not in the log. No I/O.

The client never resets by itself: each reset is decided here, counted, and told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from reactive_kafka.config.schema import OffsetReset

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins, and why."""

    position: int  # of the next record to read
    reset: Literal["latest", "earliest"] | None = None  # the policy that chose it; None: the group's is in the log
    lost: int = 0  # records between the group's position and the first one still in the log, which nobody will read
    commit: bool = False  # it is to be committed even before a record is read


class NoPositionError(Exception):
    """The policy is ``none`` and there is no valid position: somebody must decide."""


def start_position(
    committed: int | None, log_start: int, log_end: int, policy: OffsetReset, *, is_new: bool = False
) -> Start:
    """Decide where reading begins: ``auto_offset_reset``, and KIP-842 for partitions that appear later.

    Args:
        committed: The group's position, or the one that was found to be out of range; None if there is none.
        is_new: The partition appeared after this member had first been assigned its topic: it is read from its
            beginning, because ``latest`` would skip what was written before it was noticed.
    """
    if committed is not None and log_start <= committed <= log_end:
        return Start(committed)
    if policy == "none":
        raise NoPositionError
    if policy == "earliest" or is_new:
        lost = 0 if committed is None else max(0, log_start - committed)
        return Start(log_start, "earliest", lost, commit=committed is not None or is_new)
    lost = 0 if committed is None else max(0, log_end - committed)
    return Start(log_end, "latest", lost, commit=True)


Where = int | datetime | Literal["beginning", "end"]
"""A start that somebody chose: an offset (0 is the log's beginning), an end of the log, or the first record at or
after a time."""


def check_where(where: Where) -> None:
    """Refuse a negative offset, a naive datetime or another word (ValueError), and what is no start (TypeError)."""
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise ValueError(f"{where!r} has no time zone: say which moment it is, for one with tzinfo=UTC")
    elif isinstance(where, bool) or not isinstance(where, int | str):
        raise TypeError(f"an offset, 'beginning', 'end' or an aware datetime is wanted, not {where!r}")
    elif isinstance(where, int):
        if where < 0:
            raise ValueError(f"there is no offset {where}: they begin at 0; the log's end is 'end'")
    elif where not in ("beginning", "end"):
        raise ValueError(f"an offset, 'beginning', 'end' or an aware datetime is wanted, not {where!r}")


def milliseconds(moment: datetime) -> int:
    """The first timestamp of Kafka's, in milliseconds since the epoch, that is not before the moment."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def chosen_position(where: Where, log_start: int, log_end: int, at_time: int | None) -> int:
    """The offset of a start that somebody chose; *at_time*: of the first record at or after a time, if there is one.

    It may lie outside of the log.
    """
    if isinstance(where, datetime):
        return log_end if at_time is None else at_time
    if where == "end":
        return log_end
    return log_start if where == "beginning" or where == 0 else where

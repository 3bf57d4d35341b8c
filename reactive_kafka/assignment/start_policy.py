"""Where reading begins, by the group's position and ``auto_offset_reset``. No I/O.

The client never resets by itself: each reset is decided here, counted, and reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reactive_kafka.config.settings import OffsetReset
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins, and why."""

    # Offset of the next record to read.
    position: int
    # The policy that chose it; None: the group's position is in the log.
    reset: Literal["latest", "earliest"] | None = None
    # Records between the group's position and the start. They will not be read.
    lost: int = 0
    # Commit the start even before a record is read.
    commit: bool = False
    # Where the client reads from, if the log does not reach to the position yet. Records before the
    # position are dropped.
    fetched_from: int | None = None

    @property
    def read_from(self) -> int:
        """The offset that the client reads next."""
        return self.position if self.fetched_from is None else self.fetched_from


class NoPositionError(Exception):
    """There is no valid position, and ``auto_offset_reset = "none"`` forbids to choose one."""


def start_position(
    committed: int | None,
    log_start: int,
    log_end: int,
    policy: OffsetReset,
    *,
    is_new: bool = False,
) -> Start:
    """Decide where reading begins, by ``auto_offset_reset`` and KIP-842.

    Args:
        committed: The group's position, or the one that was found to be out of range; None if there
            is none.
        is_new: The partition appeared after this member had first been assigned its topic: it is
            read from its beginning, because ``latest`` would skip what was written before it was
            noticed.

    Raises:
        NoPositionError: The policy is ``none``, and the position is not in the log.
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


def start_in_ranges(
    wanted: int | None, ranges: Ranges, log_start: int, log_end: int, policy: OffsetReset
) -> Start:
    """Decide where reading begins in ranges of a log: inside of them, whatever the policy is.

    Offsets of the ranges that are not in the log any more are lost, which counts as a reset.

    Raises:
        NoPositionError: Offsets are lost, and the policy is ``none``.
    """
    wanted = ranges.start if wanted is None else wanted
    position = ranges.after(max(wanted, log_start))
    lost = ranges.count(wanted, log_start)
    if lost and policy == "none":
        raise NoPositionError
    return Start(
        position,
        "earliest" if lost else None,
        lost,
        fetched_from=max(log_start, min(position, log_end)),
    )


def no_position(
    channel: str, partition: TopicPartition, wanted: int | None, log: tuple[int, int]
) -> FatalBrokerError:
    """The error of a partition that has no valid position where no policy may choose one.

    Args:
        log: The first offset of its log, and the offset after the last one.
    """
    had = "no committed position" if wanted is None else f"position {wanted}"
    return FatalBrokerError(
        f"channel {channel!r}: {partition} has {had}, its log goes from {log[0]} to {log[1]}, and "
        "auto_offset_reset = 'none' allows no other start: "
        "set a position, or auto_offset_reset = 'earliest' or 'latest'"
    )


def recreated_topic(channel: str, partition: TopicPartition, why: str) -> FatalBrokerError:
    """The error of a partition whose topic was created again, with ``on_recreated_topic = fail``.

    Args:
        why: What was noticed.
    """
    return FatalBrokerError(
        f"channel {channel!r}: {partition} cannot be read on: {why}. "
        "on_recreated_topic = 'fail' allows no other start: set the group's position and restart, "
        "or have it read from its beginning: on_recreated_topic = 'beginning'"
    )

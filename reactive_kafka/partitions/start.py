"""Where reading begins in a partition that was just assigned, or whose position is not in the log.
No I/O.

The client never resets by itself: each reset is decided here, counted, and told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal

from reactive_kafka.broker.client import Chunk
from reactive_kafka.commit.metadata.acks import AckMap
from reactive_kafka.config.settings import OffsetReset
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins, and why."""

    # Of the next record to read.
    position: int
    # The policy that chose it; None: the group's is in the log.
    reset: Literal["latest", "earliest"] | None = None
    # Records between the group's position and the first one still in the log, which nobody will
    # read.
    lost: int = 0
    # It is to be committed even before a record is read.
    commit: bool = False
    # Where the client reads from, if the log does not reach to the position yet; what it brings
    # from before is dropped.
    fetched_from: int | None = None

    @property
    def read_from(self) -> int:
        """What the client is told to read next."""
        return self.position if self.fetched_from is None else self.fetched_from


class NoPositionError(Exception):
    """The policy is ``none`` and there is no valid position: somebody must decide."""


def start_position(
    committed: int | None,
    log_start: int,
    log_end: int,
    policy: OffsetReset,
    *,
    is_new: bool = False,
) -> Start:
    """Decide where reading begins: ``auto_offset_reset``, and KIP-842 for partitions that appear
    later.

    Args:
        committed: The group's position, or the one that was found to be out of range; None if there
            is none.
        is_new: The partition appeared after this member had first been assigned its topic: it is
            read from its beginning, because ``latest`` would skip what was written before it was
            noticed.
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
    """Decide where reading begins in ranges of a log: nothing outside of them is read, whatever the
    policy is.

    What of them is no longer in the log is lost, which is told as a reset. NoPositionError: the
    policy is ``none``.
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


def in_ranges(chunk: Chunk, ranges: Ranges, position: int) -> tuple[Chunk, int | None]:
    """What of a chunk lies in the ranges, with the position behind it; and where the client is to
    go on, if not there.

    That is the next range, or the end of the log as long as that does not reach so far.
    """
    following = ranges.after(max(position, chunk.next_offset))
    read_from = min(following, chunk.high_watermark)
    goes_on = chunk.next_offset < read_from and following < ranges.end
    kept = chunk._replace(records=_within(chunk.records, ranges), next_offset=following)
    return kept, read_from if goes_on else None


def from_position(records: Sequence[Any], position: int) -> tuple[Sequence[Any], Sequence[int]]:
    """Of the records (or their offsets, where executors read them) those from a position on, and
    their offsets.
    """
    if isinstance(records, range):
        kept = range(max(records.start, position), records.stop)
        return kept, kept
    if records and records[0].offset < position:
        records = [record for record in records if record.offset >= position]
    if not records:
        return (), ()
    low = records[0].offset
    high = records[-1].offset
    is_dense = high - low + 1 == len(records)
    return records, range(low, high + 1) if is_dense else [record.offset for record in records]


def without_done(
    kept: AckMap, records: Sequence[Any], offsets: Sequence[int]
) -> tuple[Sequence[Any], Sequence[int]]:
    """Leave out what is done already; for the tracker that is a gap of the log."""
    still_open = frozenset(kept.open_between(offsets[0], offsets[-1] + 1))
    left = [
        record for record in records if record.offset >= kept.until or record.offset in still_open
    ]
    return left, [record.offset for record in left]


def _within(records: Sequence[Any], ranges: Ranges) -> Sequence[Any]:
    """The records (or the offsets) that lie in the ranges."""
    # Between whose ranges no hole is allowed.
    if isinstance(records, range):
        return range(max(records.start, ranges.start), min(records.stop, ranges.end))
    found: list[Any] = []
    for start, end in ranges.pairs:
        first, last = (bisect_left(records, at, key=attrgetter("offset")) for at in (start, end))
        found += records[first:last]
    return found


@dataclass(frozen=True, slots=True)
class By:
    """A start that is so many offsets behind the position, or before it: see :func:`by`."""

    records: int


def by(records: int) -> By:
    """For ``channel.seek``: so many records forward from the position, or back where it is
    negative.

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
"""A start that somebody chose: an offset (0 is the log's beginning), an end of the log, the first
record at or after a time, or so many records from the position."""


_WANTED = "an offset, 'beginning', 'end', by(records) or an aware datetime is wanted"


def check_where(where: Where) -> None:
    """Refuse a negative offset, a naive datetime or another word (ValueError), and what is no start
    (TypeError).
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


def milliseconds(moment: datetime) -> int:
    """The first timestamp of Kafka's, in milliseconds since the epoch, that is not before the
    moment.
    """
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def chosen_position(
    where: Where, log_start: int, log_end: int, at_time: int | None, position: Callable[[], int]
) -> int:
    """The offset of a start that somebody chose; *at_time*: of the first record at or after a time,
    if there is one.

    It may lie outside of the log. *position* is asked for where that is what the start is counted
    from.
    """
    if isinstance(where, By):
        return min(max(position() + where.records, log_start), log_end)
    if isinstance(where, datetime):
        return log_end if at_time is None else at_time
    if where == "end":
        return log_end
    return log_start if where == "beginning" or where == 0 else where


def no_position(
    channel: str, partition: TopicPartition, wanted: int | None, log: tuple[int, int]
) -> FatalBrokerError:
    """Nobody may choose where a partition begins, whose log has these two ends."""
    had = "no committed position" if wanted is None else f"position {wanted}"
    return FatalBrokerError(
        f"channel {channel!r}: {partition} has {had}, its log goes from {log[0]} to {log[1]}, and "
        "auto_offset_reset = 'none' lets nobody choose: set a position, or auto_offset_reset = 'earliest' or 'latest'"
    )


def made_anew(channel: str, partition: TopicPartition, why: str) -> FatalBrokerError:
    """Nobody may choose what becomes of a partition whose topic was made anew."""
    return FatalBrokerError(
        f"channel {channel!r}: {partition} cannot be read on: {why}. on_recreated_topic = 'fail' lets nobody choose: "
        "set the group's position and restart, or have it read from its beginning: on_recreated_topic = 'beginning'"
    )

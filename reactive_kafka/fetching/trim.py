"""Cuts what a poll brought to the records that are to be handled. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from reactive_kafka.broker.client import Chunk
from reactive_kafka.subscription import Ranges
from reactive_kafka.tracking.metadata.acks import AckMap


def in_ranges(chunk: Chunk, ranges: Ranges, position: int) -> tuple[Chunk, int | None]:
    """Cut a chunk to the ranges of the log that are read.

    Returns:
        The chunk with the records inside of the ranges and the position behind them; and the offset
        where the client has to continue, if that is not where it is. That is the next range, or the
        end of the log as long as the log does not reach so far.
    """
    following = ranges.after(max(position, chunk.next_offset))
    read_from = min(following, chunk.high_watermark)
    jumps = chunk.next_offset < read_from and following < ranges.end
    kept = chunk._replace(records=_within(chunk.records, ranges), next_offset=following)
    return kept, read_from if jumps else None


def _within(records: Sequence[Any], ranges: Ranges) -> Sequence[Any]:
    """The records (or the offsets, where executors read the records) that lie in the ranges."""
    if isinstance(records, range):
        # Where executors read, no hole is allowed between the ranges.
        return range(max(records.start, ranges.start), min(records.stop, ranges.end))
    found: list[Any] = []
    for start, end in ranges.pairs:
        first = bisect_left(records, start, key=attrgetter("offset"))
        last = bisect_left(records, end, key=attrgetter("offset"))
        found += records[first:last]
    return found


def from_position(records: Sequence[Any], position: int) -> tuple[Sequence[Any], Sequence[int]]:
    """The records from a position on, and their offsets: a ``range`` if there is no gap.

    Where executors read the records, *records* are offsets themselves.
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
    if high - low + 1 == len(records):
        return records, range(low, high + 1)
    return records, [record.offset for record in records]


def without_done(
    kept: AckMap, records: Sequence[Any], offsets: Sequence[int]
) -> tuple[Sequence[Any], Sequence[int]]:
    """Leave out the records that an earlier owner had acked; returns the others, and their offsets.

    For the tracker they are a gap of the log.
    """
    still_open = frozenset(kept.open_between(offsets[0], offsets[-1] + 1))
    left = [
        record for record in records if record.offset >= kept.until or record.offset in still_open
    ]
    return left, [record.offset for record in left]

"""The records of a run with their bytes: out of the columns, or read again where executors have read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from reactive_kafka.delivery.lane import Slice
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark.batches import rows
from reactive_kafka.spark.batches.runs import RecordRun, end_of

Fetch = Callable[[TopicPartition, Collection[int]], AsyncGenerator[Sequence[RawRecord]]]
"""Reads records by their offsets, in pieces, ascending, without those that are not in the log any more."""

PIECE_RECORDS = 500
"""The most records that are made out of columns at once."""


async def raw_records(
    run: RecordRun, indexes: Collection[int], fetch: Fetch
) -> AsyncGenerator[list[tuple[int, RawRecord]]]:
    """Some records of a run with their arrival numbers, in pieces; those in columns first.

    Args:
        indexes: The arrival numbers.
        fetch: Reads the records that executors have read.
    """
    wanted = None if len(indexes) == run.records else set(indexes)
    at: dict[int, int] = {}  # offset -> arrival number, of the records to be fetched
    for part in run.slices:
        if isinstance(part.records, range):
            offsets = enumerate(part.records, part.first)
            at.update((offset, index) for index, offset in offsets if wanted is None or index in wanted)
        else:
            for piece in _of_columns(part, wanted):
                yield piece
    if at:
        async with aclosing(fetch(run.tracker.partition, at.keys())) as pieces:
            async for records in pieces:
                yield [(at[record.offset], record) for record in records if record.offset in at]


def _of_columns(part: Slice, wanted: set[int] | None) -> Iterator[list[tuple[int, RawRecord]]]:
    columns: Any = part.records
    if wanted is None:
        for at in range(0, len(columns), PIECE_RECORDS):
            yield list(enumerate(rows.records(columns[at : at + PIECE_RECORDS]), part.first + at))
        return
    found = [at - part.first for at in sorted(wanted.intersection(range(part.first, end_of(part))))]
    for begin in range(0, len(found), PIECE_RECORDS):
        piece = found[begin : begin + PIECE_RECORDS]
        yield [(part.first + at, record) for at in piece for record in rows.records(columns[at : at + 1])]

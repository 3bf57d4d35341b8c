"""Columns back into records, for the few that are handled one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reactive_kafka.records import HeaderPairs

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ColumnRecord:
    """A :class:`reactive_kafka.records.RawRecord` made out of columns."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


def records(piece: pa.RecordBatch) -> Iterator[ColumnRecord]:
    """The rows of a piece as records, in order; timestamps in milliseconds since the epoch."""
    # As numbers: a producer may write any, and Python's dates end with the year 9999.
    microseconds = piece.column("timestamp").cast("int64").to_pylist()
    rows = piece.select(["offset", "key", "value", "headers"]).to_pylist()
    for row, at in zip(rows, microseconds, strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        yield ColumnRecord(row["offset"], None if at is None else at // 1000, row["key"], row["value"], headers)

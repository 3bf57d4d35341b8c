"""Converts records to Arrow columns, those of Spark's Kafka source, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from reactive_kafka.records import HeaderPairs, RawRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# Making a piece of this size takes about 3 ms of the event loop.
PIECE_RECORDS = 2_000
# The package sets Spark's `localRelationThreshold` to this. Spark keeps smaller tables as rows and
# not as pieces.
SMALL_BYTES = 1 << 20
# A task reads so many pieces about as fast as one. More are combined before.
MOST_PIECES = 16
# Source: Kafka's TimestampType.
CREATE_TIME = 0
NO_TIMESTAMP_TYPE = -1


@cache
def schema() -> pa.Schema:
    """Return the columns of Spark's Kafka source with ``includeHeaders``.

    As there, a column is null if a record does not have its value.
    """
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            # Without a time zone Spark would make it a TIMESTAMP_NTZ.
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(header)),
        ]
    )


def record_batch(partition: TopicPartition, records: Sequence[RawRecord]) -> pa.RecordBatch:
    """Copy the records of one partition into rows of :func:`schema`.

    Call it with at most ``PIECE_RECORDS`` records on an event loop, because it takes time.
    """
    import pyarrow as pa

    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            _values([record.value for record in records]),
            pa.repeat(pa.scalar(partition[0], pa.string()), count),
            pa.repeat(pa.scalar(partition[1], pa.int32()), count),
            pa.array([record.offset for record in records], pa.int64()),
            _timestamps([record.timestamp for record in records]),
            pa.array([_timestamp_type(record) for record in records], pa.int32()),
            _headers([record.headers for record in records]),
        ],
        schema=schema(),
    )


def data_frame(spark: Any, pieces: Iterable[pa.RecordBatch]) -> Any:
    """Make a DataFrame of all rows of the pieces, which are copied to the driver."""
    import pyarrow as pa

    table = pa.Table.from_batches(pieces, schema())
    partitions = _partitions(spark, table)
    if partitions is None:
        table = table.combine_chunks()
    unsliced = map(_without_sliced_headers, table.to_batches())
    frame = spark.createDataFrame(pa.Table.from_batches(unsliced, schema()))
    return frame if partitions is None else frame.coalesce(partitions)


@dataclass(frozen=True, slots=True)
class ColumnRecord:
    """A :class:`reactive_kafka.records.RawRecord` made from columns."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


def records(piece: pa.RecordBatch) -> Iterator[ColumnRecord]:
    """Yield the rows of a piece as records, with timestamps in milliseconds since the epoch."""
    # Read timestamps as numbers: producers may write any, and Python's dates end in 9999.
    timestamps_us = piece.column("timestamp").cast("int64").to_pylist()
    rows = piece.select(["offset", "key", "value", "headers"]).to_pylist()
    for row, timestamp_us in zip(rows, timestamps_us, strict=True):
        timestamp = None if timestamp_us is None else timestamp_us // 1000
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        yield ColumnRecord(row["offset"], timestamp, row["key"], row["value"], headers)


def first_headers(piece: pa.RecordBatch, most: int) -> Iterator[tuple[int, HeaderPairs]]:
    """Yield offset and headers of the first *most* records of a piece that have headers."""
    import pyarrow.compute as compute

    columns = piece.select(["offset", "headers"])
    has_headers = compute.is_valid(columns.column("headers"))
    rows = columns.take(compute.indices_nonzero(has_headers)[:most])
    for row in rows.to_pylist():
        yield row["offset"], tuple((header["key"], header["value"]) for header in row["headers"])


def _partitions(spark: Any, table: pa.Table) -> int | None:
    """Return how many partitions Spark should make of a table's pieces.

    By default Spark makes one of each piece, and 28 partitions took twice as long as 5.

    None: combine the pieces here instead, which copies them. That is avoided for large batches: a
    copy needs as much memory again, and two batches are here at once.
    """
    if table.nbytes < SMALL_BYTES or not hasattr(spark, "sparkContext"):
        # It is small, or a Connect server makes the partitions.
        return None
    most_records = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
    partitions = -(-table.num_rows // most_records) if most_records > 0 else 1
    if table.column("offset").num_chunks > MOST_PIECES * partitions:
        return None
    return partitions


def _without_sliced_headers(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Copy the list column of a piece if it is a slice, because PySpark cannot read these."""
    import pyarrow as pa

    headers = piece.column("headers")
    if not headers.offset:
        return piece
    # With one array alone `concat_arrays` returns that array, without a copy.
    copied = pa.concat_arrays([headers, headers[:0]])
    return piece.set_column(
        piece.schema.get_field_index("headers"), schema().field("headers"), copied
    )


def _values(values: list[bytes | None]) -> pa.Array:
    """Make the same column as ``pa.array``, but in one allocation.

    ``pa.array`` appends value by value, and doubles its memory again and again. Columns are kept
    while a job runs, and that left holes in Arrow's memory almost as large as the columns.
    """
    import pyarrow as pa

    validity = None
    if None in values:
        validity = pa.array([value is not None for value in values]).buffers()[1]
    filled = [value or b"" for value in values]
    ends = pa.array([*accumulate(map(len, filled), initial=0)], pa.int32())
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, ends.buffers()[1], pa.py_buffer(b"".join(filled))]
    )


def _timestamp_type(record: RawRecord) -> int:
    # A raw record need not have this attribute.
    kind = getattr(record, "timestamp_type", None)
    if kind is not None:
        return int(kind)
    return NO_TIMESTAMP_TYPE if record.timestamp is None else CREATE_TIME


def _timestamps(milliseconds: list[int | None]) -> pa.Array:
    import pyarrow as pa

    wanted = pa.timestamp("us", "UTC")
    column = pa.array(milliseconds, pa.timestamp("ms", "UTC"))
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        # Producers may write any 64-bit number. Those too large for microseconds become null.
        limit = (2**63 - 1) // 1_000
        in_range = [
            timestamp if timestamp is not None and abs(timestamp) <= limit else None
            for timestamp in milliseconds
        ]
        return pa.array(in_range, pa.timestamp("ms", "UTC")).cast(wanted)


def _headers(rows: list[Any]) -> pa.Array:
    import pyarrow as pa

    kind = schema().field("headers").type
    pairs = [pair for row in rows for pair in row]
    if not pairs:
        return pa.nulls(len(rows), kind)
    try:
        names = pa.array([name for name, _ in pairs], pa.string())
    except UnicodeEncodeError:
        # A column of strings cannot hold bytes that are no UTF-8. They become text such as \xff.
        escaped = (
            name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            for name, _ in pairs
        )
        names = pa.array(list(escaped), pa.string())
    structs = pa.StructArray.from_arrays(
        [names, pa.array([value for _, value in pairs], pa.binary())],
        fields=list(kind.value_type),
    )
    ends = accumulate((len(row) for row in rows), initial=0)
    # If the start of a list is None, the list itself is null.
    starts = [end if row else None for end, row in zip(ends, rows, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, len(pairs)], pa.int32()), structs)

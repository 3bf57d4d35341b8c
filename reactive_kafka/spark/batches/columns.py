"""Records as Arrow columns: those of Spark's own Kafka source, and back. Pure."""

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
# The package's ``localRelationThreshold``: Spark keeps no more than this as rows, not as pieces.
SMALL_BYTES = 1 << 20
# That a task reads one by one in the time that it takes for one; more are combined before.
MOST_PIECES = 16
# Source: Kafka's TimestampType.
CREATE_TIME = 0
NO_TIMESTAMP_TYPE = -1


@cache
def schema() -> pa.Schema:
    """The columns of Spark's Kafka source with ``includeHeaders``; what a record lacks is null, as
    there.
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
            # Without a zone Spark would make it TIMESTAMP_NTZ.
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(header)),
        ]
    )


def record_batch(partition: TopicPartition, records: Sequence[RawRecord]) -> pa.RecordBatch:
    """The records of one partition, copied, as rows of :func:`schema`; at most ``PIECE_RECORDS`` on
    an event loop.
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
    """A DataFrame of all rows of the pieces, which are copied to the driver."""
    import pyarrow as pa

    table = pa.Table.from_batches(pieces, schema())
    partitions = _partitions(spark, table)
    if partitions is None:
        table = table.combine_chunks()
    frame = spark.createDataFrame(
        pa.Table.from_batches(map(_from_its_start, table.to_batches()), schema())
    )
    return frame if partitions is None else frame.coalesce(partitions)


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
        yield ColumnRecord(
            row["offset"], None if at is None else at // 1000, row["key"], row["value"], headers
        )


def first_headers(piece: pa.RecordBatch, most: int) -> Iterator[tuple[int, HeaderPairs]]:
    """Offset and headers of the first *most* records of a piece that have headers."""
    import pyarrow.compute as compute

    there = piece.select(["offset", "headers"])
    there = there.take(compute.indices_nonzero(compute.is_valid(there.column("headers")))[:most])
    for row in there.to_pylist():
        yield row["offset"], tuple((header["key"], header["value"]) for header in row["headers"])


def _partitions(spark: Any, table: pa.Table) -> int | None:
    """How many partitions Spark is to make of a table's pieces; None: they are to be combined here,
    which copies them.

    By itself Spark makes one of each piece, and 28 of them took twice as long as 5. A copy of a
    large batch is as much memory as the batch, of which two are here at once.
    """
    # It is a Connect server that cuts.
    if table.nbytes < SMALL_BYTES or not hasattr(spark, "sparkContext"):
        return None
    most_records = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
    partitions = -(-table.num_rows // most_records) if most_records > 0 else 1
    return partitions if table.column("offset").num_chunks <= MOST_PIECES * partitions else None


def _from_its_start(piece: pa.RecordBatch) -> pa.RecordBatch:
    """The piece with its list column copied if that is a slice: PySpark cannot read slices of
    lists.
    """
    import pyarrow as pa

    headers = piece.column("headers")
    if not headers.offset:
        return piece
    # One array alone would be returned as it is.
    copied = pa.concat_arrays([headers, headers[:0]])
    return piece.set_column(
        piece.schema.get_field_index("headers"), schema().field("headers"), copied
    )


def _values(values: list[bytes | None]) -> pa.Array:
    """The column that ``pa.array`` makes, in one allocation of its size.

    What makes it value by value doubles its memory again and again. Where columns are kept for as
    long as a job runs this left holes in Arrow's memory that were almost as large as the columns.
    """
    import pyarrow as pa

    there = None
    if None in values:
        there = pa.array([value is not None for value in values]).buffers()[1]
    filled = [value or b"" for value in values]
    ends = pa.array([*accumulate(map(len, filled), initial=0)], pa.int32())
    return pa.Array.from_buffers(
        pa.binary(), len(values), [there, ends.buffers()[1], pa.py_buffer(b"".join(filled))]
    )


def _timestamp_type(record: RawRecord) -> int:
    # Optional in a raw record.
    if (kind := getattr(record, "timestamp_type", None)) is not None:
        return int(kind)
    return NO_TIMESTAMP_TYPE if record.timestamp is None else CREATE_TIME


def _timestamps(milliseconds: list[int | None]) -> pa.Array:
    import pyarrow as pa

    wanted = pa.timestamp("us", "UTC")
    column = pa.array(milliseconds, pa.timestamp("ms", "UTC"))
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        # A producer may write any 64-bit number; those too large for microseconds become null.
        limit = (2**63 - 1) // 1_000
        kept = [one if one is not None and abs(one) <= limit else None for one in milliseconds]
        return pa.array(kept, pa.timestamp("ms", "UTC")).cast(wanted)


def _headers(rows: list[Any]) -> pa.Array:
    import pyarrow as pa

    kind = schema().field("headers").type
    pairs = [pair for row in rows for pair in row]
    if not pairs:
        return pa.nulls(len(rows), kind)
    try:
        names = pa.array([name for name, _ in pairs], pa.string())
    except UnicodeEncodeError:
        # Bytes of a name that are no UTF-8, which a column of strings cannot hold: as \xff.
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
    # None: the list itself is null.
    starts = [end if row else None for end, row in zip(ends, rows, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, len(pairs)], pa.int32()), structs)

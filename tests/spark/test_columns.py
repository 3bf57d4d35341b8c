import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.spark.batches.columns import data_frame, first_headers, record_batch, schema

from .records import Raw

CLICKS = TopicPartition("clicks", 3)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert str(schema().field("headers").type) == "list<item: struct<key: string, value: binary>>"
    assert [f"{field.name} {field.type}" for field in schema()][:-1] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int32",
        "offset int64",
        "timestamp timestamp[us, tz=UTC]",
        "timestampType int32",
    ]


def test_a_record_becomes_a_row() -> None:
    record = Raw(7, key=b"k", value=b"v", headers=[("trace", b"1"), ("trace", None)])
    (row,) = record_batch(CLICKS, [record]).to_pylist()
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "clicks",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
    }


def test_what_a_record_lacks_is_null() -> None:
    (row,) = record_batch(CLICKS, [Raw(7, timestamp=None, key=None, value=None)]).to_pylist()
    assert [row[name] for name in ("key", "value", "timestamp", "headers")] == [
        None,
        None,
        None,
        None,
    ]
    # Kafka's NO_TIMESTAMP_TYPE.
    assert row["timestampType"] == -1


def test_the_timestamp_type_of_the_clients_record_is_kept() -> None:
    @dataclass(frozen=True)
    class WithType(Raw):
        timestamp_type: int = 1

    (row,) = record_batch(CLICKS, [WithType(7)]).to_pylist()
    assert row["timestampType"] == 1


def test_the_clients_own_record_needs_no_copy() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000,
    )
    builder.append(0, 1_700_000_000_123, b"k", b"v", [("trace", b"1")])
    (row,) = record_batch(CLICKS, list(DefaultRecordBatch(bytes(builder.build())))).to_pylist()
    assert (row["offset"], row["key"], row["value"], row["timestampType"]) == (0, b"k", b"v", 0)
    assert row["headers"] == [{"key": "trace", "value": b"1"}]


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63) + 1])
def test_a_timestamp_beyond_what_spark_can_hold_is_null_and_its_neighbours_keep_theirs(
    timestamp: int,
) -> None:
    rows = record_batch(
        CLICKS, [Raw(1), Raw(2, timestamp=timestamp), Raw(3, timestamp=-1)]
    ).to_pylist()
    assert [row["timestamp"] is None for row in rows] == [False, True, False]


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=4), st.none() | st.integers(0, 2**40), HEADERS),
        max_size=8,
    )
)
def test_every_row_is_its_record(
    drawn: list[tuple[bytes | None, int | None, list[tuple[str, bytes | None]]]],
) -> None:
    records = [
        Raw(offset, time, value, value, headers)
        for offset, (value, time, headers) in enumerate(drawn)
    ]
    batch = record_batch(CLICKS, records)
    batch.validate(full=True)
    for row, record in zip(batch.to_pylist(), records, strict=True):
        assert (row["offset"], row["key"], row["value"]) == (
            record.offset,
            record.key,
            record.value,
        )
        assert [(one["key"], one["value"]) for one in row["headers"] or ()] == list(record.headers)
        # As Spark's own source has it.
        assert (row["headers"] is None) == (not record.headers)
        milliseconds = row["timestamp"] and round(row["timestamp"].timestamp() * 1000)
        assert milliseconds == record.timestamp


def test_a_name_that_is_no_utf_8_shows_its_bytes() -> None:
    """Row F12 of the faults, in columns of Spark's, whose names are strings."""
    (row,) = record_batch(
        CLICKS, [Raw(7, headers=[("caf\udce9", b"1"), ("café", None)])]
    ).to_pylist()
    assert row["headers"] == [{"key": "caf\\xe9", "value": b"1"}, {"key": "café", "value": None}]


@given(
    st.lists(
        st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
        max_size=8,
    ),
    st.integers(0, 9),
    st.integers(0, 8),
)
def test_the_first_headers_of_a_piece_are_those_of_its_records(
    drawn: list[list[tuple[str, bytes | None]]], most: int, cut: int
) -> None:
    records = [Raw(offset, headers=headers) for offset, headers in enumerate(drawn)]
    piece = record_batch(CLICKS, records).slice(cut)
    assert (
        list(first_headers(piece, most))
        == [(record.offset, tuple(record.headers)) for record in records[cut:] if record.headers][
            :most
        ]
    )


TWO_BATCHES_AT_A_TIME = """
import os
from collections import deque
from pathlib import Path
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import record_batch
from tests.spark.records import Raw

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

records = [Raw(offset, value=b"%08d" % offset * 56) for offset in range(2_000)]
record_batch(TopicPartition("clicks", 3), records[:1])
before, kept, most = resident(), deque(maxlen=50), 0
for _ in range(150):
    kept.append(record_batch(TopicPartition("clicks", 3), records))
    most = max(most, resident())
print((most - before) / sum(piece.nbytes for piece in kept))
"""


def test_pieces_that_come_and_go_leave_no_holes_in_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_BATCHES_AT_A_TIME], capture_output=True, text=True, check=True
    )
    # 1.9 with a column of values that grows by doubling.
    assert float(done.stdout) < 1.3


@dataclass
class Frame:
    table: pa.Table
    partitions: int | None = None

    def coalesce(self, partitions: int) -> "Frame":
        return Frame(self.table, partitions)


@dataclass
class Classic:
    """As much of a classic session as a DataFrame of columns needs."""

    conf: dict[str, str] = field(
        default_factory=lambda: {"spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}
    )
    sparkContext: Any = None

    def createDataFrame(self, table: pa.Table) -> Frame:
        return Frame(table)


def pieces_of(sizes: list[int], value_bytes: int) -> list[pa.RecordBatch]:
    return [
        record_batch(CLICKS, [Raw(at, value=bytes(value_bytes)) for at in range(size)])
        for size in sizes
    ]


def addresses(pieces: list[pa.RecordBatch]) -> list[int]:
    return [piece.column("value").buffers()[2].address for piece in pieces]


@pytest.mark.parametrize(
    ("sizes", "most", "partitions"),
    [
        ([2_000] * 6 + [500], 10_000, 2),
        ([2_000] * 10, 10_000, 2),
        ([2_000] * 10, 3_000, 7),
        ([2_000] * 10, 0, 1),
    ],
)
def test_a_large_batch_goes_to_spark_without_a_copy_in_as_many_partitions_as_its_pieces_combined(
    sizes: list[int], most: int, partitions: int
) -> None:
    pieces = pieces_of(sizes, 200)
    spark = Classic({"spark.sql.execution.arrow.maxRecordsPerBatch": str(most)})
    frame = data_frame(spark, pieces)
    assert frame.partitions == partitions
    assert addresses(frame.table.to_batches()) == addresses(pieces)


@pytest.mark.parametrize(
    ("sizes", "value_bytes"), [([100] * 5, 200), ([50] * 100, 300)], ids=["small", "many pieces"]
)
def test_what_is_small_or_in_very_many_pieces_is_combined(
    sizes: list[int], value_bytes: int
) -> None:
    pieces = pieces_of(sizes, value_bytes)
    frame = data_frame(Classic(), pieces)
    assert frame.partitions is None
    (combined,) = frame.table.to_batches()
    assert combined.to_pylist() == [row for piece in pieces for row in piece.to_pylist()]

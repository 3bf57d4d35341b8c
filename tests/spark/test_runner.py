import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from reactive_kafka.config.schema import SparkChannelSettings
from reactive_kafka.errors import OffloadError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batch import SparkBatch, spark_range
from reactive_kafka.spark.engine import SparkEngine
from reactive_kafka.spark.runner import Pieces, SparkRunner, ranges_of

from .records import Raw, pieces_of

CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
SPARK = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark leaves those of collect() open
]


def on_spark(test: Any) -> Any:
    for mark in SPARK:
        test = mark(test)
    return test


def runner_of(engine: SparkEngine, function: Any, timeout_s: float = 60.0) -> SparkRunner:
    return SparkRunner(engine, function, "clicks", SparkChannelSettings(timeout_s=timeout_s), group_id="billing")


def thousand_byte_records(partition: TopicPartition, count: int) -> Pieces:
    return pieces_of(partition, [Raw(offset, value=b"x" * 200, headers=[("a", b"1")]) for offset in range(count)])


def test_ranges_reach_from_each_partitions_first_record_to_its_last() -> None:
    pieces = [
        *pieces_of(CLICKS_1, [Raw(5), Raw(9)]),  # with a gap
        *pieces_of(CLICKS_0, [Raw(100)]),
        *pieces_of(CLICKS_1, [Raw(12)]),
    ]
    assert ranges_of("billing", pieces) == (
        spark_range("billing", CLICKS_0, 100, 101),
        spark_range("billing", CLICKS_1, 5, 13),
    )


@on_spark
async def test_a_batchs_rows_arrive_with_all_columns(engine: SparkEngine) -> None:
    rows: list[Any] = []
    records = [Raw(5, key=None, headers=[("trace", b"1"), ("trace", None)]), Raw(9, timestamp=None, value=None)]
    await runner_of(engine, lambda df, batch: rows.extend(df.orderBy("offset").collect())).run_batch(
        pieces_of(CLICKS_1, records), attempt=1
    )
    first, second = (row.asDict(recursive=True) for row in rows)
    timestamp = first.pop("timestamp")
    assert timestamp.astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert first == {
        "key": None,
        "value": b"value",
        "topic": "clicks",
        "partition": 1,
        "offset": 5,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
    }
    assert (second["offset"], second["value"], second["timestamp"], second["headers"]) == (9, None, None, None)


@on_spark
async def test_the_columns_have_the_types_of_sparks_kafka_source(engine: SparkEngine) -> None:
    types: list[tuple[str, str]] = []
    await runner_of(engine, lambda df, batch: types.extend(df.dtypes)).run_batch(pieces_of(CLICKS_0, [Raw(0)]), 1)
    assert types == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


@on_spark
async def test_the_function_is_told_its_batch(engine: SparkEngine) -> None:
    batches: list[SparkBatch] = []
    counts: list[int] = []

    def function(df: Any, batch: SparkBatch) -> None:
        batches.append(batch)
        counts.append(batch.spark.range(3).count())

    pieces = [*pieces_of(CLICKS_1, [Raw(5)]), *pieces_of(CLICKS_0, [Raw(7)])]
    runner = runner_of(engine, function)
    await runner.run_batch(pieces, attempt=1)
    await runner.run_batch(pieces, attempt=2)
    first, second = batches
    assert [str(one) for one in first.ranges] == ["clicks-0 [7, 8)", "clicks-1 [5, 6)"]
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.id == second.id == "-".join(one.id for one in first.ranges)
    assert counts == [3, 3]


@on_spark
async def test_a_big_batch_loses_no_row_and_does_not_hold_up_the_event_loop(engine: SparkEngine) -> None:
    counts: list[int] = []
    pieces = [*thousand_byte_records(CLICKS_0, 25_000), *thousand_byte_records(CLICKS_1, 25_000)]
    runner = runner_of(engine, lambda df, batch: counts.append(df.select("partition", "offset").distinct().count()))
    worst_s = await worst_lag_during(runner.run_batch(pieces, attempt=1))
    assert counts == [50_000]
    assert runner.facts().batch_records == 50_000
    assert worst_s < 0.5


async def worst_lag_during(work: Any) -> float:
    """How late a timer of 1 ms was at worst while *work* ran, in seconds."""
    task = asyncio.ensure_future(work)
    worst_s = 0.0
    while not task.done():
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        worst_s = max(worst_s, time.perf_counter() - asked - 0.001)
    await task
    return worst_s


@on_spark
async def test_a_failed_batch_names_channel_size_ranges_and_reason(engine: SparkEngine) -> None:
    error = ValueError("no such customer")

    def function(df: Any, batch: SparkBatch) -> None:
        raise error

    with pytest.raises(OffloadError) as failed:
        await runner_of(engine, function).run_batch(pieces_of(CLICKS_0, [Raw(7), Raw(8)]), attempt=2)
    assert str(failed.value) == (
        "channel 'clicks': Spark batch of 2 records (clicks-0 [7, 9)), attempt 2: ValueError: no such customer"
    )
    assert failed.value.__cause__ is error


@on_spark
async def test_each_batch_is_counted_by_its_outcome(engine: SparkEngine) -> None:
    def function(df: Any, batch: SparkBatch) -> None:
        if batch.attempt == 1:
            df.count()
        elif batch.attempt == 2:
            raise ValueError
        else:
            df.rdd.map(lambda row: time.sleep(60)).count()

    runner = runner_of(engine, function)
    pieces = pieces_of(CLICKS_0, [Raw(0)])
    await runner.run_batch(pieces, 1)
    with pytest.raises(OffloadError):
        await runner.run_batch(pieces, 2)
    task = asyncio.create_task(runner.run_batch(pieces, 3))
    while not runner.facts().tasks["active"]:  # noqa: ASYNC110 - Spark's own progress: nobody could set an event
        await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    facts = runner.facts()
    assert facts.jobs == {"ok": 1, "failed": 1, "cancelled": 1, "lost": 0}
    assert sum(facts.job_durations.counts) == 3
    assert (facts.channel, facts.ready, facts.reason) == ("clicks", True, None)


@on_spark
async def test_a_batch_that_does_not_end_in_time_fails(engine: SparkEngine) -> None:
    runner = runner_of(engine, lambda df, batch: df.rdd.map(lambda row: time.sleep(60)).count(), timeout_s=1.0)
    with pytest.raises(OffloadError, match="cancelled, not done after 1 s"):
        await runner.run_batch(pieces_of(CLICKS_0, [Raw(0)]), attempt=1)
    assert runner.facts().jobs["failed"] == 1

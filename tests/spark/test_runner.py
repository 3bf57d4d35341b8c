import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.errors import BadDataError, JobTimeoutError, OffloadError, RejectedByJobError
from reactive_kafka.events import SparkBatchEnded, SparkBatchProgress
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.batches.spark_batch import (
    BatchPart,
    Rejected,
    SparkBatch,
    collected,
    spark_range,
)
from reactive_kafka.spark.session.spark_engine import SparkEngine

from .records import CLICKS_0, CLICKS_1, Heard, Raw, on_spark, part_of, runner_of


def many_records(partition: TopicPartition, count: int) -> BatchPart:
    return part_of(
        partition, [Raw(offset, value=b"x" * 200, headers=[("a", b"1")]) for offset in range(count)]
    )


@on_spark
async def test_a_batchs_rows_arrive_with_all_columns(engine: SparkEngine) -> None:
    rows: list[Any] = []
    records = [
        Raw(5, key=None, headers=[("trace", b"1"), ("trace", None)]),
        Raw(9, timestamp=None, value=None),
    ]
    await runner_of(
        engine, lambda df, batch: rows.extend(df.orderBy("offset").collect())
    ).run_batch([part_of(CLICKS_1, records)], attempt=1)
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
    assert (second["offset"], second["value"], second["timestamp"], second["headers"]) == (
        9,
        None,
        None,
        None,
    )


@on_spark
async def test_a_batch_may_be_cut_out_of_a_piece_with_or_without_headers(
    engine: SparkEngine,
) -> None:
    rows: list[Any] = []
    without = record_batch(CLICKS_0, [Raw(offset) for offset in range(6)])
    some = record_batch(
        CLICKS_1, [Raw(offset, headers=[("a", b"1")] * (offset % 3)) for offset in range(6)]
    )
    parts = [
        BatchPart(spark_range("billing", partition, 3, 5), (piece[3:5],), 2)
        for partition, piece in ((CLICKS_0, without), (CLICKS_1, some))
    ]
    for part in parts:
        runner = runner_of(engine, lambda df, batch: rows.extend(df.orderBy("offset").collect()))
        await runner.run_batch([part], attempt=1)
    found = [
        (row["partition"], row["offset"], [(one["key"]) for one in row["headers"] or ()])
        for row in rows
    ]
    assert found == [(0, 3, []), (0, 4, []), (1, 3, []), (1, 4, ["a"])]


@on_spark
async def test_the_columns_have_the_types_of_sparks_kafka_source(engine: SparkEngine) -> None:
    types: list[tuple[str, str]] = []
    await runner_of(engine, lambda df, batch: types.extend(df.dtypes)).run_batch(
        [part_of(CLICKS_0, [Raw(0)])], 1
    )
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

    parts = [part_of(CLICKS_1, [Raw(5)]), part_of(CLICKS_0, [Raw(7)])]
    runner = runner_of(engine, function)
    await runner.run_batch(parts, attempt=1)
    await runner.run_batch(parts, attempt=2, supersedes=("a", "b"))
    first, second = batches
    assert [str(one) for one in first.ranges] == ["clicks-0 [7, 8)", "clicks-1 [5, 6)"]
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.supersedes, second.supersedes) == ((), ("a", "b"))
    assert runner.facts().bisection_jobs == 1
    assert first.id == second.id == "-".join(one.id for one in first.ranges)
    assert counts == [3, 3]


@on_spark
async def test_a_big_batch_loses_no_row_and_does_not_hold_up_the_event_loop(
    engine: SparkEngine,
) -> None:
    counts: list[int] = []
    parts = [many_records(CLICKS_0, 25_000), many_records(CLICKS_1, 25_000)]

    def count(df: Any, batch: SparkBatch) -> None:
        counts.extend(
            [df.select("partition", "offset").distinct().count(), df.rdd.getNumPartitions()]
        )

    runner = runner_of(engine, count)
    worst_s = await worst_lag_during(runner.run_batch(parts, attempt=1))
    # A task for 10,000 records each, not one for each of the 26 pieces.
    assert counts == [50_000, 5]
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
        await runner_of(engine, function).run_batch(
            [part_of(CLICKS_0, [Raw(7), Raw(8)])], attempt=2
        )
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
    parts = [part_of(CLICKS_0, [Raw(0)])]
    await runner.run_batch(parts, 1)
    with pytest.raises(OffloadError):
        await runner.run_batch(parts, 2)
    task = asyncio.create_task(runner.run_batch(parts, 3))
    await until(lambda: bool(runner.facts().tasks["active"]))
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    facts = runner.facts()
    assert [one.outcome for one in facts.last] == ["ok", "failed", "cancelled"]
    assert [one.reason for one in facts.last[:2]] == [None, "ValueError"]
    # The last look may come after the end.
    await until(lambda: runner.facts().last[0].tasks_done > 0)
    assert facts.jobs == {"ok": 1, "failed": 1, "cancelled": 1, "lost": 0}
    assert sum(facts.job_durations.counts) == 3
    assert (facts.channel, facts.ready, facts.reason) == ("clicks", True, None)


@on_spark
async def test_a_batch_that_does_not_end_in_time_fails(engine: SparkEngine) -> None:
    runner = runner_of(
        engine, lambda df, batch: df.rdd.map(lambda row: time.sleep(60)).count(), timeout_s=1.0
    )
    with pytest.raises(JobTimeoutError, match="cancelled, not done after 1 s"):
        await runner.run_batch([part_of(CLICKS_0, [Raw(0)])], attempt=1)
    assert runner.facts().jobs["failed"] == 1


@on_spark
async def test_what_the_function_rejects_is_given_back_with_its_reason(engine: SparkEngine) -> None:
    error = KeyError("customer")

    def function(df: Any, batch: SparkBatch) -> None:
        again = df.where("offset = 2 OR offset = 3").selectExpr(
            "offset", "topic", "value", "partition"
        )
        # Twice the same rows, and the columns in another order.
        batch.reject(again.union(again), "no such page")
        batch.reject([("clicks", 0, 3), ("clicks", 1, 7)], error)

    runner = runner_of(engine, function)
    parts = [part_of(CLICKS_1, [Raw(7)]), part_of(CLICKS_0, [Raw(offset) for offset in range(5)])]
    first, second, third = await runner.run_batch(parts, attempt=1)
    assert (first.partition, first.offset, str(first.reason)) == (CLICKS_0, 2, "no such page")
    assert isinstance(first.reason, RejectedByJobError)
    assert (second.partition, second.offset, str(second.reason)) == (CLICKS_0, 3, "no such page")
    assert third == Rejected(CLICKS_1, 7, error)
    facts = runner.facts()
    assert (facts.rejected, facts.last[0].rejected, facts.last[0].outcome) == (3, 3, "ok")


@on_spark
async def test_rejecting_other_records_or_without_their_columns_raises_in_the_function(
    engine: SparkEngine,
) -> None:
    raised: list[str] = []

    def function(df: Any, batch: SparkBatch) -> None:
        for rows in (
            df.selectExpr("topic", "partition", "offset + 1 AS offset"),
            df.select("topic", "value"),
        ):
            with pytest.raises(ValueError) as refused:
                batch.reject(rows, "bad")
            raised.append(str(refused.value))

    assert (
        await runner_of(engine, function).run_batch(
            [part_of(CLICKS_0, [Raw(0), Raw(1)])], attempt=1
        )
        == []
    )
    assert raised == [
        "batch.reject: not records of this batch: clicks-0 offset 2; it covers clicks-0 [0, 2)",
        "batch.reject needs the columns topic, partition, offset; partition, offset not found among topic, value",
    ]


@on_spark
async def test_each_record_is_collected_once_and_no_more_than_a_batch_has(
    engine: SparkEngine,
) -> None:
    def collect(spark: Any) -> tuple[set[Any], int]:
        few = spark.range(50_000).selectExpr(
            "'clicks' AS topic", "0 AS partition", "id % 3 AS offset"
        )
        many = spark.range(50_000).selectExpr("'clicks' AS topic", "0 AS partition", "id AS offset")
        once = list(collected(few, 5))
        assert len(once) == 3
        return set(once), len(list(collected(many, 5)))

    found, count = await engine.run(collect, timeout_s=60, description="collect")
    assert found == {("clicks", 0, 0), ("clicks", 0, 1), ("clicks", 0, 2)}
    assert count == 5


@on_spark
async def test_nothing_is_rejected_by_a_function_that_raises(engine: SparkEngine) -> None:
    def function(df: Any, batch: SparkBatch) -> None:
        batch.reject(df, "all of them")
        df.selectExpr("CAST('x' AS INT)").collect()

    runner = runner_of(engine, function)
    with pytest.raises(BadDataError):
        await runner.run_batch([part_of(CLICKS_0, [Raw(0)])], attempt=1)
    assert runner.facts().rejected == 0


@on_spark
async def test_each_row_can_be_given_the_id_of_its_range(engine: SparkEngine) -> None:
    ids: list[tuple[str, int, str]] = []

    def function(df: Any, batch: SparkBatch) -> None:
        rows = batch.with_range_id(df).select("topic", "offset", "range_id").collect()
        ids.extend(sorted(map(tuple, rows)))

    odd = TopicPartition("it's a \\ topic", 0)
    parts = [
        part_of(CLICKS_0, [Raw(5), Raw(6)]),
        part_of(CLICKS_0, [Raw(10)]),
        part_of(odd, [Raw(5)]),
    ]
    await runner_of(engine, function).run_batch(parts, attempt=1)
    one, other, third = (part.range.id for part in parts)
    assert ids == [
        ("clicks", 5, one),
        ("clicks", 6, one),
        ("clicks", 10, other),
        (odd.topic, 5, third),
    ]


@on_spark
async def test_the_end_of_a_batch_is_told(engine: SparkEngine) -> None:
    heard = Heard()
    runner = runner_of(engine, lambda df, batch: batch.reject(df.limit(1), "bad"), observer=heard)
    part = part_of(CLICKS_0, [Raw(0), Raw(1)])
    await runner.run_batch([part], attempt=3)
    (ended,) = heard.events
    assert isinstance(ended, SparkBatchEnded)
    assert (ended.channel, ended.id, ended.outcome, ended.records) == (
        "clicks",
        part.range.id,
        "ok",
        2,
    )
    assert (ended.attempt, ended.rejected, ended.reason) == (3, 1, None)
    assert ended.duration_s == runner.facts().last[0].since_s > 0


@on_spark
async def test_two_batches_run_side_by_side_in_the_channels_pool_and_tell_how_far_they_are(
    engine: SparkEngine,
) -> None:
    heard = Heard()
    pools: list[str] = []

    def function(df: Any, batch: SparkBatch) -> None:
        pools.append(batch.spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        if batch.ranges[0].partition == 0:
            df.rdd.map(lambda row: time.sleep(60)).count()

    runner = runner_of(engine, function, observer=heard, progress_every_s=0.2)
    long = asyncio.create_task(runner.run_batch([part_of(CLICKS_0, [Raw(0)])], 1))
    try:
        await until(lambda: bool(runner.facts().tasks["active"]))
        # Beside it.
        assert await runner.run_batch([part_of(CLICKS_1, [Raw(0)])], 1) == []
        (running,) = runner.facts().running
        assert (running.ranges, running.outcome) == (("clicks-0 [0, 1)",), None)
        await until(
            lambda: any(
                isinstance(event, SparkBatchProgress) and event.batch.tasks_active
                for event in heard.events
            )
        )
    finally:
        long.cancel()
        await asyncio.wait({long}, timeout=20)
    last = heard.events[-1]
    assert isinstance(last, SparkBatchEnded)
    assert last.outcome == "cancelled"
    assert runner.facts().running == ()
    assert pools == ["clicks", "clicks"]


@on_spark
async def test_a_channel_may_name_its_pool(engine: SparkEngine) -> None:
    pools: list[str] = []

    def function(df: Any, batch: SparkBatch) -> None:
        pools.append(batch.spark.sparkContext.getLocalProperty("spark.scheduler.pool"))

    await runner_of(engine, function, pool="slow").run_batch([part_of(CLICKS_0, [Raw(0)])], 1)
    assert pools == ["slow"]


@on_spark
async def test_a_source_makes_the_data_frame_of_a_batchs_parts(engine: SparkEngine) -> None:
    ranges = spark_range("billing", CLICKS_0, 5, 8)
    rows: list[int] = []

    def offsets(spark: Any, parts: Any) -> Any:
        (piece,) = parts[0].pieces
        return spark.range(piece.start, piece.stop).withColumnRenamed("id", "offset")

    runner = runner_of(
        engine, lambda df, batch: rows.extend(row.offset for row in df.collect()), source=offsets
    )
    await runner.run_batch([BatchPart(ranges, (range(5, 8),), 3)], attempt=1)
    assert sorted(rows) == [5, 6, 7]


async def until(condition: Any, limit_s: float = 20.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - Spark's own progress: nobody could set an event
            await asyncio.sleep(0.05)

"""The job of a batch inside of an application: what it leaves, and how it finds bad records."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from reactive_kafka import SparkBatch
from reactive_kafka.spark.batches.bisection import jobs_for
from reactive_kafka.spark.channel.batch_job import SparkJob
from tests.app.helpers import in_virtual_time, make_broker, running, send, tp, until
from tests.app.spark_stage import DEAD, WAITS, bad_if, letters, spark_app


@in_virtual_time
async def test_a_spark_batch_that_is_done_is_let_go_without_the_garbage_collector() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, rate_limit="1000/s", spark={"batch_max_records": 20})
    gc.collect()
    # Those of other tests may be held by what pytest keeps of a failure.
    others = [one for one in gc.get_objects() if isinstance(one, SparkJob)]
    gc.disable()
    try:
        async with running(app, broker=broker) as test:
            await send(test, *[b"1"] * 60)
            await test.settled(timeout=20)
            assert len(engine.jobs) == 3
            left = [
                one
                for one in gc.get_objects()
                if isinstance(one, SparkJob) and not any(one is other for other in others)
            ]
            assert left == []
    finally:
        gc.enable()
    await broker.close()


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_ten_bad_records_are_found_alone_while_another_job_runs_and_others_are_rejected(
    mode: str,
) -> None:
    """Row I5 of the faults."""
    broker, count = make_broker(2), 2_000
    bad, rejected = {0, 1, 2, 700, 702, 703, 1_000, 1_500, 1_998, 1_999}, {3, 701, 1_600}
    settings = {
        "mode": mode,
        "on_failure": "bisect",
        "max_concurrent_jobs": 2,
        "batch_max_records": count,
    }
    app, engine = spark_app(broker, spark=settings, **DEAD)
    breaks = bad_if(*bad)
    engine.judge = lambda job: WAITS if job.offsets[0][0] == 1 else breaks(job)

    def reject(batch: SparkBatch) -> None:
        (one,) = batch.ranges
        mine = [
            offset
            for offset in sorted(rejected)
            if one.start <= offset < one.until and one.partition == 0
        ]
        batch.reject([("orders", 0, offset) for offset in mine], "not this one")

    engine.inside = reject
    async with running(app, broker=broker, partitions=2) as test:
        await send(test, 0, partition=1)
        await until(lambda: engine.running)
        (other,) = engine.running
        await send(test, *range(count))
        await until(lambda: test.committed("orders").get(tp()) == count, 600)
        assert engine.running == [other]
        other.end()
        await until(lambda: test.committed("orders").get(tp(1)) == 1)
    assert sorted(int(value or b"") for value in letters(broker, 2)) == sorted(bad | rejected)
    worked = Counter(
        at for job in engine.jobs if not bad & set(job.values) for at in job.offsets if at[0] == 0
    )
    assert worked == Counter((0, offset) for offset in range(count) if offset not in bad)
    whole = next(job for job in engine.jobs if len(job.rows) == count)
    assert len(engine.jobs) - engine.jobs.index(whole) - 1 <= jobs_for(count)[1]

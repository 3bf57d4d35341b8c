"""Bad records in a large batch on a real Spark: they alone are dead letters."""

from __future__ import annotations

from collections import Counter
from typing import Any

from reactive_kafka import App, SparkBatch
from reactive_kafka.spark.batches.bisection import jobs_for
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.app.helpers import positions, running, send, tp, until
from tests.spark.records import on_spark

RECORDS, BAD = 10_000, (1_234, 5_678, 9_012)
# Not in Python: 72 jobs with a worker each take a minute and a half on a busy machine.
CHECKED = f"CASE WHEN offset IN {BAD} THEN raise_error('broken') ELSE offset END AS offset"


@on_spark
async def test_three_bad_records_of_ten_thousand_are_the_only_dead_letters(
    engine: SparkEngine,
) -> None:
    """Row I5 of the faults."""
    channel = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "failure_strategy": "dead-letter-queue",
        "spark": {"batch_max_records": RECORDS, "batch_max_wait": "30s", "on_failure": "bisect"},
    }
    # It takes the session that there is.
    app = App({"incoming": {"orders": channel}})
    worked, attempts = Counter[int](), list[SparkBatch]()

    @app.spark("orders")
    def keep(df: Any, batch: SparkBatch) -> None:
        attempts.append(batch)
        rows = df.selectExpr(CHECKED).collect()
        worked.update(row.offset for row in rows)

    async with running(app) as test:
        await send(test, *range(RECORDS))
        await until(lambda: test.committed("orders").get(tp()) == RECORDS, 240)
        letters = test.broker.log(tp(topic="dead-letter-topic-orders"))
        committed = positions(test.broker)
    whole, *jobs = attempts
    assert [(one.start, one.until) for one in whole.ranges] == [(0, RECORDS)]
    assert sorted(int(letter.value or b"") for letter in letters) == sorted(BAD)
    assert worked == Counter(set(range(RECORDS)) - set(BAD))
    assert committed == sorted(committed)
    assert jobs_for(RECORDS)[0] < len(jobs) <= jobs_for(RECORDS)[1]

"""A service whose executors read Kafka is killed under a batch: the next process goes on with the
same range.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

from reactive_kafka.spark.session.kafka_source import fetch_connector
from tests.faults.processes import descendants
from tests.faults.spark_stage import (
    Settings,
    Tasks,
    all_is_committed,
    calls,
    create,
    gone,
    member,
    produce,
)
from tests.faults.test_spark_kill import in_parquet

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

# A member that was killed.
SOON_GONE = '"session.timeout.ms" = 6000\n"heartbeat.interval.ms" = 500'
RANGES = {"clicks": Settings(more=SOON_GONE, spark='mode = "ranges"')}


async def test_after_a_kill_the_next_process_runs_the_planned_range_first_and_leaves_no_java_behind(
    kafka: str, tmp_path: Path
) -> None:
    fetch_connector()
    run, tasks = f"{uuid4().hex[:8]}-", Tasks(tmp_path)
    partitions = await create(kafka, f"{run}clicks", 1)
    service = member(kafka, tmp_path, run, RANGES)
    before = await produce(kafka, [(partitions[0], "hold")] * 20)
    try:
        killed = service.start()
        held = await tasks.held(killed, "clicks")
        below = descendants(killed.pid)
        killed.send(signal.SIGKILL)
        await gone(below)
        assert calls(killed, "clicks", "end") == []
        # Nobody would cut there again by himself.
        behind = await produce(kafka, [(partitions[0], "work")] * 30)
        tasks.let_go()
        following = service.start()
        await all_is_committed(kafka, *partitions)
    finally:
        for life in service.lives:
            life.end()

    assert any(one.is_java for one in below)
    assert any(one.is_python_worker for one in below)
    first, *others = calls(following, "clicks")
    assert first.id == held.id
    assert held.id not in {event.id for event in others}
    assert others, "the records behind the planned range went with it"
    assert in_parquet(tmp_path / "rows") == Counter(
        (number, offset) for (_, number), offset in [*before, *behind]
    )

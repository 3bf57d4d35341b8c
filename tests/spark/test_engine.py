import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from reactive_kafka.errors import JobStuckError, JobTimeoutError, MissingExtraError
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.config.values import spark_settings
from tests.harness.sockets import listening

pytestmark = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    # Pyspark leaves those of collect() open.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

ROWS = "id long"
DESCRIPTION = "channel 'clicks': test"


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


async def soon(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    await asyncio.to_thread(until, condition, limit_s)


def beating(beats: Path) -> Callable[[Any], None]:
    """A job whose one Python task adds a byte to *beats* every 10 ms for a minute."""
    file = str(beats)

    def beat(rows: Iterator[Any]) -> Iterator[Any]:
        for _ in range(6_000):
            with open(file, "a") as out:  # noqa: PTH123 - runs in Spark's Python worker
                out.write(".")
            time.sleep(0.01)
        yield from rows

    return lambda spark: spark.range(0, 1, 1, 1).mapInArrow(beat, ROWS).collect()


def size(beats: Path) -> int:
    return beats.stat().st_size if beats.exists() else 0


async def assert_over(engine: SparkEngine, beats: Path) -> None:
    """No job is active, and a Python task that wrote every 10 ms writes no more."""
    at_once = size(beats)
    assert at_once > 0
    active = await engine.run(
        lambda spark: spark.sparkContext.statusTracker().getActiveJobsIds(),
        timeout_s=10,
        description=DESCRIPTION,
    )
    assert active == []
    # 50 beats: nothing tells of a beat that does not come.
    await asyncio.sleep(0.5)
    assert size(beats) == at_once


async def test_what_a_job_returns_is_handed_on(engine: SparkEngine) -> None:
    assert (
        await engine.run(
            lambda spark: spark.range(10).count(), timeout_s=30, description=DESCRIPTION
        )
        == 10
    )
    assert engine.ready
    assert engine.reason is None


async def test_a_timeout_is_a_failure_that_comes_when_the_last_task_has_ended(
    engine: SparkEngine, tmp_path: Path
) -> None:
    beats, timeout_s = tmp_path / "beats", 1
    # On a busy machine its task may not have begun in time.
    while not size(beats):
        timeout_s *= 2
        with pytest.raises(JobTimeoutError, match=f"cancelled, not done after {timeout_s} s"):
            await engine.run(beating(beats), timeout_s=timeout_s, description=DESCRIPTION)
    await assert_over(engine, beats)


@pytest.mark.parametrize("by", ["asyncio", "anyio"])
async def test_cancelling_ends_the_job_before_it_returns(
    engine: SparkEngine, tmp_path: Path, by: str
) -> None:
    beats = tmp_path / "beats"
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await engine.run(beating(beats), timeout_s=60, description=DESCRIPTION)

    task = asyncio.create_task(run())
    await soon(lambda: size(beats) > 0)
    if by == "asyncio":
        task.cancel()
    else:
        scope.cancel()
    await asyncio.wait({task}, timeout=10)
    assert task.done()
    # A scope keeps its own cancellation to itself.
    assert task.cancelled() == (by == "asyncio")
    assert scope.cancelled_caught == (by == "anyio")
    await assert_over(engine, beats)


async def test_cancelling_twice_does_not_leave_before_the_last_task_has_ended(
    engine: SparkEngine, tmp_path: Path
) -> None:
    beats = tmp_path / "beats"
    task = asyncio.create_task(engine.run(beating(beats), timeout_s=60, description=DESCRIPTION))
    await soon(lambda: size(beats) > 0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=10)
    assert task.cancelled()
    await assert_over(engine, beats)


async def test_a_function_that_catches_the_cancellation_cannot_start_another_job(
    engine: SparkEngine, tmp_path: Path
) -> None:
    beats, caught, timeout_s = tmp_path / "beats", list[str](), 1

    def stubborn(spark: Any) -> None:
        for _ in range(3):
            try:
                beating(beats)(spark)
            except Exception as error:
                caught.append(type(error).__name__)

    while not size(beats):
        caught.clear()
        timeout_s *= 2
        with pytest.raises(JobTimeoutError, match="cancelled"):
            await engine.run(stubborn, timeout_s=timeout_s, description=DESCRIPTION)
    assert len(caught) == 3
    await assert_over(engine, beats)


async def test_a_job_that_waits_for_its_turn_leaves_at_once(engine: SparkEngine) -> None:
    go_on, ran = threading.Event(), []
    first = asyncio.create_task(
        engine.run(lambda spark: go_on.wait(30), timeout_s=60, description=DESCRIPTION)
    )
    await asyncio.sleep(0)
    second = asyncio.create_task(
        engine.run(ran.append, timeout_s=60, description=DESCRIPTION, alone=True)
    )
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second}, timeout=1)
    assert second.cancelled()
    go_on.set()
    await first
    assert ran == []


async def test_a_function_stuck_in_python_is_left_behind_and_can_start_no_job_later(
    engine: SparkEngine,
) -> None:
    go_on = threading.Event()
    late: list[str] = []

    def stuck(spark: Any) -> None:
        go_on.wait(60)
        try:
            late.append(f"counted {spark.range(1).count()}")
        except Exception as error:
            late.append(str(error))

    began = time.monotonic()
    with pytest.raises(JobStuckError, match="still running"):
        await engine.run(stuck, timeout_s=0.2, description=DESCRIPTION)
    # cancel_s is 5.
    assert time.monotonic() - began < 8
    async with asyncio.timeout(30):
        count = await engine.run(
            lambda spark: spark.range(2).count(), timeout_s=30, description=DESCRIPTION
        )
    assert (count, late) == (2, [])
    go_on.set()
    await soon(lambda: bool(late))
    assert "SPARK_JOB_CANCELLED" in late[0]


async def test_a_small_job_is_not_held_up_by_a_big_one_in_another_pool(engine: SparkEngine) -> None:
    def nap(rows: Iterator[Any]) -> Iterator[Any]:
        time.sleep(0.05)
        yield from rows

    def naps(tasks: int) -> Callable[[Any], int]:
        return lambda spark: len(spark.range(0, tasks, 1, tasks).mapInArrow(nap, ROWS).collect())

    seen: list[JobProgress] = []
    big = asyncio.create_task(
        # 15 s.
        engine.run(naps(600), timeout_s=600, description="big", pool="big", on_progress=seen.append)
    )
    await soon(lambda: bool(seen) and seen[-1].tasks_done > 0, limit_s=60)
    assert await engine.run(naps(2), timeout_s=60, description="small", pool="small") == 2
    assert not big.done()
    big.cancel()
    await asyncio.wait({big})


async def test_what_a_job_set_for_its_thread_is_gone_for_the_next(engine: SparkEngine) -> None:
    names = ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool", "spark.job.tags")
    seen: list[dict[str, str | None]] = []

    def look(spark: Any) -> None:
        seen.append({name: spark.sparkContext.getLocalProperty(name) for name in names})
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
        spark.sparkContext.addJobTag("mine")

    for description in ("first", "second"):
        await engine.run(look, timeout_s=30, description=description)
    first, second = seen
    assert first["spark.jobGroup.id"] != second["spark.jobGroup.id"]
    assert second["spark.job.description"] == "second"
    assert second["spark.scheduler.pool"] == "default"
    assert not second["spark.job.tags"]


async def test_tasks_are_counted_while_the_job_runs_and_at_its_end(
    engine: SparkEngine, tmp_path: Path
) -> None:
    seen: list[JobProgress] = []
    go_on = tmp_path / "go-on"
    file = str(go_on)

    def wait(rows: Iterator[Any]) -> Iterator[Any]:
        for _ in range(10_000):
            if os.path.exists(file):  # noqa: PTH110 - runs in Spark's Python worker
                break
            time.sleep(0.01)
        yield from rows

    def note(progress: JobProgress) -> None:
        seen.append(progress)
        # Local[2]
        if progress.tasks_active == 2:
            go_on.touch()

    await engine.run(
        lambda spark: spark.range(0, 3, 1, 3).mapInArrow(wait, ROWS).collect(),
        # The tasks wait 100 s.
        timeout_s=90,
        description=DESCRIPTION,
        on_progress=note,
    )
    await soon(lambda: seen[-1] == JobProgress(stages=1, stages_done=1, tasks=3, tasks_done=3))


async def test_what_listens_listens_on_loopback(engine: SparkEngine) -> None:
    """Row S13 of the faults."""
    assert engine.driver_pid is not None
    addresses = {address for address, _ in listening(engine.driver_pid)}
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


async def test_before_its_start_it_says_so() -> None:
    engine = SparkEngine(spark_settings())
    assert not engine.ready
    assert engine.reason == "Spark has not been started"
    await engine.stop()
    assert engine.reason == "Spark is stopped"


async def test_without_pyspark_starting_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[spark\]'"):
        await SparkEngine(spark_settings()).start()

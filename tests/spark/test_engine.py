import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.errors import MissingExtraError, OffloadError, SessionLostError
from reactive_kafka.spark.engine import SparkEngine
from reactive_kafka.spark.session import TaskCounts

pytestmark = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark leaves those of collect() open
]

ROWS = "id long"
DESCRIPTION = "channel 'clicks': test"


def until(condition: Callable[[], bool], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


async def soon(condition: Callable[[], bool], limit_s: float = 15.0) -> None:
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
    active: list[list[int]] = []
    await engine.run(
        lambda spark: active.append(spark.sparkContext.statusTracker().getActiveJobsIds()),
        timeout_s=10,
        description=DESCRIPTION,
    )
    assert active == [[]]
    await asyncio.sleep(0.5)  # 50 beats: nothing tells of a beat that does not come
    assert size(beats) == at_once


async def test_a_job_that_returns_is_done(engine: SparkEngine) -> None:
    counts = []
    await engine.run(lambda spark: counts.append(spark.range(10).count()), timeout_s=30, description=DESCRIPTION)
    assert counts == [10]
    assert engine.ready
    assert engine.reason is None


async def test_a_job_that_raises_fails_with_the_users_error_as_cause(engine: SparkEngine) -> None:
    error = ValueError("no such customer")

    def job(spark: Any) -> None:
        raise error

    with pytest.raises(OffloadError) as failed:
        await engine.run(job, timeout_s=30, description=DESCRIPTION)
    assert str(failed.value) == "channel 'clicks': test: ValueError: no such customer"
    assert failed.value.__cause__ is error


async def test_an_error_in_an_executors_python_is_named_by_its_own_words(engine: SparkEngine) -> None:
    def parse(rows: Iterator[Any]) -> Iterator[Any]:
        raise LookupError("row 7 is broken")

    with pytest.raises(OffloadError) as failed:
        await engine.run(
            lambda spark: spark.range(1).mapInArrow(parse, ROWS).collect(), timeout_s=30, description=DESCRIPTION
        )
    assert str(failed.value) == "channel 'clicks': test: LookupError: row 7 is broken"


async def test_sparks_own_error_is_one_line(engine: SparkEngine) -> None:
    with pytest.raises(OffloadError) as failed:
        await engine.run(lambda spark: spark.range(1).select("missing").count(), timeout_s=30, description=DESCRIPTION)
    assert "AnalysisException: [UNRESOLVED_COLUMN" in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_timeout_is_a_failure_that_comes_when_the_last_task_has_ended(
    engine: SparkEngine, tmp_path: Path
) -> None:
    beats = tmp_path / "beats"
    with pytest.raises(OffloadError, match="cancelled, not done after 2 s"):
        await engine.run(beating(beats), timeout_s=2, description=DESCRIPTION)
    await assert_over(engine, beats)


@pytest.mark.parametrize("by", ["asyncio", "anyio"])
async def test_cancelling_ends_the_job_before_it_returns(engine: SparkEngine, tmp_path: Path, by: str) -> None:
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
    assert task.cancelled() == (by == "asyncio")  # a scope keeps its own cancellation to itself
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
    beats, caught = tmp_path / "beats", []

    def stubborn(spark: Any) -> None:
        for _ in range(3):
            try:
                beating(beats)(spark)
            except Exception as error:
                caught.append(type(error).__name__)

    with pytest.raises(OffloadError, match="cancelled"):
        await engine.run(stubborn, timeout_s=2, description=DESCRIPTION)
    assert len(caught) == 3
    await assert_over(engine, beats)


async def test_a_job_that_waits_for_its_turn_leaves_at_once(engine: SparkEngine) -> None:
    go_on, ran = threading.Event(), []
    first = asyncio.create_task(engine.run(lambda spark: go_on.wait(30), timeout_s=60, description=DESCRIPTION))
    await asyncio.sleep(0)
    second = asyncio.create_task(engine.run(ran.append, timeout_s=60, description=DESCRIPTION))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second}, timeout=1)
    assert second.cancelled()
    go_on.set()
    await first
    assert ran == []


async def test_a_function_stuck_in_python_is_left_behind_and_can_start_no_job_later(engine: SparkEngine) -> None:
    go_on = threading.Event()
    late: list[str] = []

    def stuck(spark: Any) -> None:
        go_on.wait(60)
        try:
            late.append(f"counted {spark.range(1).count()}")
        except Exception as error:
            late.append(str(error))

    began = time.monotonic()
    with pytest.raises(OffloadError, match="cancelled"):
        await engine.run(stuck, timeout_s=0.2, description=DESCRIPTION)
    assert time.monotonic() - began < 8  # cancel_limit_s is 5
    counts: list[int] = []
    async with asyncio.timeout(30):
        await engine.run(lambda spark: counts.append(spark.range(2).count()), timeout_s=30, description=DESCRIPTION)
    assert (counts, late) == ([2], [])
    go_on.set()
    await soon(lambda: bool(late))
    assert "SPARK_JOB_CANCELLED" in late[0]


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
    assert second["spark.scheduler.pool"] is None
    assert not second["spark.job.tags"]


async def test_tasks_are_counted_while_the_job_runs_and_at_its_end(engine: SparkEngine, tmp_path: Path) -> None:
    seen: list[TaskCounts] = []
    go_on = tmp_path / "go-on"
    file = str(go_on)

    def wait(rows: Iterator[Any]) -> Iterator[Any]:
        for _ in range(2_000):
            if os.path.exists(file):  # noqa: PTH110 - runs in Spark's Python worker
                break
            time.sleep(0.01)
        yield from rows

    def note(tasks: TaskCounts) -> None:
        seen.append(tasks)
        if tasks.active == 2:  # local[2]
            go_on.touch()

    await engine.run(
        lambda spark: spark.range(0, 3, 1, 3).mapInArrow(wait, ROWS).collect(),
        timeout_s=15,  # the tasks wait 20 s
        description=DESCRIPTION,
        on_tasks=note,
    )
    await soon(lambda: seen[-1] == TaskCounts(active=0, completed=3, failed=0))


async def test_what_listens_listens_on_loopback(engine: SparkEngine) -> None:
    addresses = listening_addresses(engine.driver_pid)
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}


def listening_addresses(pid: int | None) -> set[str]:
    """Local addresses of the TCP sockets that process *pid* listens on."""
    mine = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if os.path.lexists(link)}  # noqa: PTH115
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                words = bytes.fromhex(fields[1].split(":")[0])
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, packed))
    return found


async def test_a_job_under_a_driver_that_is_killed_is_lost_and_the_next_has_a_new_driver(engine: SparkEngine) -> None:
    killed = engine.driver_pid
    assert killed is not None

    def kill(spark: Any) -> None:
        os.kill(killed, signal.SIGKILL)
        spark.range(10).count()

    with pytest.raises(SessionLostError, match="driver \\(java\\) ended under the job") as lost:
        await engine.run(kill, timeout_s=30, description=DESCRIPTION)
    assert lost.value.__cause__ is not None
    assert not engine.ready
    assert "driver (java) has ended" in str(engine.reason)

    counts = []
    async with asyncio.timeout(90):
        await engine.run(lambda spark: counts.append(spark.range(10).count()), timeout_s=60, description=DESCRIPTION)
    assert counts == [10]
    assert engine.driver_pid != killed
    assert engine.ready


async def test_before_its_start_it_says_so() -> None:
    engine = SparkEngine(SparkSettings())
    assert not engine.ready
    assert engine.reason == "Spark has not been started"
    await engine.stop()
    assert engine.reason == "Spark is stopped"


async def test_without_pyspark_starting_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match="pip install 'reactive-kafka\\[spark\\]'"):
        await SparkEngine(SparkSettings()).start()

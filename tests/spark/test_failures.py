"""Real failures of real Spark, and what the engine makes of them."""

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.errors import BadDataError, OffloadError, SessionLostError, WorkerLostError
from reactive_kafka.spark.batches.blame import UnfitExecutorsError
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.spark.test_engine import soon

pytestmark = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    # Pyspark leaves those of collect() open.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

ROWS = "id long"


def in_python(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Any], Any]:
    return lambda spark: spark.range(1).mapInArrow(function, ROWS).collect()


def raises(rows: Iterator[Any]) -> Iterator[Any]:
    raise LookupError("row 7 is broken")


def imports(rows: Iterator[Any]) -> Iterator[Any]:
    import missing_module  # type: ignore[import-not-found]

    yield missing_module


def exits(rows: Iterator[Any]) -> Iterator[Any]:
    os._exit(3)


def fails(spark: Any) -> None:
    raise ValueError("no such customer")


def refused(spark: Any) -> None:
    raise ConnectionRefusedError("the database is away")


def sql(query: str) -> Callable[[Any], Any]:
    return lambda spark: spark.sql(query).collect()


def is_gone(pid: int | None) -> bool:
    return not Path(f"/proc/{pid}").exists()


def exists(spark: Any) -> None:
    spark.range(1).write.parquet("/tmp")


FAILURES: dict[str, tuple[Callable[[Any], Any], type[OffloadError], str]] = {
    "a Python function on an executor": (
        in_python(raises),
        BadDataError,
        "LookupError: row 7 is broken",
    ),
    "a module that executors lack": (
        in_python(imports),
        UnfitExecutorsError,
        "ModuleNotFoundError: No module named",
    ),
    "a Python worker that exits": (in_python(exits), WorkerLostError, "exited unexpectedly"),
    "a cast": (
        sql("select cast(concat('x', id) as int) from range(3)"),
        BadDataError,
        "CAST_INVALID_INPUT",
    ),
    "a division": (sql("select 1 / id from range(3)"), BadDataError, "DIVIDE_BY_ZERO"),
    "raise_error": (
        sql("select raise_error('bad') from range(3)"),
        BadDataError,
        "USER_RAISED_EXCEPTION",
    ),
    "a column that is not there": (
        sql("select nope from range(3)"),
        OffloadError,
        "AnalysisException: [UNRESOLVED",
    ),
    "a query that is none": (sql("selec 1"), OffloadError, "ParseException"),
    "a path that exists": (exists, OffloadError, "PATH_ALREADY_EXISTS"),
    "a source that is not there": (
        lambda spark: spark.read.format("nope").load(),
        UnfitExecutorsError,
        "DATA_SOURCE_NOT_FOUND",
    ),
    "too much for the driver": (
        sql("select repeat('x', 2000000000)"),
        BadDataError,
        "OutOfMemoryError",
    ),
    "the function itself": (fails, BadDataError, "ValueError: no such customer"),
    "a database of the function's": (
        refused,
        OffloadError,
        "ConnectionRefusedError: the database is away",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
async def test_who_is_to_blame_for(engine: SparkEngine, what: str) -> None:
    job, expected, words = FAILURES[what]
    driver = engine.driver_pid
    with pytest.raises(OffloadError) as failed:
        await engine.run(job, timeout_s=60, description="batch 7")
    assert type(failed.value) is expected, failed.value
    assert str(failed.value).startswith("batch 7: ")
    assert words in str(failed.value)
    assert "\n" not in str(failed.value)
    assert failed.value.__cause__ is not None
    # Not at once: a driver that is out of memory, or busy, may answer late.
    await soon(lambda: engine.ready)
    assert engine.driver_pid == driver


async def test_a_driver_that_is_killed_under_two_jobs_leaves_it_open_which_of_them_did_it(
    engine: SparkEngine,
) -> None:
    killed = engine.driver_pid
    together = threading.Barrier(2)

    def kill(spark: Any) -> None:
        together.wait(10)
        os.kill(engine.driver_pid or 0, signal.SIGKILL)
        spark.range(10).count()

    def victim(spark: Any) -> int:
        together.wait(10)
        while True:
            spark.range(10).count()

    jobs = (engine.run(job, timeout_s=60, description="batch") for job in (kill, victim))
    errors = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(error) for error in errors] == [SessionLostError] * 2
    assert [error.was_alone for error in errors if isinstance(error, SessionLostError)] == [
        False,
        False,
    ]
    assert not engine.ready
    # Its port is closed a moment before its process is gone.
    assert re.search(
        r"driver \(java\) (has ended|cannot be asked: ConnectionRefused)", str(engine.reason)
    )

    count = await engine.run(
        lambda spark: spark.range(10).count(), timeout_s=60, description="batch", alone=True
    )
    assert count == 10
    assert engine.driver_pid not in (None, killed)


async def test_a_driver_that_is_stopped_is_not_ready_and_a_job_that_is_cancelled_there_ends_with_it(
    engine: SparkEngine,
) -> None:
    stopped = engine.driver_pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    await soon(lambda: not engine.ready)
    assert "has not answered for" in str(engine.reason)
    os.kill(stopped, signal.SIGCONT)
    await soon(lambda: engine.ready)
    assert engine.driver_pid == stopped

    def stop(spark: Any) -> None:
        os.kill(stopped, signal.SIGSTOP)
        spark.range(10).count()

    began = time.monotonic()
    with pytest.raises(SessionLostError, match="did not answer any more") as lost:
        await engine.run(stop, timeout_s=1, description="batch", cancel_limit_s=2)
    assert time.monotonic() - began < 8
    assert lost.value.was_alone
    await soon(lambda: is_gone(stopped))
    assert (
        await engine.run(lambda spark: spark.range(10).count(), timeout_s=60, description="batch")
        == 10
    )


async def test_a_session_that_a_function_stops_is_lost_to_the_others_and_started_again(
    engine: SparkEngine,
) -> None:
    """Row I3 of the faults."""
    together, before = threading.Barrier(2), engine.driver_pid

    def stop(spark: Any) -> None:
        together.wait(10)
        spark.stop()

    def victim(spark: Any) -> None:
        together.wait(10)
        while True:
            spark.range(10).count()

    jobs = (engine.run(job, timeout_s=60, description="batch") for job in (stop, victim))
    stopped, lost = await asyncio.gather(*jobs, return_exceptions=True)
    assert stopped is None
    assert isinstance(lost, SessionLostError)
    assert not lost.was_alone
    assert (
        await engine.run(lambda spark: spark.range(10).count(), timeout_s=60, description="batch")
        == 10
    )
    assert engine.driver_pid not in (None, before)
    assert is_gone(before)


class _Written(logging.Handler):
    """What a logger writes past our log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.parametrize(
    ("logger", "job"),
    [
        ("DataFrameQueryContextLogger", lambda spark: spark.range(3).select("nope").count()),
        ("SQLQueryContextLogger", sql("select nope from range(3)")),
    ],
)
async def test_what_does_not_fit_a_query_is_in_our_error_and_pyspark_writes_nothing_itself(
    logger: str, job: Callable[[Any], Any], engine: SparkEngine
) -> None:
    written = _Written()
    logging.getLogger(logger).addHandler(written)
    try:
        with pytest.raises(OffloadError, match="nope"):
            await engine.run(job, timeout_s=30, description="batch")
    finally:
        logging.getLogger(logger).removeHandler(written)
    assert written.lines == []

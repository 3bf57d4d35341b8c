"""How the engine keeps a session, and judges jobs by how the session fared; on a Spark that does as
it is told.
"""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from reactive_kafka.errors import (
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
    WorkerLostError,
)
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.spark.session.supervisor import (
    LIMITS,
    FailedAttempts,
    OpenSession,
    SessionLimits,
    Supervisor,
)
from tests.app.helpers import until
from tests.app.sabotage import Sabotage
from tests.app.test_task_owners import HOWS
from tests.config.values import spark_settings
from tests.spark.fakes import FakeMaker, FakeSession, a_process

NEVER = 1_000.0
PATIENT = SessionLimits(
    heartbeat_s=0.01, answer_s=NEVER, hung_s=NEVER, trouble_s=NEVER, retry_s=0.01
)
ILL = "no executors: start workers at spark://here:7077"


async def soon(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def engine_with(
    *sessions: FakeSession | Exception, limits: SessionLimits = PATIENT, cancel_limit_s: float = 2.0
) -> AsyncIterator[SparkEngine]:
    limits = replace(limits, cancel_s=cancel_limit_s)
    engine = SparkEngine(spark_settings(), limits=limits, maker=FakeMaker(*sessions))
    await engine.start()
    try:
        async with asyncio.timeout(20):
            yield engine
    finally:
        await engine.stop()


def run(
    engine: SparkEngine, job: Callable[[Any], Any], *, timeout_s: float = NEVER, **options: Any
) -> asyncio.Task[Any]:
    return asyncio.create_task(engine.run(job, timeout_s=timeout_s, description="batch", **options))


def work(spark: Any) -> str:
    spark.work()
    return "done"


async def test_a_session_is_ready_when_a_small_job_has_worked() -> None:
    session = FakeSession()
    session.warm_up_error = RuntimeError("Python in worker has different version")
    async with engine_with(session) as engine:
        await soon(lambda: session.done.count("warm-up") >= 2)
        assert (
            engine.reason
            == "Spark cannot run jobs: RuntimeError: Python in worker has different version"
        )
        session.warm_up_error = None
        assert await run(engine, lambda spark: 7) == 7
        assert engine.ready
        assert engine.reason is None


async def test_a_start_that_fails_is_named_and_tried_again() -> None:
    session = FakeSession()
    async with engine_with(OffloadError("heap too small"), session) as engine:
        await soon(lambda: "heap" in str(engine.reason))
        assert engine.reason == "Spark did not start: heap too small"
        await soon(lambda: engine.ready)


async def test_the_same_trouble_again_and_again_is_logged_once_and_another_one_once_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "reactive_kafka.spark")
    session, away = FakeSession(), OffloadError("sc://h:1: refused")
    session.warm_up_error = RuntimeError("no Python")
    async with engine_with(away, away, away, away, OffloadError("another"), session) as engine:
        await soon(
            lambda: sum("no Python" in record.getMessage() for record in caplog.records) >= 3
        )
        session.warm_up_error = None
        await soon(lambda: engine.ready)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "Spark did not start: sc://h:1: refused; trying again",
        "Spark did not start: another; trying again",
        "Spark cannot run jobs: RuntimeError: no Python; trying again",
    ]
    assert sum("refused" in record.getMessage() for record in caplog.records) == 4


def test_trouble_that_lasts_is_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reactive_kafka.spark")
    failed = FailedAttempts()
    for now in (0.0, 5.0, 599.0, 600.0, 605.0):
        failed.add("away", now)
    assert [record.levelname for record in caplog.records] == [
        "ERROR",
        "DEBUG",
        "DEBUG",
        "ERROR",
        "DEBUG",
    ]


async def test_without_executors_it_is_not_ready_no_job_starts_and_all_goes_on_when_they_are_back() -> (
    None
):
    session, ran = FakeSession(), []
    async with engine_with(session) as engine:
        await soon(lambda: engine.ready)
        session.ill = ILL
        await soon(lambda: not engine.ready)
        assert engine.reason == ILL
        waiting = run(engine, ran.append)
        # Nothing tells of a job that does not start.
        await asyncio.wait({waiting}, timeout=0.1)
        assert ran == []
        session.ill = None
        await waiting
        assert len(ran) == 1
        # Never stopped.
        assert session.done == ["warm-up"]


async def test_a_timeout_is_the_batchs_fault_only_if_the_session_was_well_all_the_time() -> None:
    session = FakeSession()
    async with engine_with(session) as engine:
        with pytest.raises(JobTimeoutError, match="cancelled, not done after"):
            await run(engine, work, timeout_s=0.1)
        ill = run(engine, work, timeout_s=0.3)
        await soon(lambda: len(session.groups) == 2)
        session.ill = ILL
        with pytest.raises(ClusterError, match="and Spark was in trouble meanwhile"):
            await ill


async def test_trouble_that_stays_ends_the_session_and_blames_no_job() -> None:
    first, second = FakeSession(), FakeSession()
    async with engine_with(
        first, second, limits=SessionLimits(heartbeat_s=0.01, trouble_s=0.1)
    ) as engine:
        job = run(engine, work)
        await soon(lambda: bool(first.groups))
        first.ill = ILL
        with pytest.raises(ClusterError, match="no executors") as failed:
            await job
        assert not isinstance(failed.value, SessionLostError)
        await soon(lambda: engine.ready)
        assert first.done == ["warm-up", "stop", "end"]


async def test_a_session_that_has_never_had_executors_waits_longer_for_them() -> None:
    session, second = FakeSession(), FakeSession()
    session.ill = ILL
    limits = SessionLimits(heartbeat_s=0.01, trouble_s=0.02, first_trouble_s=0.5, retry_s=0.01)
    async with engine_with(session, second, limits=limits) as engine:
        await asyncio.sleep(0.2)
        assert engine.reason == ILL
        assert "end" not in session.done
        await soon(lambda: engine.ready)
        assert session.done[-1] == "end"


async def test_trouble_that_comes_and_goes_ends_nothing() -> None:
    session = FakeSession()
    async with engine_with(
        session, limits=SessionLimits(heartbeat_s=0.01, trouble_s=0.4)
    ) as engine:
        await soon(lambda: engine.ready)
        # 0.6 s of trouble in all.
        for _ in range(4):
            session.ill = ILL
            await soon(lambda: not engine.ready)
            await asyncio.sleep(0.15)
            session.ill = None
            await soon(lambda: engine.ready)
        assert session.done == ["warm-up"]


async def test_somebody_elses_session_is_not_ended_for_its_troubles() -> None:
    session = FakeSession()
    session.owned = False
    async with engine_with(
        session, limits=SessionLimits(heartbeat_s=0.01, trouble_s=0.05)
    ) as engine:
        await soon(lambda: engine.ready)
        session.ill = ILL
        await soon(lambda: not engine.ready)
        await asyncio.sleep(0.2)
        assert session.done == ["warm-up"]
        session.ill = None
        await soon(lambda: engine.ready)


async def test_a_driver_that_does_not_answer_is_not_ready_and_well_again_when_it_does() -> None:
    session = FakeSession(a_process())
    async with engine_with(
        session, limits=SessionLimits(heartbeat_s=0.01, answer_s=0.05, hung_s=NEVER)
    ) as engine:
        await soon(lambda: engine.ready)
        session.hears.clear()
        await soon(lambda: not engine.ready)
        assert "has not answered for" in str(engine.reason)
        session.hears.set()
        await soon(lambda: engine.ready)
        assert session.done == ["warm-up"]


class BriefSession(FakeSession):
    """Is ready, and over soon after."""

    looks_when_ready = 0

    def trouble(self) -> str | None:
        self.looks_when_ready += "warm-up" in self.done
        if self.looks_when_ready > 2:
            self.die()
        return super().trouble()


class BriefMaker(FakeMaker):
    """Opens sessions that do not last."""

    longest_retry_s = 10.0

    def open(self) -> FakeSession:
        self.opened += 1
        return BriefSession()


async def test_sessions_that_start_and_do_not_last_are_replaced_at_growing_intervals() -> None:
    maker = BriefMaker()
    engine = SparkEngine(spark_settings(), limits=replace(PATIENT, retry_s=0.1), maker=maker)
    began = time.monotonic()
    await engine.start()
    try:
        await soon(lambda: maker.opened == 5)
        assert time.monotonic() - began >= (0.1 + 0.2 + 0.4 + 0.8) * 0.8, (
            "a fifth of each is chance"
        )
    finally:
        await engine.stop()


async def test_a_driver_that_does_not_answer_for_long_is_ended_by_its_pid_and_replaced() -> None:
    process = a_process()
    hung, second = FakeSession(process), FakeSession()
    async with engine_with(
        hung, second, limits=SessionLimits(heartbeat_s=0.01, answer_s=0.05, hung_s=0.2)
    ) as engine:
        job = run(engine, work)
        await soon(lambda: bool(hung.groups))
        hung.hears.clear()
        with pytest.raises(SessionLostError, match="did not answer any more") as lost:
            await job
        assert lost.value.was_alone
        await soon(lambda: engine.ready)
        assert process.returncode == -9
        # Which would hang.
        assert "stop" not in hung.done


def test_the_pid_of_a_driver_that_has_ended_is_not_killed_since_another_process_may_have_it() -> (
    None
):
    other = a_process()
    session = FakeSession(other)
    session.die()
    supervisor = Supervisor(FakeMaker(session), LIMITS)
    assert supervisor.kill_driver(OpenSession(session))
    # A process that gets both signals dies of the other one.
    other.terminate()
    assert other.wait() == -signal.SIGTERM


async def test_a_cancelled_job_of_a_driver_that_takes_no_orders_is_over_with_the_driver() -> None:
    process = a_process()
    hung = FakeSession(process)
    async with engine_with(hung, FakeSession(), cancel_limit_s=0.4) as engine:
        job = run(engine, work, timeout_s=0.1)
        await soon(lambda: bool(hung.groups))
        hung.hears.clear()
        with pytest.raises(SessionLostError):
            await job
        assert process.wait(1) == -9
        await soon(lambda: engine.ready)


@pytest.mark.parametrize("beside", [0, 1])
async def test_a_lost_session_says_whether_the_job_was_alone(beside: int) -> None:
    session = FakeSession()
    async with engine_with(session, FakeSession()) as engine:
        jobs = [run(engine, work) for _ in range(1 + beside)]
        await soon(lambda: len(session.groups) == len(jobs))
        session.die()
        errors = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(error) for error in errors] == [SessionLostError] * len(jobs)
        assert {error.was_alone for error in errors} == {beside == 0}


async def test_a_job_that_returned_before_the_loss_shows_was_company() -> None:
    def stop(spark: Any) -> None:
        session.die()

    session, go_on = FakeSession(), threading.Event()
    async with engine_with(session, FakeSession()) as engine:
        victim = run(engine, lambda spark: go_on.wait(10) and spark.work())
        await soon(lambda: len(session.groups) == 1)
        await run(engine, stop)
        go_on.set()
        with pytest.raises(SessionLostError) as lost:
            await victim
        assert not lost.value.was_alone


async def test_a_function_that_was_left_behind_is_company() -> None:
    session, go_on = FakeSession(), threading.Event()
    async with engine_with(session, FakeSession(), cancel_limit_s=0.05) as engine:
        with pytest.raises(JobStuckError):
            await run(engine, lambda spark: go_on.wait(30), timeout_s=0.05)
        job = run(engine, work)
        await soon(lambda: len(session.groups) == 2)
        session.die()
        with pytest.raises(SessionLostError) as lost:
            await job
        assert not lost.value.was_alone
        go_on.set()


async def test_a_functions_own_connection_error_is_no_lost_session() -> None:
    def refused(spark: Any) -> None:
        raise ConnectionRefusedError("the database is away")

    session = FakeSession()
    async with engine_with(session) as engine:
        with pytest.raises(OffloadError) as failed:
            await run(engine, refused)
        assert type(failed.value) is OffloadError
        assert session.done == ["warm-up"]


async def test_after_a_fault_of_the_cluster_no_job_starts_until_a_small_one_has_worked() -> None:
    class PySparkException(Exception):
        pass

    def other_python(spark: Any) -> None:
        raise PySparkException(
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9"
        )

    session = FakeSession()
    async with engine_with(session) as engine:
        await soon(lambda: engine.ready)
        session.warm_up_error = RuntimeError("still another Python")
        with pytest.raises(ClusterError) as failed:
            await run(engine, other_python)
        assert type(failed.value) is ClusterError
        assert not engine.ready
        await soon(lambda: "still another Python" in str(engine.reason))
        session.warm_up_error = None
        assert await run(engine, lambda spark: 1) == 1


class SlowWarmUps(FakeSession):
    """Each small job waits until the test lets it end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Semaphore(0)

    def warm_up(self) -> None:
        super().warm_up()
        self.may_end.acquire()


async def test_a_small_job_proves_nothing_about_a_job_that_fails_after_it_began() -> None:
    session = SlowWarmUps()
    session.may_end.release()
    async with engine_with(session) as engine:
        await soon(lambda: engine.ready)
        failures = [threading.Event(), threading.Event()]

        def fails_when(failure: threading.Event) -> Callable[[Any], None]:
            def job(spark: Any) -> None:
                failure.wait()
                raise ClusterError("no executors")

            return job

        first, second = (run(engine, fails_when(failure)) for failure in failures)
        await soon(lambda: len(session.groups) == 2)
        failures[0].set()
        with pytest.raises(ClusterError):
            await first
        await soon(lambda: session.done.count("warm-up") == 2)
        failures[1].set()
        with pytest.raises(ClusterError):
            await second
        session.may_end.release()
        await soon(lambda: session.done.count("warm-up") == 3)
        assert engine.reason == "a job failed: ClusterError: no executors"
        session.may_end.release()
        await soon(lambda: engine.ready)


async def test_a_worker_that_died_does_not_put_the_session_in_doubt() -> None:
    class Py4JError(Exception):
        pass

    def crash(spark: Any) -> None:
        raise Py4JError(
            "Job aborted due to stage failure: ... Python worker exited unexpectedly (crashed)"
        )

    session = FakeSession()
    async with engine_with(session) as engine:
        with pytest.raises(WorkerLostError):
            await run(engine, crash)
        assert engine.ready


async def test_tasks_that_do_not_end_are_a_stuck_job_and_a_cancellation_that_cannot_be_kept_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = FakeSession()
    async with engine_with(session, cancel_limit_s=0.2) as engine:
        # An answer that does not come is no "over"
        for error in (None, ConnectionResetError("not now")):
            jobs = len(session.groups)
            job = run(engine, work, timeout_s=0.1)
            await soon(lambda jobs=jobs: len(session.groups) == jobs + 1)  # type: ignore[misc]
            session.groups[-1].tasks_have_ended = False
            session.groups[-1].over_error = error
            with pytest.raises(JobStuckError, match="and still running"):
                await job
        cancelled = run(engine, work)
        await soon(lambda: len(session.groups) == 3)
        session.groups[-1].tasks_have_ended = False
        caplog.clear()
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert cancelled.cancelled()
        assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_job_that_waits_for_a_session_leaves_at_once_and_never_runs() -> None:
    session, ran = FakeSession(), []
    session.ill = ILL
    async with engine_with(session) as engine:
        await soon(lambda: engine.reason == ILL)
        waiting = run(engine, ran.append)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        assert waiting.cancelled()
        session.ill = None
        await run(engine, lambda spark: None)
        assert ran == []


async def test_threads_are_used_again_and_a_stuck_one_is_replaced() -> None:
    session, go_on = FakeSession(), threading.Event()
    async with engine_with(session, cancel_limit_s=0.05) as engine:
        names = {
            await run(engine, lambda spark: threading.current_thread().name) for _ in range(20)
        }
        assert len(names) == 1
        with pytest.raises(JobStuckError):
            await run(engine, lambda spark: go_on.wait(30), timeout_s=0.05)
        assert await run(engine, lambda spark: threading.current_thread().name) not in names
        go_on.set()


async def test_a_job_that_is_alone_has_none_beside_it() -> None:
    session = FakeSession()
    async with engine_with(session) as engine:
        first = run(engine, work)
        await soon(lambda: len(session.groups) == 1)
        alone, last = run(engine, work, alone=True), run(engine, work)
        await asyncio.sleep(0.05)
        assert len(session.groups) == 1
        session.groups[0].finish.set()
        await first
        await soon(lambda: len(session.groups) == 2)
        await asyncio.sleep(0.05)
        assert len(session.groups) == 2
        session.groups[1].finish.set()
        await alone
        await soon(lambda: len(session.groups) == 3)
        session.groups[2].finish.set()
        await last


@pytest.mark.parametrize("how", HOWS)
async def test_what_looks_after_spark_and_goes_wrong_tells_whoever_started_it(how: str) -> None:
    told, loop = list[BaseException](), asyncio.get_running_loop()
    engine = SparkEngine(spark_settings(), maker=FakeMaker(FakeSession()))
    loop.set_task_factory(Sabotage("spark-supervisor", HOWS[how]()))
    try:
        await engine.start(told.append)
        await until(lambda: told)
        assert not engine.ready
    finally:
        loop.set_task_factory(None)
        await engine.stop()

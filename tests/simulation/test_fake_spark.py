"""The engine without a Spark keeps the promises of the real one: what it says of a job is what the
job did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    SessionLostError,
)
from tests.app.helpers import in_virtual_time
from tests.simulation.fake_spark import (
    Ending,
    FakeEngine,
    FakeFrame,
    FakeSession,
    Script,
    ScriptedError,
)

CANCEL_LIMIT_S = 3.0


class Stage:
    """An engine, and what its jobs did and when."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(partitions=1)
        self.engine = FakeEngine(self.broker, starts_in_s=1.0)
        self.told: list[tuple[float, str]] = []

    def tell(self, what: str) -> None:
        self.told.append((round(asyncio.get_running_loop().time() - self.began, 3), what))

    async def start(self) -> None:
        await self.engine.start()
        await asyncio.sleep(1.0)
        self.began = asyncio.get_running_loop().time()

    async def run(
        self,
        takes_s: float = 1.0,
        ending: Ending = "ok",
        late_s: float = 0.0,
        timeout_s: float = 5.0,
        alone: bool = False,
        name: str = "job",
    ) -> Any:
        def job(session: FakeSession) -> str:
            self.tell(f"{name} began")
            session.play(
                Script([(takes_s, lambda: self.tell(f"{name} wrote"))], ending, late_s, over)
            )
            if ending in ("bad", "code", "worker"):
                raise ScriptedError(ending)
            return "value"

        over: Callable[[str], None] = lambda outcome: self.tell(f"{name} over: {outcome}")  # noqa: E731
        return await self.engine.run(
            job, timeout_s=timeout_s, cancel_limit_s=CANCEL_LIMIT_S, description=name, alone=alone
        )


@in_virtual_time
async def test_a_job_begins_when_spark_is_there_and_answers_when_its_last_step_is_done() -> None:
    stage = Stage()
    await stage.engine.start()
    stage.began = asyncio.get_running_loop().time()
    assert not stage.engine.ready
    assert await stage.run() == "value"
    assert stage.told == [(1.0, "job began"), (2.0, "job wrote"), (2.0, "job over: ok")]


@in_virtual_time
async def test_what_the_function_raises_comes_after_its_effects() -> None:
    stage = Stage()
    await stage.start()
    with pytest.raises(BadDataError) as caught:
        await stage.run(ending="bad")
    assert isinstance(caught.value.__cause__, ScriptedError)
    assert stage.told[1:] == [(1.0, "job wrote"), (1.0, "job over: bad")]


@in_virtual_time
async def test_a_timeout_waits_until_the_job_has_no_effects_any_more() -> None:
    stage = Stage()
    await stage.start()
    with pytest.raises(JobTimeoutError):
        await stage.run(takes_s=2.5, late_s=1.0, timeout_s=2.0)
    assert stage.told[1:] == [(2.5, "job wrote"), (3.0, "job over: timeout")]


@in_virtual_time
async def test_a_cancellation_waits_for_the_same_and_settles_nothing() -> None:
    stage = Stage()
    await stage.start()
    task = asyncio.create_task(stage.run(takes_s=2.5, late_s=2.0))
    await asyncio.sleep(1.0)
    task.cancel()
    await asyncio.sleep(0.5)
    # again: it is waited for all the same.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.told[1:] == [(2.5, "job wrote"), (3.0, "job over: cancelled")]


@in_virtual_time
async def test_a_job_that_does_not_end_is_given_up_at_the_limit() -> None:
    stage = Stage()
    await stage.start()
    with pytest.raises(JobStuckError):
        await stage.run(takes_s=100.0, late_s=inf, timeout_s=2.0)
    assert stage.told[1:] == [(2.0 + CANCEL_LIMIT_S, "job over: stuck")]


@in_virtual_time
async def test_a_driver_takes_all_its_jobs_along_and_says_who_was_alone() -> None:
    stage = Stage()
    await stage.start()
    both = [
        asyncio.create_task(stage.run(takes_s=9.0, timeout_s=99.0, name=name))
        for name in ("one", "two")
    ]
    await asyncio.sleep(0.5)
    stage.engine.lose_driver()
    for task in both:
        with pytest.raises(SessionLostError) as caught:
            await task
        assert not caught.value.was_alone
    with pytest.raises(SessionLostError) as caught:
        await stage.run(ending="kills")
    assert caught.value.was_alone


@in_virtual_time
async def test_who_is_to_run_alone_waits_for_the_others_and_they_wait_for_it() -> None:
    stage = Stage()
    await stage.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stage.run(takes_s=2.0, name="first"))
        await asyncio.sleep(0.1)
        tasks.create_task(stage.run(alone=True, name="alone"))
        await asyncio.sleep(0.1)
        tasks.create_task(stage.run(name="last"))
    assert [(at, what) for at, what in stage.told if "began" in what] == [
        (0.0, "first began"),
        (2.0, "alone began"),
        (3.0, "last began"),
    ]


@in_virtual_time
async def test_without_executors_a_job_hangs_and_its_timeout_blames_the_cluster() -> None:
    stage = Stage()
    await stage.start()
    task = asyncio.create_task(stage.run(timeout_s=4.0))
    await asyncio.sleep(0.5)
    stage.engine.away(True, raises=False)
    assert stage.engine.reason == "no executors"
    with pytest.raises(ClusterError):
        await task
    assert "job wrote" not in [what for _, what in stage.told]


@in_virtual_time
async def test_what_runs_in_a_process_that_is_killed_has_no_effects_and_tells_nothing() -> None:
    stage = Stage()
    await stage.start()
    task = asyncio.create_task(stage.run())
    await asyncio.sleep(0.5)
    stage.engine.kill()
    await asyncio.sleep(5.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stage.told == [(0.0, "job began")]


@in_virtual_time
async def test_ranges_are_read_from_the_log_and_lost_offsets_are_an_error() -> None:
    stage = Stage()
    await stage.start()
    for number in range(5):
        stage.broker.produce("orders", b"%d" % number, partition=0)
    stage.broker.compact(TopicPartition("orders", 0), [2])
    options = {
        "startingOffsets": '{"orders": {"0": 1}}',
        "endingOffsets": '{"orders": {"0": 4}}',
    }

    def read(session: FakeSession) -> FakeFrame:
        frame = session.read.format("kafka").options(**options).load()
        session.play(Script([], "ok", 0.0, lambda _: None))
        return frame

    frame = await stage.engine.run(read, timeout_s=1.0, description="reads")
    assert [row.offset for row in frame.rows] == [1, 3]
    stage.broker.delete_records(TopicPartition("orders", 0), 2)
    with pytest.raises(Exception, match="is lost"):
        await stage.engine.run(read, timeout_s=1.0, description="reads")

"""The next batch is planned, and its DataFrame made, while the one before it runs; nothing else
changes by that.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings
from reactive_kafka.errors import BadDataError, SessionLostError
from reactive_kafka.spark.batches.cuts import BatchQueue
from reactive_kafka.spark.batches.runs import plan
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.spark.session.supervisor import LIMITS, SessionLimits
from tests.app.helpers import facts, in_virtual_time, make_broker, running, send, tp, until
from tests.app.spark_stage import (
    DEAD,
    WAITS,
    Frame,
    Spark,
    bad_if,
    letters,
    ranges,
    spark_app,
    stored,
)
from tests.config.values import spark_channel_settings, spark_settings
from tests.delivery.values import lane_queue
from tests.spark.fakes import FakeMaker, FakeSession, a_process
from tests.spark.records import CLICKS_0, Raw, part_of, runner_of
from tests.spark.test_cuts import lane_with
from tests.tracking.values import planned_range

MODES = pytest.mark.parametrize("mode", ["records", "ranges"])


def queue_of(lanes: Any, **spark: Any) -> BatchQueue:
    settings = IncomingSettings(
        name="clicks",
        topics=("clicks",),
        group_id="billing",
        spark=spark_channel_settings(mode="ranges", **spark),
    )
    return BatchQueue(settings, lanes, lambda lane: True)


def test_a_batch_is_due_at_once_where_no_more_may_come_until_one_is_taken() -> None:
    lanes, lane = lane_queue(), lane_with(partition=0)
    lanes.add(lane, range(5), lane.tracker.deliver(range(5), 5), 1.0)
    queue = queue_of(lanes, batch_max_records=3, batch_max_wait_s=8.0)
    queue.take()
    lanes.release(lane)
    assert queue.due() == 9.0
    lanes.out_of_room.add(object())
    assert queue.due() == 1.0
    queue.take()
    assert not lanes.out_of_room


@given(
    waiting=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    most=st.integers(1, 12),
    held=st.integers(0, 15),
)
def test_what_is_prepared_is_what_is_taken_then_and_only_a_batch_that_is_full(
    waiting: list[int], most: int, held: int
) -> None:
    lanes, every = lane_queue(), []
    for number, count in enumerate(waiting):
        lane = lane_with(partition=number)
        every.append(lane)
        if count:
            lanes.add(lane, range(count), lane.tracker.deliver(range(count), count), 0.0)
        if held >> number & 1:
            lanes.hold(lane)
    queue = queue_of(lanes, batch_max_records=most)
    taken_from = [lane for number, lane in enumerate(every) if held >> number & 1]
    runs = queue.next_full(taken_from)
    assert [lane.waiting for lane in every] == waiting
    assert bool(runs) == (sum(waiting) >= most)
    plan(runs)
    for lane in taken_from:
        lanes.release(lane)
    if runs:
        # others may have come meanwhile: what is planned goes first, and alone
        for lane in every:
            lanes.add(lane, range(20, 25), lane.tracker.deliver(range(20, 25), 25), 1.0)
        taken = queue.take()
        assert {(run.lane, run.planned) for run in taken} == {
            (run.lane, run.planned) for run in runs
        }
        assert sum(run.records for run in taken) == most


@MODES
@in_virtual_time
async def test_the_next_batch_is_planned_and_made_while_one_runs_if_it_is_full(mode: str) -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, spark={"mode": mode, "batch_max_records": 3}, commit_interval="1h"
    )
    engine.judge = lambda job: WAITS
    made: list[int] = []
    engine.spark = CountingSpark(broker, made)
    async with running(app, broker=broker) as test:
        await send(test, *range(5))
        await until(lambda: engine.jobs)
        await asyncio.sleep(5)
        # More may be added to the next one.
        assert stored(broker) == (0, ["[0, 3)"])
        assert len(made) == 1
        await send(test, 5, 6)
        await until(lambda: len(made) == 2)
        assert stored(broker) == (0, ["[0, 3)", "[3, 6)"])
        assert len(engine.jobs) == 1
        engine.jobs[0].end()
        await until(lambda: len(engine.jobs) == 2)
        engine.jobs[1].end()
        await until(lambda: len(engine.jobs) == 3)
        engine.jobs[2].end()
    assert ranges(engine.jobs) == [["orders-0 [0, 3)"], ["orders-0 [3, 6)"], ["orders-0 [6, 7)"]]
    assert [job.values for job in engine.jobs] == [[0, 1, 2], [3, 4, 5], [6]]
    # No DataFrame was made twice.
    assert len(made) == 3


class CountingSpark(Spark):
    """A session that notes the sizes of the DataFrames that it makes."""

    def __init__(self, broker: Any, made: list[int]) -> None:
        super().__init__(broker)
        self.made = made
        load = self.read.load

        def counted() -> Frame:
            made.append(1)
            return load()

        self.read.load = counted  # type: ignore[method-assign]

    def createDataFrame(self, table: Any) -> Frame:
        self.made.append(len(table))
        return super().createDataFrame(table)


@MODES
@in_virtual_time
async def test_a_plan_goes_with_the_position_after_the_batch_before_in_one_request(
    mode: str,
) -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, spark={"mode": mode, "batch_max_records": 2}, commit_interval="1h"
    )
    engine.judge = lambda job: WAITS
    batches = 6
    async with running(app, broker=broker) as test:
        await send(test, *range(2 * batches))
        for number in range(batches):
            await until(lambda: len(engine.jobs) == number + 1)  # noqa: B023
            if number + 1 < batches:
                following = f"[{2 * number + 2}, {2 * number + 4})"
                await until(lambda: following in stored(broker)[1])  # noqa: B023
                plans = [f"[{2 * number}, {2 * number + 2})", following]
                assert stored(broker) == (2 * number, plans)
            engine.jobs[number].end()
        requests = len(broker.commits("billing"))
        await until(lambda: not engine.running)
    assert requests <= batches


@MODES
@in_virtual_time
async def test_after_a_crash_both_batches_run_again_as_they_were_cut(mode: str) -> None:
    broker = make_broker()
    first, engine = spark_app(broker, spark={"mode": mode, "batch_max_records": 3})
    engine.judge = lambda job: WAITS
    async with running(first, broker=broker) as test:
        await send(test, *range(8))
        await until(lambda: stored(broker)[1] == ["[0, 3)", "[3, 6)"])
        await first.stop(drain=False)
    second, later = spark_app(broker, spark={"mode": mode, "batch_max_records": 100})
    async with running(second, broker=broker) as test:
        await until(lambda: test.committed("orders").get(tp()) == 8)
    assert [job.values for job in later.jobs] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@MODES
@in_virtual_time
async def test_a_batch_that_is_split_leaves_the_plan_of_the_next_one_as_it_is(mode: str) -> None:
    broker = make_broker()
    spark = {"mode": mode, "batch_max_records": 4, "on_failure": "bisect"}
    app, engine = spark_app(broker, spark=spark, **DEAD)
    engine.judge = lambda job: WAITS if len(engine.jobs) == 1 else bad_if(1)(job)
    async with running(app, broker=broker) as test:
        await send(test, *range(8))
        await until(lambda: stored(broker)[1] == ["[0, 4)", "[4, 8)"])
        engine.jobs[0].end(BadDataError("bad data"))
        await until(lambda: test.committed("orders").get(tp()) == 8)
    assert letters(broker) == [b"1"]
    assert ranges(engine.jobs[-1:]) == [["orders-0 [4, 8)"]]
    assert all(job.batch.ranges[0].until <= 4 for job in engine.jobs[:-1])


@in_virtual_time
async def test_two_batches_are_here_and_no_more_however_the_room_is_divided() -> None:
    broker = make_broker(4)
    app, engine = spark_app(
        broker, spark={"batch_max_records": 100, "batch_max_wait": "1h"}, max_in_flight=200
    )
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker, partitions=4) as test:
        for records in (25, 21, 54):
            for number in range(4):
                await send(test, *range(records), partition=number)
            await until(lambda: len(engine.jobs) == 1)
            # Else one poll would bring all of it.
            await asyncio.sleep(1)
        await until(lambda: len(stored(broker)[1]) == 2)
        await asyncio.sleep(10)
        assert sum(one.queued for one in facts(test).partitions) == 100
        engine.judge = lambda job: None
        engine.jobs[0].end()
        await until(lambda: sum(len(job.values) for job in engine.jobs) == 400)
    assert [len(job.values) for job in engine.jobs] == [100, 100, 100, 100]


@in_virtual_time
async def test_with_several_jobs_nothing_is_prepared() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"batch_max_records": 2, "max_concurrent_jobs": 2})
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker) as test:
        await send(test, *range(4))
        await until(lambda: engine.jobs)
        await asyncio.sleep(5)
        assert stored(broker) == (0, ["[0, 2)"])
        for at in range(2):
            await until(lambda: len(engine.jobs) > at)  # noqa: B023
            engine.jobs[at].end()


# -- the engine


async def ready(*sessions: FakeSession, limits: SessionLimits = LIMITS) -> SparkEngine:
    engine = SparkEngine(spark_settings(), limits=limits, maker=FakeMaker(*sessions))
    await engine.start()
    async with asyncio.timeout(30):
        while not engine.ready:  # noqa: ASYNC110 - the supervisor's own pace
            await asyncio.sleep(0.005)
    return engine


async def test_without_a_session_nothing_is_made() -> None:
    assert await SparkEngine(spark_settings()).make(lambda spark: "made") is None


async def test_what_cannot_be_made_is_nobodys_failure() -> None:
    engine = await ready(FakeSession())
    try:
        assert await engine.make(lambda spark: 1 / 0) is None
        assert await engine.make(lambda spark: spark) == "spark"
    finally:
        await engine.stop()


async def test_what_a_driver_that_answers_no_more_makes_is_not_waited_for() -> None:
    """Somebody else's is never replaced, and without a deadline its answer may not come for
    ever.
    """
    session, is_to_go_on = FakeSession(), threading.Event()
    session.owned = False
    engine = await ready(session, limits=SessionLimits(heartbeat_s=0.01, answer_s=0.05))
    try:
        making = asyncio.create_task(engine.make(lambda spark: is_to_go_on.wait()))
        session.hears.clear()
        async with asyncio.timeout(10):
            assert await making is None
    finally:
        is_to_go_on.set()
        session.hears.set()
        await engine.stop()


async def test_a_driver_that_ends_while_something_is_made_puts_no_blame_on_the_job() -> None:
    process = a_process()
    engine = await ready(FakeSession(process), FakeSession())
    has_begun = threading.Event()

    def work(group: Any) -> None:
        has_begun.set()
        group.work()

    try:
        job = asyncio.create_task(engine.run(work, timeout_s=30, description="job"))
        # A job that has not begun would run on the next session.
        assert await asyncio.to_thread(has_begun.wait, 30)
        await engine.make(lambda spark: process.kill())
        with pytest.raises(SessionLostError) as lost:
            await job
        assert not lost.value.was_alone
    finally:
        await engine.stop()


async def test_a_frame_of_another_session_is_made_anew() -> None:
    engine = await ready(FakeSession())
    rows: list[Any] = []
    made: list[Any] = []

    def source(spark: Any, parts: Any) -> str:
        made.append(spark)
        return f"frame {len(made)}"

    runner = runner_of(engine, lambda df, batch: rows.append(df), source=source)
    parts = [part_of(CLICKS_0, [Raw(0)])]
    try:
        frame = asyncio.ensure_future(runner.make(parts))
        await frame
        await runner.run_batch(parts, 1, frame=frame)
    finally:
        await engine.stop()
    assert made[0] == "spark"
    # A fake group stands for another session.
    assert made[1:]
    assert rows == ["frame 2"]


def test_a_plan_is_made_once() -> None:
    (run,) = queue_taken()
    plan([run])
    plan([run])
    assert run.tracker.plans == (planned_range(0, 2),)


def queue_taken() -> list[Any]:
    lanes, lane = lane_queue(), lane_with()
    lanes.add(lane, range(2), lane.tracker.deliver(range(2), 2), 0.0)
    return queue_of(lanes, batch_max_records=2).take()

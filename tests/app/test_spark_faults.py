"""A Spark channel where something goes wrong on the way: nothing is forgotten, doubled, starved or
tried endlessly.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import SparkBatch
from reactive_kafka.errors import BadDataError, ClusterError, DataLossError, NotOwnerError
from reactive_kafka.events import CommitFailed, HandlerFailed
from reactive_kafka.testing import MemoryBroker, VirtualTimeLoop
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    inside,
    make_broker,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.app.spark_stage import (
    DEAD,
    LETTERS,
    WAITS,
    Job,
    Outcome,
    beside,
    letters,
    ranges,
    spark_app,
    stored,
)

RETRIES = "orders_retry_1000"
DELAYED: dict[str, Any] = {
    "failure_strategy": "delayed-retry-topic",
    "delayed_retry": {"topics": [RETRIES], "max_retries": 1},
}


def produce(broker: MemoryBroker, *values: int, partition: int = 0) -> None:
    """Before anybody reads, or all at once."""
    for value in values:
        broker.produce("orders", b"%d" % value, partition=partition)


def produce_large(broker: MemoryBroker, records: int, partition: int) -> None:
    """Records of half a kilobyte."""
    for _ in range(records):
        broker.produce("orders", b'"%s"' % (b"x" * 500), partition=partition)


# -- verdicts that are cut off


@in_virtual_time
async def test_all_that_a_bisection_gives_up_at_once_is_nacked_though_the_partition_goes_and_comes_back() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(
        broker, spark={"on_failure": "bisect"}, revoke_grace=0.5, drain_timeout=2.0, **DEAD
    )
    given_up = asyncio.Event()

    def judge(job: Job) -> Outcome:
        # The last one that a bisection may run.
        if len(engine.jobs) == 1 + 64:
            given_up.set()
        return BadDataError("all bad")

    engine.judge = judge
    async with running(app, broker=broker) as test:
        produce(broker, *range(50))
        await given_up.wait()
        hold = broker.hold("send")
        await hold.arrived()
        broker.rebalance("billing")
        await asyncio.sleep(5.0)
        hold.release()
        await until(lambda: test.committed("orders").get(tp()) == 50, 60)
    assert len(engine.jobs) == 65
    assert sorted(letters(broker), key=repr) == sorted(
        (b"%d" % value for value in range(50)), key=repr
    )


@in_virtual_time
async def test_of_two_rejected_records_the_second_is_nacked_too_though_the_partition_goes_and_comes_back() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(
        broker, spark={"batch_max_wait": 1.0}, revoke_grace=0.5, drain_timeout=2.0, **DEAD
    )
    engine.inside = lambda batch: batch.reject([("orders", 0, 7), ("orders", 0, 8)], "not for us")
    produce(broker, *range(6))
    # What lies before a gap is forgotten when it is settled.
    broker.append_markers(tp(), 1)
    produce(broker, 7)
    hold = broker.hold("send")
    async with running(app, broker=broker) as test:
        # Another piece of the batch: it is nacked after the one before it.
        await asyncio.sleep(0.5)
        produce(broker, 8)
        broker.append_markers(tp(), 200)
        produce(broker, 209)
        await hold.arrived()
        broker.rebalance("billing")
        await asyncio.sleep(4.0)
        assert letters(broker) == []
        hold.release()
        await until(lambda: test.committed("orders").get(tp()) == 210, 60)
    assert letters(broker) == [b"7", b"8"]
    assert len(engine.jobs) == 1


# -- two jobs on one range


@in_virtual_time
async def test_a_partition_goes_to_another_member_when_the_job_that_a_seek_has_cancelled_is_over() -> (
    None
):
    broker = make_broker(2)
    settings: dict[str, Any] = {"revoke_grace": 2.0, "drain_timeout": 20.0}
    first, engine = spark_app(broker, **settings)
    second, other = spark_app(broker, **settings)
    engine.judge = lambda job: WAITS if len(engine.jobs) == 1 else None
    engine.late_s = 8.0
    overlaps: list[Job] = []
    other.judge = lambda job: overlaps.extend(beside(job, engine))
    for partition in (0, 1):
        produce(broker, *range(4), partition=partition)
    async with running(first, broker=broker):
        await until(lambda: engine.jobs)
        # One of them goes.
        for partition in (0, 1):
            await first.channel("orders").seek(tp(partition), 0)
        assert engine.running
        async with running(second, broker=broker):
            await until(lambda: other.jobs, 60)
    assert len(engine.jobs[0].batch.ranges) == 2
    assert engine.jobs[0].was_cancelled
    assert overlaps == []


@pytest.mark.parametrize("by_hand", [False, True])
@in_virtual_time
async def test_a_restarted_channel_waits_for_the_jobs_of_its_life_before(by_hand: bool) -> None:
    broker = make_broker(2)
    restart: dict[str, Any] = {} if by_hand else {"restart": {"backoff": 0.1, "max_attempts": 1}}
    app, engine = spark_app(broker, drain_timeout=20.0, spark={"max_concurrent_jobs": 2}, **restart)
    # Longer than what is kept of drain_timeout for ending jobs.
    engine.late_s = 15.0
    outcomes: list[Outcome | str] = [WAITS, BadDataError("once"), None, None]
    overlaps: list[Job] = []

    def judge(job: Job) -> Outcome | str:
        overlaps.extend(beside(job, engine))
        return outcomes[len(engine.jobs) - 1]

    engine.judge = judge
    async with running(app, broker=broker) as test:
        await send(test, 1)
        await until(lambda: engine.jobs)
        await send(test, 2, partition=1)
        if by_hand:
            await until(lambda: facts(test).state == "failed", 30)
            await app.channel("orders").restart()
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [1, 1], 60
        )
    assert engine.jobs[0].was_cancelled
    assert overlaps == []


# -- plans


@pytest.mark.parametrize("of_a_part", [False, True])
@in_virtual_time
async def test_a_plan_that_the_group_refuses_is_tried_again_after_a_while_and_counts_as_no_attempt(
    of_a_part: bool,
) -> None:
    broker = make_broker()
    recorder = Recorder()
    app, engine = spark_app(broker, recorder, spark={"on_failure": "bisect"}, **DEAD)

    def refuse() -> None:
        broker.fail_next("commit", NotOwnerError("the generation is over"), times=5)

    def judge(job: Job) -> Outcome:
        if of_a_part and len(engine.jobs) == 1:
            refuse()
            return BadDataError("both of them")
        return None

    engine.judge = judge
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "running")
        if not of_a_part:
            refuse()
        await send(test, 1, 2)
        await until(lambda: recorder.of(CommitFailed))
        await asyncio.sleep(0.3)
        assert len(recorder.of(CommitFailed)) == 1
        # Nothing runs whose plan is not stored.
        assert len(engine.jobs) == (1 if of_a_part else 0)
        await until(lambda: test.committed("orders").get(tp()) == 2, 30)
    assert len(recorder.of(CommitFailed)) == 5
    assert [job.batch.attempt for job in engine.jobs] == ([1, 2, 2] if of_a_part else [1])


@in_virtual_time
async def test_delayed_retries_whose_clocks_differ_make_one_range_and_not_one_of_each() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    broker, wall_ms = make_broker(), int(loop.clock.wall() * 1000)
    app, engine = spark_app(broker, **DELAYED)
    broker.create_topic(RETRIES, 1)
    # Every second one would be due half a second before the one that it follows.
    for value in range(6):
        broker.produce(
            RETRIES, b"%d" % value, partition=0, timestamp_ms=wall_ms - 500 * (value % 2)
        )
    async with running(app, broker=broker):
        await until(lambda: sum(len(job.values) for job in engine.jobs) == 6)
    assert ranges(engine.jobs) == [[f"{RETRIES}-0 [0, 6)"]]


@in_virtual_time
async def test_plans_that_are_done_are_forgotten_where_nothing_is_ever_committed() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, commit_strategy="ignore", spark={"batch_max_records": 1})
    async with running(app, broker=broker) as test:
        await send(test, *range(20))
        await until(lambda: len(engine.jobs) == 20)
        await asyncio.sleep(1.0)
        (tracker,) = inside(app).session.clients.trackers()
        assert tracker.committable == 20
        # Until the next one is done.
        assert len(tracker.planned_beyond(0)) <= 1


@in_virtual_time
async def test_a_channel_with_a_chosen_start_that_restarts_keeps_to_the_ranges_that_it_planned() -> (
    None
):
    broker = make_broker()
    before, _ = spark_app(broker)
    async with running(before, broker=broker) as test:
        await send(test, 0)
        await until(lambda: stored(broker)[0] == 1)
    produce(broker, 1, 2, 3, 4, 5)
    app, engine = spark_app(
        broker, assign=["orders:0:4"], restart={"backoff": 0.5, "max_attempts": 1}
    )

    def judge(job: Job) -> Outcome:
        if len(engine.jobs) > 1:
            return None
        assert stored(broker) == (1, ["[4, 6)"])
        produce(broker, 6, 7)
        return BadDataError("once")

    engine.judge = judge
    async with running(app, broker=broker):
        await until(lambda: stored(broker)[0] == 8, 60)
    assert ranges(engine.jobs) == [["orders-0 [4, 6)"], ["orders-0 [4, 6)"], ["orders-0 [6, 8)"]]


@in_virtual_time
async def test_a_channel_with_a_chosen_start_that_restarts_runs_no_range_again_whose_commit_was_lost() -> (
    None
):
    broker = make_broker(2)
    app, engine = spark_app(
        broker, assign=["orders:0:0", "orders:1:0"], restart={"backoff": 0.5, "max_attempts": 1}
    )

    def inside(batch: SparkBatch) -> None:
        if len(engine.jobs) == 1:
            batch.reject([("orders", 1, 0)], "the channel fails")
            broker.fail_next("commit", NotOwnerError("the generation is over"))

    engine.inside = inside
    for partition in (0, 1):
        produce(broker, 1, partition=partition)
    async with running(app, broker=broker) as test:
        await until(lambda: test.committed("orders").get(tp(1)) == 1, 60)
        # The commit that was lost is sent again after the restart.
        assert stored(broker) == (1, [])
        await send(test, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2, 60)
    assert ranges(engine.jobs) == [
        ["orders-0 [0, 1)", "orders-1 [0, 1)"],
        ["orders-1 [0, 1)"],
        ["orders-0 [1, 2)"],
    ]


@in_virtual_time
async def test_planned_ranges_go_together_into_one_batch_as_far_as_batch_max_bytes_allows() -> None:
    broker = make_broker(3)
    settings: dict[str, Any] = {"spark": {"batch_max_bytes": 4096, "max_concurrent_jobs": 3}}
    first, engine = spark_app(broker, **settings)
    engine.judge = lambda job: WAITS
    async with running(first, broker=broker, partitions=3):
        for partition, records in enumerate([4, 4, 1]):
            produce_large(broker, records, partition)
            # Used before the next round.
            await until(lambda: len(engine.jobs) == partition + 1)  # noqa: B023
        await first.stop(drain=False)
    second, later = spark_app(broker, **settings)
    async with running(second, broker=broker):
        await until(lambda: sum(len(job.values) for job in later.jobs) == 9)
    # A poll begins with any partition.
    (large, small), alone = ranges(later.jobs)
    assert (small, sorted([large, *alone])) == (
        "orders-2 [0, 1)",
        ["orders-0 [0, 4)", "orders-1 [0, 4)"],
    )


# -- one partition and the others


@in_virtual_time
async def test_data_lost_in_one_partition_makes_no_dead_letter_of_another() -> None:
    broker = make_broker(2)
    app, engine = spark_app(broker, spark={"mode": "ranges"}, **DEAD)
    lost = {"orders-0 [0, 2)"}
    engine.inside = lambda batch: broker.delete_records(tp(0), 2)
    engine.judge = lambda job: DataLossError("lost") if lost & set(ranges([job])[0]) else None
    for partition in (0, 1):
        produce(broker, 1, 2, partition=partition)
    async with running(app, broker=broker) as test:
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [2, 2], 30
        )
    assert ranges(engine.jobs)[0] == ["orders-0 [0, 2)", "orders-1 [0, 2)"]
    assert letters(broker, 2) == [None]


@in_virtual_time
async def test_what_is_there_of_a_range_in_which_data_was_lost_is_retried_and_the_loss_is_told() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": "ranges"}, **DELAYED)
    engine.inside = lambda batch: broker.delete_records(tp(), 1)
    engine.judge = lambda job: DataLossError("lost") if len(engine.jobs) == 1 else None
    produce(broker, 1, 2)
    async with running(app, broker=broker):
        await until(lambda: len(engine.jobs) == 2, 30)
    assert ranges(engine.jobs) == [["orders-0 [0, 2)"], [f"{RETRIES}-0 [0, 1)"]]
    assert engine.jobs[1].values == [2]
    assert letters(broker) == [None]


@in_virtual_time
async def test_the_lost_end_of_a_range_makes_a_dead_letter_with_its_first_offset() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": "ranges"}, **DEAD)
    engine.judge = lambda job: DataLossError("lost")

    def elect_uncleanly(batch: SparkBatch) -> None:
        # The client would notice at its next fetch, and begin anew.
        app.channel("orders").pause()
        broker.truncate(tp(), 2)

    engine.inside = elect_uncleanly
    produce(broker, 1, 2, 3, 4)
    async with running(app, broker=broker):
        await until(lambda: len(letters(broker)) == 3, 30)
        await settle_down()
    assert letters(broker) == [b"1", b"2", None]
    headers = dict(broker.log(tp(0, LETTERS))[2].headers)
    assert headers["dead-letter-offset"] == b"2"


@in_virtual_time
async def test_offsets_that_compaction_has_removed_between_records_make_no_dead_letter() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": "ranges"}, **DEAD)
    engine.judge = lambda job: DataLossError("lost")

    def compact_and_delete(batch: SparkBatch) -> None:
        broker.compact(tp(), [2, 3])
        broker.delete_records(tp(), 1)

    engine.inside = compact_and_delete
    produce(broker, 1, 2, 3, 4, 5)
    async with running(app, broker=broker) as test:
        await until(lambda: test.committed("orders").get(tp()) == 5, 30)
    assert letters(broker) == [b"2", b"5", None]
    headers = dict(broker.log(tp(0, LETTERS))[2].headers)
    assert headers["dead-letter-offset"] == b"0"


@in_virtual_time
async def test_a_partition_with_a_full_backlog_leaves_another_its_records() -> None:
    broker = make_broker(2)
    app, engine = spark_app(
        broker, spark={"max_concurrent_jobs": 2, "batch_max_bytes": 4096}, max_in_flight=1000
    )
    engine.judge = lambda job: WAITS if job.batch.ranges[0].partition == 0 else None
    produce_large(broker, 40, 0)
    async with running(app, broker=broker) as test:
        await until(lambda: engine.jobs)
        await asyncio.sleep(3.0)
        await send(test, 11, partition=1)
        await until(lambda: test.committed("orders").get(tp(1)) == 1, 30)
        assert [job.is_over for job in engine.jobs] == [False, True]
        await app.stop(drain=False)


# -- attempts


@in_virtual_time
async def test_attempts_go_on_counting_after_a_job_was_cut_off() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, revoke_grace=0.5)
    outcomes: list[Outcome | str] = [
        ClusterError("no executors"),
        ClusterError("still none"),
        WAITS,
        None,
    ]
    engine.judge = lambda job: outcomes[len(engine.jobs) - 1]
    async with running(app, broker=broker) as test:
        await send(test, 1)
        await until(lambda: len(engine.jobs) == 3, 30)
        broker.rebalance("billing")
        await until(lambda: test.committed("orders").get(tp()) == 1, 60)
    assert engine.jobs[2].was_cancelled
    assert [job.batch.attempt for job in engine.jobs] == [1, 2, 3, 4]


@in_virtual_time
async def test_attempts_are_counted_from_1_when_offsets_are_read_again_after_a_seek() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, revoke_grace=0.5, spark={"batch_max_records": 1})
    outcomes: list[Outcome | str] = [ClusterError("no executors"), WAITS, None, None, None]
    engine.judge = lambda job: outcomes[len(engine.jobs) - 1]

    @app.on_assigned("orders")
    async def skip_first_record(partitions: Any) -> None:
        if engine.jobs:
            await app.channel("orders").seek(tp(), 1)

    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: len(engine.jobs) == 2, 30)
        # The job is cut off, and its partition comes back at another position.
        broker.rebalance("billing")
        await until(lambda: test.committed("orders").get(tp()) == 2, 60)
        await app.channel("orders").seek(tp(), 0)
        await until(lambda: len(engine.jobs) == 5, 60)
    assert engine.jobs[1].was_cancelled
    assert [(job.values, job.batch.attempt) for job in engine.jobs] == [
        ([1], 1),
        ([1], 2),
        ([2], 1),
        ([1], 1),
        ([2], 1),
    ]


@in_virtual_time
async def test_no_failure_is_reported_again_of_records_whose_letters_were_written_before_a_rebalance() -> (
    None
):
    broker = make_broker()
    recorder = Recorder()
    one_batch = {"batch_max_records": 600, "batch_max_wait": 5.0}
    app, engine = spark_app(
        broker, recorder, revoke_grace=0.5, drain_timeout=2.0, spark=one_batch, **DEAD
    )
    engine.judge = lambda job: BadDataError("all bad")
    async with running(app, broker=broker) as test:
        produce(broker, *range(600))
        # Some at a time are nacked, and the others after these.
        first, second = broker.hold("send"), broker.hold("send")
        await first.arrived()
        first.release()
        await second.arrived()
        assert len(letters(broker)) < 600
        broker.rebalance("billing")
        await asyncio.sleep(5.0)
        second.release()
        await until(lambda: test.committed("orders").get(tp()) == 600, 60)
    assert len(letters(broker)) == 600
    assert recorder.of(HandlerFailed) == []

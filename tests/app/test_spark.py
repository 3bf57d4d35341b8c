"""A Spark channel from its records to the commit: what is planned, run, run again, split, settled
and nacked.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import SparkBatch
from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    ConfigError,
    DataLossError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
)
from tests.app.helpers import facts, in_virtual_time, make_broker, now, running, send, tp, until
from tests.app.spark_stage import DEAD, WAITS, Engine, bad_if, letters, ranges, spark_app, stored


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_records_are_acked_when_the_function_has_returned(mode: str) -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": mode})
    async with running(app, broker=broker) as test:
        await send(test, *range(5))
        await until(lambda: test.committed("orders").get(tp()) == 5)
    assert [value for job in engine.jobs for value in job.values] == [0, 1, 2, 3, 4]
    assert stored(broker) == (5, [])


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_the_plan_is_in_the_group_at_the_unchanged_position_before_the_function_runs(
    mode: str,
) -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": mode})
    seen = []
    engine.judge = lambda job: seen.append(stored(broker))
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2)
        await send(test, 3)
        await until(lambda: test.committed("orders").get(tp()) == 3)
    assert seen == [(0, ["[0, 2)"]), (2, ["[2, 3)"])]


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_after_a_crash_the_planned_range_runs_first_under_its_id_though_more_has_come(
    mode: str,
) -> None:
    broker = make_broker()
    first, engine = spark_app(broker, spark={"mode": mode})
    engine.judge = lambda job: WAITS
    async with running(first, broker=broker) as test:
        await send(test, *range(4))
        await until(lambda: engine.jobs)
        await first.stop(drain=False)
    assert stored(broker) == (0, ["[0, 4)"])
    second, later = spark_app(broker, spark={"mode": mode, "batch_max_records": 2})
    async with running(second, broker=broker) as test:
        await send(test, *range(4, 7))
        await until(lambda: test.committed("orders").get(tp()) == 7)
    assert [job.values for job in later.jobs] == [[0, 1, 2, 3], [4, 5], [6]]
    assert later.jobs[0].batch.id == engine.jobs[0].batch.id


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_a_batch_that_has_no_room_to_fill_does_not_wait_for_more(mode: str) -> None:
    broker = make_broker(5)
    spark = {"mode": mode, "batch_max_records": 30, "batch_max_wait": "5s"}
    app, engine = spark_app(broker, spark=spark, max_in_flight=30)
    for number in range(100):
        broker.produce("orders", str(number).encode(), partition=0)
    async with running(app, broker=broker, partitions=5):
        began = now()
        await until(lambda: sum(len(job.rows) for job in engine.jobs) >= 80)
        assert now() - began < 1
        sizes = [len(job.rows) for job in engine.jobs]
    assert min(sizes) >= 10


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_a_failed_batch_goes_to_the_dead_letters_with_its_original_bytes(mode: str) -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": mode}, **DEAD)
    engine.judge = lambda job: OffloadError("no such column")
    async with running(app, broker=broker) as test:
        await send(test, 1, 2, 3)
        await until(lambda: test.committed("orders").get(tp()) == 3)
    assert letters(broker) == [b"1", b"2", b"3"]
    assert len(engine.jobs) == 1


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_bisection_finds_the_bad_records_and_only_those_are_dead_letters(mode: str) -> None:
    """Row I5 of the faults."""
    broker = make_broker(2)
    app, engine = spark_app(broker, spark={"mode": mode, "on_failure": "bisect"}, **DEAD)
    engine.judge = bad_if(3, 15)
    async with running(app, broker=broker, partitions=2) as test:
        await send(test, *range(8))
        await send(test, *range(10, 18), partition=1)
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [8, 8], 60
        )
    assert sorted(letters(broker, 2)) == [b"15", b"3"]
    good = [value for job in engine.jobs if not {3, 15} & set(job.values) for value in job.values]
    assert sorted(good) == [0, 1, 2, 4, 5, 6, 7, 10, 11, 12, 13, 14, 16, 17]
    whole, parts = engine.jobs[0], engine.jobs[1:]
    assert len(whole.batch.ranges) == 2
    assert all(len(job.batch.ranges) == 1 for job in parts)
    assert parts[0].batch.supersedes == ()
    smaller = [job for job in parts if len(job.values) < 8]
    assert all(
        whole.batch.ranges[job.batch.ranges[0].partition].id in job.batch.supersedes
        for job in smaller
    )


@in_virtual_time
async def test_after_a_crash_in_a_bisection_only_what_is_left_runs_and_it_supersedes_the_failed_whole() -> (
    None
):
    broker = make_broker()
    settings = {"spark": {"on_failure": "bisect"}, **DEAD}
    first, engine = spark_app(broker, **settings)
    engine.judge = lambda job: (
        WAITS if job.values == [2, 3] else bad_if(1, 3)(job) if len(job.values) == 4 else None
    )
    async with running(first, broker=broker) as test:
        await send(test, *range(4))
        await until(lambda: engine.running)
        await until(lambda: stored(broker)[0] == 2)
        await first.stop(drain=False)
    assert stored(broker) == (2, ["[2, 4)"])
    second, later = spark_app(broker, **settings)
    async with running(second, broker=broker) as test:
        await until(lambda: test.committed("orders").get(tp()) == 4)
    assert [job.values for job in later.jobs] == [[2, 3]]
    assert later.jobs[0].batch.id == engine.jobs[-1].batch.id
    assert later.jobs[0].batch.supersedes == (engine.jobs[0].batch.ranges[0].id,)


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_a_rejected_record_is_nacked_alone_and_holds_the_position_of_its_range_until_it_is_settled(
    mode: str,
) -> None:
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": mode}, **DEAD)
    engine.inside = lambda batch: batch.reject([("orders", 0, 1)], "not for us")
    async with running(app, broker=broker) as test:
        await send(test, 1, 2, 3)
        hold = broker.hold("send")
        await until(lambda: engine.jobs)
        await asyncio.sleep(6.0)
        assert stored(broker) == (0, ["[0, 3)"])
        hold.release()
        await until(lambda: test.committed("orders").get(tp()) == 3)
    assert letters(broker) == [b"2"]


@in_virtual_time
async def test_a_revocation_waits_for_its_grace_then_cancels_and_what_ran_runs_again_under_its_id() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(broker, revoke_grace=2.0, drain_timeout=20.0)
    engine.judge = lambda job: WAITS if len(engine.jobs) == 1 else None
    engine.late_s = 3.0
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: engine.jobs)
        began = now()
        broker.rebalance("billing")
        await until(lambda: engine.jobs[0].is_over, 30)
        assert 5.0 <= now() - began < 6.0
        await until(lambda: test.committed("orders").get(tp()) == 2, 30)
    again = engine.jobs[1].batch
    assert (again.id, again.attempt) == (engine.jobs[0].batch.id, 2)
    assert engine.jobs[0].was_cancelled


@in_virtual_time
async def test_a_job_that_ends_within_the_grace_is_settled_before_the_partition_goes() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, revoke_grace=2.0)
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: engine.jobs)
        broker.rebalance("billing")
        await asyncio.sleep(1.0)
        engine.jobs[0].end()
        await until(lambda: test.committed("orders").get(tp()) == 2)
    assert len(engine.jobs) == 1


@in_virtual_time
async def test_a_stop_cancels_in_time_settles_nothing_and_lets_go_when_the_job_is_over() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, drain_timeout=8.0)
    engine.judge = lambda job: WAITS
    engine.late_s = 1.0
    async with running(app, broker=broker) as test:
        await send(test, 1)
        await until(lambda: engine.jobs)
        began = now()
        await app.stop()
        assert 4.9 <= now() - began <= 8.5
    assert engine.jobs[0].was_cancelled
    assert stored(broker) == (0, ["[0, 1)"])


@in_virtual_time
async def test_a_range_of_gaps_that_fails_leaves_no_letter_and_lost_data_leaves_one_that_names_the_range() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(broker, spark={"mode": "ranges"}, **DEAD)
    engine.judge = lambda job: (
        DataLossError("[2, 4) lost") if job.batch.ranges[0].start else OffloadError("bad code")
    )
    engine.inside = lambda batch: broker.delete_records(tp(), 3) if batch.ranges[0].start else None
    async with running(app, broker=broker) as test:
        broker.append_markers(tp(), 2)
        await until(lambda: test.committed("orders").get(tp()) == 2)
        assert letters(broker) == []
        await send(test, 1, 2)
        await until(lambda: test.committed("orders").get(tp()) == 4)
    assert letters(broker) == [b"2", None]


@in_virtual_time
async def test_what_comes_after_a_bad_record_waits_for_its_letter_also_when_the_partition_went_and_came_back() -> (
    None
):
    broker = make_broker()
    two = {"batch_max_records": 2, "max_concurrent_jobs": 2}
    app, engine = spark_app(broker, revoke_grace=0.5, drain_timeout=4.0, spark=two, **DEAD)
    engine.judge = bad_if(1)
    async with running(app, broker=broker) as test:
        await send(test, 1, 2, 3)
        hold = broker.hold("send")
        await until(lambda: engine.jobs)
        broker.rebalance("billing")
        await asyncio.sleep(5.0)
        assert [job.values for job in engine.jobs] == [[1, 2]]
        hold.release()
        await until(lambda: test.committed("orders").get(tp()) == 3)
    assert [job.values for job in engine.jobs] == [[1, 2], [3]]
    assert sorted(letters(broker)) == [b"1", b"2"]


@in_virtual_time
async def test_a_rejected_offset_of_one_partition_says_nothing_of_another() -> None:
    broker = make_broker(2)
    app, engine = spark_app(broker, **DEAD)
    engine.inside = lambda batch: batch.reject([("orders", 1, 0)], "not for us")
    async with running(app, broker=broker, partitions=2) as test:
        await send(test, 1, 2)
        await send(test, 11, 12, partition=1)
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [2, 2]
        )
    assert letters(broker, 2) == [b"11"]
    assert len(engine.jobs) == 1


@in_virtual_time
async def test_a_seek_cancels_the_job_and_the_next_one_begins_when_it_is_over() -> None:
    broker = make_broker()
    app, engine = spark_app(broker)
    engine.judge = lambda job: WAITS if len(engine.jobs) == 1 else None
    engine.late_s = 2.0
    overlap = []
    async with running(app, broker=broker) as test:
        await send(test, *range(4))
        await until(lambda: engine.jobs)
        await app.channel("orders").seek(tp(), 2)
        await until(lambda: len(engine.jobs) == 2)
        overlap.append(engine.jobs[0].is_over)
        await until(lambda: test.committed("orders").get(tp()) == 4)
    assert overlap == [True]
    assert engine.jobs[1].values == [2, 3]


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_after_a_seek_back_a_crash_finds_each_range_that_ran_beyond_the_position_of_the_group(
    mode: str,
) -> None:
    broker = make_broker()
    first, engine = spark_app(broker, spark={"mode": mode})
    engine.judge = lambda job: WAITS if 7 in job.values else None
    async with running(first, broker=broker) as test:
        await send(test, *range(6))
        await until(lambda: stored(broker) == (6, []))
        await send(test, 6)
        await until(lambda: stored(broker) == (7, []))
        engine.jobs.clear()
        await asyncio.gather(first.channel("orders").seek(tp(), 4), send(test, 7, 8))
        await until(lambda: any(7 in job.values for job in engine.jobs))
        (member,) = broker.members("billing")
        at = stored(broker)
        broker.crash("billing", member, session_s=1)
        second, later = spark_app(broker, spark={"mode": mode})
        async with running(second, broker=broker):
            await until(lambda: stored(broker) == (9, []), 30)
    ran = [(one.start, one.until) for job in engine.jobs for one in job.batch.ranges]
    again = [(one.start, one.until) for job in later.jobs for one in job.batch.ranges]
    assert ran == [(4, 7), (7, 9)]
    assert at == (7, ["[7, 9)"])
    assert again == [(7, 9)]


@in_virtual_time
async def test_with_the_strategy_fail_the_channel_stops_at_the_first_record_of_a_failed_batch() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(broker)
    engine.judge = bad_if(5)
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2)
        await send(test, 4, 5, 6)
        await until(lambda: facts(test).state == "failed")
        assert sum(sum(one.nacked.values()) for one in facts(test).totals.values()) == 1
    assert stored(broker) == (2, ["[2, 5)"])


@in_virtual_time
async def test_a_job_that_does_not_end_leaves_its_records_and_stops_the_channel() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, **DEAD)
    engine.judge = lambda job: JobStuckError("still there")
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: facts(test).state == "failed")
        assert "still there" in str(facts(test).reason)
    assert letters(broker) == []
    assert stored(broker) == (0, ["[0, 2)"])


@in_virtual_time
async def test_faults_of_the_cluster_run_the_batch_again_under_its_id_until_it_works() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, **DEAD)
    engine.judge = lambda job: ClusterError("no executors") if len(engine.jobs) < 5 else None
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2, 30)
    assert len({job.batch.id for job in engine.jobs}) == 1
    assert [job.batch.attempt for job in engine.jobs] == [1, 2, 3, 4, 5]
    assert letters(broker) == []


@in_virtual_time
async def test_a_batch_that_kills_its_driver_twice_when_it_is_alone_is_not_run_a_third_time() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(broker, **DEAD)
    engine.judge = lambda job: (
        SessionLostError("gone", was_alone=len(engine.jobs) > 1) if 1 in job.values else None
    )
    async with running(app, broker=broker) as test:
        await send(test, 1)
        await until(lambda: test.committed("orders").get(tp()) == 1)
        await send(test, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2)
    assert [(job.values, job.alone) for job in engine.jobs] == [
        ([1], False),
        ([1], True),
        ([1], True),
        ([2], False),
    ]
    assert letters(broker) == [b"1"]


@in_virtual_time
async def test_a_timeout_is_a_nack_and_retries_come_first() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, retry={"max_attempts": 3, "backoff": 1.0}, **DEAD)
    engine.judge = lambda job: JobTimeoutError("not done")
    async with running(app, broker=broker) as test:
        began = now()
        await send(test, 1)
        await until(lambda: test.committed("orders").get(tp()) == 1)
        assert now() - began >= 3.0
    assert [job.batch.attempt for job in engine.jobs] == [1, 2, 3]
    assert letters(broker) == [b"1"]


@in_virtual_time
async def test_jobs_of_several_partitions_run_at_once_and_one_partition_s_do_not() -> None:
    broker = make_broker(2)
    app, engine = spark_app(broker, spark={"max_concurrent_jobs": 3, "batch_max_records": 2})
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker, partitions=2) as test:
        await send(test, *range(4))
        await send(test, *range(10, 14), partition=1)
        await until(lambda: len(engine.running) == 2)
        await asyncio.sleep(5.0)
        # A poll begins with any.
        assert sorted(ranges(engine.jobs)) == [["orders-0 [0, 2)"], ["orders-1 [0, 2)"]]
        engine.jobs[0].end()
        await until(lambda: len(engine.jobs) == 3)
        assert ranges(engine.jobs[2:]) == [[ranges(engine.jobs)[0][0].replace("[0, 2)", "[2, 4)")]]
        for job in engine.jobs[1:]:
            job.end()
        await until(lambda: len(engine.jobs) == 4)
        engine.jobs[3].end()
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [4, 4]
        )


@in_virtual_time
async def test_an_unordered_channel_runs_several_ranges_of_one_partition_and_commits_none_past_another() -> (
    None
):
    broker = make_broker()
    app, engine = spark_app(
        broker, ordering="unordered", spark={"max_concurrent_jobs": 2, "batch_max_records": 2}
    )
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker) as test:
        await send(test, *range(4))
        await until(lambda: len(engine.running) == 2)
        engine.jobs[1].end()
        await asyncio.sleep(6.0)
        assert stored(broker) == (0, ["[0, 2)", "[2, 4)"])
        engine.jobs[0].end()
        await until(lambda: test.committed("orders").get(tp()) == 4)


@pytest.mark.parametrize("most", [1, 2, 5])
@in_virtual_time
async def test_no_more_jobs_run_at_once_than_there_may_be(most: int) -> None:
    broker = make_broker()
    app, engine = spark_app(
        broker, ordering="unordered", spark={"max_concurrent_jobs": most, "batch_max_records": 2}
    )
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker) as test:
        await send(test, *range(20))
        for ended in range(10):
            # Long enough for all jobs that may begin.
            await asyncio.sleep(5.0)
            assert len(engine.running) == min(most, 10 - ended)
            engine.jobs[ended].end()
        await until(lambda: test.committed("orders").get(tp()) == 20)


@in_virtual_time
async def test_delayed_retries_come_as_ranges_of_the_retry_topic_and_survive_a_crash_as_they_were_cut() -> (
    None
):
    broker = make_broker()
    settings = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": ["orders_retry_1000"], "max_retries": 1},
    }
    first, engine = spark_app(broker, **settings)
    engine.judge = lambda job: (
        OffloadError("not yet") if job.batch.ranges[0].topic == "orders" else WAITS
    )
    async with running(first, broker=broker) as test:
        await send(test, 1, 2, 3)
        await until(lambda: engine.running, 30)
        await first.stop(drain=False)
    second, later = spark_app(broker, **settings)
    async with running(second, broker=broker) as test:
        await until(lambda: len(later.jobs) == 1, 30)
        await asyncio.sleep(10.0)
    assert later.jobs[0].values == [1, 2, 3]
    assert later.jobs[0].batch.id == engine.jobs[-1].batch.id
    assert len(later.jobs) == 1


@in_virtual_time
async def test_a_channel_that_failed_is_restarted_and_runs_the_planned_range_again() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, restart={"backoff": 0.5, "max_attempts": 3})
    engine.judge = lambda job: BadDataError("once") if len(engine.jobs) == 1 else None
    async with running(app, broker=broker) as test:
        await send(test, 1, 2)
        await until(lambda: test.committed("orders").get(tp()) == 2, 30)
    assert [job.values for job in engine.jobs] == [[1, 2], [1, 2]]
    assert engine.jobs[0].batch.id == engine.jobs[1].batch.id


@in_virtual_time
async def test_a_channel_is_restarted_while_a_job_of_another_partition_runs_and_they_never_overlap() -> (
    None
):
    broker = make_broker(2)
    app, engine = spark_app(
        broker,
        restart={"backoff": 0.1, "max_attempts": 3},
        drain_timeout=10.0,
        spark={"max_concurrent_jobs": 2},
    )
    engine.judge = lambda job: (
        WAITS if job.values == [1] and len(engine.jobs) == 1 else bad_once(engine)(job)
    )
    engine.late_s = 2.0
    async with running(app, broker=broker, partitions=2) as test:
        await send(test, 1)
        await until(lambda: engine.jobs)
        await send(test, 9, partition=1)
        await until(lambda: len(engine.jobs) >= 3, 60)
        assert engine.jobs[0].is_over
        await until(
            lambda: [test.committed("orders").get(tp(number)) for number in (0, 1)] == [1, 1], 30
        )


def bad_once(engine: Engine):  # type: ignore[no-untyped-def]
    return lambda job: BadDataError("once") if len(engine.jobs) == 2 else None


@pytest.mark.parametrize(("jobs", "sizes"), [(1, [[2, 2, 2, 2]]), (2, [[4, 4], [4, 4]])])
@in_virtual_time
async def test_a_batch_takes_alike_of_all_partitions_unless_there_may_be_a_job_beside_it(
    jobs: int, sizes: list[list[int]]
) -> None:
    broker = make_broker(4)
    app, engine = spark_app(
        broker,
        spark={"mode": "ranges", "max_concurrent_jobs": jobs, "batch_max_records": 8},
        max_in_flight=32,
    )
    engine.judge = lambda job: WAITS
    async with running(app, broker=broker, partitions=4) as test:
        for partition in range(4):
            await send(test, *range(4), partition=partition)
        await until(lambda: len(engine.running) == jobs)
        assert [
            [one.until - one.start for one in job.batch.ranges] for job in engine.running
        ] == sizes
        while engine.running:
            engine.running[0].end()
            await asyncio.sleep(1)


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_the_bar_of_each_run_never_falls_through_new_jobs_retries_and_a_bisection(
    mode: str,
) -> None:
    broker = make_broker()
    settings = {
        "spark": {"mode": mode, "on_failure": "bisect"},
        "retry": {"max_attempts": 2, "backoff": 0.1},
    }
    app, engine = spark_app(broker, **settings, **DEAD)
    engine.judge = lambda job: WAITS
    ended = 0
    async with running(app, broker=broker) as test:
        await send(test, *range(4))
        while test.committed("orders").get(tp()) != 4:
            await until(lambda: engine.running or test.committed("orders").get(tp()) == 4, 60)
            for job in engine.running:
                shares = [0.0]
                for done, tasks in [(4, 5), (5, 10), (2, 10), (10, 12), (0, 0)]:
                    job.progress(tasks=tasks, done=done)
                    await asyncio.sleep(0)
                    (session,) = app.spark_facts()
                    (batch,) = session.running
                    assert batch.share is not None
                    shares.append(batch.share)
                assert shares == sorted(shares)
                assert 0.75 < shares[-1] < 1.0
                job.end(bad_if(3)(job))
                ended += 1
                await until(lambda job=job: job.is_over)
                # The run is over: the last one of the facts is its own, and another one begins with
                # an empty bar.
                (session,) = app.spark_facts()
                assert all(one.share == 0.0 for one in session.running)
                assert (session.last[-1].share == 1.0) == (session.last[-1].outcome == "ok")
    assert ended > 4
    assert [one.outcome for one in session.last].count("ok") == 2
    assert letters(broker) == [b"3"]


@in_virtual_time
async def test_spark_is_started_for_a_channel_that_is_not_enabled_once_it_has_records() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, enabled=False)
    engine.go_away(ClusterError("Spark is starting"))
    async with running(app, broker=broker) as test:
        await until(lambda: app.health().ready.is_up)
        assert not engine.is_open

        await app.channel("orders").start()
        await send(test, 1)
        await until(lambda: engine.is_open)
        assert not app.health().ready.is_up
        engine.come_back()
        await until(lambda: test.committed("orders").get(tp()) == 1)
        assert app.health().ready.is_up


@in_virtual_time
async def test_an_outgoing_channel_that_no_handler_names_may_be_fed_by_a_spark_function(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = make_broker()
    app, _ = spark_app(broker, outgoing={"totals": {}})
    async with running(app, broker=broker):
        pass
    assert "nothing feeds" not in caplog.text


@in_virtual_time
async def test_a_batch_may_send_only_to_a_channel_of_a_topic() -> None:
    broker = make_broker()
    app, engine = spark_app(broker, outgoing={"exact": {"outbox": True}})
    refused: list[str] = []

    def sends(batch: SparkBatch) -> None:
        for name in ("exact", "exakt"):
            try:
                batch.send(None, name)
            except ConfigError as error:
                refused.extend(error.problems)

    engine.inside = sends
    async with running(app, broker=broker) as test:
        await send(test, 1)
        await until(lambda: test.committed("orders").get(tp()) == 1)
    assert refused == [
        "batch.send(df, 'exact'): [outgoing.exact] has outbox, and what executors write is part of"
        " no transaction: send to a channel without it",
        "batch.send(df, 'exakt'): no [outgoing.exakt] is configured in code (there are 'exact');"
        " did you mean 'exact'?",
    ]

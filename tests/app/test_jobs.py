"""``@app.every`` and ``@app.cron``: when they are called, where, and what ends them."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from reactive_kafka import App, ConfigError, Router
from reactive_kafka.events import JobFailed, JobLate, JobLeft
from reactive_kafka.testing import FakeClock, TestApp, run_in_virtual_time
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    settle_down,
    tp,
    until,
)

HOUR_S = 3600.0


def ticking(app: App, decorator: Any) -> list[float]:
    """Decorate a function that notes when it is called."""
    called: list[float] = []

    @decorator
    async def tick() -> None:
        called.append(now())

    return called


def with_orders(recorder: Recorder | None = None, **orders: Any) -> App:
    app = make_app(recorder, **orders)
    take_all(app)

    return app


@in_virtual_time
async def test_a_job_is_called_at_each_interval_from_the_start_on_until_the_stop() -> None:
    app = with_orders()
    called = ticking(app, app.every("1m"))
    async with running(app):
        began = now()
        await asyncio.sleep(200)
    await asyncio.sleep(200)
    assert [at - began for at in called] == pytest.approx([60, 120, 180], abs=0.5)


@in_virtual_time
async def test_a_router_has_jobs_as_well() -> None:
    app, router = with_orders(), Router()
    called = ticking(app, router.every(0.5))
    app.include(router)
    async with running(app):
        await asyncio.sleep(1.6)
    assert len(called) == 3


async def test_a_blocking_job_runs_in_a_thread_of_its_own() -> None:
    app, threads = with_orders(), list[int]()

    @app.every("10ms")
    def job() -> None:
        threads.append(threading.get_ident())

    async with running(app):
        await until(lambda: len(threads) > 1)
    assert threading.get_ident() not in threads


def test_cron_goes_by_the_wall_clock_in_utc_or_in_a_zone() -> None:
    hours: dict[str, list[str]] = {"utc": [], "berlin": []}
    app = with_orders()

    def note(zone: str) -> None:
        hours[zone].append(datetime.fromtimestamp(clock.wall() + 1e-3, UTC).strftime("%H:%M:%S"))

    @app.cron("0 3 * * *")
    async def in_utc() -> None:
        note("utc")

    @app.cron("0 3 * * *", tz="Europe/Berlin")
    async def in_berlin() -> None:
        note("berlin")

    async def main(_: FakeClock) -> None:
        async with running(app):
            await asyncio.sleep(30)
            clock.jump_wall(HOUR_S - 30)
            # Nothing tells that the clock was set: the job looks every 30 s.
            await asyncio.sleep(60)

    clock = FakeClock(wall=datetime(2026, 11, 25, 1, 59, 45, tzinfo=UTC).timestamp())
    run_in_virtual_time(main, clock=clock)
    assert hours["berlin"] == ["02:00:00"]
    assert hours["utc"] in (["03:00:00"], ["03:00:14"], ["03:00:15"])


@in_virtual_time
async def test_what_a_job_raises_is_told_and_it_is_called_again() -> None:
    recorder = Recorder()
    app, calls = with_orders(recorder), list[float]()

    @app.every("1s")
    async def breaks() -> None:
        calls.append(now())
        raise ValueError("no luck")

    async with running(app) as test:
        await until(lambda: len(calls) == 3)
        assert test.app.health().live
    told = recorder.of(JobFailed)
    assert {(one.channel, one.reason, one.job.rpartition(".")[2]) for one in told} == {
        ("*", "ValueError: no luck", "breaks")
    }
    assert "breaks raised: ValueError: no luck" in told[0].text()


@in_virtual_time
async def test_a_job_that_cancels_itself_is_called_again() -> None:
    app, calls = with_orders(), list[float]()

    @app.every("1s")
    async def cancels() -> None:
        calls.append(now())
        raise asyncio.CancelledError

    async with running(app):
        await until(lambda: len(calls) == 3)


@in_virtual_time
async def test_a_job_that_asks_the_process_to_end_ends_it() -> None:
    app = with_orders()

    @app.every("1s")
    async def ends() -> None:
        raise SystemExit(3)

    async with running(app) as test:
        assert test.app._run is not None
        await test.app._run.wait_asked()
        assert test.app._run.exit_code() == 3


@in_virtual_time
async def test_a_call_never_overlaps_with_itself_and_what_it_misses_is_told_once() -> None:
    recorder = Recorder()
    app, calls, inside = with_orders(recorder), list[float](), list[int]()

    @app.every("1s")
    async def slow() -> None:
        inside.append(1)
        assert len(inside) == 1
        calls.append(now())
        await asyncio.sleep(2.5)
        inside.pop()

    async with running(app):
        await asyncio.sleep(10)
    gaps = [after - before for before, after in pairwise(calls)]
    assert gaps == pytest.approx([3.0] * len(gaps), abs=0.01)
    (late,) = recorder.of(JobLate)
    assert "took 2.5 s" in late.text()
    assert not recorder.of(JobFailed)


@pytest.mark.parametrize(("takes_s", "stops_s", "is_done"), [(3.0, 3.0, True), (60.0, 5.0, False)])
@in_virtual_time
async def test_a_stop_waits_for_a_call_within_the_drain_time_and_cancels_it_then(
    takes_s: float, stops_s: float, is_done: bool
) -> None:
    recorder, ends = Recorder(), list[str]()
    app = with_orders(recorder, drain_timeout="5s")

    @app.every("1s")
    async def job() -> None:
        try:
            await asyncio.sleep(takes_s)
            ends.append("done")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with running(app) as test:
        await asyncio.sleep(1.01)
        began = now()
        await test.app.stop()
        assert now() - began == pytest.approx(stops_s, abs=0.3)
    assert ends == ["done" if is_done else "cancelled"]
    assert len(recorder.of(JobLeft)) == (not is_done)


@in_virtual_time
async def test_a_rebalance_while_a_stop_waits_for_handlers_begins_no_job_again() -> None:
    app = make_app(drain_timeout="60s")
    may_end = asyncio.Event()

    @app.incoming("orders")
    async def slow(value: int) -> None:
        await may_end.wait()

    called = ticking(app, app.every("1s", on="orders:0"))
    async with running(app) as test:
        await test.send("orders", 1, partition=0)
        await until(lambda: len(called) > 3)
        stopping = asyncio.create_task(app.stop())
        await asyncio.sleep(2)
        before = len(called)
        generation = test.broker.generation("billing")
        test.broker.rebalance("billing")
        await until(lambda: test.broker.generation("billing") > generation)
        await asyncio.sleep(10)
        assert not stopping.done()
        assert len(called) == before
        may_end.set()
        await stopping


@in_virtual_time
async def test_a_stop_without_a_drain_waits_for_no_job() -> None:
    app = with_orders()

    @app.every("1s")
    async def job() -> None:
        await asyncio.sleep(60)

    async with running(app) as test:
        await asyncio.sleep(1.01)
        began = now()
        await test.app.stop(drain=False)
        assert now() - began < 1.0


@in_virtual_time
async def test_an_application_of_jobs_alone_waits_for_them_as_well() -> None:
    app, ends = App({}), list[str]()

    @app.every("1s")
    async def job() -> None:
        await asyncio.sleep(5)
        ends.append("done")

    assert app.declared.warning is None
    async with running(app):
        await asyncio.sleep(1.01)
    assert ends == ["done"]


@in_virtual_time
async def test_with_a_partition_only_its_owner_calls_and_the_next_owner_goes_on_at_the_same_times() -> (
    None
):
    broker, called = make_broker(partitions=2), dict[int, list[float]]()
    apps = [with_orders(), with_orders()]
    for number, app in enumerate(apps):
        called[number] = ticking(app, app.every("10s", on="orders:0"))
    async with TestApp(apps[0], broker=broker) as first:
        await asyncio.sleep(15)
        assert len(called[0]) in (1, 2)
        async with TestApp(apps[1], broker=broker) as second:
            await until(lambda: len(second.app.channel("orders").facts().partitions) == 1, 60)
            await asyncio.sleep(60)
            owner = (
                first
                if tp(0)
                in {one.partition for one in first.app.channel("orders").facts().partitions}
                else second
            )
            own, other = (0, 1) if owner is first else (1, 0)
            before = len(called[other])
            await asyncio.sleep(60)
            assert len(called[other]) == before
        await asyncio.sleep(60)
    calls = sorted([*called[0], *called[1]])
    gaps = [after - before for before, after in pairwise(calls)]
    assert all(round(gap, 1) % 10 == 0 and gap > 1 for gap in gaps)
    assert len(called[own]) >= 6
    await broker.close()


@in_virtual_time
async def test_a_revocation_waits_for_a_call_within_its_grace_and_cancels_it_then() -> None:
    recorder = Recorder()
    app, spans = with_orders(recorder, revoke_grace="2s"), list[tuple[float, float]]()

    @app.every("5s", on="orders:0")
    async def job() -> None:
        began = now()
        try:
            await asyncio.sleep(100)
        finally:
            spans.append((began, now()))

    async with running(app) as test:
        await asyncio.sleep(7)
        asked = now()
        await rebalanced(test)
        assert len(spans) == 1
        assert spans[0][1] - asked < 6
        assert len(recorder.of(JobLeft)) == 1
        # It is called again in the next assignment.
        await asyncio.sleep(7)
    assert len(spans) == 2


def owner_of(test: TestApp) -> str:
    """The member that has the only partition."""
    (owner,) = (member for member, owned in test.broker.members("billing").items() if owned)
    return owner


@in_virtual_time
async def test_a_client_that_learns_late_that_another_one_of_its_channel_has_the_partition_ends_no_job() -> (
    None
):
    app = with_orders(consumers=2, group_protocol="consumer")
    called = ticking(app, app.every("5s", on="orders:0"))
    async with running(app) as test:
        await asyncio.sleep(7)
        test.broker.expire("billing", owner_of(test), notice_after_s=8)
        await asyncio.sleep(40)
        assert [round(later - earlier, 3) for earlier, later in pairwise(called)] == [5] * 8


@in_virtual_time
async def test_a_partition_that_another_client_gets_in_the_middle_of_a_call_cuts_no_call_off() -> (
    None
):
    recorder = Recorder()
    app = with_orders(recorder, consumers=2, group_protocol="consumer")
    spans = list[tuple[float, float]]()

    @app.every("1s", on="orders:0")
    async def job() -> None:
        began = now()
        try:
            await asyncio.sleep(10)
        finally:
            spans.append((began, now()))

    async with running(app) as test:
        await asyncio.sleep(3)
        test.broker.expire("billing", owner_of(test), notice_after_s=1)
        await asyncio.sleep(60)
        assert not recorder.of(JobLeft)
        assert [round(ended - began, 3) for began, ended in spans] == [10] * len(spans)
        assert len(spans) >= 5


@in_virtual_time
async def test_rebalances_that_come_more_often_than_its_time_do_not_starve_a_job() -> None:
    app = with_orders()
    called = ticking(app, app.every("30s", on="orders:0"))
    async with running(app) as test:
        began = now()
        while now() < began + 200:
            await asyncio.sleep(8)
            await rebalanced(test)
    assert len(called) >= 4


@in_virtual_time
async def test_a_partition_that_nobody_has_calls_nobody() -> None:
    app = with_orders()
    called = ticking(app, app.every("1s", on="orders:7"))
    async with running(app):
        await asyncio.sleep(10)
    assert called == []


@in_virtual_time
async def test_of_several_topics_the_one_that_is_named_counts() -> None:
    app = with_orders(topics=["eu", "us"])
    eu, us = (
        ticking(app, app.every("1s", on="orders:eu:0")),
        ticking(app, app.every("1s", on="orders:us:5")),
    )
    async with running(app):
        await asyncio.sleep(5.5)
    assert (len(eu) >= 4, us) == (True, [])


@in_virtual_time
async def test_a_failed_channel_calls_its_jobs_no_more_until_it_has_restarted() -> None:
    app, seen = make_app(), list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)
        if len(seen) == 1:
            raise ValueError("the first time")

    called = ticking(app, app.every("1s", on="orders:0"))
    async with running(app) as test:
        await until(lambda: len(called) == 2)
        await test.send("orders", b"")
        await until(lambda: test.app.channel("orders").facts().state == "failed")
        await settle_down()
        before = len(called)
        await asyncio.sleep(10)
        assert len(called) == before
        await test.app.channel("orders").restart()
        await until(lambda: len(called) > before)


async def test_a_thread_that_outlives_its_partition_is_waited_for_by_the_next_call() -> None:
    recorder = Recorder()
    app, go_on, calls = with_orders(recorder, drain_timeout="0s"), threading.Event(), list[int]()

    @app.every("20ms")
    def blocks() -> None:
        calls.append(1)
        go_on.wait(10)

    async with running(app) as test:
        await until(lambda: calls)
        await test.app.stop()
        (left,) = recorder.of(JobLeft)
        assert left.is_in_thread
        assert "its thread still runs" in left.text()
    go_on.set()


async def test_a_thread_that_is_left_behind_makes_the_next_call_late_by_all_of_its_time() -> None:
    recorder = Recorder()
    app, go_on, calls = with_orders(recorder), threading.Event(), list[float]()

    @app.every("50ms", on="orders:0")
    def blocks() -> None:
        calls.append(time.monotonic())
        go_on.wait(10)

    # Before the call: its thread may begin late.
    began = time.monotonic()
    async with running(app) as test:
        await until(lambda: calls)
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member)
        await until(lambda: recorder.of(JobLate))
        late_after_s = time.monotonic() - began
        late, *_ = recorder.of(JobLate)
        assert len(calls) == 1
        go_on.set()
    assert 0.04 <= late.took_s <= late_after_s


# -- what may be declared


@pytest.mark.parametrize(
    "on", ["orders", "orders:", "orders:x", ":0", "orders:0:", "a:b:c:0", 0, "orders:-1", ""]
)
def test_what_names_no_partition_is_refused_at_once(on: Any) -> None:
    with pytest.raises(ConfigError, match='on: expected a partition of a channel: "orders:0"'):
        App({}).every("1m", on=on)


def test_a_job_is_a_function_without_arguments() -> None:
    app = App({})

    async def takes(one: int) -> None: ...

    async def yields() -> Any:
        yield 1

    with pytest.raises(
        ConfigError, match=r"@app.every\('1m'\) of .*takes.* without an argument.*'one'"
    ):
        app.every("1m")(takes)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="yields, but a job is only called"):
        app.cron("* * * * *")(yields)


def test_the_channel_of_a_partition_is_known_at_the_start() -> None:
    app = with_orders(topics=["eu", "us"])
    ticking(app, app.every("1m", on="ordres:0"))
    ticking(app, app.every("1m", on="orders:0"))
    with pytest.raises(ConfigError) as report:
        app.configure()
    assert "no [incoming.ordres]" in str(report.value)
    assert "did you mean 'orders'" in str(report.value)
    assert "channel 'orders' reads several topics, so write \"orders:TOPIC:0\"" in str(report.value)


@in_virtual_time
async def test_a_running_application_takes_no_job() -> None:
    app = with_orders()
    async with running(app):
        with pytest.raises(RuntimeError, match=r"@app\.every while the application is running"):
            app.every("1m")


@in_virtual_time
async def test_a_job_may_stop_and_start_the_channel_whose_partition_it_has() -> None:
    recorder, took = Recorder(), list[float]()
    app = with_orders(recorder)

    @app.every("1m", on="orders:0")
    async def pause() -> None:
        began = now()
        await app.channel("orders").stop()
        took.append(now() - began)
        await app.channel("orders").start()

    async with running(app):
        await asyncio.sleep(200)
        assert took == [0, 0, 0]
        assert app.channel("orders").facts().state == "running"
    assert recorder.of(JobLeft) == []

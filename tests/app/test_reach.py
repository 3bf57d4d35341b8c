"""Topics that are not there and leaders that do not answer: not ready, with the reason, and
alive.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App
from reactive_kafka.events import (
    LeadersAway,
    LeadersBack,
    NothingMatches,
    NotWritable,
    TopicFound,
    TopicMissing,
)
from reactive_kafka.testing import MemoryBroker, TestApp, VirtualTimeLoop
from tests.app.handlers import note_places
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    tp,
    until,
)

MISSING = "the topic 'orders' does not exist and the broker creates none: create it"


def bare_broker() -> MemoryBroker:
    """A broker that creates no topics by itself."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return MemoryBroker(loop.clock, auto_create=False)


def noting_app(seen: list[tuple[int, int]], recorder: Recorder, **orders: Any) -> App:
    app = make_app(recorder, **orders)
    note_places(app, seen)

    return app


def not_ready(app: App) -> tuple[str, ...]:
    return app.channel("orders").facts().not_ready


def is_ready(app: App) -> bool:
    return app.health().ready.status == "UP"


# -- topics


@pytest.mark.parametrize("orders", [{}, {"consumers": 3}, {"topics": ["orders", "others"]}])
@in_virtual_time
async def test_a_topic_that_does_not_exist_is_not_ready_alive_and_read_when_it_appears(
    orders: dict[str, Any],
) -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), bare_broker()
    broker.create_topic("others", 1)
    app = noting_app(seen, recorder, **orders)
    starting = asyncio.ensure_future(TestApp(app, broker=broker, start_timeout_s=100).__aenter__())
    await until(lambda: app._run is not None and app._run.channels is not None and not_ready(app))
    assert not_ready(app) == (MISSING,)
    assert now() < 1
    await asyncio.sleep(30)
    assert not is_ready(app)
    assert app.health().live.status == "UP"
    assert [(event.topic, event.reason) for event in recorder.of(TopicMissing)] == [
        ("orders", MISSING)
    ]
    broker.create_topic("orders", 1)
    broker.produce("orders", b"", partition=0)
    await until(lambda: seen == [(0, 0)])
    await until(lambda: is_ready(app), 3)
    await starting
    assert [event.topic for event in recorder.of(TopicFound)] == ["orders"]
    await app.stop()
    await broker.close()


@in_virtual_time
async def test_a_topic_that_is_deleted_under_work_is_told_within_seconds_and_read_when_it_is_made_anew() -> (
    None
):
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), bare_broker()
    broker.create_topic("orders", 2)
    app = noting_app(seen, recorder)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(10)
        assert (not_ready(app), is_ready(app)) == ((), True)
        broker.delete_topic("orders")
        began = now()
        await until(lambda: not is_ready(app))
        assert (not_ready(app), now() - began < 3) == ((MISSING,), True)
        assert test.app.health().live.status == "UP"
        await asyncio.sleep(20)
        broker.create_topic("orders", 2)
        broker.produce("orders", b"", partition=1)
        await until(lambda: seen == [(1, 0)])
        await until(lambda: is_ready(app), 3)
    assert len(recorder.of(TopicMissing)) == len(recorder.of(TopicFound)) == 1
    await broker.close()


@in_virtual_time
async def test_a_topic_that_the_broker_creates_is_ready_and_nothing_is_told() -> None:
    recorder, seen = Recorder(), list[tuple[int, int]]()
    app = noting_app(seen, recorder)
    async with running(app):
        await asyncio.sleep(10)
        assert is_ready(app)
    assert recorder.of(TopicMissing) == []


@pytest.mark.parametrize("consumers", [1, 3])
@in_virtual_time
async def test_a_pattern_that_fits_nothing_is_told_once_and_ready_and_reads_what_appears(
    consumers: int,
) -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), bare_broker()
    broker.create_topic("others", 1)
    app = noting_app(seen, recorder, pattern="orders.*", consumers=consumers)
    async with running(app, broker=broker):
        await asyncio.sleep(30)
        assert is_ready(app)
        assert [event.pattern for event in recorder.of(NothingMatches)] == ["orders.*"]
        broker.create_topic("orders-de", 1)
        broker.produce("orders-de", b"", partition=0)
        await until(lambda: seen == [(0, 0)])
    await broker.close()


@in_virtual_time
async def test_a_static_assignment_of_a_missing_topic_names_it() -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), bare_broker()
    app = noting_app(seen, recorder, assign=["orders:0"])
    starting = asyncio.ensure_future(TestApp(app, broker=broker, start_timeout_s=100).__aenter__())
    await until(
        lambda: app._run is not None and app._run.channels is not None and MISSING in not_ready(app)
    )
    await asyncio.sleep(5)
    broker.create_topic("orders", 1)
    broker.produce("orders", b"", partition=0)
    await until(lambda: seen == [(0, 0)])
    await until(lambda: is_ready(app), 3)
    await starting
    await app.stop()
    await broker.close()


@pytest.mark.parametrize("invoices", [{}, {"transactional_id": "billing"}])
@in_virtual_time
async def test_an_outgoing_topic_that_does_not_exist_is_told_once_before_anything_is_sent(
    invoices: dict[str, Any],
) -> None:
    recorder, broker = Recorder(), bare_broker()
    app = App({"outgoing": {"invoices": invoices}}, observer=recorder)
    app.emitter("invoices")
    starting = asyncio.ensure_future(TestApp(app, broker=broker, start_timeout_s=100).__aenter__())
    await asyncio.sleep(30)
    missing = "topic 'invoices' does not exist, and the broker does not create it"
    assert [check.data["reason"] for check in app.health().ready.checks] == [f"broker: {missing}"]
    assert [event.text() for event in recorder.of(NotWritable)] == [
        f"{missing}; what is sent to the topic 'invoices' waits for that"
    ]
    broker.create_topic("invoices", 1)
    await until(lambda: is_ready(app), 10)
    await starting
    assert [event.topic for event in recorder.of(TopicFound)] == ["invoices"]
    await app.stop()
    await broker.close()


@in_virtual_time
async def test_an_outgoing_topic_that_is_there_soon_is_not_told_of() -> None:
    recorder, broker = Recorder(), bare_broker()
    app = App({"outgoing": {"invoices": {}}}, observer=recorder)
    app.emitter("invoices")
    asyncio.get_running_loop().call_later(1, broker.create_topic, "invoices", 1)
    async with TestApp(app, broker=broker, start_timeout_s=100):
        await until(lambda: is_ready(app), 10)
    assert [*recorder.of(NotWritable), *recorder.of(TopicFound)] == []
    await broker.close()


# -- leaders


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (None, "no node leads it"),
        ("2 at host:9092", "its leader, node 2 at host:9092, does not answer"),
    ],
)
@in_virtual_time
async def test_a_partition_whose_leader_is_away_for_five_seconds_is_not_ready_until_it_answers(
    node: str | None, why: str
) -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), make_broker(3)
    app = noting_app(seen, recorder, commit_interval="100ms")
    async with running(app, broker=broker) as test:
        await asyncio.sleep(10)
        for number in (0, 2):
            broker.leader_away(tp(number), node)
            broker.produce("orders", b"", partition=number)
        began = now()
        broker.produce("orders", b"", partition=1)
        await until(lambda: seen == [(1, 0)])
        await until(lambda: not is_ready(app), 20)
        assert 5 <= now() - began <= 10
        reason = f"orders-0, orders-2 cannot be read: {why}"
        assert not_ready(app) == (reason,)
        assert test.app.health().live.status == "UP"
        broker.produce("orders", b"", partition=1)
        await until(lambda: seen == [(1, 0), (1, 1)])
        await until(lambda: test.committed("orders").get(tp(1)) == 2)
        broker.leader_back(tp(0))
        await until(lambda: (0, 0) in seen)
        await until(lambda: not_ready(app) == (f"orders-2 cannot be read: {why}",))
        broker.leader_back(tp(2))
        await until(lambda: is_ready(app), 3)
        await test.settled()
    assert [event.reason for event in recorder.of(LeadersAway)] == [reason]
    assert len(recorder.of(LeadersBack)) == 1
    await broker.close()


@in_virtual_time
async def test_an_election_of_four_seconds_is_nothing_to_tell() -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), make_broker(1)
    app = noting_app(seen, recorder)
    async with running(app, broker=broker):
        for _ in range(5):
            await asyncio.sleep(10)
            broker.leader_away(tp())
            for _ in range(40):
                await asyncio.sleep(0.1)
                assert is_ready(app)
            broker.leader_back(tp())
    assert recorder.of(LeadersAway) == []
    await broker.close()


@in_virtual_time
async def test_a_partition_that_goes_to_another_member_takes_its_leader_s_absence_with_it() -> None:
    recorder, broker = Recorder(), make_broker(2)
    first, second = noting_app([], recorder), noting_app([], Recorder())
    async with running(first, broker=broker):
        await asyncio.sleep(5)
        broker.leader_away(tp(1), "2")
        await until(lambda: not is_ready(first), 20)
        other = TestApp(second, broker=broker, start_timeout_s=100)
        starting = asyncio.ensure_future(other.__aenter__())
        await until(lambda: first.channel("orders").assignment == {tp(0)}, 30)
        await until(lambda: is_ready(first), 3)
        await until(
            lambda: (
                "orders-1 cannot be read: its leader, node 2, does not answer" in not_ready(second)
            ),
            20,
        )
        broker.leader_back(tp(1))
        await starting
        await until(lambda: is_ready(second), 5)
        await second.stop()
    await broker.close()


@in_virtual_time
async def test_many_partitions_are_counted_and_not_all_named() -> None:
    broker = make_broker(30)
    app = noting_app([], Recorder())
    async with running(app, broker=broker):
        for number in range(30):
            broker.leader_away(tp(number), "2")
        await until(lambda: not is_ready(app), 20)
        (reason,) = not_ready(app)
        assert reason.startswith("orders-0, orders-1, ")
        assert " and 20 more cannot be read: " in reason
    await broker.close()


@in_virtual_time
async def test_a_member_without_partitions_is_ready_while_the_leader_of_another_one_is_away() -> (
    None
):
    handled: list[tuple[int, int]] = []
    broker = make_broker(2)
    first = noting_app(handled, Recorder(), consumers=2)
    async with running(first, broker=broker):
        await until(lambda: len(first.channel("orders").assignment) == 2)
        broker.leader_away(tp(0))
        idle = noting_app(handled, Recorder())
        async with TestApp(idle, broker=broker):
            assert is_ready(idle)
            assert not idle.channel("orders").assignment
            await first.stop()
            broker.leader_back(tp(0))
            await until(lambda: len(idle.channel("orders").assignment) == 2)
            await until(lambda: is_ready(idle))
    await broker.close()


@in_virtual_time
async def test_a_partition_without_a_leader_keeps_no_other_from_being_read() -> None:
    recorder, seen, broker = Recorder(), list[tuple[int, int]](), make_broker(3)
    app = noting_app(seen, recorder, commit_interval="100ms")
    broker.leader_away(tp(1))
    test = TestApp(app, broker=broker, start_timeout_s=100)
    starting = asyncio.ensure_future(test.__aenter__())
    for number in range(3):
        broker.produce("orders", b"", partition=number)
    await until(lambda: sorted(seen) == [(0, 0), (2, 0)], 20)
    await until(lambda: any("orders-1 cannot be read" in reason for reason in not_ready(app)))
    broker.leader_back(tp(1))
    await until(lambda: sorted(seen) == [(0, 0), (1, 0), (2, 0)], 20)
    await starting
    await until(lambda: is_ready(app), 5)
    await app.stop()
    await broker.close()

"""Brokers that are away, clients that break: not ready but alive, going on by itself, and nothing
lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from reactive_kafka import App, FatalBrokerError, Message, TransientBrokerError
from reactive_kafka.events import BrokerAvailable, BrokerUnavailable
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    until,
)


def counting_app(seen: list[int], recorder: Recorder | None = None, took_s: float = 0.0) -> App:
    app = make_app(recorder, commit_interval="1s", revoke_grace="1s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(took_s)
        seen.append(message.offset)

    return app


@in_virtual_time
async def test_an_application_starts_without_a_broker_and_connects_when_it_comes() -> None:
    recorder, seen, broker = Recorder(), list[int](), make_broker()
    app = counting_app(seen, recorder)
    broker.down = True
    broker.produce("orders", b"")
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    async with app:
        await asyncio.sleep(30)
        health = app.health()
        assert (health.live.status, health.ready.status, health.started.status) == (
            "UP",
            "DOWN",
            "DOWN",
        )
        assert "down" in health.ready.checks[0].data["reason"]
        broker.down = False
        await until(lambda: seen, 15)
        health = app.health()
        assert (health.live.status, health.ready.status, health.started.status) == (
            "UP",
            "UP",
            "UP",
        )
    assert broker.committed("billing")
    assert recorder.of(BrokerUnavailable)
    assert len(recorder.of(BrokerAvailable)) == 1
    await broker.close()


@in_virtual_time
async def test_a_long_outage_is_sat_out_and_nothing_is_lost() -> None:
    """Row A6 of the faults."""
    seen: list[int] = []
    async with running(counting_app(seen)) as test:
        await send(test, b"", b"")
        await test.settled()
        test.broker.down = True
        await send(test, b"", b"")
        await asyncio.sleep(300)
        assert (test.app.health().live.status, test.app.health().ready.status) == ("UP", "DOWN")
        test.broker.down = False
        await test.settled(timeout=60)
        assert seen == [0, 1, 2, 3]
        await until(lambda: test.app.health().status == "UP", 3)
        assert len(test.broker.members("billing")) == 1


@pytest.mark.parametrize("down_s", [20.0, 50.0, 70.0, 200.0, 500.0])
@in_virtual_time
async def test_ten_seconds_after_an_outage_of_any_length_a_channel_works_as_before(
    down_s: float,
) -> None:
    """Row A6 of the faults. The session ends after 45 s, and nothing else may be waited for after
    that.
    """
    recorder, seen = Recorder(), list[int]()
    async with running(counting_app(seen, recorder)) as test:
        await send(test, b"")
        await test.settled()
        before = test.broker.members("billing")
        test.broker.down = True
        await asyncio.sleep(down_s)
        test.broker.down = False
        back_at = now()
        await send(test, b"")
        await until(lambda: seen == [0, 1] and committed(test) == 2, 10)
        await until(lambda: test.app.health().status == "UP", back_at + 10 - now())
        assert test.broker.members("billing") == before, "the member is the same"
        assert len(recorder.of(BrokerAvailable)) == 1


@in_virtual_time
async def test_a_client_that_breaks_is_made_anew_and_what_ran_under_it_runs_again() -> None:
    seen: list[int] = []
    async with running(counting_app(seen, took_s=5)) as test:
        await send(test, b"", b"", b"")
        await until(lambda: facts(test).partitions[0].in_flight)
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await until(lambda: test.broker.generation("billing") >= 2, 30)
        await test.settled(timeout=60)
        assert sorted(set(seen)) == [0, 1, 2]
        assert committed(test) == 3
        assert positions(test.broker) == sorted(positions(test.broker))
        assert len(test.broker.members("billing")) == 1
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_rights_that_are_withdrawn_and_given_back_stop_nothing_for_good() -> None:
    """Row J8 of the faults."""
    seen: list[int] = []
    async with running(counting_app(seen)) as test:
        test.broker.fail_next("poll", FatalBrokerError("not authorised"), times=5)
        await asyncio.sleep(3)
        assert (test.app.health().live.status, test.app.health().ready.status) == ("UP", "DOWN")
        assert "not authorised" in test.app.health().ready.checks[0].data["reason"]
        await send(test, b"")
        await asyncio.sleep(15)
        assert seen == [0]
        assert test.app.health().status == "UP"


@pytest.mark.parametrize(
    "call", ["start", "committed", "beginning_offsets", "end_offsets", "topics", "check"]
)
@in_virtual_time
async def test_any_call_may_fail_for_a_while(call: str) -> None:
    """Row A11 of the faults."""
    seen, broker = list[int](), make_broker()
    broker.produce("orders", b"")
    broker.fail_next(call, TransientBrokerError("for a while"), times=4)  # type: ignore[arg-type]
    async with running(counting_app(seen), broker=broker) as test:
        await test.settled(timeout=60)
        assert seen == [0]
        await asyncio.sleep(15)
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_a_stop_while_the_broker_is_away_ends_in_time() -> None:
    seen: list[int] = []
    async with running(counting_app(seen)) as test:
        await send(test, b"")
        await until(lambda: seen)
        test.broker.down = True
        began = now()
        await test.app.stop()
        assert now() - began < 10


@in_virtual_time
async def test_a_stop_while_it_is_still_connecting_ends_at_once() -> None:
    app, broker = counting_app([]), make_broker()
    broker.down = True
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    await app.start()
    await asyncio.sleep(5)
    began = now()
    await app.stop()
    assert now() - began < 1


def of_all_kinds(recorder: Recorder) -> App:
    """Channels of each kind: with several clients, with retries, with letters, in transactions,
    with replies.
    """
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "consumers": 2,
                    "failure_strategy": "delayed-retry-topic",
                    "delayed_retry": {"topics": ["orders_retry_1000"]},
                },
                "others": {"group_id": "others", "failure_strategy": "dead-letter-queue"},
            },
            "outgoing": {
                "invoices": {},
                "exact": {"transactional_id": "exact"},
                "requests": {"reply_topic": "replies"},
            },
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def pass_on(order: bytes) -> bytes:
        return order

    @app.incoming("others")
    @app.outgoing("exact")
    async def pass_on_exactly(order: bytes) -> bytes:
        return order

    app.emitter("requests")
    return app


def test_an_outage_of_an_hour_is_one_line_for_each_channel_and_a_new_one_is_told_again() -> None:
    async def main(clock: FakeClock) -> None:
        recorder = Recorder()
        app = of_all_kinds(recorder)
        async with running(app) as test:
            for _ in range(2):
                recorder.events.clear()
                test.broker.down = True
                await asyncio.sleep(3600)
                test.broker.down = False
                await until(lambda: app.health().status == "UP", 30)
                away = Counter(event.channel for event in recorder.of(BrokerUnavailable))
                back = Counter(event.channel for event in recorder.of(BrokerAvailable))
                assert (
                    away
                    == back
                    == dict.fromkeys(("orders", "others", "invoices", "exact", "requests"), 1)
                )
                for event in recorder.of(BrokerAvailable):
                    assert event.away_s == pytest.approx(3600, abs=10)

    run_in_virtual_time(main)


@in_virtual_time
async def test_a_reason_that_changes_in_an_outage_is_told_and_readiness_has_the_last_one() -> None:
    recorder = Recorder()
    async with running(counting_app([], recorder)) as test:
        for reason in ("connection refused", "not authorised", "connection refused"):
            test.broker.fail_next("check", TransientBrokerError(reason), times=5)
            await until(lambda reason=reason: reason in str(test.app.health().ready.to_json()), 30)
            await asyncio.sleep(5)
        await until(lambda: test.app.health().status == "UP", 60)
    assert [event.reason for event in recorder.of(BrokerUnavailable)] == [
        "connection refused",
        "not authorised",
    ]
    assert len(recorder.of(BrokerAvailable)) == 1


@in_virtual_time
async def test_after_an_outage_a_client_has_time_to_hear_from_its_group() -> None:
    recorder = Recorder()
    app = make_app(recorder, session_timeout_ms=6000, max_poll_interval_ms=30_000)
    take_all(app)
    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        (member,) = test.broker.members("billing")
        test.broker.cut_off("billing", member)
        test.broker.down = True
        await asyncio.sleep(300)
        test.broker.down = False
        await asyncio.sleep(20)
        test.broker.heal("billing")
        await send(test, b"")
        await test.settled(timeout=60)
    assert not [
        event.reason
        for event in recorder.of(BrokerUnavailable)
        if "has not heard from its group" in event.reason
    ]

"""A member that is cut off from its group: it starts no record once its session is over by its own
clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Later, Message
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.events import SessionOver, SessionUp
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)

SESSION_S = 6.0


def slow_app(
    began: list[tuple[float, int]], recorder: Recorder | None = None, **orders: Any
) -> App:
    """It notes when each record began, and takes a second for it."""
    settings = {
        "session_timeout_ms": round(1000 * SESSION_S),
        "commit_interval": "1s",
        "max_in_flight": 100,
    } | orders
    app = make_app(recorder, **settings)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        began.append((now(), message.offset))
        await asyncio.sleep(1)

    return app


def member_of(broker: MemoryBroker) -> str:
    return next(iter(broker.members("billing")))


@in_virtual_time
async def test_no_record_is_started_once_the_session_is_over() -> None:
    """Rows B1 and B4 of the faults."""
    began, recorder = list[tuple[float, int]](), Recorder()
    app = slow_app(began, recorder)
    async with running(app) as test:
        await send(test, *[b""] * 60)
        await until(lambda: len(began) == 3)
        cut_at = now()
        test.broker.cut_off("billing", member_of(test.broker))
        await asyncio.sleep(30)
        assert began[-1][0] <= cut_at + SESSION_S
        assert began[-1][0] > cut_at + SESSION_S - 1.5, "until then it may be a member"
        assert not test.broker.members("billing"), "its partitions were free for others"
        assert "session has been over for 2" in str(facts(test).not_ready)
        (over,) = recorder.of(SessionOver)
        assert "no record is started" in over.text()
        assert facts(test).state == "running"

        stopped_after = len(began)
        test.broker.heal("billing")
        await until(lambda: len(began) > stopped_after)
        await until(lambda: not facts(test).not_ready)
        assert len(recorder.of(SessionUp)) == 1
        await test.settled(timeout=100)
    assert len({offset for _, offset in began}) == 60


@in_virtual_time
async def test_what_another_member_took_meanwhile_is_not_repeated_by_the_one_that_was_cut_off() -> (
    None
):
    """Row B1 of the faults."""
    alone, others = list[tuple[float, int]](), list[tuple[float, int]]()
    broker = make_broker()
    async with running(slow_app(alone), broker=broker) as test:
        await send(test, *[b""] * 60)
        await until(lambda: len(alone) == 3)
        broker.cut_off("billing", member_of(broker))
        async with running(slow_app(others), broker=broker) as other:
            await until(lambda: len(others) >= 20, 100)
            assert alone[-1][0] < others[0][0], "the two never worked side by side"
            broker.heal("billing")
            await other.settled(timeout=200)
    seen = [offset for _, offset in alone + others]
    assert set(seen) == set(range(60))
    repeated = len(seen) - 60
    assert repeated <= SESSION_S + 2, (
        "what was done in the session that was over, and not committed"
    )
    await broker.close()


@in_virtual_time
async def test_who_is_still_a_member_goes_on_where_it_stood() -> None:
    """Row B4 of the faults."""
    began = list[tuple[float, int]]()
    async with running(slow_app(began)) as test:
        await send(test, *[b""] * 20)
        await until(lambda: len(began) == 3)
        # For everybody: nobody is put out.
        test.broker.down = True
        await asyncio.sleep(20)
        assert len(began) < 12
        generation = test.broker.generation("billing")
        test.broker.down = False
        await test.settled(timeout=100)
        assert test.broker.generation("billing") == generation
    assert [offset for _, offset in began] == list(range(20)), (
        "nothing is repeated, and the order holds"
    )


@pytest.mark.parametrize("error", [Later("1h"), ValueError("not yet")], ids=["later", "retry"])
@in_virtual_time
async def test_an_outage_that_outlasts_the_session_ends_the_wait_for_another_call(
    error: Exception,
) -> None:
    attempts: list[int] = []
    app = make_app(
        session_timeout_ms=round(1000 * SESSION_S),
        unprocessed_record_max_age=0,
        retry={"max_attempts": 2, "backoff": "1h", "max_backoff": "1h"},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            raise error

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: attempts)
        test.broker.down = True
        await asyncio.sleep(20)
        assert attempts == [1]
        test.broker.down = False
        await test.settled(timeout=20)
    assert attempts == [1, 1]


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_retry_is_a_start_too(ordering: str) -> None:
    calls = list[float]()
    app = make_app(
        session_timeout_ms=6_000,
        ordering=ordering,
        retry={"max_attempts": 100, "backoff": "1s", "max_backoff": "1s"},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(now())
        if len(calls) < 50:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(calls) == 3)
        cut_at = now()
        test.broker.cut_off("billing", member_of(test.broker))
        await asyncio.sleep(30)
        assert calls[-1] <= cut_at + SESSION_S
        test.broker.heal("billing")
        await test.settled(timeout=200)
        assert len(calls) == 50


@in_virtual_time
async def test_what_runs_may_end_and_its_ack_waits_for_the_group() -> None:
    kept = list[Message[bytes]]()
    app = make_app(
        session_timeout_ms=6_000, heartbeat_interval_ms=2_000, ack="manual", commit_interval="1s"
    )
    keep_messages(app, kept)

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        test.broker.down = True
        await asyncio.sleep(20)
        assert facts(test).state == "running"
        kept[0].ack()
        await asyncio.sleep(5)
        assert committed(test) is None, "it reaches nobody"
        test.broker.down = False
        await until(lambda: committed(test) == 1)
        await settle_down()
        assert len(kept) == 1, "nobody was put out: the partition is still ours"


@in_virtual_time
async def test_a_pause_that_ends_while_it_is_alone_starts_nothing() -> None:
    began = list[tuple[float, int]]()
    async with running(slow_app(began)) as test:
        await send(test, *[b""] * 30)
        await until(lambda: len(began) == 3)
        cut_at = now()
        test.broker.cut_off("billing", member_of(test.broker))
        await asyncio.sleep(10)
        before = len(began)
        test.app.channel("orders").pause("a look")
        test.app.channel("orders").resume("a look")
        await asyncio.sleep(10)
        assert len(began) == before
        assert began[-1][0] <= cut_at + SESSION_S
        test.broker.heal("billing")
        await test.settled(timeout=100)


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_a_seek_while_it_is_alone_starts_nothing_either(ordering: str) -> None:
    began = list[tuple[float, int]]()
    async with running(slow_app(began, ordering=ordering)) as test:
        await send(test, *[b""] * 30)
        await until(lambda: len(began) == 3)
        test.broker.cut_off("billing", member_of(test.broker))
        await asyncio.sleep(10)
        before = len(began)
        for offset in (0, 20):
            await test.app.channel("orders").seek(tp(), offset)
            await asyncio.sleep(10)
        assert len(began) == before
        test.broker.heal("billing")
        await until(lambda: {offset for _, offset in began} >= set(range(20, 30)), 100)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 2.0])
@in_virtual_time
async def test_what_began_while_it_was_alone_is_read_once_the_group_answers(after_s: float) -> None:
    began, broker = list[tuple[float, int]](), make_broker()
    app = slow_app(began, auto_offset_reset="latest")
    asking, storing = broker.hold("end_offsets"), broker.hold("commit")

    async def outage() -> None:
        await asking.arrived()
        broker.down = True
        await asyncio.sleep(SESSION_S + 0.5)
        assert inside(app).session.clients[0].owned.is_alone
        broker.down = False
        asking.release()
        # Its start is known, and not stored yet.
        await storing.arrived()
        await asyncio.sleep(after_s)
        storing.release()

    playing = asyncio.create_task(outage())
    async with running(app, broker=broker) as test:
        await playing
        await send(test, *[b""] * 3)
        await until(lambda: len(began) == 3, 60)
    await broker.close()


@in_virtual_time
async def test_a_stop_while_it_is_alone_ends_in_time() -> None:
    began = list[tuple[float, int]]()
    async with running(slow_app(began)) as test:
        await send(test, *[b""] * 30)
        await until(lambda: len(began) == 3)
        test.broker.cut_off("billing", member_of(test.broker))
        await asyncio.sleep(10)
        asked_at = now()
        await test.app.stop()
        assert now() - asked_at < 7


@pytest.mark.parametrize("how", ["broken", "restarted"])
@in_virtual_time
async def test_the_session_of_a_client_that_was_replaced_suspends_nothing(how: str) -> None:
    began, recorder = list[tuple[float, int]](), Recorder()
    async with running(slow_app(began, recorder)) as test:
        await send(test, b"")
        await until(lambda: len(began) == 1)
        if how == "broken":
            test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
            await until(lambda: test.broker.generation("billing") >= 2, 30)
        else:
            await test.app.channel("orders").stop()
            await test.app.channel("orders").start()
        await until(lambda: test.app.channel("orders").is_ready, 60)
        restarted_at = now()
        await send(test, *[b""] * 30)
        await test.settled(timeout=100)
        took_s = now() - restarted_at
        assert took_s < 33, "thirty records of a second each"
        assert not recorder.of(SessionOver)


@in_virtual_time
async def test_that_the_group_answers_again_is_told_also_if_another_client_hears_it() -> None:
    began, recorder = list[tuple[float, int]](), Recorder()
    async with running(slow_app(began, recorder)) as test:
        await send(test, *[b""] * 30)
        await until(lambda: len(began) == 3)
        test.broker.cut_off("billing", member_of(test.broker))
        await until(lambda: recorder.of(SessionOver), 30)
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await test.settled(timeout=100)
        assert len(recorder.of(SessionOver)) == len(recorder.of(SessionUp)) == 1
        assert facts(test).not_ready == ()

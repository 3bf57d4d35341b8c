"""A handler that awaits a call of ours which waits for a broker: its records do not age meanwhile.

An outage that is longer than ``unprocessed_record_max_age`` makes no record poison, and ends no
attempt.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, ReplyTimeoutError
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)

OUTAGE_S = 200.0
LETTERS = "dead-letter-topic-orders"

QUESTIONS: dict[str, tuple[Any, Callable[[App], Awaitable[object]]]] = {
    "committed": ("committed", lambda app: app.channel("orders").committed()),
    "lag": ("end_offsets", lambda app: app.channel("orders").lag()),
    "metadata": ("committed", lambda app: app.channel("orders").offset_metadata(tp())),
    "seek": ("end_offsets", lambda app: app.channel("orders").seek(tp(1), "end")),
    "positions": ("committed", lambda app: app.offsets("another").positions()),
}


@pytest.mark.parametrize("question", QUESTIONS)
@in_virtual_time
async def test_a_handler_may_ask_a_broker_that_does_not_answer_for_long(question: str) -> None:
    call, ask = QUESTIONS[question]
    app = make_app(attempt_timeout="30s", offset_metadata_cache=False)
    broker, asked = make_broker(2), list[object]()
    broker.create_topic("orders", 2)
    broker.answer_timeout_s = 10 * OUTAGE_S

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        hold = broker.hold(call)
        asking = asyncio.ensure_future(_release(hold))
        asked.append(await ask(app))
        await asking

    async def _release(hold: Any) -> None:
        await hold.arrived()
        await asyncio.sleep(OUTAGE_S)
        hold.release()

    async with running(app, broker=broker) as test:
        await send(test, b"x")
        await test.settled(timeout=2 * OUTAGE_S)
        assert app.health().live.is_up
        assert facts(test).totals[tp()].nacked == {}
    assert len(asked) == 1


@pytest.mark.parametrize("is_written", [False, True])
@in_virtual_time
async def test_a_handler_may_wait_for_a_reply_while_no_broker_answers(is_written: bool) -> None:
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest"},
                "questions": {"group_id": "prices", "auto_offset_reset": "earliest"},
            },
            "outgoing": {"asked": {"topic": "questions"}, "answers": {}},
        }
    )
    ask = app.emitter("asked")
    asked = list[float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        asked.append(now())
        await ask.request(b"", timeout=2 * OUTAGE_S, reply_type=bytes)

    @app.incoming("questions")
    @app.outgoing("answers")
    async def answer(message: Message[bytes]) -> bytes:
        await asyncio.sleep(2)
        return b""

    async with running(app) as test:
        if is_written:
            await send(test, b"")
            await until(lambda: test.records("questions"))
        else:
            hold = test.broker.hold("send", of="questions")
            test.broker.answer_timeout_s = 1.0
            await send(test, b"")
            await hold.arrived()
        test.broker.down = True
        await asyncio.sleep(OUTAGE_S)
        assert app.health().live.is_up
        test.broker.down = False
        await test.settled(timeout=60)
    assert len(asked) == 1


@in_virtual_time
async def test_a_handler_may_wait_in_an_outage_until_another_channel_has_handled_a_record() -> None:
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest"},
                "audits": {"group_id": "audit", "auto_offset_reset": "earliest"},
            },
            "outgoing": {"to-audits": {"topic": "audits"}},
        }
    )
    audits = app.emitter("to-audits")
    asked = list[bool]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        stored = await audits.send(b"")
        asked.append(True)
        await app.channel("audits").handled(stored)

    @app.incoming("audits")
    async def audit(message: Message[bytes]) -> None: ...

    async with running(app) as test:
        # So that the outage comes before the record is handled.
        app.channel("audits").pause()
        await send(test, b"")
        await until(lambda: asked)
        test.broker.down = True
        await asyncio.sleep(OUTAGE_S)
        assert app.channel("orders").facts().state == "running"
        test.broker.down = False
        app.channel("audits").resume()
        await test.settled(timeout=60)
    assert asked == [True]


@in_virtual_time
async def test_a_handler_may_wait_for_room_for_its_request() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"asked": {"topic": "questions", "max_in_flight": 1}},
        }
    )
    ask = app.emitter("asked")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        with suppress(ReplyTimeoutError):
            await ask.request(b"", timeout=OUTAGE_S)

    async with running(app) as test:
        first = asyncio.create_task(ask.request(b"", timeout=2 * OUTAGE_S))
        await until(lambda: test.records("questions"))
        await send(test, b"")
        await test.settled(timeout=2 * OUTAGE_S)
        assert app.health().live.is_up
        first.cancel()


async def _look_again_and_again(future: Future[bool]) -> bool:
    while not future.done():
        await asyncio.wait([future], timeout=7)
    return future.result()


async def _first_of(future: Future[bool]) -> bool:
    return await next(asyncio.as_completed([future]))


WAYS: dict[str, Callable[[Future[bool]], Awaitable[object]]] = {
    "await": lambda future: future,
    "gather": lambda future: asyncio.gather(future),
    "wait for": lambda future: asyncio.wait_for(future, 10 * OUTAGE_S),
    "wait": lambda future: asyncio.wait([future]),
    "wait with a timeout": _look_again_and_again,
    "as completed": _first_of,
    "shield": lambda future: asyncio.shield(future),
}


@pytest.mark.parametrize("way", WAYS)
@in_virtual_time
async def test_a_batch_may_await_nacks_while_no_letter_can_be_written(way: str) -> None:
    app = make_app(
        failure_strategy="dead-letter-queue",
        attempt_timeout="30s",
        batch_max_records=3,
        batch_max_wait="1s",
    )
    broker = make_broker()
    broker.topic_away(LETTERS, None)
    answers = list[bool]()

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        nack = batch[0].nack(ValueError("bad"))
        await WAYS[way](nack)
        answers.append(nack.result())

    async with running(app, broker=broker) as test:
        await send(test, b"bad", b"good", b"good")
        await asyncio.sleep(OUTAGE_S)
        assert app.health().live.is_up
        assert (answers, committed(test)) == ([], None)
        broker.topic_back(LETTERS)
        await test.settled(timeout=30)
        assert (committed(test), len(test.records(LETTERS))) == (3, 1)
    assert answers == [True]


@in_virtual_time
async def test_a_batch_may_await_acks_while_no_commit_is_answered() -> None:
    app = make_app(commit_strategy="latest", batch_max_records=3, batch_max_wait="1s")
    answers = list[bool]()

    @app.incoming("orders", ack="manual")
    async def handler(batch: Batch[bytes]) -> None:
        for message in batch:
            answers.append(await message.ack())

    async with running(app) as test:
        hold = test.broker.hold("commit")
        test.broker.answer_timeout_s = 10 * OUTAGE_S
        await send(test, b"", b"", b"")
        await hold.arrived()
        await asyncio.sleep(OUTAGE_S)
        assert app.health().live.is_up
        hold.release()
        await until(lambda: committed(test) == 3, 30)
    assert answers == [True, True, True]


@pytest.mark.parametrize("way", ["a callback", "a wait that is over"])
@in_virtual_time
async def test_a_handler_that_waits_for_no_verdict_ages_in_an_outage(way: str) -> None:
    app = make_app(failure_strategy="dead-letter-queue", batch_max_records=2, batch_max_wait="1s")
    broker = make_broker()
    broker.topic_away(LETTERS, None)

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        nack = batch[0].nack(ValueError("bad"))
        if way == "a wait that is over":
            await asyncio.wait([nack], timeout=1)
        else:
            assert not nack.done()
        await asyncio.sleep(OUTAGE_S)

    async with running(app, broker=broker) as test:
        await send(test, b"bad", b"good")
        await until(lambda: not app.health().live.is_up, 70)
        broker.topic_back(LETTERS)


SHORT_S = 1.0


async def _result_of(answer: Awaitable[object]) -> object:
    return await answer


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("waits_for", ["a write", "a call on the loop", "a letter"])
async def test_a_handler_that_blocks_may_wait_in_its_thread_while_no_broker_answers(
    waits_for: str, awaits: bool
) -> None:
    """In real time, as threads need it: the outage is several times as long as records may age."""
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": "dead-letter-queue",
                    "commit_interval": "50ms",
                    "unprocessed_record_max_age": f"{SHORT_S / 5}s",
                    "attempt_timeout": f"{SHORT_S / 2}s",
                    "batch_max_records": 2,
                }
            },
            "outgoing": {"invoices": {}},
        }
    )
    invoices = app.emitter("invoices")
    loop = asyncio.get_running_loop()
    waited = list[object]()

    @app.incoming("orders")
    def handler(batch: Batch[bytes]) -> None:
        answer: Any
        if waits_for == "a write":
            answer = invoices.send_nowait(b"")
        elif waits_for == "a letter":
            answer = batch[0].nack(ValueError("bad"))
        elif awaits:
            answer = invoices.send(b"")
        else:
            answer = asyncio.run_coroutine_threadsafe(invoices.send(b""), loop)
        waited.append(asyncio.run(_result_of(answer)) if awaits else answer.result())

    async with running(app) as test:
        hold = test.broker.hold("send")
        test.broker.answer_timeout_s = 60.0
        await send(test, b"", b"")
        await hold.arrived()
        await asyncio.sleep(SHORT_S)
        assert app.health().live.is_up
        hold.release()
        await until(lambda: committed(test) == 2, 30)
        expected = {"dead-letter-queue": 1} if waits_for == "a letter" else {}
        assert facts(test).totals[tp()].nacked == expected
    assert len(waited) == 1


@in_virtual_time
async def test_a_handler_that_waits_for_its_own_commit_is_poison() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await message.committed()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: not app.health().live.is_up, 70)

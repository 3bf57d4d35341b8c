"""Waiting for a verdict, and giving that up: each caller has a future of its own, so nobody else
notices.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from reactive_kafka import Batch, Message
from reactive_kafka.testing import MemoryBroker
from tests.app.checkpoints import Rows, app_on, store_of
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)

LETTERS = "dead-letter-topic-orders"


def away(topic: str = LETTERS) -> MemoryBroker:
    """A broker whose dead letters cannot be written."""
    broker = make_broker()
    broker.create_topic(topic, 1)
    broker.topic_away(topic)
    return broker


# -- a nack on its way


@pytest.mark.parametrize("ordering", ["partition", "key"])
@in_virtual_time
async def test_a_lane_is_held_until_the_letter_is_written_however_long_its_handler_waits_for_that(
    ordering: str,
) -> None:
    app = make_app(ack="manual", failure_strategy="dead-letter-queue", ordering=ordering)
    broker, story = away(), list[tuple[str, float]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        story.append((f"began {message.offset}", now()))
        if message.offset:
            message.ack()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await message.nack(ValueError("bad"))
        story.append(("gave up", now()))

    async with running(app, broker=broker) as test:
        for _ in range(3):
            await test.send("orders", b"", key="k", partition=0)
        await until(lambda: len(story) == 2)
        await asyncio.sleep(20)
        assert [what for what, _ in story] == ["began 0", "gave up"]
        assert committed(test) is None
        broker.topic_back(LETTERS)
        await test.settled(timeout=30)
        assert committed(test) == 3
        assert len(test.records(LETTERS)) == 1
    assert [what for what, _ in story] == ["began 0", "gave up", "began 1", "began 2"]
    assert story[2][1] > story[1][1] + 20


@in_virtual_time
async def test_a_future_of_a_nack_that_is_cancelled_is_that_callers_alone() -> None:
    app, broker = make_app(ack="manual", failure_strategy="dead-letter-queue"), away()
    began, answers = list[int](), list[bool]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        began.append(message.offset)
        if message.offset:
            message.ack()
            return
        assert message.nack(ValueError("bad")).cancel()
        answers.append(await message.nack(ValueError("again")))

    async with running(app, broker=broker) as test:
        await send(test, b"", b"")
        await asyncio.sleep(5)
        assert (began, answers) == ([0], [False])
        assert facts(test).partitions[0].queued == 1
        broker.topic_back(LETTERS)
        await test.settled(timeout=30)
        assert (began, committed(test)) == ([0, 1], 2)


@in_virtual_time
async def test_an_interrupted_batch_holds_its_lane_until_the_letter_of_its_nack_is_written() -> (
    None
):
    app = make_app(
        failure_strategy="dead-letter-queue",
        on_poison="dead-letter-queue",
        unprocessed_record_max_age="5s",
        batch_max_records=2,
        batch_max_wait="10ms",
    )
    broker, story = make_broker(), list[Any]()
    broker.create_topic(LETTERS, 1)

    @app.incoming("orders", ack="manual")
    async def handler(batch: Batch[bytes]) -> None:
        story.append([message.offset for message in batch])
        if batch[0].offset:
            batch.ack()
            return
        batch[0].nack(ValueError("bad"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            story.append("interrupted")
            raise

    async with running(app, broker=broker) as test:
        # Of the nack; that of the poison record is written.
        hold = broker.hold("send", of=LETTERS)
        broker.answer_timeout_s = 600
        await send(test, *[b""] * 4)
        await until(lambda: "interrupted" in story, 20)
        await asyncio.sleep(20)
        assert story == [[0, 1], "interrupted"]
        hold.release()
        await test.settled(timeout=30)
        assert (len(test.records(LETTERS)), committed(test)) == (2, 4)
    assert story == [[0, 1], "interrupted", [2, 3]]


@in_virtual_time
async def test_a_stop_does_not_wait_longer_for_a_handler_that_awaits_a_letter_and_leaves_the_record() -> (
    None
):
    app = make_app(ack="manual", failure_strategy="dead-letter-queue", drain_timeout="2s")
    broker, story = away(), list[Any]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        story.append(message.offset)
        try:
            story.append(await message.nack(ValueError("bad")))
        except asyncio.CancelledError:
            story.append("cancelled")
            raise

    async with running(app, broker=broker) as test:
        await send(test, b"", b"")
        await until(lambda: story)
        began = now()
    assert now() - began < 4
    assert story == [0, False]
    assert broker.committed("billing") == {}
    await broker.close()


@in_virtual_time
async def test_a_nack_between_a_revocation_and_the_assignment_holds_its_lane_whoever_waits_for_it() -> (
    None
):
    app = make_app(ack="manual", failure_strategy="dead-letter-queue", revoke_grace="100ms")
    broker, go_on, story = away(), asyncio.Event(), list[Any]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        story.append(message.offset)
        if message.offset:
            message.ack()
            return
        await go_on.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await message.nack(ValueError("bad"))
        story.append("gave up")

    async with running(app, broker=broker) as test:
        await send(test, b"", b"")
        await until(lambda: story)
        asked = broker.hold("committed")
        broker.rebalance("billing")
        await asked.arrived()
        go_on.set()
        await until(lambda: "gave up" in story)
        asked.release()
        await asyncio.sleep(20)
        assert story == [0, "gave up"]
        broker.topic_back(LETTERS)
        await test.settled(timeout=30)
        assert (len(test.records(LETTERS)), committed(test)) == (1, 2)
    assert story == [0, "gave up", 1]


@in_virtual_time
async def test_of_two_who_wait_until_a_store_has_told_what_it_has_one_may_give_up() -> None:
    rows, story = Rows(), list[Any]()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        story.append(message.offset)
        if message.offset:
            message.ack()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(1), message.transaction():
                pass
        store_of(app).faults.away = True
        first, second = message.nack(ValueError("bad")), message.nack(ValueError("bad"))
        assert first.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await message.nack(ValueError("bad"))
        second.add_done_callback(lambda done: story.append(done.result()))

    async with running(app) as test:
        # Never arrives: nobody knows whether it is stored.
        store_of(app).faults.hold("exit")
        await send(test, b"0", b"1")
        await until(lambda: store_of(app).faults.away)
        await asyncio.sleep(10)
        assert story == [0]
        store_of(app).faults.away = False
        await until(lambda: facts(test).partitions[0].committed == 2, 30)
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
    assert story == [0, True, 1]


# -- what is never retrieved


@in_virtual_time
async def test_nobody_has_to_look_at_what_committed_comes_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, kept = make_app(ack="manual", drain_timeout="100ms"), list[Message[bytes]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)
        message.committed()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
    kept[0].committed()
    await settle_down()
    assert "never retrieved" not in caplog.text

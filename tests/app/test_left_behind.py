"""Handlers that nobody waits for any more: what they hold comes free, and what waits behind them
keeps its order.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import Batch, Message
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.test_dead_letters import letters
from tests.app.test_rebalance import another_member


@in_virtual_time
async def test_what_waits_behind_a_batch_of_which_one_partition_went_is_handled() -> None:
    app = make_app(
        revoke_grace="1s", batch_max_records=4, batch_max_wait="100ms", max_in_flight=100
    )
    seen, calls, go_on = set[tuple[int, int]](), list[int](), asyncio.Event()

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append(len(batch))
        if len(calls) == 1:
            await go_on.wait()
        seen.update((message.partition, message.offset) for message in batch)

    async with running(app, partitions=2) as test:
        for partition in (0, 1):
            await send(test, b"", b"", partition=partition)
        await until(lambda: calls == [4])
        for partition in (0, 1):
            await send(test, *[b""] * 10, partition=partition)
        async with another_member(test.broker):
            await until(lambda: len(app.channel("orders").assignment) == 1, 60)
            (mine,) = app.channel("orders").assignment
            await asyncio.sleep(5)
            go_on.set()
            await until(lambda: {(mine.partition, offset) for offset in range(12)} <= seen)


@pytest.mark.parametrize("second_obeys", [True, False])
@in_virtual_time
async def test_a_second_stuck_record_behind_one_that_ignores_its_cancellation_is_dead_lettered_too(
    second_obeys: bool,
) -> None:
    app = make_app(
        on_poison="dead-letter-queue", unprocessed_record_max_age="5s", commit_interval="100ms"
    )
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        while value in (b"first", b"second") and not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                if value == b"second" and second_obeys:
                    raise

    async with running(app) as test:
        await send(test, b"one", b"first", b"second", b"two")
        await until(lambda: committed(test) == 4, 60)
        assert sorted(letter.value or b"" for letter in letters(test)) == [b"first", b"second"]
        assert facts(test).abandoned_handlers == (1 if second_obeys else 2)
        go_on.set()


@in_virtual_time
async def test_a_batch_that_was_left_behind_and_is_poison_gives_its_other_partition_free() -> None:
    app, broker = (
        make_app(
            concurrency=2,
            batch_max_records=4,
            batch_max_wait="100ms",
            commit_interval="100ms",
            on_poison="dead-letter-queue",
            unprocessed_record_max_age="5s",
        ),
        make_broker(2),
    )
    calls, go_on = list[int](), asyncio.Event()

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append(len(batch))
        while len(calls) == 1 and not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    async with running(app, broker=broker) as test:
        for partition in (0, 1):
            await send(test, b"", b"", partition=partition)
        await until(lambda: calls == [4])
        await app.channel("orders").seek(tp(0), "end")
        for partition in (0, 1):
            await send(test, *[b""] * 5, partition=partition)
        await until(lambda: committed(test, 1) == 7, 60)
        go_on.set()
    await broker.close()


@in_virtual_time
async def test_a_record_that_is_given_back_late_still_comes_before_those_behind_it() -> None:
    app = make_app(
        revoke_grace="1s", retry={"max_attempts": 5, "backoff": "500ms", "max_backoff": "500ms"}
    )
    seen, failed, go_on = list[bytes](), list[bytes](), asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.payload == b"long":
            await go_on.wait()
        elif message.payload == b"a0" and len(failed) < 2:
            failed.append(b"a0")
            raise ValueError("not yet")
        else:
            seen.append(message.payload)

    async with running(app, partitions=2) as test:
        await send(test, b"a0")
        await until(lambda: failed)
        await send(test, b"long", partition=1)
        await asyncio.sleep(0.1)
        await rebalanced(test)
        await send(test, b"a1", b"a2")
        await asyncio.sleep(2)
        go_on.set()
        await until(lambda: len(seen) == 3)
    assert seen == [b"a0", b"a1", b"a2"]

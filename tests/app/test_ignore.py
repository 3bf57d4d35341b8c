"""``commit_strategy = "ignore"``: acks commit nothing; with ``enable_auto_commit`` the client
does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import Message, TransientBrokerError
from reactive_kafka.testing import TestApp
from tests.app.handlers import note_offsets
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    positions,
    running,
    send,
    settle_down,
    tp,
    until,
)


async def rebalanced(test: TestApp) -> None:
    generation = test.broker.generation("billing")
    test.broker.rebalance("billing")
    await until(lambda: test.broker.generation("billing") > generation, 60)
    await until(lambda: test.app.channel("orders").is_ready, 60)


@in_virtual_time
async def test_acks_commit_nothing_neither_at_a_tick_nor_at_the_end() -> None:
    seen: list[int] = []
    app = make_app(commit_strategy="ignore", commit_interval="100ms")
    note_offsets(app, seen)

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(10)
        await rebalanced(test)
        await test.app.stop()
        assert (seen, positions(test.broker)) == ([0, 1], [])


@in_virtual_time
async def test_the_client_commits_what_it_has_handed_out_and_counts_are_not_ours() -> None:
    app = make_app(commit_strategy="ignore", enable_auto_commit=True)
    hang = asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await hang.wait()

    async with running(app) as test:
        await send(test, b"", b"")
        await asyncio.sleep(6)
        assert committed(test) == 2
        assert facts(test).commits == {"ok": 0, "failed": 0, "unknown": 0}
        assert test.app.health().status == "UP"
        await test.app.stop(drain=False)


STALE = TransientBrokerError("STALE_MEMBER_EPOCH: the group may have moved on")


@in_virtual_time
async def test_the_clients_last_commit_is_tried_again_when_the_group_has_just_moved_on() -> None:
    seen: list[int] = []
    app = make_app(commit_strategy="ignore", enable_auto_commit=True)
    note_offsets(app, seen)
    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(seen) == 2)
        test.broker.fail_next("commit", STALE)
        await rebalanced(test)
        assert committed(test) == 2
        await send(test, b"")
        await until(lambda: len(seen) == 3)
        test.broker.fail_next("commit", STALE)
        await test.app.stop()
        assert committed(test) == 3


@in_virtual_time
async def test_a_stop_does_not_wait_long_for_a_commit_that_the_group_keeps_refusing() -> None:
    seen: list[int] = []
    app = make_app(commit_strategy="ignore", enable_auto_commit=True)
    note_offsets(app, seen)
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: len(seen) == 1)
        test.broker.fail_next("commit", STALE, times=10_000)
        began = asyncio.get_running_loop().time()
        await test.app.stop()
        assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("auto", [False, True])
@in_virtual_time
async def test_what_waits_when_a_partition_comes_straight_back_is_handled_once_whoever_commits(
    auto: bool,
) -> None:
    seen, go_on = list[int](), asyncio.Event()
    app = make_app(commit_strategy="ignore", enable_auto_commit=auto, revoke_grace="1s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await go_on.wait()

    async with running(app) as test:
        await send(test, b"", b"", b"", b"")
        await until(lambda: facts(test).partitions[0].queued == 3)
        await rebalanced(test)
        await rebalanced(test)
        go_on.set()
        await until(lambda: len(seen) >= 4)
        await asyncio.sleep(5)
        assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "orders", [{}, {"assign": ["orders:0", "orders:1"]}, {"enable_auto_commit": True}]
)
@in_virtual_time
async def test_the_lag_falls_to_what_is_not_handled_though_nothing_is_committed(
    orders: dict[str, Any],
) -> None:
    app, go_on, seen = make_app(commit_strategy="ignore", **orders), asyncio.Event(), list[bytes]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.payload)
        if message.payload == b"slow":
            await go_on.wait()

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=1)
        await until(lambda: len(seen) == 1)
        await send(test, b"", b"", b"slow", b"", b"")
        await until(lambda: len(seen) == 4)
        await settle_down()
        assert await app.channel("orders").lag() == {tp(0): 3, tp(1): 0}
        assert {one.partition: one.lag for one in facts(test).partitions} == {tp(0): 3, tp(1): 0}
        go_on.set()
        await test.settled()
        assert await app.channel("orders").lag() == {tp(0): 0, tp(1): 0}
        assert {one.partition: one.lag for one in facts(test).partitions} == {tp(0): 0, tp(1): 0}

"""Positions of one partition are refused (its topic was deleted, its right withdrawn): the others
do not wait (N29).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Message
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.events import CommitFailed, SettledNotStored
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)

GOOD = 0
BAD = 1
NOT_ALLOWED = FatalBrokerError("the right READ on the topic is missing")


def reason(test: Any) -> str:
    """What readiness says of the channel."""
    (check,) = [one for one in test.app.health().ready.checks if one.name == "orders"]
    return str(check.data["reason"])


@in_virtual_time
async def test_what_is_stored_beside_a_refused_position_counts_and_readiness_names_the_refused_partition() -> (
    None
):
    recorder = Recorder()
    app = make_app(recorder, commit_interval="1s")
    take_all(app)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        for _ in range(3):
            await send(test, b"", partition=GOOD)
            await send(test, b"", partition=BAD)
            await asyncio.sleep(1.2)
        assert committed(test, GOOD) == 3
        assert positions(test.broker, GOOD) == [1, 2, 3], "it is not sent again and again"
        assert committed(test, BAD) is None
        assert f"commit of {tp(BAD)}: the right READ on the topic is missing" in reason(test)
        assert {failed.partitions for failed in recorder.of(CommitFailed)} == {frozenset({tp(BAD)})}
        test.broker.accept_positions(tp(BAD))
        await until(lambda: committed(test, BAD) == 3, 10)
        await until(lambda: app.health().ready.status == "UP")
        assert positions(test.broker, BAD) == [3]


@in_virtual_time
async def test_the_bound_of_a_refused_partition_stops_that_one_alone() -> None:
    app, seen = make_app(commit_interval="1s", max_uncommitted=20, max_in_flight=4), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.partition)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        for partition in (GOOD, BAD):
            await send(test, *[b""] * 200, partition=partition)
        await until(lambda: committed(test, GOOD) == 200, 60)
        assert 20 <= seen.count(BAD) <= 24
        assert f"nothing is fetched of {tp(BAD)}" in reason(test)
        assert "max_uncommitted = 20" in reason(test)
        test.broker.accept_positions(tp(BAD))
        await until(lambda: committed(test, BAD) == 200, 60)
        await until(lambda: app.health().ready.status == "UP")


@pytest.mark.parametrize("seconds", [5, 60])
@in_virtual_time
async def test_acks_that_wait_for_their_commit_do_not_wait_for_a_refused_partition(
    seconds: int,
) -> None:
    app, took = make_app(commit_strategy="latest", concurrency=4), list[float]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        began = now()
        await message.ack()
        if message.partition == GOOD:
            took.append(now() - began)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        await send(test, b"", partition=BAD)
        for _ in range(seconds):
            await asyncio.sleep(1)
            await send(test, b"", partition=GOOD)
        await until(lambda: len(took) == seconds)
        assert max(took) < 0.1
        assert facts(test).commits["failed"] <= 4 + seconds / 4, (
            "the refused one is tried at growing intervals"
        )
        test.broker.accept_positions(tp(BAD))
        await until(lambda: committed(test, BAD) == 1, 10)


@in_virtual_time
async def test_committed_of_a_record_does_not_wait_for_a_refused_partition() -> None:
    app, stored = make_app(commit_interval="1s", ack="manual", concurrency=2), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        message.ack()
        await message.committed()
        stored.append(message.partition)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        await send(test, b"", partition=BAD)
        await send(test, b"", partition=GOOD)
        await asyncio.sleep(2)
        assert stored == [GOOD]
        test.broker.accept_positions(tp(BAD))
        await until(lambda: stored == [GOOD, BAD])


@in_virtual_time
async def test_a_rebalance_and_a_stop_wait_no_longer_for_a_refused_partition_than_for_one_more_attempt() -> (
    None
):
    recorder = Recorder()
    app = make_app(recorder, commit_interval="1h")
    take_all(app)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        await send(test, b"", partition=GOOD)
        await send(test, b"", partition=BAD)
        await asyncio.sleep(1)
        began = now()
        await rebalanced(test)
        assert now() - began < 1
        assert len(recorder.of(CommitFailed)) == 2
        assert committed(test, GOOD) == 1
        (told,) = recorder.of(SettledNotStored)
        assert told.partitions == {tp(BAD)}
        assert "the right READ on the topic is missing" in told.reason
        began = now()
    assert now() - began < 1


@in_virtual_time
async def test_a_commit_that_is_asked_for_stores_the_others_and_raises_for_the_refused_partition() -> (
    None
):
    app = make_app(commit_interval="1h")
    take_all(app)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        await send(test, b"", partition=GOOD)
        await send(test, b"", partition=BAD)
        await asyncio.sleep(1)
        for _ in range(2):
            with pytest.raises(FatalBrokerError, match=f"{tp(BAD)}: the right READ"):
                await app.channel("orders").commit()
        assert committed(test, GOOD) == 1
        test.broker.accept_positions(tp(BAD))
        await app.channel("orders").commit()
        assert committed(test, BAD) == 1


@in_virtual_time
async def test_a_refused_position_is_stored_soon_after_it_may_be_however_long_the_interval_is() -> (
    None
):
    app = make_app(commit_interval="1h")
    take_all(app)

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        await send(test, b"", partition=BAD)
        await asyncio.sleep(1)
        with pytest.raises(FatalBrokerError):
            await app.channel("orders").commit()
        await asyncio.sleep(120)
        test.broker.accept_positions(tp(BAD))
        await until(lambda: committed(test, BAD) == 1, 6)
        await until(lambda: app.health().ready.status == "UP")


@in_virtual_time
async def test_a_tick_of_an_exactly_once_channel_stores_the_positions_that_are_not_refused() -> (
    None
):
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "commit_interval": "1s",
                }
            },
            "outgoing": {"invoices": {"transactional_id": "own"}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> None: ...

    async with running(app, partitions=2) as test:
        test.broker.refuse_positions(tp(BAD), NOT_ALLOWED)
        for partition in (GOOD, BAD):
            await send(test, b"", partition=partition)
        await until(lambda: committed(test, GOOD) == 1)
        assert committed(test, BAD) is None
        assert str(tp(BAD)) in reason(test)
        test.broker.accept_positions(tp(BAD))
        await until(lambda: committed(test, BAD) == 1, 10)

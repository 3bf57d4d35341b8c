"""``commit_every``: a commit for so many settled records, whatever ``commit_interval`` is."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from reactive_kafka import App, Message, TransientBrokerError
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    committed,
    in_virtual_time,
    make_app,
    positions,
    rebalanced,
    running,
    send,
    until,
)


def paced(takes_s: float, **orders: Any) -> App:
    app = make_app(
        **{"commit_interval": "10m", "commit_every": 20, "value_deserializer": "bytes", **orders}
    )

    @app.incoming("orders")
    async def handler(payload: bytes) -> None:
        await asyncio.sleep(takes_s)

    return app


@pytest.mark.parametrize("takes_s", [0.02, 0.1, 1.0])
@in_virtual_time
async def test_so_many_records_are_committed_at_once(takes_s: float) -> None:
    async with running(paced(takes_s)) as test:
        await send(test, *[b""] * 100)
        await asyncio.sleep(takes_s * 100 + 1)
        assert 4 <= len(positions(test.broker)) <= 5
        assert all(
            20 <= later - earlier <= 27 for earlier, later in pairwise([0, *positions(test.broker)])
        )


@in_virtual_time
async def test_the_interval_commits_what_is_less() -> None:
    async with running(paced(0, commit_interval="5s")) as test:
        await send(test, *[b""] * 7)
        await until(lambda: committed(test) == 7)


@in_virtual_time
async def test_what_waits_behind_an_unsettled_record_is_no_reason_for_a_commit() -> None:
    kept = list[Message[bytes]]()
    app = make_app(commit_interval="10m", commit_every=5, value_deserializer="bytes")
    keep_messages(app, kept, ack="manual")

    async with running(app) as test:
        await send(test, *[b""] * 20)
        await until(lambda: len(kept) == 20)
        for message in kept[1:]:
            message.ack()
        await asyncio.sleep(30)
        assert committed(test) is None
        kept[0].ack()
        await until(lambda: committed(test) == 20, 1)


@in_virtual_time
async def test_it_goes_on_through_rebalances_and_failed_commits() -> None:
    async with running(paced(0.1), partitions=2) as test:
        await send(test, *[b""] * 60)
        await send(test, *[b""] * 60, partition=1)
        for _ in range(3):
            await rebalanced(test)
            await asyncio.sleep(2.5)
        before = committed(test) or 0
        test.broker.fail_next("commit", TransientBrokerError("busy"), 3)
        # Tried again long before the interval is over.
        await until(lambda: (committed(test) or 0) > before)
        await test.settled(60)


@in_virtual_time
async def test_an_idle_channel_commits_nothing_more() -> None:
    async with running(paced(0)) as test:
        await send(test, *[b""] * 40)
        await until(lambda: committed(test) == 40)
        before = len(test.broker.commits("billing"))
        await asyncio.sleep(60)
        assert len(test.broker.commits("billing")) == before

"""The histograms of how old records are, of a running application."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import Batch, Message
from tests.app.handlers import keep_messages
from tests.app.helpers import facts, in_virtual_time, make_app, running, send

KINDS: list[dict[str, Any]] = [
    {},
    {"ordering": "key", "concurrency": 4},
    {"ordering": "unordered", "concurrency": 4},
    {"ack": "manual"},
]


def counted(histogram: Any) -> int:
    return sum(histogram.counts)


@pytest.mark.parametrize("orders", KINDS, ids=str)
@in_virtual_time
async def test_each_record_is_timed_to_its_handler_and_to_its_settlement(
    orders: dict[str, Any],
) -> None:
    app = make_app(**orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(2.0)
        await message.ack()

    async with running(app) as test:
        await send(test, b"", b"")
        await asyncio.sleep(8)
        found = facts(test)
    assert (counted(found.delivery_delays), counted(found.record_ages)) == (2, 2)
    waits = 0.0 if "concurrency" in orders and orders.get("ordering") == "unordered" else 2.0
    assert found.delivery_delays.sum_s == pytest.approx(waits, abs=0.1)
    assert found.record_ages.sum_s == pytest.approx(waits + 4.0, abs=0.3)


@in_virtual_time
async def test_batches_iteration_and_what_fails_are_timed_as_well() -> None:
    app = make_app(failure_strategy="ignore", batch_max_wait="1s")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        raise ValueError("never")

    async with running(app) as test:
        await send(test, *[b""] * 50)
        await test.settled()
        found = facts(test)
    assert (counted(found.delivery_delays), counted(found.record_ages)) == (50, 50)
    assert found.delivery_delays.sum_s / 50 == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("orders", KINDS[:3], ids=str)
@in_virtual_time
async def test_what_comes_after_the_first_call_of_a_handler_is_no_part_of_the_delay(
    orders: dict[str, Any],
) -> None:
    app = make_app(retry={"max_attempts": 3, "backoff": "60s", "max_backoff": "60s"}, **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.attempt < 3:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"")
        await test.settled(timeout=300)
        found = facts(test)
    assert found.record_ages.sum_s > 60
    assert found.delivery_delays.sum_s == pytest.approx(0.0, abs=0.1)


@in_virtual_time
async def test_an_ack_that_comes_when_nothing_else_happens_is_timed_within_a_tenth_of_a_second() -> (
    None
):
    app, held = make_app(ack="manual", commit_interval="100s"), list[Message[bytes]]()
    keep_messages(app, held)

    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(3)
        await held[0].ack()
        await asyncio.sleep(20)
        found = facts(test)
    assert found.record_ages.sum_s == pytest.approx(3.05, abs=0.1)

"""The duration of a handler's call: the time of the application's own code, and of no wait for us."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
)

# Shorter than send_timeout.
AWAY_S = 15.0
WORK_S = 0.5
RECORDS = 3


def app_with(outgoing: dict[str, Any] | None = None, **orders: Any) -> App:
    """An application that reads strings, and whose outgoing channel has room for one record."""
    return App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "string",
                    "unprocessed_record_max_age": "5s",
                    **orders,
                }
            },
            "outgoing": {"invoices": {"max_in_flight": 1, **(outgoing or {})}},
        }
    )


def sends_by_hand() -> App:
    app = app_with()
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(value: str) -> None:
        await asyncio.sleep(WORK_S)
        await invoices.send(value)

    return app


def sends_in_tasks() -> App:
    app = app_with()
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(value: str) -> None:
        await asyncio.sleep(WORK_S)
        await asyncio.gather(*(invoices.send(value + part) for part in "abc"))

    return app


def yields() -> App:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(value: str) -> AsyncIterator[str]:
        await asyncio.sleep(WORK_S)
        for part in "abc":
            yield value + part

    return app


def waits_for_write() -> App:
    app = app_with({"wait_for_write": True})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(value: str) -> str:
        await asyncio.sleep(WORK_S)
        return value

    return app


def returns() -> App:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(value: str) -> str:
        await asyncio.sleep(WORK_S)
        return value

    return app


def takes_messages() -> App:
    app = app_with(ordering="key", concurrency=2)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(message: Message[str]) -> str:
        await asyncio.sleep(WORK_S)
        return message.payload

    return app


def takes_batches() -> App:
    app = app_with(batch_max_records=1, batch_max_wait="10ms")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(batch: Batch[str]) -> list[str]:
        await asyncio.sleep(WORK_S)
        return list(batch.payloads)

    return app


def is_made_again() -> App:
    """The handler fails once, after it has sent, and is called again."""
    app = app_with(retry={"max_attempts": 2, "backoff": "5s", "jitter": 0})
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(message: Message[str]) -> None:
        await asyncio.sleep(WORK_S / 2)
        await invoices.send(message.payload)
        if message.attempt == 1:
            raise ValueError("once")

    return app


HANDLERS = (
    sends_by_hand,
    sends_in_tasks,
    yields,
    waits_for_write,
    returns,
    takes_messages,
    takes_batches,
    is_made_again,
)


@pytest.mark.parametrize("make", HANDLERS)
@in_virtual_time
async def test_a_wait_for_an_output_is_no_duration_of_the_call(make: Callable[[], App]) -> None:
    app = make()
    broker = make_broker()
    broker.create_topic("invoices", 1)
    broker.topic_away("invoices")
    began = now()
    async with running(app, broker=broker) as test:
        await send(test, *"abc"[:RECORDS])
        await asyncio.sleep(AWAY_S)
        broker.topic_back("invoices")
        await test.settled(timeout=300)
        durations = facts(test).handler_durations
        assert committed(test) == RECORDS
        assert now() - began > AWAY_S
    await broker.close()
    calls = 2 * RECORDS if make is is_made_again else RECORDS
    assert sum(durations.counts) == calls
    assert durations.sum_s == pytest.approx(RECORDS * WORK_S, abs=0.05)
    # None of the calls is in a bucket for long ones.
    assert sum(durations.counts[bisect_left(durations.bounds, 1.0) + 1 :]) == 0


@in_virtual_time
async def test_short_calls_that_wait_for_us_are_short_in_their_sum_too() -> None:
    """Calls of less than the first bucket are counted together."""
    app = make_app(value_deserializer="string", commit_strategy="throttled")
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(value: str) -> None:
        await invoices.send(value)

    broker = make_broker()
    broker.delay_next("send", 0.003, 100, answer=True, of="invoices")
    async with running(app, broker=broker) as test:
        await send(test, *map(str, range(100)))
        await test.settled(timeout=60)
        durations = facts(test).handler_durations
    await broker.close()
    assert sum(durations.counts) == 100
    assert durations.sum_s == pytest.approx(0.0, abs=0.01)


@in_virtual_time
async def test_the_handler_of_a_memory_channel_is_no_part_of_the_call_that_waits_for_it() -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "string",
                    "batch_max_records": 1,
                    "batch_max_wait": "10ms",
                }
            },
            "memory": {"prices": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("prices")
    async def handle(batch: Batch[str]) -> str:
        await asyncio.sleep(WORK_S)
        (value,) = batch.payloads
        return value

    @app.incoming("prices")
    async def price(value: str) -> None:
        await asyncio.sleep(10.0)

    async with running(app) as test:
        await send(test, "a", "b")
        await test.settled(timeout=100)
        durations = facts(test).handler_durations
    assert (sum(durations.counts), durations.sum_s) == (2, pytest.approx(2 * WORK_S, abs=0.01))

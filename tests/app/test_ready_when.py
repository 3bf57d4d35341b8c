"""``ready = "caught-up"``: a channel is ready when it has handled what was there at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reactive_kafka import App, Message, TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import keep_messages, take_all
from tests.app.helpers import (
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    until,
)
from tests.app.test_caught_up import filled
from tests.app.test_incremental import cooperative, joining


def slow_app(takes_s: float = 1.0, **orders: Any) -> App:
    app = make_app(value_deserializer="bytes", ready="caught-up", **orders)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(takes_s)

    return app


def is_ready(app: App) -> bool:
    return app.health().ready.is_up


def reason(app: App) -> Any:
    (check,) = (check for check in app.health().ready.checks if check.name == "orders")
    return check.data["reason"]


@in_virtual_time
async def test_it_says_how_far_it_is_until_all_of_it_is_handled() -> None:
    app, broker = slow_app(), filled(3, 2, 0)
    async with running(app, broker=broker) as test:
        await until(lambda: reason(app) == "catching up: 5 records in 2 partitions left to handle")
        health = app.health()
        assert (health.live.status, health.ready.status, health.started.status) == (
            "UP",
            "DOWN",
            "UP",
        )
        # What comes later is not waited for.
        await send(test, *[b""] * 20)
        await until(
            lambda: reason(app) == "catching up: 1 record in 1 partition left to handle", 20
        )
        await until(lambda: is_ready(app), 3)
        assert test.app.channel("orders").in_flight
    await broker.close()


@in_virtual_time
async def test_by_default_a_channel_is_ready_with_its_assignment() -> None:
    app, broker = make_app(), filled(5)
    kept = list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")
    async with running(app, broker=broker):
        assert is_ready(app)
    await broker.close()


@in_virtual_time
async def test_what_was_read_and_has_no_verdict_is_not_handled() -> None:
    app, broker, kept = make_app(ready="caught-up"), filled(2), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")
    async with running(app, broker=broker):
        await until(lambda: len(kept) == 2)
        kept[1].ack()
        await asyncio.sleep(10)
        assert reason(app) == "catching up: 2 records in 1 partition left to handle"
        kept[0].ack()
        await until(lambda: is_ready(app), 1)
    await broker.close()


@in_virtual_time
async def test_an_empty_topic_is_caught_up_at_once() -> None:
    app = slow_app()
    async with running(app, partitions=3):
        await until(lambda: is_ready(app), 1)


@in_virtual_time
async def test_once_caught_up_it_stays_ready_until_the_channel_starts_again() -> None:
    app, broker = slow_app(revoke_grace="100ms"), filled(1)
    async with running(app, broker=broker) as test:
        await until(lambda: is_ready(app), 5)
        await send(test, *[b""] * 5)
        await rebalanced(test)
        assert is_ready(app)
        await app.channel("orders").stop()
        # A stopped channel is as it should be.
        assert is_ready(app)
        await send(test, *[b""] * 5)
        await app.channel("orders").start()
        await until(lambda: "catching up" in (reason(app) or ""), 5)
        await until(lambda: is_ready(app), 20)
    await broker.close()


@in_virtual_time
async def test_a_rebalance_before_it_has_caught_up_begins_another_look() -> None:
    app, broker = slow_app(revoke_grace="100ms"), filled(5)
    async with running(app, broker=broker) as test:
        await asyncio.sleep(2.5)
        await rebalanced(test)
        assert not is_ready(app)
        await until(lambda: is_ready(app), 10)
    await broker.close()


@pytest.mark.parametrize("kind", [make_broker, cooperative])
@in_virtual_time
async def test_a_member_that_joins_is_ready_when_it_has_handled_its_own_share(
    kind: Callable[[int], MemoryBroker],
) -> None:
    broker, first, second = filled(9, 9, broker=kind(2)), slow_app(), slow_app()
    async with running(first, broker=broker), joining(second, broker):
        await until(lambda: len(second.channel("orders").assignment) == 1, 30)
        await until(lambda: "catching up" in (reason(second) or ""), 5)
        await until(lambda: is_ready(first) and is_ready(second), 60)
    await broker.close()


@in_virtual_time
async def test_all_consumers_of_a_channel_have_to_catch_up() -> None:
    app, broker = slow_app(consumers=3, concurrency=2), filled(1, 1, 9)
    async with running(app, broker=broker):
        await asyncio.sleep(4)
        assert "records in 1 partition " in reason(app)
        await until(lambda: is_ready(app), 20)
    await broker.close()


@in_virtual_time
async def test_ends_that_no_broker_tells_are_not_known_and_asked_for_again() -> None:
    app, broker = slow_app(revoke_grace="100ms"), filled(5)
    async with running(app, broker=broker) as test:
        broker.fail_next("end_offsets", TransientBrokerError("away"), 2)
        await rebalanced(test)
        await until(lambda: "catching up: it is not known yet how many" in (reason(app) or ""), 0.5)
        await until(lambda: "left to handle" in (reason(app) or ""), 2)
        await until(lambda: is_ready(app), 10)
    await broker.close()


@in_virtual_time
async def test_ranges_are_caught_up_at_their_end() -> None:
    broker = filled(20)
    app = App({"incoming": {"orders": {"assign": ["orders:0:2..6"], "ready": "caught-up"}}})
    take_all(app)
    async with TestApp(app, broker=broker):
        await until(lambda: is_ready(app), 2)
    await broker.close()


async def test_mounted_health_waits_for_it() -> None:
    app, kept, broker = make_app(ready="caught-up"), list[Message[bytes]](), filled(1)
    keep_messages(app, kept, ack="manual")
    app.configure(overrides={"http": {"enabled": False}})
    app._connector = broker.connector()
    web = FastAPI()
    web.mount("/kafka", app.asgi)
    transport = httpx.ASGITransport(web)
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        await until(lambda: kept)
        answer = await client.get("/kafka/health/ready")
        assert answer.status_code == 503
        assert "catching up: 1 record in 1 partition" in answer.text
        kept[0].ack()
        await until(lambda: is_ready(app))
        assert (await client.get("/kafka/health/ready")).status_code == 200
    await broker.close()


def test_another_word_is_refused_and_a_channel_without_probes_is_warned_of() -> None:
    app = make_app(ready="caught_up")
    with pytest.raises(Exception, match=r"ready = 'caught_up'.*assigned.*caught-up"):
        app.configure()
    app = make_app(ready="caught-up", health_enabled=False)
    take_all(app)
    app.configure()
    (warning,) = (warning for warning in app.plan.warnings if "ready" in warning)
    assert "has no effect: health_enabled = false" in warning

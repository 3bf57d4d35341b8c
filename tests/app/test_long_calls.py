"""Calls that take longer than a revocation waits for them: the warning, said once and shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Batch, Later, Message
from reactive_kafka.events import HandlerSlow
from tests.app.helpers import Recorder, facts, in_virtual_time, make_app, running, send

GRACE_S = 5.0


def sleeping(recorder: Recorder, takes_s: float, **orders: Any) -> App:
    app = make_app(recorder, **{"unprocessed_record_max_age": 0, **orders})

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(takes_s)

    return app


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_a_call_longer_than_the_grace_is_told_once_and_shown_while_it_is_recent(
    ordering: str,
) -> None:
    recorder = Recorder()
    app = sleeping(recorder, 12.0, ordering=ordering)
    async with running(app) as test:
        await send(test, *range(3))
        await test.settled(timeout=60)
        (told,) = recorder.of(HandlerSlow)
        assert told.took_s == pytest.approx(12, abs=0.01)
        assert told.grace_s == GRACE_S
        (warning,) = facts(test).warnings
        assert "a handler call took 12.0 s, and a revocation waits 5 s" in warning
        assert test.app.health().ready.status == "UP"
        await asyncio.sleep(500)
        assert facts(test).warnings == (warning,)


@pytest.mark.parametrize(
    "orders",
    [
        {"revoke_grace": "13s"},
        # No call is waited for.
        {"revoke_grace": 0},
        # What is assigned by hand is never revoked.
        {"assign": ["orders:0:0"], "topic": None},
    ],
)
@in_virtual_time
async def test_what_a_revocation_would_wait_for_is_not_told(orders: dict[str, Any]) -> None:
    recorder = Recorder()
    orders = {key: value for key, value in orders.items() if value is not None}
    app = sleeping(recorder, 12.0, **orders)
    async with running(app) as test:
        await send(test, 1)
        await asyncio.sleep(20)
        assert (recorder.of(HandlerSlow), facts(test).warnings) == ([], ())


@in_virtual_time
async def test_waits_between_attempts_are_no_call() -> None:
    recorder = Recorder()
    app = make_app(
        recorder,
        unprocessed_record_max_age=0,
        retry={"max_attempts": 3, "backoff": "9s", "max_backoff": "9s"},
    )

    asked: list[bytes] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.attempt == 1:
            raise ValueError("not yet")
        if message.payload not in asked:
            asked.append(message.payload)
            raise Later("20s")

    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled(timeout=100)
    assert (asked, recorder.of(HandlerSlow)) == ([b"1", b"2"], [])


@in_virtual_time
async def test_a_later_attempt_and_a_call_that_fails_count() -> None:
    recorder = Recorder()
    app = make_app(
        recorder,
        unprocessed_record_max_age=0,
        failure_strategy="ignore",
        retry={"max_attempts": 2, "backoff": "1s"},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(1.0 if message.attempt == 1 else 7.0)
        raise ValueError("for good")

    async with running(app) as test:
        await send(test, b"1")
        await test.settled(timeout=60)
    (told,) = recorder.of(HandlerSlow)
    assert told.took_s == pytest.approx(7, abs=0.01)


@in_virtual_time
async def test_a_batch_counts_as_one_call() -> None:
    recorder = Recorder()
    app = make_app(recorder, unprocessed_record_max_age=0)

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        await asyncio.sleep(8)

    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled(timeout=60)
    assert recorder.of(HandlerSlow)[0].took_s == pytest.approx(8, abs=0.01)

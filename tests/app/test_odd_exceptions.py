"""Exceptions that do what exceptions should not: they fail their record as any other does, and
nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.events import RecordDeadLettered, RecordIgnored
from tests.app.helpers import Recorder, facts, in_virtual_time, make_app, running, send, until


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        # The mistake.
        return int("x")  # type: ignore[return-value]

    __repr__ = __str__


def mute_app(seen: list[bytes], recorder: Recorder, **orders: Any) -> Any:
    app = make_app(recorder, value_deserializer="bytes", **orders)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)
        if value == b"bad":
            raise Mute

    return app


@pytest.mark.parametrize(
    ("strategy", "told"), [("dead-letter-queue", RecordDeadLettered), ("ignore", RecordIgnored)]
)
@in_virtual_time
async def test_an_exception_without_a_text_meets_the_failure_strategy_and_what_follows_is_handled(
    strategy: str, told: type[Any]
) -> None:
    seen, recorder = list[bytes](), Recorder()
    async with running(mute_app(seen, recorder, failure_strategy=strategy)) as test:
        await send(test, b"bad", b"good")
        await until(lambda: seen == [b"bad", b"good"])
        await test.settled()
        assert [event.reason for event in recorder.of(told)] == ["Mute"]
        assert test.app.health().status == "UP"


@in_virtual_time
async def test_an_exception_without_a_text_stops_a_channel_that_names_its_record() -> None:
    seen, recorder = list[bytes](), Recorder()
    async with running(mute_app(seen, recorder, failure_strategy="fail")) as test:
        await send(test, b"good", b"bad")
        await until(lambda: facts(test).state == "failed")
        assert facts(test).reason == "channel 'orders': orders-0 offset 1: Mute"
        assert test.app.health().live.status == "DOWN"

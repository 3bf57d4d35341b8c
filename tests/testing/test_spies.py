"""What a handler was called with, and what came of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, Router
from reactive_kafka.testing import HandlerCall, TestApp


def app_of(**orders: Any) -> App:
    config = {
        "incoming": {"orders": {"group_id": "g", **orders}, "returns": {"group_id": "h"}},
        "outgoing": {"out": {}},
    }
    return App(config)


async def test_each_call_has_its_argument_and_its_result() -> None:
    app = app_of()

    @app.incoming("orders")
    @app.incoming("returns")
    @app.outgoing("out")
    async def double(number: int) -> int:
        return 2 * number

    async with TestApp(app) as test:
        assert test.handler(double).calls == []
        await test.send("orders", 1)
        await test.settled()
        await test.send("returns", 2)
        await test.settled()
        assert test.handler(double).calls == [
            HandlerCall("orders", 1, 2),
            HandlerCall("returns", 2, 4),
        ]
        assert [record.value for record in test.records("out")] in ([b"2", b"4"], [b"4", b"2"])
    # They stay.
    assert len(test.handler(double).calls) == 2
    async with TestApp(app) as again:
        assert again.handler(double).calls == []


async def test_each_attempt_is_a_call_and_has_its_error() -> None:
    app, errors = (
        app_of(retry={"max_attempts": 2, "backoff": "1ms"}, failure_strategy="ignore"),
        [ValueError(), KeyError()],
    )

    @app.incoming("orders")
    async def fails(message: Message[str]) -> None:
        raise errors[message.attempt - 1]

    async with TestApp(app) as test:
        await test.send("orders", "x")
        await test.settled()
    assert [(call.payload, call.result, call.error) for call in test.handler(fails).calls] == [
        ("x", None, errors[0]),
        ("x", None, errors[1]),
    ]
    assert all(isinstance(call.argument, Message) for call in test.handler(fails).calls)


async def test_batches_generators_threads_methods_and_memory_channels_are_watched_too() -> None:
    app, router = app_of(), Router()
    memory = {"memory": {"inside": {}}}

    class Shop:
        @staticmethod
        @app.incoming("orders")
        @app.outgoing("inside")
        async def halves(number: int) -> AsyncIterator[int]:
            yield number // 2
            yield number // 2

        def add(self, batch: Batch[int]) -> int:
            return sum(batch.payloads)

    @router.incoming("inside")
    def in_a_thread(number: int) -> str:
        return f"{number}"

    shop = Shop()
    app.incoming("returns")(shop.add)
    app.include(router)
    async with TestApp(app, overrides=memory) as test:
        await test.send("orders", 8)
        await test.send("returns", 1, partition=0)
        await test.settled()
        (halved,), (added,) = test.handler(Shop.halves).calls, test.handler(shop.add).calls
        assert (halved.payload, halved.result, halved.error) == (8, [4, 4], None)
        assert (added.payload, added.result) == ([1], 1)
        assert isinstance(added.argument, Batch)
        assert [(call.channel, call.result) for call in test.handler(in_a_thread).calls] == [
            ("inside", "4")
        ] * 2


async def test_what_is_no_handler_is_refused_by_name() -> None:
    app = app_of()

    @app.incoming("orders")
    async def handles(value: str) -> None: ...

    def other() -> None: ...

    async with TestApp(app) as test:
        with pytest.raises(
            LookupError,
            match=r"other.* is no handler of the application; its handlers are: .*handles",
        ):
            test.handler(other)

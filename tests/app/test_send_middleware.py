"""Middleware around sends: every way in which an application sends, and what a middleware may do to
it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from anyio import to_thread

from reactive_kafka import (
    App,
    Batch,
    BufferFullError,
    CallNext,
    EncodeError,
    Message,
    Record,
    RecordMetadata,
    Router,
)
from reactive_kafka.events import ChannelFailed, HandlerRetried, RecordDeadLettered, RecordDelayed
from reactive_kafka.testing import TestApp
from tests.app.helpers import Recorder, committed, in_virtual_time, make_app, running, send, until

Way = Callable[[App, Any], Callable[[TestApp], Awaitable[None]]]
"""Declares how a value is sent, and returns what has it sent."""


def handled(handler: Any, annotation: Any = bytes) -> Callable[[TestApp], Awaitable[None]]:
    async def have_sent(test: TestApp) -> None:
        await send(test, b"x")
        await test.settled()

    return have_sent


def returns(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(given: bytes) -> Any:
        return value

    return handled(handler)


def returns_many(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(given: Batch[bytes]) -> Any:
        return [Record(value)]

    return handled(handler)


def yields(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(given: Message[bytes]) -> AsyncIterator[Any]:
        yield value

    return handled(handler)


def in_thread(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    @app.incoming("orders")
    @app.outgoing("invoices")
    def handler(given: bytes) -> Any:
        return value

    return handled(handler)


def source(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    @app.outgoing("invoices")
    async def produce() -> AsyncIterator[Any]:
        yield value

    async def wait(test: TestApp) -> None:
        await until(lambda: test.records("invoices") or test.app.health().live.is_up is False)

    return wait


def emits(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    emitter = app.emitter("invoices")

    async def have_sent(test: TestApp) -> None:
        stored = await emitter.send(value)
        assert (stored.topic, stored.offset) == ("invoices", 0)

    return have_sent


def emits_now(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    emitter = app.emitter("invoices")

    async def have_sent(test: TestApp) -> None:
        assert (await emitter.send_nowait(value)).offset == 0

    return have_sent


def emits_in_thread(app: App, value: Any) -> Callable[[TestApp], Awaitable[None]]:
    emitter = app.emitter("invoices")

    def work() -> None:
        emitter.send_nowait(value).result(5)

    async def have_sent(test: TestApp) -> None:
        await to_thread.run_sync(work)

    return have_sent


WAYS: list[Way] = [
    returns,
    returns_many,
    yields,
    in_thread,
    source,
    emits,
    emits_now,
    emits_in_thread,
]
OF_HANDLERS: list[Way] = [returns, returns_many, yields, in_thread]
OF_EMITTERS: list[Way] = [emits, emits_now, emits_in_thread]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    # A transactional channel has no send_nowait.
    ("way", "is_exact"),
    [
        *((way, False) for way in WAYS),
        *((way, True) for way in WAYS if way not in (emits_now, emits_in_thread)),
    ],
)
@in_virtual_time
async def test_each_way_of_sending_goes_through_it_and_it_may_change_the_record(
    way: Way, is_exact: bool, waits: bool
) -> None:
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", "batch_max_wait": 0}
    invoices = {"wait_for_write": waits, **({"transactional_id": "t"} if is_exact else {})}
    app, seen = (
        App({"incoming": {"orders": orders}, "outgoing": {"invoices": invoices}}),
        list[Record](),
    )
    have_sent = way(app, {"n": 1})

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        seen.append(record)
        return await call_next(
            replace(record, value=record.value | {"more": 2}, headers=[("sent-by", b"shop")])
        )

    async with running(app) as test:
        await have_sent(test)
        (record,) = test.records("invoices")
        assert (record.value, list(record.headers)) == (b'{"n":1,"more":2}', [("sent-by", b"shop")])
    assert seen == [Record({"n": 1}, channel="invoices")]


@pytest.mark.parametrize("way", OF_HANDLERS)
@in_virtual_time
async def test_what_it_raises_is_a_failure_of_the_handler_and_no_letter_goes_through_it(
    way: Way,
) -> None:
    recorder, calls = Recorder(), list[Record]()
    delayed = {"failure_strategy": "delayed-retry-topic", "delayed_retry": {"topics": ["r_1000"]}}
    app = make_app(recorder, retry={"max_attempts": 2, "backoff": 0}, batch_max_wait=0, **delayed)
    have_sent = way(app, b"v")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        calls.append(record)
        if len(calls) % 2:
            await call_next(record)
        raise ValueError("not today")

    async with running(app) as test:
        await have_sent(test)
        assert len(test.records("dead-letter-topic-orders")) == 1
        assert committed(test) == 1
    assert len(recorder.of(HandlerRetried)) == 2
    assert len(recorder.of(RecordDelayed)) == 1
    (letter,) = recorder.of(RecordDeadLettered)
    assert "ValueError: not today" in letter.reason
    assert calls == [Record(b"v", channel="invoices")] * 4


@pytest.mark.parametrize("way", OF_EMITTERS)
@in_virtual_time
async def test_what_it_raises_comes_out_of_the_emitter(way: Way) -> None:
    app = make_app()
    have_sent = way(app, b"v")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        raise ValueError("not today")

    async with running(app) as test:
        with pytest.raises(ValueError, match="not today"):
            await have_sent(test)
        assert test.records("invoices") == []


@in_virtual_time
async def test_a_source_fails_by_it() -> None:
    recorder = Recorder()
    app = make_app(recorder)
    source(app, b"v")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        raise ValueError("not today")

    async with running(app):
        await until(lambda: recorder.of(ChannelFailed))
    assert "ValueError: not today" in recorder.of(ChannelFailed)[0].reason


@in_virtual_time
async def test_the_first_is_the_outermost_and_a_routers_covers_what_its_functions_make() -> None:
    names = ("orders", "returns")
    app = App(
        {
            "incoming": {
                name: {"group_id": "g", "auto_offset_reset": "earliest"} for name in names
            },
            "outgoing": {"invoices": {}, "made": {}},
        }
    )
    router, seen = Router(), list[str]()

    def named(name: str) -> Callable[[Record, CallNext], Awaitable[Any]]:
        async def middleware(record: Record, call_next: CallNext) -> Any:
            seen.append(f"{name} {record.channel} {record.value}")
            result = await call_next(record)
            seen.append(f"{name} done")
            return result

        return middleware

    async def double(value: str) -> str:
        return value

    app.outgoing("invoices")(app.incoming("orders")(double))
    router.incoming("returns")(double)

    @router.outgoing("made")
    async def make() -> AsyncIterator[str]:
        yield "m"

    theirs = router.emitter("invoices")
    app.include(router)
    app.send_middleware(named("first"))
    app.send_middleware(named("second"))
    router.send_middleware(named("router"))
    async with running(app) as test:
        await until(lambda: len(seen) == 6)
        assert seen == [
            "first made m",
            "second made m",
            "router made m",
            "router done",
            "second done",
            "first done",
        ]
        for channel, sees in (
            ("orders", ["first", "second"]),
            ("returns", ["first", "second", "router"]),
        ):
            seen.clear()
            await test.send(channel, "v")
            await test.settled()
            assert seen[: len(sees)] == [f"{name} invoices v" for name in sees]
            assert len(seen) == 2 * len(sees)
        seen.clear()
        # An emitter is the application's, whoever has asked for it.
        await theirs.send("e")
        assert seen == ["first invoices e", "second invoices e", "second done", "first done"]


@in_virtual_time
async def test_several_channels_get_each_value_once_and_a_named_one_its_own() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "g", "auto_offset_reset": "earliest"}},
            "outgoing": {"a": {}, "b": {}},
            "memory": {"inside": {}},
        }
    )
    seen, inside = list[Any](), list[Any]()

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        seen.append((record.channel, record.value))
        return await call_next(replace(record, value=record.value + 1))

    @app.incoming("orders")
    @app.outgoing("a")
    @app.outgoing("b")
    @app.outgoing("inside")
    async def handler(value: int) -> list[Record]:
        return [Record(value), Record(10, channel="b", headers=iter([("h", b"1")]))]

    @app.incoming("inside")
    async def within(value: int) -> None:
        inside.append(value)

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        assert [one.value for one in test.records("a")] == [b"2"]
        assert [(one.value, list(one.headers)) for one in test.records("b")] == [
            (b"2", []),
            (b"11", [("h", b"1")]),
        ]
    assert sorted(seen) == [("a", 1), ("b", 1), ("b", 10), ("inside", 1)]
    assert inside == [2]


@in_virtual_time
async def test_in_a_transaction_it_is_around_each_record() -> None:
    app = App({"outgoing": {"invoices": {"transactional_id": "t"}}})
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        if record.value == b"bad":
            raise ValueError("bad")
        return await call_next(replace(record, value=record.value.upper()))

    async with running(app) as test:
        async with emitter.transaction() as tx:
            await tx.send(b"a")
            with pytest.raises(ValueError, match="bad"):
                await tx.send(b"bad")
            await tx.send(b"b", key=b"k")
        assert [one.value for one in test.records("invoices")] == [b"A", b"B"]


@in_virtual_time
async def test_a_request_goes_through_it_and_so_does_its_reply() -> None:
    app = App(
        {
            "incoming": {
                "asked": {"topic": "requests", "group_id": "g", "auto_offset_reset": "earliest"}
            },
            "outgoing": {"requests": {}, "answers": {}},
        }
    )
    emitter, answers = app.emitter("requests"), list[Any]()

    @app.incoming("asked")
    @app.outgoing("answers")
    async def double(number: int) -> int:
        return number * 2

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        result = await call_next(replace(record, value=record.value + 1))
        answers.append((record.channel, result))
        return result

    async with running(app):
        assert await emitter.request(1, timeout=30) == 5
    assert answers == [("answers", None), ("requests", 5)]


# -- call_next


@in_virtual_time
async def test_it_returns_when_whoever_sends_goes_on() -> None:
    app, told = make_app(), list[Any]()
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> None:
        # Its own return value is not asked for.
        told.append(await call_next(record))

    returns(app, b"v")
    async with running(app) as test:
        writes = test.broker.hold("send")
        sending = asyncio.ensure_future(emitter.send(b"e"))
        await writes.arrived()
        assert told == []
        writes.release()
        stored = await sending
        assert told == [stored] and isinstance(stored, RecordMetadata)
        await send(test, b"x")
        await test.settled()
        assert told[1:] == [None]


@in_virtual_time
async def test_a_send_that_has_failed_may_be_tried_again_by_it() -> None:
    app = make_app()
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        try:
            return await call_next(record)
        except EncodeError:
            return await call_next(replace(record, value=str(record.value)))

    async with running(app) as test:
        await emitter.send(wrong := object())
        assert [one.value for one in test.records("invoices")] == [str(wrong).encode()]


ODD: list[tuple[Callable[[Record, CallNext], Awaitable[Any]], type[Exception], str]] = []


def odd(error: type[Exception], text: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        ODD.append((function, error, text))
        return function

    return add


@odd(RuntimeError, "has returned and not sent the record: await call_next")
async def forgets(record: Record, call_next: CallNext) -> None: ...


@odd(RuntimeError, "has sent its record, or returned, already")
async def sends_twice(record: Record, call_next: CallNext) -> Any:
    await call_next(record)
    return await call_next(record)


@odd(TypeError, "call_next takes a Record, not b'v'")
async def passes_a_value(record: Record, call_next: CallNext) -> Any:
    return await call_next(record.value)


@odd(ValueError, "is sent to the channel 'invoices'")
async def sends_elsewhere(record: Record, call_next: CallNext) -> Any:
    return await call_next(replace(record, channel="nowhere"))


@pytest.mark.parametrize(
    ("middleware", "error", "text"), ODD, ids=lambda one: getattr(one, "__name__", "")
)
@pytest.mark.parametrize("way", [*OF_HANDLERS, *OF_EMITTERS])
@in_virtual_time
async def test_exactly_one_record_goes_on_to_the_same_channel(
    way: Way, middleware: Any, error: type[Exception], text: str
) -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="dead-letter-queue", batch_max_wait=0)
    have_sent = way(app, b"v")
    app.send_middleware(middleware)
    async with running(app) as test:
        if way in OF_EMITTERS:
            with pytest.raises(error, match=text):
                await have_sent(test)
        else:
            await have_sent(test)
            (letter,) = recorder.of(RecordDeadLettered)
            assert text in letter.reason


@in_virtual_time
async def test_call_next_that_was_kept_sends_nothing_later() -> None:
    app, kept = make_app(), list[CallNext]()
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> None:
        kept.append(call_next)

    async with running(app) as test:
        with pytest.raises(RuntimeError, match="has returned and not sent"):
            await emitter.send(b"v")
        with pytest.raises(RuntimeError, match="has sent its record, or returned, already"):
            await kept[0](Record(b"v"))
        assert test.records("invoices") == []


# -- at once


@in_virtual_time
async def test_what_waits_cannot_be_sent_at_once() -> None:
    app, ended = make_app(), list[str]()
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        try:
            await asyncio.sleep(1)
        finally:
            ended.append("ended")
        return await call_next(record)

    async with running(app) as test:
        with pytest.raises(
            RuntimeError,
            match=r"send_nowait\(\): a send_middleware waits for something; await send",
        ):
            emitter.send_nowait(b"v")
        assert ended == ["ended"]
        await emitter.send(b"w")
        assert [one.value for one in test.records("invoices")] == [b"w"]


@in_virtual_time
async def test_there_is_no_more_room_with_it_and_the_order_stays() -> None:
    app = App({"outgoing": {"invoices": {"max_in_flight": 3}}})
    emitter = app.emitter("invoices")

    @app.send_middleware
    async def middleware(record: Record, call_next: CallNext) -> Any:
        return await call_next(record)

    async with running(app) as test:
        writes = test.broker.hold("send")
        sent = [emitter.send_nowait(b"%d" % number) for number in range(3)]
        with pytest.raises(BufferFullError):
            emitter.send_nowait(b"more")
        writes.release()
        assert [(await one).offset for one in sent] == [0, 1, 2]
        assert [one.value for one in test.records("invoices")] == [b"0", b"1", b"2"]


@in_virtual_time
async def test_emitters_find_it_in_each_run_as_it_was_declared_by_then() -> None:
    app = make_app()
    emitter, threads = app.emitter("invoices"), set[int]()

    async def middleware(record: Record, call_next: CallNext) -> Any:
        threads.add(threading.get_ident())
        return await call_next(replace(record, value=b"changed"))

    async with running(app) as test:
        # The second goes the quick way.
        for _ in range(2):
            await emitter.send_nowait(b"v")
        assert [one.value for one in test.records("invoices")] == [b"v", b"v"]
    app.send_middleware(middleware)
    async with running(app) as test:
        for _ in range(2):
            await emitter.send_nowait(b"v")
        await to_thread.run_sync(lambda: emitter.send_nowait(b"v").result(5))
        assert [one.value for one in test.records("invoices")] == [b"changed"] * 3
    # On the loop, whoever sends.
    assert threads == {threading.get_ident()}

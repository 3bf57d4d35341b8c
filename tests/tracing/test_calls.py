"""A span of each call of a handler: its parent, what it says, and that nothing of it reaches the
next call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.trace import SpanKind, StatusCode

from reactive_kafka import App, Batch, Later, Message
from tests.app.helpers import committed, in_virtual_time, inside, make_app, running, send
from tests.tracing.helpers import Spans, context_of, is_child, number_of, producers

own: ContextVar[str] = ContextVar("own", default="nothing")
IGNORED = {"failure_strategy": "ignore"}


def current() -> int:
    return trace.get_current_span().get_span_context().span_id


@in_virtual_time
async def test_a_span_says_what_the_conventions_ask_for(spans: Spans) -> None:
    app = make_app(**{"client.id": "shop-1"})

    @app.incoming("orders")
    async def handler(value: bytes | None) -> None: ...

    async with running(app, partitions=3) as test:
        await test.send("orders", b"x", key=b"ada", partition=2)
        await test.send("orders", None, key=b"\xff", partition=2)
        await test.settled()
    first, second = spans.of("process orders")
    assert first.kind is SpanKind.CONSUMER
    assert first.status.status_code is StatusCode.UNSET
    assert first.instrumentation_scope is not None
    assert first.instrumentation_scope.name == "reactive_kafka"
    assert first.instrumentation_scope.version == version("reactive_kafka")
    assert first.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    assert dict(first.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "ada",
        "messaging.consumer.group.name": "billing",
        "messaging.client.id": "shop-1",
        "server.address": "localhost",
        "server.port": 9092,
        "reactive_kafka.channel": "orders",
        "reactive_kafka.attempt": 1,
    }
    said = dict(second.attributes or {})
    assert said["messaging.kafka.message.tombstone"] is True
    assert "messaging.kafka.message.key" not in said, "a key that is no text"


SHAPES = ["payload", "message", "thread", "generator", "batch"]


def handled_by(shape: str, app: App, seen: list[int]) -> None:
    """A handler that notes the current span, and raises for what is bad."""

    def note(value: bytes) -> None:
        seen.append(current())
        if b"bad" in value:
            raise ValueError(value.decode())

    async def payload(value: bytes) -> None:
        await asyncio.sleep(0)
        note(value)

    async def message(message: Message[bytes]) -> None:
        await asyncio.sleep(0)
        note(message.payload)

    def thread(value: bytes) -> None:
        assert threading.current_thread() is not threading.main_thread()
        note(value)

    async def generator(value: bytes) -> AsyncIterator[bytes]:
        note(value)
        yield value
        seen[-1] = current()

    async def batch(batch: Batch[bytes]) -> None:
        await asyncio.sleep(0)
        note(batch.payloads[0])

    handler: Any = {one.__name__: one for one in (payload, message, thread, generator, batch)}[
        shape
    ]
    if shape == "generator":
        app.outgoing("invoices")(handler)
    app.incoming("orders")(handler)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "orders", [{}, {"ordering": "key"}, {"ordering": "unordered", "concurrency": 2}]
)
async def test_a_call_runs_in_its_span_whose_parent_is_the_producers(
    shape: str, orders: dict[str, Any], spans: Spans
) -> None:
    if shape == "batch" and orders.get("ordering") == "key":
        return
    app, seen = (
        make_app(value_deserializer="bytes", batch_max_records=1, **IGNORED, **orders),
        list[int](),
    )
    handled_by(shape, app, seen)
    async with running(app) as test:
        for number, value in enumerate((b"1", b"bad 2", b"3"), 1):
            await test.send("orders", value, headers=[producers(number)])
            await test.settled()
        await test.send("orders", b"4")
        await test.settled()
    found = spans.of("process orders")
    assert [context_of(span).span_id for span in found] == seen
    parents = (
        [[link.context for link in span.links] for span in found]
        if shape == "batch"
        else [[] if span.parent is None else [span.parent] for span in found]
    )
    assert [[number_of(one) for one in its] for its in parents] == [[1], [2], [3], []]
    if shape != "batch":
        assert [context_of(span).trace_id for span in found][:3] == [1, 2, 3]
    failed = found[1]
    assert [span.status.status_code for span in found] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        *[StatusCode.UNSET] * 2,
    ]
    assert failed.status.description == "ValueError: bad 2"
    assert dict(failed.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_each_attempt_has_a_span_of_its_own(shape: str, spans: Spans) -> None:
    retry = {"max_attempts": 3, "backoff": "1ms"}
    app, seen = (
        make_app(value_deserializer="bytes", batch_max_records=1, retry=retry, **IGNORED),
        list[int](),
    )
    handled_by(shape, app, seen)
    async with running(app) as test:
        await test.send("orders", b"bad", headers=[producers(7)])
        await test.settled()
    found = spans.of("process orders")
    assert [context_of(span).span_id for span in found] == seen
    assert [dict(span.attributes or {})["reactive_kafka.attempt"] for span in found] == [1, 2, 3]
    assert {span.status.status_code for span in found} == {StatusCode.ERROR}
    if shape != "batch":
        assert {number_of(span.parent) for span in found} == {7}


class MuteError(Exception):
    """An error that cannot be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@in_virtual_time
async def test_an_error_without_a_text_ends_its_span_too(
    spans: Spans, capsys: pytest.CaptureFixture[str]
) -> None:
    app = make_app(**IGNORED)

    @app.incoming("orders")
    async def handler(value: int) -> None:
        raise MuteError

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    span = spans.only("process orders")
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "tests.tracing.test_calls.MuteError"
    assert "RuntimeError: no text" in capsys.readouterr().err


@in_virtual_time
async def test_a_call_that_asks_for_another_one_later_is_no_error(spans: Spans) -> None:
    app = make_app()
    asked: list[int] = []

    @app.incoming("orders")
    async def handler(value: int) -> None:
        asked.append(value)
        if len(asked) == 1:
            raise Later("5s")

    async with running(app) as test:
        await send(test, 1)
        await test.settled(timeout=30)
    calls = spans.of("process orders")
    assert len(calls) == 2
    assert not any(call.status.status_code is StatusCode.ERROR for call in calls)
    assert not any("error.type" in (call.attributes or {}) for call in calls)


class Habit:
    """What a handler leaves behind in its worker's task or context."""

    async def nothing(self) -> None: ...

    async def a_value(self) -> None:
        own.set("strange")

    async def a_span(self) -> None:
        from opentelemetry import context

        context.attach(
            trace.set_span_in_context(
                trace.NonRecordingSpan(trace.SpanContext(9, 9, is_remote=True))
            )
        )

    async def a_cancellation(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def a_task(self) -> None:
        self.left = asyncio.create_task(asyncio.sleep(0))


@pytest.mark.parametrize("habit", ["nothing", "a_value", "a_span", "a_cancellation", "a_task"])
@pytest.mark.parametrize(
    "orders", [{}, {"ordering": "key"}, {"ordering": "unordered", "concurrency": 2}]
)
@in_virtual_time
async def test_nothing_of_a_span_reaches_the_next_call(
    habit: str, orders: dict[str, Any], spans: Spans
) -> None:
    app, seen = make_app(**IGNORED, **orders), list[tuple[int, str]]()

    @app.incoming("orders")
    async def handler(value: int) -> None:
        seen.append((trace.get_current_span().get_span_context().trace_id, own.get()))
        await getattr(Habit(), habit)()

    async with running(app) as test:
        for number in range(1, 9):
            await test.send("orders", number, headers=[producers(number)] if number % 2 else [])
        await test.settled()
        found = spans.of("process orders")
        assert trace.get_current_span() is trace.INVALID_SPAN
    # Each in its order, whichever worker it came to: a record without a context begins a trace of
    # its own.
    assert sorted(seen) == sorted((context_of(span).trace_id, "nothing") for span in found)
    assert len({trace_id for trace_id, _ in seen}) == 8
    parents = sorted(str(number_of(span.parent)) for span in found)
    assert parents == sorted(["1", "3", "5", "7", "None", "None", "None", "None"])


@in_virtual_time
async def test_a_span_leaves_nothing_that_would_make_each_call_cost_more(spans: Spans) -> None:
    app = make_app(concurrency=1, **IGNORED)

    @app.incoming("orders")
    async def handler(value: int) -> None:
        if value == 3:
            raise ValueError("bad")
        if value == 6:
            own.set("strange")

    async with running(app) as test:
        await send(test, *range(6))
        await test.settled()
        workers: Any = inside(app).session.workers
        # Calls have no contexts of their own.
        assert not workers._isolation.in_contexts
        await send(test, 6)
        await test.settled()
        assert workers._isolation.in_contexts


@in_virtual_time
async def test_a_batch_has_links_to_its_records_as_far_as_they_go(spans: Spans) -> None:
    app = make_app(value_deserializer="bytes", batch_max_records=200, batch_max_wait="1s")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None: ...

    async with running(app) as test:
        for number in range(1, 151):
            await test.send("orders", b"x", headers=[producers(number)] if number > 10 else [])
        await test.settled()
    span = spans.only("process orders")
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == list(range(11, 139))
    assert dict(span.links[0].attributes or {}) == {
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 10,
    }
    said = dict(span.attributes or {})
    assert (said["messaging.batch.message_count"], said["reactive_kafka.unlinked"]) == (150, 22)
    assert said["messaging.destination.name"] == "orders"
    assert "messaging.kafka.offset" not in said


@pytest.mark.parametrize("shape", ["message", "batch"])
@in_virtual_time
async def test_what_was_current_at_the_start_is_no_calls_parent(shape: str, spans: Spans) -> None:
    app, seen = make_app(value_deserializer="bytes", batch_max_records=1), list[int]()
    handled_by(shape, app, seen)
    with spans.tracer.start_as_current_span("start"):
        async with running(app) as test:
            await test.send("orders", b"x")
            await test.settled()
    assert spans.only("process orders").parent is None


@in_virtual_time
async def test_the_name_of_a_batch_of_several_topics_has_none_of_them(spans: Spans) -> None:
    app = App(
        {
            "incoming": {
                "all": {"topics": ["a", "b"], "group_id": "g", "auto_offset_reset": "earliest"}
            }
        }
    )

    @app.incoming("all")
    async def handler(batch: Batch[bytes]) -> None: ...

    async with running(app) as test:
        for topic in ("a", "b"):
            test.broker.produce(topic, b"x", partition=0)
        await test.settled()
    span = spans.only("process")
    assert dict(span.attributes or {})["reactive_kafka.channel"] == "all"
    assert "messaging.destination.name" not in dict(span.attributes or {})


@in_virtual_time
async def test_baggage_comes_with_the_record_and_goes_with_it(spans: Spans) -> None:
    app, seen = make_app(), list[object]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: int) -> int:
        seen.append(baggage.get_baggage("tenant"))
        return value

    async with running(app) as test:
        await test.send(
            "orders", 1, headers=[("baggage", b"tenant=other"), ("baggage", b"tenant=acme")]
        )
        await test.send("orders", 2)
        await test.settled()
        sent = [dict(record.headers).get("baggage") for record in test.records("invoices")]
    # Of a name that stands there twice the last one counts.
    assert seen == ["acme", None]
    assert sent == [b"tenant=acme", None]


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xfe", b"nonsense", None, b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"]
)
@in_virtual_time
async def test_a_context_that_makes_no_sense_is_none(value: bytes | None, spans: Spans) -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(value: int) -> None: ...

    async with running(app) as test:
        await test.send("orders", 1, headers=[("traceparent", value)])
        await test.settled()
        assert committed(test) == 1
    assert spans.only("process orders").parent is None


@in_virtual_time
async def test_a_memory_channels_call_belongs_to_the_trace_of_the_sender(spans: Spans) -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "g", "auto_offset_reset": "earliest"}},
            "memory": {"stage": {}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("stage")
    async def first(value: int) -> int:
        return value + 1

    @app.incoming("stage")
    async def second(value: int) -> None: ...

    async with running(app) as test:
        await test.send("orders", 1, headers=[producers(5)])
        await test.settled()
    outer, inner = spans.only("process orders"), spans.only("process stage")
    assert is_child(inner, outer)
    said = dict(inner.attributes or {})
    assert (said["messaging.system"], said["messaging.destination.name"]) == (
        "reactive_kafka",
        "stage",
    )
    assert "messaging.kafka.offset" not in said
    assert sorted(spans.names()) == ["process orders", "process stage"]

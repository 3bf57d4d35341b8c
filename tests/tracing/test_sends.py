"""A span of each send, whose context is in the record's headers, in the place of any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.propagate import get_global_textmap, set_global_textmap
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import SpanKind, StatusCode

from reactive_kafka import (
    App,
    ChannelClosedError,
    Message,
    Record,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.tracing.send_spans import TracedSend
from reactive_kafka.tracing.tracer import Tracing
from tests.app.helpers import in_virtual_time, make_app, now, running, settle_down, tp, until
from tests.outgoing.receipts import awaited_record
from tests.tracing.helpers import Spans, contexts, is_child, producers, said, traceparent

WAYS = [{"wait_for_write": True}, {"wait_for_write": False}, {"transactional_id": "billing"}]


OUTBOX = {"outbox": True}


def app_with(invoices: dict[str, Any], **orders: Any) -> App:
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", **orders}
    if invoices.get("outbox"):
        orders |= {
            "commit_strategy": "checkpoint",
            "checkpoint": {"store": f"memory://{uuid4().hex}"},
        }
    return App({"incoming": {"orders": orders}, "outgoing": {"invoices": invoices}})


@pytest.mark.parametrize("invoices", [*WAYS, OUTBOX])
@pytest.mark.parametrize("value_serializer", [None, "bytes"])
@in_virtual_time
async def test_what_a_handler_makes_belongs_to_its_call(
    invoices: dict[str, Any], value_serializer: str | None, spans: Spans
) -> None:
    more = {} if value_serializer is None else {"value_serializer": value_serializer}
    app = app_with({**invoices, **more})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> Any:
        made: dict[bytes, Any] = {
            b"one": b"made",
            b"several": [Record(b"made", key=b"k"), Record(b"made")],
            b"passed on": Record(
                b"made", headers=[*message.headers, ("tracestate", b"old=1"), ("mine", b"1")]
            ),
            b"none": None,
        }
        return made[message.payload]

    async with running(app) as test:
        for value in (b"one", b"several", b"passed on", b"none"):
            await test.send("orders", value, headers=[producers(7)])
        await test.settled()
        records = test.records("invoices")
    sends, calls = spans.of("send invoices"), spans.of("process orders")
    assert [contexts(record.headers) for record in records] == [
        [traceparent(span)] for span in sends
    ]
    assert [
        is_child(span, call)
        for span, call in zip(sends, [calls[0], calls[1], calls[1], calls[2]], strict=True)
    ] == [True] * 4
    names = [name for name, _ in records[3].headers if name != "reactive-kafka-event-id"]
    assert names == ["mine", "traceparent"]


@in_virtual_time
async def test_what_a_generator_yields_belongs_to_its_call(spans: Spans) -> None:
    app = app_with({})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: int) -> AsyncIterator[int]:
        for number in range(value):
            yield number

    async with running(app) as test:
        await test.send("orders", 3)
        await test.settled()
        records = test.records("invoices")
    assert [contexts(record.headers) for record in records] == [
        [traceparent(span)] for span in spans.of("send invoices")
    ]
    assert all(is_child(span, spans.only("process orders")) for span in spans.of("send invoices"))


@in_virtual_time
async def test_a_span_says_where_the_record_stands(spans: Spans) -> None:
    app = app_with({"client.id": "shop-1", "topic": "bills"})
    emitter = app.emitter("invoices")
    async with running(app, partitions=3):
        await emitter.send(None, key=b"ada", partition=1)
        at = await emitter.send(b"x", partition=1)
    first, second = spans.of("send bills")
    assert first.kind is SpanKind.PRODUCER
    assert dict(first.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "bills",
        "messaging.destination.partition.id": "1",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "ada",
        "messaging.kafka.message.tombstone": True,
        "messaging.client.id": "shop-1",
        "server.address": "localhost",
        "server.port": 9092,
        "reactive_kafka.channel": "invoices",
    }
    assert dict(second.attributes or {})["messaging.kafka.offset"] == at.offset == 1


async def sent_by(app: App, way: str) -> None:
    """Send one record."""
    emitter = app.emitter("invoices")
    if way == "send":
        await emitter.send(b"x")
    elif way == "send_nowait":
        await emitter.send_nowait(b"x")
    elif way == "thread":
        await asyncio.to_thread(lambda: emitter.send_nowait(b"x").result(60))
    elif way == "another loop":
        await asyncio.to_thread(lambda: asyncio.run(emitter.send(b"x")))  # type: ignore[arg-type]
    else:
        async with emitter.transaction() as tx:
            await tx.send(b"x")


@pytest.mark.parametrize("way", ["send", "send_nowait", "thread", "another loop", "transaction"])
async def test_a_send_belongs_to_what_is_current_where_it_is_made(way: str, spans: Spans) -> None:
    app = app_with(
        {"transactional_id": "t"} if way == "transaction" else {"value_serializer": "bytes"}
    )
    app.emitter("invoices")
    async with running(app) as test:
        await sent_by(app, way)
        with spans.tracer.start_as_current_span("a request"):
            await sent_by(app, way)
        records = test.records("invoices")
    alone, inside = spans.of("send invoices")
    assert alone.parent is None
    assert is_child(inside, spans.only("a request"))
    assert [contexts(record.headers) for record in records] == [
        [traceparent(alone)],
        [traceparent(inside)],
    ]


@in_virtual_time
async def test_a_request_and_its_reply_are_one_trace(spans: Spans) -> None:
    app = App(
        {
            "incoming": {
                "asked": {"topic": "requests", "group_id": "g", "auto_offset_reset": "earliest"}
            },
            "outgoing": {"requests": {}, "answers": {}},
        }
    )

    @app.incoming("asked")
    @app.outgoing("answers")
    async def double(number: int) -> int:
        return number * 2

    emitter = app.emitter("requests")
    async with running(app):
        assert await emitter.request(4, reply_type=int, timeout="1m") == 8
        await until(lambda: len(spans.handling()) == 3)
    asked, call, answered = (
        spans.only(name) for name in ("send requests", "process requests", "send requests-replies")
    )
    assert asked.parent is None
    assert is_child(call, asked)
    assert is_child(answered, call)
    ids = [said(span)["messaging.message.conversation_id"] for span in (asked, call, answered)]
    assert len(set(ids)) == 1
    assert len(str(ids[0])) == 32


@in_virtual_time
async def test_what_an_emitter_sends_in_a_handler_belongs_to_the_call(spans: Spans) -> None:
    app = app_with({})
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handler(value: int) -> None:
        await emitter.send(value)

    async with running(app) as test:
        await test.send("orders", 1)
        await test.settled()
    assert is_child(spans.only("send invoices"), spans.only("process orders"))


async def test_a_blocking_handlers_sends_belong_to_the_call(spans: Spans) -> None:
    app = app_with({})
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    def handler(value: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        emitter.send_nowait(value)

    async with running(app) as test:
        await test.send("orders", 1)
        await test.settled()
        await emitter.flush()
    assert is_child(spans.only("send invoices"), spans.only("process orders"))


@in_virtual_time
async def test_each_record_of_a_source_has_a_span(spans: Spans) -> None:
    app = App({"outgoing": {"ticks": {}}})

    @app.outgoing("ticks")
    async def source() -> AsyncIterator[int]:
        yield 1
        with spans.tracer.start_as_current_span("a round"):
            yield 2
        yield 3

    async with running(app) as test:
        await until(lambda: len(spans.of("send ticks")) == 3)
        records = test.records("ticks")
    sends = spans.of("send ticks")
    assert [contexts(record.headers) for record in records] == [
        [traceparent(span)] for span in sends
    ]
    assert [span.parent is None for span in sends] == [True, False, True]
    assert is_child(sends[1], spans.only("a round"))


@in_virtual_time
async def test_a_send_that_fails_says_why(spans: Spans) -> None:
    app = app_with({"send_timeout": "5s"})
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"))
        with pytest.raises(RejectedRecordError):
            await emitter.send(b"x")
        refused = spans.of("send invoices")[-1]
        assert refused.status.status_code is StatusCode.ERROR
        assert (
            dict(refused.attributes or {})["error.type"]
            == "reactive_kafka.errors.RejectedRecordError"
        )
        assert "messaging.kafka.offset" not in dict(refused.attributes or {})


@in_virtual_time
async def test_a_send_that_nobody_waits_for_any_more_ends_its_span(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_with({"send_timeout": "5s"})
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=20)
        began = now()
        with pytest.raises(TransientBrokerError):
            await emitter.send(b"x")
        assert round(now() - began, 3) == 5
        await until(lambda: spans.of("send invoices"), 60)
    assert len(spans.of("send invoices")) == 1
    assert "ended span" not in caplog.text


@in_virtual_time
async def test_each_span_ends_once_whatever_becomes_of_its_record(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_with({}, failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: int) -> list[Record]:
        return [
            Record(value),
            Record(value, partition=7),
            Record(value),
            Record(value, partition=0),
        ]

    emitter = app.emitter("invoices")
    async with running(app) as test:
        for number in range(3):
            # There is no partition 7.
            await test.send("orders", number)
        await test.settled()
        held = test.broker.hold("send")
        given_up = asyncio.ensure_future(emitter.send(b"x"))
        await held.arrived()
        waiting = [
            asyncio.ensure_future(emitter.send(b"y")),
            asyncio.ensure_future(emitter.send(b"z")),
        ]
        await settle_down()
        for one in (given_up, waiting[0]):
            one.cancel()
        await settle_down()
        held.release()
        await waiting[1]
        held = test.broker.hold("send")
        left = emitter.send_nowait(b"left")
        await held.arrived()
        await app.stop(drain=False)
        with pytest.raises(ChannelClosedError):
            await left
    assert len(spans.of("send invoices")) == 3 * 4 + 3 + 1
    assert "ended span" not in caplog.text


@in_virtual_time
async def test_the_length_of_a_send_is_that_of_the_write(spans: Spans) -> None:
    app = make_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        held = test.broker.hold("send")
        sending = emitter.send_nowait(b"x")
        await held.arrived()
        assert spans.all() == ()
        held.release()
        await sending
        assert spans.names() == ["send invoices"]


encoded = list[Any]()


def encode(value: Any) -> bytes:
    encoded.append(value)
    return b"%d" % value


@in_virtual_time
async def test_a_value_is_encoded_once(spans: Spans) -> None:
    encoded.clear()
    app = app_with({"value_serializer": f"{__name__}:encode"})
    emitter = app.emitter("invoices")
    async with running(app):
        for number in range(4):
            await emitter.send_nowait(number)
    assert encoded == [0, 1, 2, 3]
    assert len(spans.of("send invoices")) == 4


def test_a_span_ends_once_though_its_record_is_written_after_it_was_given_up(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, receipt = awaited_record()
    tracing = Tracing(spans.tracer)
    sent = TracedSend(waiting, tracing.begin("send invoices", tracing.producer, {}), tracing)
    assert not sent.is_over
    assert spans.all() == ()
    receipt.void()
    assert sent.is_over
    assert sent.is_over
    sent.written(tp(), 5)
    assert len(spans.all()) == 1
    assert "ended span" not in caplog.text


class NumberPropagator(TextMapPropagator):
    """Writes a number where OpenTelemetry's headers are text."""

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        return context

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
        carrier["sampled"] = 1

    @property
    def fields(self) -> set[str]:
        return {"sampled"}


@pytest.mark.parametrize("invoices", WAYS)
@in_virtual_time
async def test_a_propagator_that_writes_no_text_harms_no_record(
    invoices: dict[str, Any], spans: Spans, capsys: pytest.CaptureFixture[str]
) -> None:
    before = get_global_textmap()
    set_global_textmap(NumberPropagator())
    try:
        app = app_with(invoices)

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(order: bytes) -> bytes:
            return order

        async with running(app) as test:
            await test.send("orders", b"a")
            await test.settled()
            assert [record.headers for record in test.records("invoices")] == [()]
    finally:
        set_global_textmap(before)
    assert "AttributeError: 'int' object has no attribute 'encode'" in capsys.readouterr().err

"""Spans of acks, nacks, commits, and of messages that the application takes by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode

from reactive_kafka import App, Batch, CheckpointError, Message
from tests.app.helpers import (
    committed,
    in_virtual_time,
    make_app,
    running,
    send,
    settle_down,
    until,
)
from tests.tracing.helpers import (
    Spans,
    context_of,
    is_child,
    number_of,
    producers,
    provided,
    said,
)

DEAD = {"failure_strategy": "dead-letter-queue"}


def handled(app: App, how: str) -> None:
    """A handler whose record is acked in some way."""

    async def returns(value: int) -> None: ...

    async def by_hand(message: Message[int]) -> None:
        await message.ack()

    async def in_thread(message: Message[int]) -> None:
        await asyncio.to_thread(lambda: message.ack().result(60))  # type: ignore[attr-defined]

    async def sends(value: int) -> int:
        return value

    async def batch(batch: Batch[int]) -> None: ...

    handlers: dict[str, Any] = {
        one.__name__: one for one in (returns, by_hand, in_thread, sends, batch)
    }
    handler = handlers[how]
    if how == "sends":
        app.outgoing("invoices")(handler)
    app.incoming("orders")(handler)


@pytest.mark.parametrize(
    ("how", "ack"),
    [
        ("returns", "post"),
        ("returns", "pre"),
        ("by_hand", "manual"),
        ("by_hand", "post"),
        ("sends", "post"),
        ("sends", "pre"),
        ("batch", "post"),
    ],
)
@pytest.mark.parametrize("wait_for_write", [True, False])
@in_virtual_time
async def test_each_ack_has_one_span_in_the_call_of_its_record(
    how: str, ack: str, wait_for_write: bool, spans: Spans
) -> None:
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "g", "auto_offset_reset": "earliest", "ack": ack}
                | ({"batch_max_records": 1} if how == "batch" else {})
            },
            "outgoing": {"invoices": {"wait_for_write": wait_for_write}},
        }
    )
    handled(app, how)
    async with running(app) as test:
        await test.send("orders", 1, headers=[producers(7)])
        await until(lambda: spans.of("process orders"))
        await settle_down()
    span = spans.only("ack orders")
    assert is_child(span, spans.only("process orders"))
    assert span.kind is SpanKind.CLIENT


@in_virtual_time
async def test_an_ack_says_what_the_conventions_ask_for(spans: Spans) -> None:
    app = make_app(**{"client.id": "shop-1"})
    handled(app, "returns")
    async with running(app, partitions=3) as test:
        await test.send("orders", 1, partition=2)
        await test.settled()
    span = spans.only("ack orders")
    assert span.status.status_code is StatusCode.UNSET
    assert said(span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "ack",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 0,
        "messaging.consumer.group.name": "billing",
        "messaging.client.id": "shop-1",
        "server.address": "localhost",
        "server.port": 9092,
        "reactive_kafka.channel": "orders",
    }


async def test_an_ack_from_a_thread_has_its_span_too(spans: Spans) -> None:
    app = make_app()
    handled(app, "in_thread")
    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert is_child(spans.only("ack orders"), spans.only("process orders"))


async def test_acks_without_an_effect_have_no_spans_in_threads_either(spans: Spans) -> None:
    app = make_app(batch_max_records=1)

    @app.incoming("orders")
    def handler(batch: Batch[int]) -> None:
        answers: Any = (batch[0].ack(), batch[0].ack(), batch.ack())
        assert [answer.result(60) for answer in answers] == [True, False, False]

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    span = spans.only("ack orders")
    assert span.status.status_code is StatusCode.UNSET


async def test_an_ack_from_a_thread_that_is_refused_raises_where_it_is_awaited(
    spans: Spans,
) -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {"transactional_id": "billing"}},
        }
    )
    refused = list[BaseException]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    def handler(message: Message[bytes]) -> bytes:
        answer: Any = message.ack()
        try:
            answer.result(60)
        except CheckpointError as error:
            refused.append(error)
        return message.payload

    async with running(app) as test:
        await test.send("orders", b"x")
        await test.settled()
    assert len(refused) == 1
    assert spans.of("ack orders") == []


@in_virtual_time
async def test_a_second_ack_has_no_span(spans: Spans) -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[int]) -> None:
        assert await message.ack()
        assert not await message.ack()

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert len(spans.of("ack orders")) == 1


@in_virtual_time
async def test_an_ack_that_waits_for_its_commit_lasts_until_then(spans: Spans) -> None:
    app = make_app(commit_strategy="latest")
    handled(app, "returns")
    async with running(app) as test:
        held = test.broker.hold("commit")
        await send(test, 1)
        await held.arrived()
        assert spans.of("ack orders") == []
        held.release()
        await test.settled()
    assert is_child(spans.only("ack orders"), spans.only("process orders"))


@in_virtual_time
async def test_a_batch_is_acked_in_one_span(spans: Spans) -> None:
    app = make_app(batch_max_wait="1s")
    handled(app, "batch")
    async with running(app) as test:
        await send(test, 1, 2, 3)
        await test.settled()
    span = spans.only("ack orders")
    assert is_child(span, spans.only("process orders"))
    assert said(span)["messaging.batch.message_count"] == 3
    assert said(span)["messaging.destination.name"] == "orders"
    assert "messaging.kafka.offset" not in said(span)


@pytest.mark.parametrize("how", ["raises", "by_hand"])
@in_virtual_time
async def test_a_nack_lasts_until_its_letter_is_written(how: str, spans: Spans) -> None:
    app = make_app(**DEAD)

    @app.incoming("orders")
    async def handler(message: Message[int]) -> None:
        if how == "raises":
            raise ValueError("bad")
        await message.nack(ValueError("bad"))

    async with running(app) as test:
        held = test.broker.hold("send")
        await test.send("orders", 1, headers=[producers(7)])
        await held.arrived()
        assert spans.of("nack orders") == []
        held.release()
        await test.settled()
        assert len(test.records("dead-letter-topic-orders")) == 1
    span = spans.only("nack orders")
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET
    assert is_child(span, spans.only("process orders"))
    assert said(span)["reactive_kafka.failure_strategy"] == "dead-letter-queue"
    assert said(span)["messaging.operation.type"] == "settle"
    assert said(span)["messaging.kafka.offset"] == 0
    assert spans.of("ack orders") == []


@in_virtual_time
async def test_the_nack_of_what_cannot_be_decoded_belongs_to_its_producer(spans: Spans) -> None:
    app = make_app(failure_strategy="ignore")
    handled(app, "returns")
    async with running(app) as test:
        test.broker.produce("orders", b"no number", partition=0, headers=[producers(7)])
        await test.settled()
    assert number_of(spans.only("nack orders").parent) == 7


@in_virtual_time
async def test_each_commit_has_a_span(spans: Spans) -> None:
    app = make_app()
    handled(app, "returns")
    async with running(app, partitions=3) as test:
        for partition in range(3):
            await send(test, 1, partition=partition)
        await until(lambda: spans.of("commit orders"))
    span = spans.of("commit orders")[0]
    assert (span.kind, span.parent) == (SpanKind.CLIENT, None)
    assert said(span)["reactive_kafka.partitions"] == 3
    assert said(span)["messaging.operation.type"] == "settle"
    assert said(span)["messaging.consumer.group.name"] == "billing"
    assert "messaging.destination.partition.id" not in said(span)


@in_virtual_time
async def test_a_commit_that_fails_says_why(spans: Spans) -> None:
    from reactive_kafka import TransientBrokerError

    app = make_app()
    handled(app, "returns")
    async with running(app) as test:
        test.broker.fail_next("commit", TransientBrokerError("away"))
        await send(test, 1)
        await test.settled()
        await until(lambda: len(spans.of("commit orders")) == 2, 60)
    failed, stored = spans.of("commit orders")
    assert said(failed)["error.type"] == "reactive_kafka.errors.TransientBrokerError"
    assert failed.status.status_code is StatusCode.ERROR
    assert said(failed)["messaging.destination.partition.id"] == "0"
    assert stored.status.status_code is StatusCode.UNSET


@in_virtual_time
async def test_what_the_application_takes_by_itself_is_received_in_a_span(spans: Spans) -> None:
    app = make_app()
    async with running(app) as test:
        taken = asyncio.ensure_future(anext(app.channel("orders").__aiter__()))
        await settle_down()
        await test.send("orders", 1, key=b"ada", headers=[producers(7)])
        with spans.tracer.start_as_current_span("a round"):
            message = await taken
        await message.ack()
    span = spans.only("receive orders")
    assert span.kind is SpanKind.CLIENT
    assert [number_of(link.context) for link in span.links] == [7]
    assert said(span)["messaging.operation.type"] == "receive"
    assert said(span)["messaging.kafka.message.key"] == "ada"
    assert span.end_time is not None and span.start_time is not None
    assert span.end_time >= span.start_time
    ack = spans.only("ack orders")
    assert is_child(ack, span)
    assert context_of(ack).trace_id == context_of(span).trace_id


@pytest.mark.parametrize("settings", [{}, {"commit_strategy": "latest"}])
@in_virtual_time
async def test_a_record_of_several_handlers_is_acked_once(
    settings: dict[str, Any], spans: Spans
) -> None:
    app = make_app(broadcast=True, **settings)

    @app.incoming("orders")
    async def number(value: int) -> None: ...

    @app.incoming("orders")
    async def text(value: str) -> None: ...

    async with running(app) as test:
        await test.send("orders", 1)
        await test.settled()
    first, last = spans.of("process orders")
    assert not is_child(spans.only("ack orders"), first)
    assert is_child(spans.only("ack orders"), last)


@in_virtual_time
async def test_the_nack_of_one_of_several_handlers_belongs_to_its_call(spans: Spans) -> None:
    app = make_app(**DEAD)

    @app.incoming("orders", when=lambda message: message.key == b"other")
    async def other(value: int) -> None: ...

    @app.incoming("orders")
    async def handler(value: str) -> None:
        raise ValueError("bad")

    async with running(app) as test:
        await test.send("orders", 1)
        await test.settled()
    assert is_child(spans.only("nack orders"), spans.only("process orders"))


@in_virtual_time
async def test_an_exactly_once_record_that_sends_nothing_is_acked_when_its_handler_returns(
    spans: Spans,
) -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {"transactional_id": "billing"}},
        }
    )

    @app.incoming("orders", when=lambda message: message.payload == b"silent")
    async def silent(value: bytes) -> None: ...

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    async with running(app) as test:
        await test.send("orders", b"silent")
        await test.send("orders", b"sent")
        await test.settled()
        assert committed(test) == 2
    first, _ = spans.of("process orders")
    assert is_child(spans.only("ack orders"), first)
    # One is the transaction's.
    assert len(spans.of("commit orders")) >= 1


class DropsCalls(Sampler):
    """Drops the spans of calls, and looks at no parent."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *arguments: Any, **named: Any
    ) -> SamplingResult:
        is_dropped = name.startswith("process")
        return SamplingResult(Decision.DROP if is_dropped else Decision.RECORD_AND_SAMPLE)

    def get_description(self) -> str:
        return "DropsCalls"


@in_virtual_time
async def test_a_call_whose_span_is_dropped_has_no_spans_of_verdicts() -> None:
    app = make_app(**DEAD)

    @app.incoming("orders")
    async def handler(value: int) -> None:
        if value == 2:
            raise ValueError("bad")

    with provided(TracerProvider(DropsCalls(), shutdown_on_exit=False)) as spans:
        async with running(app) as test:
            await send(test, 1, 2)
            await test.settled()
    assert {span.name for span in spans.all()} == {"commit orders"}


@in_virtual_time
async def test_a_channel_that_is_turned_off_settles_without_spans(spans: Spans) -> None:
    app = make_app(tracing_enabled=False, **DEAD)

    @app.incoming("orders")
    async def handler(value: int) -> None:
        if value == 2:
            raise ValueError("bad")

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
    assert spans.all() == ()

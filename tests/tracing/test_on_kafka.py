"""Beside OpenTelemetry's own instrumentation of aiokafka, on a real Kafka: its spans and ours are
one trace.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

from reactive_kafka import App, Headers, Message, Record
from tests.faults.driver import create_topic, until
from tests.tracing.helpers import Spans, contexts, is_child, traceparent

pytestmark = pytest.mark.kafka


@pytest.fixture
def instrumented(spans: Spans) -> Iterator[Spans]:
    """The aiokafka of this process, instrumented by them."""
    instrumentor = AIOKafkaInstrumentor()
    instrumentor.instrument(tracer_provider=spans.provider)
    yield spans
    instrumentor.uninstrument()


async def test_their_producer_is_our_parent_and_their_consumer_is_our_child(
    kafka: str, instrumented: Spans
) -> None:
    orders, invoices = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("orders", "invoices"))
    for topic in (orders, invoices):
        await create_topic(kafka, topic, 1)
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {"topic": orders, "group_id": orders, "auto_offset_reset": "earliest"}
            },
            "outgoing": {"invoices": {"topic": invoices}},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def bill(message: Message[bytes]) -> Record:
        return Record(message.payload, key=message.key, headers=message.headers)

    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    consumer = AIOKafkaConsumer(invoices, bootstrap_servers=kafka, auto_offset_reset="earliest")
    await producer.start()
    await consumer.start()
    try:
        async with app:
            await producer.send_and_wait(orders, b"x", key=b"ada")
            async with asyncio.timeout(60):
                read = await consumer.getone()
        await until(lambda: instrumented.of(f"{invoices} receive"), 10, "their consumer's span")
    finally:
        await producer.stop()
        await consumer.stop()
    theirs, call = instrumented.only(f"{orders} send"), instrumented.only(f"process {orders}")
    ours, received = instrumented.only(f"send {invoices}"), instrumented.only(f"{invoices} receive")
    assert is_child(call, theirs)
    assert is_child(ours, call)
    assert is_child(received, ours)
    assert contexts(Headers(read.headers)) == [traceparent(ours)]
    # What both say of a record they say with the same words; the type of a send has got another
    # name since.
    names = ("system", "destination.name", "destination.partition.id", "kafka.message.key")
    for mine, other in ((ours, received), (call, theirs)):
        said, heard = dict(mine.attributes or {}), dict(other.attributes or {})
        assert [said[f"messaging.{name}"] for name in names] == [
            heard[f"messaging.{name}"] for name in names
        ]

"""Beside OpenTelemetry's own instrumentation of aiokafka, on a real Kafka: its spans and ours are
one trace.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

from reactive_kafka import App, Headers, Message, Record
from tests.faults.driver import create_topic, until
from tests.tracing.helpers import Spans, contexts, is_child, said, traceparent

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
        assert [said(mine)[f"messaging.{name}"] for name in names] == [
            said(other)[f"messaging.{name}"] for name in names
        ]


async def test_spans_name_the_cluster_and_the_broker(kafka: str, spans: Spans) -> None:
    orders = f"orders-{uuid.uuid4().hex[:8]}"
    await create_topic(kafka, orders, 1)
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "topic": orders,
                    "group_id": orders,
                    "auto_offset_reset": "earliest",
                    "commit_interval": "100ms",
                }
            },
            "outgoing": {"again": {"topic": orders}},
        }
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    emitter = app.emitter("again")
    async with app:
        await emitter.send(b"1")
        await until(lambda: spans.of(f"commit {orders}"), 60, "a commit")
        # By now a consumer has learned the id of the cluster.
        await emitter.send(b"2")
        await until(lambda: len(spans.of(f"process {orders}")) == 2, 60, "the second call")
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        cluster_id = (await admin.describe_cluster())["cluster_id"]
    finally:
        await admin.close()
    host, _, port = kafka.partition(",")[0].rpartition(":")
    last = [spans.of(f"{operation} {orders}")[-1] for operation in ("send", "process", "commit")]
    assert len(cluster_id) == 22
    for span in last:
        assert said(span)["messaging.kafka.cluster.id"] == cluster_id
        assert said(span)["server.address"] == host
        assert said(span)["server.port"] == int(port)

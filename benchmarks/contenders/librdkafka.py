"""confluent-kafka: its producer, which confirms each record by a callback, and its consumer with a
deserialiser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.topic import numbered

COMMIT_EVERY_S = 1.0


async def produce(job: Job) -> Result:
    """``produce`` with a delivery callback, idempotent; it is polled as its documentation says."""
    meter = Meter(job.records)
    value = numbered(0)
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 100_000,
        }
    )
    delivered = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(str(error))
        delivered += 1

    producer.produce(job.target, value, on_delivery=on_delivery)
    producer.flush()
    meter.begin()
    for _ in range(job.records - 1):
        while True:
            try:
                producer.produce(job.target, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    meter.end()
    if delivered != job.records:
        raise RuntimeError(f"{delivered} of {job.records} records were confirmed")
    return meter.result()


async def consume(job: Job) -> Result:
    """``consume(500)``: the value of each record is handed over. It is committed once a second,
    whole batches.
    """
    meter = Meter(job.records)
    with _consumer(job) as consumer:
        _consume(consumer, meter, lambda value: value)
    return meter.result()


async def consume_avro(job: Job) -> Result:
    """The same and its ``AvroDeserializer``: a dict for each record."""
    meter = Meter(job.records)
    context = SerializationContext(job.topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": job.registry}) as registry, _consumer(job) as consumer:
        read = AvroDeserializer(registry)
        _consume(consumer, meter, lambda value: read(value, context))
    return meter.result()


@contextmanager
def _consumer(job: Job) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # How long it waits before it fetches again where its queue is full. The default of 1 s
            # is most of the time of a backlog: with 10 ms it is several times as fast.
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([job.topic])
    try:
        yield consumer
    finally:
        consumer.close()


def _consume(consumer: Consumer, meter: Meter, read: Callable[[bytes | None], object]) -> None:
    seen = 0
    mark = 1

    def handle(value: object) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    due = time.monotonic() + COMMIT_EVERY_S
    while not meter.finished:
        for message in consumer.consume(500, timeout=1.0):
            handle(read(message.value()))
        if time.monotonic() >= due and seen:
            consumer.commit(asynchronous=False)
            due = time.monotonic() + COMMIT_EVERY_S
    consumer.commit(asynchronous=False)

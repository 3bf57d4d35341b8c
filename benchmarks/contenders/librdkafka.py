"""confluent-kafka's producer: records are handed to librdkafka, and each is confirmed by a callback."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.topic import numbered


async def produce(job: Job) -> Result:
    """``produce`` with a delivery callback, idempotent; it is polled as its documentation says."""
    meter, value = Meter(job.records), numbered(0)
    producer = Producer({
        "bootstrap.servers": job.bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 100_000,
    })  # fmt: skip
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

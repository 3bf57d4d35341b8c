"""Buffers are written and marked before the process ends or a partition is revoked."""

from collections import defaultdict
from collections.abc import Iterable

from reactive_kafka import App, Message, TopicPartition

MANY = 100

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "events": {
                "group_id": "writer",
                "auto_offset_reset": "earliest",
                "unprocessed_record_max_age": "10m",
            }
        },
    }
)
buffers: dict[TopicPartition, list[Message[str]]] = defaultdict(list)


def write(events: list[str]) -> None:
    print("wrote", len(events), "events", flush=True)


async def flush(partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        if buffer := buffers.pop(partition, []):
            write([event.payload for event in buffer])
            await app.channel("events").ack_up_to(buffer[-1])


@app.incoming("events", ack="manual")
async def collect(message: Message[str]) -> None:
    buffers[message.topic_partition].append(message)
    if len(buffers[message.topic_partition]) >= MANY:
        await flush([message.topic_partition])


@app.on_revoked("events")
async def partitions_go(partitions: frozenset[TopicPartition]) -> None:
    await flush(partitions)


@app.before_stop
async def the_process_ends() -> None:
    await flush(list(buffers))


if __name__ == "__main__":
    app.run()

"""Records are collected, and written a hundred at once. One mark covers all that are written."""

from collections import defaultdict

from reactive_kafka import App, Message, TopicPartition

MANY = 100

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "events": {
                "group_id": "writer",
                "auto_offset_reset": "earliest",
                # The longest time that a buffer may take to fill.
                "unprocessed_record_max_age": "10m",
                # Records that are not written come again, so a stop need not wait for them.
                "drain_timeout": "1s",
            }
        },
    }
)
buffers: dict[TopicPartition, list[Message[str]]] = defaultdict(list)


def write(events: list[str]) -> None:
    print("wrote", len(events), "events", flush=True)


@app.incoming("events", ack="manual")
async def collect(message: Message[str]) -> None:
    buffer = buffers[message.topic_partition]
    buffer.append(message)
    if len(buffer) >= MANY:
        write([event.payload for event in buffer])
        await app.channel("events").ack_up_to(buffer[-1])
        buffer.clear()


if __name__ == "__main__":
    app.run()

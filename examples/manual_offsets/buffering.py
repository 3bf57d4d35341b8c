"""Records are collected and written many at once; the last one written is marked, and with it all
before it.
"""

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
                # A buffer may take so long to fill.
                "unprocessed_record_max_age": "10m",
                # What was not written comes again: a stop need not wait for it.
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

"""Virtual partitions: keys of one partition are handled concurrently.

The string in Kafka is that of the last record before the committed position.
"""

import asyncio

from reactive_kafka import App, Message

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "visits": {
                "group_id": "visitors",
                "auto_offset_reset": "earliest",
                "ack": "manual",
                # One at a time for each visitor, ten visitors at once.
                "ordering": "key",
                "concurrency": 10,
                # The string of the last record before the position, not the newest one.
                "offset_metadata_strategy": "exact",
            }
        },
    }
)
slow: dict[bytes, asyncio.Event] = {}


@app.incoming("visits")
async def count(message: Message[str]) -> None:
    if message.key in slow:
        await slow[message.key].wait()
    visit = f"{message.key.decode()} at {message.payload}"
    print("counted", visit, flush=True)
    message.ack(metadata=visit)


if __name__ == "__main__":
    app.run()

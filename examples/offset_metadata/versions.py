"""Which version on which machine has handled a partition before."""

import os
import socket

from reactive_kafka import App, Message, TopicPartition

VERSION = os.environ.get("VERSION", "1.0")
ME = f"{VERSION} on {socket.gethostname()}"

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {"orders": {"group_id": "pricing", "auto_offset_reset": "earliest"}},
    }
)
taken_over: dict[TopicPartition, str] = {}


@app.on_assigned("orders")
async def look(partitions: frozenset[TopicPartition]) -> None:
    for partition in partitions:
        taken_over[partition] = await app.channel("orders").offset_metadata(partition) or "nobody"
        print(partition, "was handled by", taken_over[partition], flush=True)


@app.incoming("orders")
async def price(message: Message[str]) -> None:
    app.channel("orders").store_offset_metadata(
        TopicPartition(message.topic, message.partition), ME
    )


if __name__ == "__main__":
    app.run()

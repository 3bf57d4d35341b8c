"""Sums that survive a restart: each sum is stored with the position that it belongs to."""

import json

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "payments": {
                "group_id": "sums",
                "auto_offset_reset": "earliest",
                "ack": "manual",
                "value_deserializer": "json",
                "offset_metadata_deserializer": "json",
            }
        },
    }
)
sums: dict[TopicPartition, float] = {}


@app.on_assigned("payments")
async def recover(partitions: frozenset[TopicPartition]) -> None:
    for partition in sorted(partitions):
        found = await app.channel("payments").offset_metadata(partition)
        sums[partition] = found["sum"] if found else 0.0
        print(f"{partition} starts with {sums[partition]}", flush=True)


@app.incoming("payments")
async def add(message: Message[dict]) -> None:
    partition = TopicPartition(message.topic, message.partition)
    sums[partition] += message.payload["amount"]
    print(f"{partition} has {sums[partition]}", flush=True)
    message.ack(metadata=json.dumps({"sum": sums[partition]}))


if __name__ == "__main__":
    app.run()

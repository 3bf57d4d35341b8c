"""An automatic replay: records that a version with a known bug has handled are handled again."""

import json

from reactive_kafka import App, Message, TopicPartition

VERSION = 2
MISTAKEN = {1}

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "readings": {
                "group_id": "averages",
                "auto_offset_reset": "earliest",
                "offset_metadata_deserializer": "json",
            }
        },
    }
)
# Where this version has begun.
since: dict[TopicPartition, int] = {}


def use(reading: str) -> None:
    print("used", reading, flush=True)


@app.on_assigned("readings")
async def decide(partitions: frozenset[TopicPartition]) -> None:
    channel = app.channel("readings")
    for partition in partitions:
        found = await channel.offset_metadata(partition)
        if found and found["version"] in MISTAKEN:
            await channel.seek(partition, found["since"])
        elif found and found["version"] == VERSION:
            since[partition] = found["since"]


@app.incoming("readings")
async def average(message: Message[str]) -> None:
    use(message.payload)
    partition = TopicPartition(message.topic, message.partition)
    begun = since.setdefault(partition, message.offset)
    text = json.dumps({"version": VERSION, "since": begun})
    app.channel("readings").store_offset_metadata(partition, text)


if __name__ == "__main__":
    app.run()

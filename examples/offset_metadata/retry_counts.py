"""Retry counts that survive a restart: a record that has killed three processes is given up."""

import os

from reactive_kafka import App, Message, TopicPartition

MOST = 3

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {"images": {"group_id": "thumbnails", "auto_offset_reset": "earliest"}},
    }
)


async def make_thumbnail(image: str) -> None:
    if image == "bomb":
        # As a native library does that cannot read it.
        os._exit(1)
    print("made", image, flush=True)


@app.incoming("images")
async def handle(message: Message[str]) -> None:
    channel = app.channel("images")
    partition = TopicPartition(message.topic, message.partition)
    offset, _, count = (await channel.offset_metadata(partition) or "").partition(":")
    tries = int(count) if offset == str(message.offset) else 0
    if tries >= MOST:
        print("gave up", message.payload, flush=True)
        return
    channel.store_offset_metadata(partition, f"{message.offset}:{tries + 1}")
    # Before it is tried: the position stays, the count is stored.
    await channel.commit({partition: message.offset})
    await make_thumbnail(message.payload)


if __name__ == "__main__":
    app.run()

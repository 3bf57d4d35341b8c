"""Automatic acks, committed once a minute, and sooner after a hundred or an expensive record."""

from reactive_kafka import App, Message

EVERY = 100

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "readings": {
                "group_id": "meter",
                "auto_offset_reset": "earliest",
                "commit_interval": "1m",
            }
        },
    }
)


@app.incoming("readings")
async def read(message: Message[str]) -> None:
    if message.payload == "expensive" or (message.offset + 1) % EVERY == 0:
        # By default this record would be acked after the handler has returned.
        await message.ack()
        await app.channel("readings").commit()
        print("committed", message.offset + 1, flush=True)


if __name__ == "__main__":
    app.run()

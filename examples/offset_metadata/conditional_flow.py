"""Conditional flow: what one owner has seen decides what the next one does.

A customer's file comes as one stream: "begin", rows, "end". Rows of a file that turned out to be
broken are skipped up to its end, also by another process.
"""

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "rows": {"group_id": "loader", "auto_offset_reset": "earliest", "ack": "manual"}
        },
    }
)
# "", or "broken": skip the rest of the file.
state: dict[TopicPartition, str] = {}
loaded: list[str] = []


@app.on_assigned("rows")
async def take_over(partitions: frozenset[TopicPartition]) -> None:
    for partition in partitions:
        state[partition] = await app.channel("rows").offset_metadata(partition) or ""


@app.incoming("rows")
async def load(message: Message[str]) -> None:
    partition = TopicPartition(message.topic, message.partition)
    row = message.payload
    if row in ("begin", "end"):
        state[partition] = ""
    elif row == "?":
        state[partition] = "broken"
    elif not state[partition]:
        loaded.append(row)
        print("loaded", row, flush=True)
    message.ack(metadata=state[partition])


if __name__ == "__main__":
    app.run()

"""One mark for many records: the last line of a file marks all lines before it as done."""

from collections import defaultdict

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "lines": {
                "group_id": "loader",
                "auto_offset_reset": "earliest",
                # The longest time that a file may take to arrive.
                "unprocessed_record_max_age": "1h",
                # Records without a mark come again, so a stop need not wait for them.
                "drain_timeout": "1s",
            }
        },
    }
)
files: dict[TopicPartition, list[str]] = defaultdict(list)


def load(lines: list[str]) -> None:
    print("loaded", len(lines), "lines", flush=True)


@app.on_assigned("lines")
async def begin_at_the_mark(partitions: frozenset[TopicPartition]) -> None:
    """Read all lines of an incomplete file again, also if this process had the partition before."""
    marks = await app.channel("lines").committed()
    for partition in partitions:
        files.pop(partition, None)
        mark = marks[partition]
        await app.channel("lines").seek(partition, "beginning" if mark is None else mark)


@app.incoming("lines", ack="manual")
async def line(message: Message[str]) -> None:
    if message.payload != "END":
        files[message.topic_partition].append(message.payload)
        return
    load(files.pop(message.topic_partition, []))
    await app.channel("lines").ack_up_to(message)


if __name__ == "__main__":
    app.run()

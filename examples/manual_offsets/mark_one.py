"""One mark for many records: the last line of a file says that all before it may be used, and none
comes again.
"""

from collections import defaultdict

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "lines": {
                "group_id": "loader",
                "auto_offset_reset": "earliest",
                # A file may take so long to arrive.
                "unprocessed_record_max_age": "1h",
                # What has no mark comes again: a stop need not wait for it.
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
    """Of a file that was not complete all lines are read again, also where nobody else had the
    partition meanwhile.
    """
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

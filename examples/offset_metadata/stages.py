"""Stages of a long job: the next owner of the record continues after the last one that is done."""

from reactive_kafka import App, Message, TopicPartition

STAGES = ("download", "convert", "load")

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {"imports": {"group_id": "importer", "auto_offset_reset": "earliest"}},
    }
)


async def work(stage: str, file: str) -> None:
    print(stage, file, flush=True)


@app.incoming("imports")
async def run(message: Message[str]) -> None:
    channel = app.channel("imports")
    partition = TopicPartition(message.topic, message.partition)
    job, _, done = (await channel.offset_metadata(partition) or "").partition(":")
    left = STAGES[STAGES.index(done) + 1 :] if job == str(message.offset) else STAGES
    for stage in left:
        await work(stage, message.payload)
        if not channel.store_offset_metadata(partition, f"{message.offset}:{stage}"):
            # Another member has the partition now.
            return
        # The position stays, the string goes with it.
        await channel.commit({partition: message.offset})


if __name__ == "__main__":
    app.run()

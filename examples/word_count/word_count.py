"""Sentences in, counts of their words out, exactly once. See README.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from reactive_kafka import App, Batch, Record

app = App(Path(__file__).with_name("reactive-kafka.toml"))


@app.incoming("sentences")
@app.outgoing("counts")
async def count(batch: Batch[str]) -> list[Record]:
    """How often each word is in the batch. A word is the key, so all its counts are in one
    partition.
    """
    words = Counter(
        word for sentence in batch.payloads for word in re.findall(r"\w+", sentence.lower())
    )
    return [Record(times, key=word) for word, times in words.items()]


if __name__ == "__main__":
    app.run()

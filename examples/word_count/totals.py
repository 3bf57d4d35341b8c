"""Adds up what word_count.py counts, and prints each sum as it changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from reactive_kafka import App, Message

app = App(Path(__file__).with_name("totals.toml"))
totals: Counter[str] = Counter()


@app.incoming("counts")
async def add(message: Message[int]) -> None:
    """Add one count to the sum of its word."""
    word = (message.key or b"").decode()
    totals[word] += message.payload
    print(f"{word} {totals[word]}", flush=True)


if __name__ == "__main__":
    app.run()

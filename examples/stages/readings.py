"""Two stages in one process: readings are converted one by one, and stored by the batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reactive_kafka import App, Batch, Record

DATABASE = Path("readings.db")

app = App(Path(__file__).with_name("reactive-kafka.toml"))


@dataclass
class Reading:
    id: str
    sensor: str
    fahrenheit: float


class Row(NamedTuple):
    id: str
    sensor: str
    celsius: float


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """A connection, with the table, that commits at the end of the block."""
    with closing(sqlite3.connect(DATABASE)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rows (id TEXT PRIMARY KEY, sensor TEXT, celsius REAL)"
        )
        yield connection


@app.incoming("readings")
@app.outgoing("rows")
async def convert(reading: Reading) -> Record:
    if reading.fahrenheit < -459.67:
        raise ValueError(f"{reading.fahrenheit} F is below absolute zero")
    return Record(
        Row(reading.id, reading.sensor, round((reading.fahrenheit - 32) / 1.8, 2)),
        key=reading.sensor,
    )


@app.incoming("rows", retry={"max_attempts": 5, "backoff": "1s"})
def store(rows: Batch[Row]) -> None:
    with database() as connection:
        connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", rows.payloads)
    for row in rows.payloads:
        print(f"stored {row.id}: {row.celsius} C", flush=True)


if __name__ == "__main__":
    app.run()

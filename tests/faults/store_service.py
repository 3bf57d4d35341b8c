"""A service whose channels keep their positions in stores, with a running sum for each partition as
the state.

``python -m tests.faults.store_service CONFIG HISTORY [--rows CHANNEL...] [--seed N] [--latency LOW
HIGH]``

A channel of ``--rows`` writes a row for each record, in one transaction with position and state:
into the table ``rows`` of its database, or a list of its Redis. The topics of a test have no gaps,
so the state that a record finds must have counted as many records as its offset says; the outcome
of its ``end`` tells if it has not. Work is written down as done before its position can be stored;
what a handler raises after that, too.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from reactive_kafka import App, Message, TopicPartition
from tests.faults.history import History

Payload = dict[str, Any]
TABLE = (
    'CREATE TABLE IF NOT EXISTS rows (topic TEXT, "partition" INT, "offset" BIGINT, process TEXT)'
)
INSERT = text("INSERT INTO rows VALUES (:topic, :partition, :offset, :process)")


def rows_key(topic: str, partition: int) -> str:
    """Of the list in Redis that has the rows of a partition, each of them ``offset process``."""
    return f"rows:{topic}:{partition}"


class Handlers:
    """The work of every channel, written down."""

    def __init__(
        self, history: History, process: str, seed: int, latency: tuple[float, float]
    ) -> None:
        self.history = history
        self._process = process
        self._latencies = random.Random(seed)
        self._latency = latency

    async def keep_state(self, message: Message[Payload]) -> None:
        """Add the record to the sum; stored with the position that its ack allows."""
        with self._noted(message):
            outcome = _add(message)
            await self._work()
            self._end(message, outcome)

    async def write_row(self, message: Message[Payload]) -> None:
        """Write a row of a database, with the sum, in one transaction."""
        with self._noted(message):
            async with message.transaction() as connection:
                outcome = _add(message)
                await connection.execute(INSERT, self._row(message))
                await self._work()
                self._end(message, outcome)

    async def push_row(self, message: Message[Payload]) -> None:
        """Write a row of Redis, with the sum, in one MULTI."""
        with self._noted(message):
            async with message.transaction() as pipeline:
                outcome = _add(message)
                pipeline.rpush(
                    rows_key(message.topic, message.partition), f"{message.offset} {self._process}"
                )
                await self._work()
                self._end(message, outcome)

    @contextmanager
    def _noted(self, message: Message[Payload]) -> Iterator[None]:
        tp, id = (message.topic, message.partition), message.payload["id"]
        self.history.begin(tp, message.offset, id, message.attempt)
        try:
            yield
        except BaseException as error:
            self.history.end(tp, message.offset, id, type(error).__name__)
            raise

    async def _work(self) -> None:
        await asyncio.sleep(self._latencies.uniform(*self._latency))

    def _end(self, message: Message[Payload], outcome: str) -> None:
        self.history.end(
            (message.topic, message.partition), message.offset, message.payload["id"], outcome
        )

    def _row(self, message: Message[Payload]) -> dict[str, Any]:
        place = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
        return {**place, "process": self._process}


def add(state: dict[str, int] | None, id: str) -> dict[str, int]:
    """The running sum with one more record."""
    before = state or {"count": 0, "sum": 0}
    return {"count": before["count"] + 1, "sum": before["sum"] + int(id.removeprefix("id-"))}


def _add(message: Message[Payload]) -> str:
    """Set the state; the outcome of a record that found the right one, else what it found."""
    before = message.checkpoint.get()
    message.checkpoint.set(add(before, message.payload["id"]))
    counted = 0 if before is None else before["count"]
    return "ok" if counted == message.offset else f"found a state of {counted} records"


def build(config: Path, rows: list[str], handlers: Handlers) -> App:
    """The application: a handler and hooks for each channel of *config*."""
    app = App(str(config))

    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        handlers.history.assigned(partitions)

    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        handlers.history.revoked(partitions)

    for name, channel in tomllib.loads(config.read_text())["incoming"].items():
        app.on_assigned(name)(assigned)
        app.on_revoked(name)(revoked)
        if name not in rows:
            app.incoming(name)(handlers.keep_state)
        elif channel["checkpoint"]["store"].startswith("redis"):
            app.incoming(name)(handlers.push_row)
        else:
            app.incoming(name)(handlers.write_row)
    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.002, 0.02))
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    handlers = Handlers(history, options.history.stem, options.seed, tuple(options.latency))
    build(options.config, options.rows, handlers).run()
    history.note("stop")


if __name__ == "__main__":
    main()

"""One service with a channel for each commit and failure strategy: one fault hits all of them at
once.

``python -m tests.faults.matrix_service CONFIG HISTORY [--seed N]``; it has a handler for every
incoming channel of the configuration. What the handler does with a record is in its payload:
``"do": "work"`` succeeds, ``"once"`` fails the first time that this process has it, ``"always"``
every time. A batch handler settles each message by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tomllib
from pathlib import Path
from typing import Any

from reactive_kafka import App, Batch, Message, TopicPartition
from tests.faults.history import History

# Channels whose name begins so get a batch handler.
BATCH = "batch"
Payload = dict[str, Any]


class WorkFailedError(Exception):
    """What a handler of this service raises."""


class Handlers:
    """The work of every channel, written down."""

    def __init__(self, history: History, seed: int, latency: tuple[float, float]) -> None:
        self.history = history
        self._latencies = random.Random(seed)
        self._latency = latency
        self._failed: set[str] = set()

    async def single(self, message: Message[Payload]) -> None:
        """Handle one record; acked by returning."""
        self._begin(message)
        try:
            await self._work()
        except asyncio.CancelledError:
            self._end(message, "cancelled")
            raise
        self._finish(message)

    async def batch(self, batch: Batch[Payload]) -> None:
        """Handle many; those that fail are nacked alone, the others are acked by returning."""
        for message in batch:
            self._begin(message)
        try:
            await self._work()
        except asyncio.CancelledError:
            for message in batch:
                self._end(message, "cancelled")
            raise
        for message in batch:
            try:
                self._finish(message)
            except WorkFailedError as error:
                message.nack(error)

    async def _work(self) -> None:
        await asyncio.sleep(self._latencies.uniform(*self._latency))

    def _begin(self, message: Message[Payload]) -> None:
        tp = message.topic, message.partition
        self.history.begin(tp, message.offset, message.payload["id"], message.attempt)

    def _finish(self, message: Message[Payload]) -> None:
        do, id = message.payload["do"], message.payload["id"]
        if do == "always" or (do == "once" and id not in self._failed):
            self._failed.add(id)
            self._end(message, "failed")
            raise WorkFailedError(id)
        self._end(message, "ok")

    def _end(self, message: Message[Payload], outcome: str) -> None:
        tp = message.topic, message.partition
        self.history.end(tp, message.offset, message.payload["id"], outcome)


def build(config: Path, handlers: Handlers) -> App:
    """The application: a handler and hooks for each channel of *config*."""
    app = App(str(config))

    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        handlers.history.assigned(partitions)

    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        handlers.history.revoked(partitions)

    for name in tomllib.loads(config.read_text())["incoming"]:
        app.on_assigned(name)(assigned)
        app.on_revoked(name)(revoked)
        if name.startswith(BATCH):
            app.incoming(name)(_batch(handlers))
        else:
            app.incoming(name)(_single(handlers))
    return app


def _single(handlers: Handlers) -> Any:
    async def handle(message: Message[Payload]) -> None:
        await handlers.single(message)

    return handle


def _batch(handlers: Handlers) -> Any:
    async def handle(batch: Batch[Payload]) -> None:
        await handlers.batch(batch)

    return handle


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.001, 0.03))
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    build(options.config, Handlers(history, options.seed, tuple(options.latency))).run()
    history.note("stop")


if __name__ == "__main__":
    main()

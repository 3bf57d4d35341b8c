"""A service that makes one result of each order, batch by batch; its configuration says whether
exactly once.

``python -m tests.faults.exactly_once_service CONFIG HISTORY [--seed N] [--latency LOW HIGH]``

A result names the order and the process that made it, so that whatever stands in the topic can be
traced to a life. The history has one ``begin`` and one ``end`` a batch, at its first record; the
``id`` is the number of its records.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from reactive_kafka import App, Batch, Record, TopicPartition
from tests.faults.history import History


def build(
    config: Path, history: History, process: str, seed: int, latency: tuple[float, float]
) -> App:
    """The application: one handler of batches, between two topics."""
    app = App(str(config))
    latencies = random.Random(seed)

    @app.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        history.assigned(partitions)

    @app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        history.revoked(partitions)

    @app.incoming("orders")
    @app.outgoing("results")
    async def price(batch: Batch[dict[str, Any]]) -> list[Record]:
        first = batch[0]
        place = (first.topic, first.partition), first.offset, str(len(batch))
        history.begin(*place, first.attempt)
        await asyncio.sleep(latencies.uniform(*latency))
        results = [
            Record({"id": order["id"], "by": process}, key=order["id"]) for order in batch.payloads
        ]
        history.end(*place)
        return results

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.0, 0.05))
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    build(options.config, history, options.history.stem, options.seed, tuple(options.latency)).run()
    history.note("stop")


if __name__ == "__main__":
    main()

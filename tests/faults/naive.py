"""A service as it is often written: it commits what it has fetched, while handlers still run.

``python -m tests.faults.naive CONFIG HISTORY ...``: same command line, config and history as
:mod:`tests.faults.service`; the checker has to catch it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tomllib
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord

from tests.faults.history import History


async def serve(options: argparse.Namespace, history: History) -> None:
    """Run until SIGTERM: one task a record, and the *positions* committed."""
    config: dict[str, Any] = tomllib.loads(options.config.read_text())
    channel = config["incoming"]["orders"]
    consumer = AIOKafkaConsumer(
        channel["topic"],
        bootstrap_servers=config["kafka"]["bootstrap_servers"],
        group_id=channel["group_id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
    )
    latencies = random.Random(options.seed)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with consumer, asyncio.TaskGroup() as handlers:
        while not stopping.is_set():
            for chunk in (await consumer.getmany(timeout_ms=100)).values():
                for record in chunk:
                    handlers.create_task(
                        handle(record, latencies.uniform(*options.latency), history)
                    )
            if consumer.assignment():
                await consumer.commit()


async def handle(record: ConsumerRecord, latency_s: float, history: History) -> None:
    tp, id = (record.topic, record.partition), json.loads(record.value)["id"]
    history.begin(tp, record.offset, id)
    await asyncio.sleep(latency_s)
    history.end(tp, record.offset, id)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency", type=float, nargs=2, default=(0.001, 0.03))
    options, _ = parser.parse_known_args()
    history = History(options.history)
    history.note("start")
    asyncio.run(serve(options, history))
    history.note("stop")


if __name__ == "__main__":
    main()

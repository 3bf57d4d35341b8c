"""Sends clicks: ``python generate.py [--count 10000] [--broken 0.001] [--seed 1] [--topic
clicks]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from aiokafka import AIOKafkaProducer

PAGES = ("/", "/search", "/cart", "/checkout", "/help")
BROKEN = (
    b"{",
    b"not a click",
    b'{"user": "u1", "page": "/"}',
    b'{"user": "u1", "page": "/", "at": "yesterday"}',
)


def clicks(count: int, broken: float = 0.0, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of *count* records, spread over the last 24 hours; the same for the same seed
    within an hour.

    Args:
        broken: The share of records that are no click, or one that comes from the future.
    """
    draw = random.Random(seed)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for _ in range(count):
        click: dict[str, Any] = {
            "user": f"u{draw.randrange(1000)}",
            "page": draw.choice(PAGES),
            "at": (now - timedelta(seconds=draw.randrange(24 * 3600))).isoformat(),
            "seconds": draw.randrange(240) / 4,
        }
        value = json.dumps(click).encode()
        if draw.random() < broken:
            later = json.dumps({**click, "at": (now + timedelta(days=2)).isoformat()}).encode()
            value = draw.choice((*BROKEN, later))
        yield click["user"].encode(), value


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--broken", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topic", default="clicks")
    options = parser.parse_args()
    producer = AIOKafkaProducer(
        bootstrap_servers=os.environ.get("CLICKSTREAM_KAFKA", "localhost:9092"),
        enable_idempotence=True,
        linger_ms=20,
    )
    await producer.start()
    try:
        for key, value in clicks(options.count, options.broken, options.seed):
            await producer.send(options.topic, value, key)
    finally:
        # Sends what waits.
        await producer.stop()
    print(f"sent {options.count} records to {options.topic}")


if __name__ == "__main__":
    asyncio.run(main())

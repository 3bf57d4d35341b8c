"""``python -m benchmarks.spark.pacer``: sends a thousand records a second, each with the time,
until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from aiokafka import AIOKafkaProducer

from benchmarks.spark.plan import TICKS_PER_S


async def pace(bootstrap: str, topic: str) -> None:
    """Send one record after the other, each when it is due; its value is the moment, in ns since
    the epoch.
    """
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        began = time.perf_counter()
        sent = 0
        while True:
            due = began + sent / TICKS_PER_S
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            await producer.send(topic, str(time.time_ns()).encode())
            sent += 1


def main() -> None:
    """Read where to send from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    given = parser.parse_args()
    asyncio.run(pace(given.bootstrap, given.topic))


if __name__ == "__main__":
    main()

"""``python -m benchmarks.gauges.pacer``: sends records at a pace, each with the time, until it is
ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from aiokafka import AIOKafkaProducer

from benchmarks.topic import VALUE_BYTES


def value() -> bytes:
    """A record that says when it was sent: in nanoseconds since the epoch."""
    return (b"%020d" % time.time_ns()).ljust(VALUE_BYTES, b".")


def age_ms(sent: bytes) -> float:
    """How long ago a record was sent."""
    return (time.time_ns() - int(sent[:20])) / 1e6


async def pace(bootstrap: str, topic: str, rate: int) -> None:
    """Send one record after the other, each when it is due, to all partitions in turns."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        partitions = sorted(await producer.partitions_for(topic))
        began = time.perf_counter()
        sent = 0
        while True:
            due = began + sent / rate
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            await producer.send(topic, value(), partition=partitions[sent % len(partitions)])
            sent += 1


def main() -> None:
    """Read where to send from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", required=True, type=int)
    given = parser.parse_args()
    asyncio.run(pace(given.bootstrap, given.topic, given.rate))


if __name__ == "__main__":
    main()

"""``python -m benchmarks.plots.pacer``: sends records at a pace, each with the time, until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.contenders.meter import Job
from benchmarks.contenders.raw import COMMIT_EVERY_S
from benchmarks.topic import VALUE_BYTES


def value() -> bytes:
    """A record that says when it was sent: in nanoseconds of the monotonic clock, which processes share."""
    return (b"%020d" % time.monotonic_ns()).ljust(VALUE_BYTES, b".")


def age_ms(sent: bytes) -> float:
    """How long ago a record was sent."""
    return (time.monotonic_ns() - int(sent[:20])) / 1e6


async def pace(bootstrap: str, topic: str, rate: int) -> None:
    """Send one record after the other, each when it is due, to all partitions in turns."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        partitions = sorted(await producer.partitions_for(topic))
        began, sent = time.perf_counter(), 0
        while True:
            due = began + sent / rate
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            await producer.send(topic, value(), partition=partitions[sent % len(partitions)])
            sent += 1


@contextlib.asynccontextmanager
async def sending(bootstrap: str, topic: str, rate: int) -> AsyncIterator[None]:
    """Another process sends, until the context ends."""
    running = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, bootstrap, topic, str(rate))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.send_signal(signal.SIGKILL)
        await running.wait()


async def read_raw(job: Job, handle: Callable[[bytes], None], until: asyncio.Event) -> None:
    """The raw client, committed each second, until *until* is set."""
    consumer = AIOKafkaConsumer(
        job.topic, bootstrap_servers=job.bootstrap, group_id=job.group, auto_offset_reset="latest",
        enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        while not until.is_set():
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                for record in records:
                    handle(record.value)
            if time.monotonic() >= due:
                await consumer.commit()
                due = time.monotonic() + COMMIT_EVERY_S
    finally:
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(pace(sys.argv[1], sys.argv[2], int(sys.argv[3])))

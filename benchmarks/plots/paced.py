"""Records that another process sends at a pace, and the raw client that reads them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable

from aiokafka import AIOKafkaConsumer

from benchmarks.contenders.meter import Job
from benchmarks.contenders.raw import COMMIT_EVERY_S
from benchmarks.gauges import pacer


@contextlib.asynccontextmanager
async def sending(bootstrap: str, topic: str, rate: int) -> AsyncIterator[None]:
    """Another process sends, until the context ends."""
    command = ["-m", pacer.__name__, "--bootstrap", bootstrap, "--topic", topic, "--rate", str(rate)]
    running = await asyncio.create_subprocess_exec(sys.executable, *command)
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

"""aiokafka as it is: the handler is awaited record by record, and committed once a second by
hand.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.topic import numbered

COMMIT_EVERY_S = 1.0
Handler = Callable[[Any], Awaitable[None]]


def make_handler(meter: Meter, wait_s: float) -> Handler:
    """The user's handler: does nothing but count, or sleeps first."""
    seen = 0
    mark = 1

    async def noop(record: Any) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    async def waiting(record: Any) -> None:
        nonlocal seen
        if not seen:
            meter.begin()
        await asyncio.sleep(wait_s)
        seen += 1
        if seen == meter.records:
            meter.end()

    return waiting if wait_s else noop


def make_consumer(job: Job) -> AIOKafkaConsumer:
    """A member of the job's group that commits nothing by itself."""
    return AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def getmany(job: Job) -> Result:
    """``getmany(max_records=500)``; the commit stands between two batches, so it covers handled
    records only.
    """
    meter = Meter(job.records)
    handle = make_handler(meter, job.wait_s)

    async def work(records: list[Any]) -> None:
        for record in records:
            await handle(record)

    return await _in_batches(job, meter, work)


async def getmany_json(job: Job) -> Result:
    """The same, with ``json.loads`` of each value: the handler gets a dict."""
    meter = Meter(job.records)
    handle = make_handler(meter, job.wait_s)
    loads = json.loads

    async def work(records: list[Any]) -> None:
        for record in records:
            await handle(loads(record.value))

    return await _in_batches(job, meter, work)


async def _in_batches(
    job: Job, meter: Meter, work: Callable[[list[Any]], Awaitable[None]]
) -> Result:
    consumer = make_consumer(job)
    await consumer.start()
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        while not meter.finished:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                await work(records)
            if time.monotonic() >= due:
                await consumer.commit()
                due = time.monotonic() + COMMIT_EVERY_S
        await consumer.commit()
    finally:
        await consumer.stop()
    return meter.result()


async def async_for(job: Job) -> Result:
    """``async for record in consumer``; the commit follows a handled record."""
    meter = Meter(job.records)
    handle = make_handler(meter, job.wait_s)
    consumer = make_consumer(job)
    await consumer.start()
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        async for record in consumer:
            await handle(record)
            if time.monotonic() >= due:
                await consumer.commit()
                due = time.monotonic() + COMMIT_EVERY_S
            if meter.finished:
                break
        await consumer.commit()
    finally:
        await consumer.stop()
    return meter.result()


AT_ONCE = 1_000
"""Records that are sent before the first of them is awaited."""


async def send(job: Job) -> Result:
    """``await producer.send(...)`` for each record of an idempotent producer; every future is
    awaited.
    """
    meter = Meter(job.records)
    value = numbered(0)
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        await (await producer.send(job.target, value))
        under_way: deque[asyncio.Future[Any]] = deque()
        meter.begin()
        for _ in range(job.records - 1):
            under_way.append(await producer.send(job.target, value))
            if len(under_way) == AT_ONCE:
                await under_way.popleft()
        for confirmation in under_way:
            await confirmation
        meter.end()
    finally:
        await producer.stop()
    return meter.result()

"""FastStream, in the two modes that are at least once: it commits after a batch, or after each record.

Tuned for it as far as its documentation goes: it logs nothing, and hands the bytes out as they are. By default it
tries to read each payload as JSON first, which made the batch mode four times slower with these records.
"""

import asyncio
from typing import Any

from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.message import StreamMessage

from benchmarks.contenders.meter import Job, Meter, Result


async def batch(job: Job) -> Result:
    """``batch=True`` with ``AckPolicy.ACK``: the handler gets all that is there, then FastStream commits and waits."""
    meter = Meter(job.records)
    seen, mark = 0, 1

    async def handle(bodies: list[bytes]) -> None:
        nonlocal seen, mark
        for _ in bodies:
            seen += 1
            if seen == mark:
                mark = meter.reached(seen)

    return await _run(job, meter, handle, batch=True)


async def each(job: Job) -> Result:
    """``AckPolicy.ACK``: FastStream commits after each record and waits for the broker's answer."""
    meter = Meter(job.records)
    seen = 0

    async def handle(body: bytes) -> None:
        nonlocal seen
        if not seen:
            meter.begin()
        if job.wait_s:
            await asyncio.sleep(job.wait_s)
        seen += 1
        if seen == job.records:
            meter.end()

    return await _run(job, meter, handle, batch=False)


async def _as_it_is(message: StreamMessage[Any]) -> Any:
    return message.body


async def _run(job: Job, meter: Meter, handle: Any, *, batch: bool) -> Result:
    broker = KafkaBroker(job.bootstrap, logger=None, decoder=_as_it_is)
    broker.subscriber(
        job.topic,
        group_id=job.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
        batch=batch,
    )(handle)
    await broker.start()
    try:
        await meter.wait()
    finally:
        await broker.stop()
    return meter.result()

"""FastStream, in the two modes that are at least once: it commits after a batch, or after each
record.

Tuned for it as far as its documentation goes: it logs nothing, and hands the bytes out as they are,
unless they are orders. By default it tries to read each payload as JSON first, which made the batch
mode four times slower with records that are none.
"""

import asyncio
from typing import Any

from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.message import StreamMessage

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.orders import OrderModel


async def batch(job: Job) -> Result:
    """``batch=True`` with ``AckPolicy.ACK``: the handler gets all that is there, then FastStream
    commits and waits.
    """
    meter = Meter(job.records)
    seen = 0
    mark = 1

    async def handle(bodies: list[bytes]) -> None:
        nonlocal seen, mark
        for _ in bodies:
            seen += 1
            if seen == mark:
                mark = meter.reached(seen)

    return await _run(job, meter, handle, batch=True)


async def json_dict(job: Job) -> Result:
    """The batch mode with its own decoder, into dicts."""
    return await _decoded(job, list[dict[str, Any]])


async def json_pydantic(job: Job) -> Result:
    """The batch mode with its own decoder, into models."""
    return await _decoded(job, list[OrderModel])


async def _decoded(job: Job, kind: Any) -> Result:
    meter = Meter(job.records)
    seen = 0
    mark = 1

    async def handle(orders: Any) -> None:
        nonlocal seen, mark
        for _ in orders:
            seen += 1
            if seen == mark:
                mark = meter.reached(seen)

    handle.__annotations__["orders"] = kind
    return await _run(job, meter, handle, batch=True, decoder=None)


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


async def _run(
    job: Job, meter: Meter, handle: Any, *, batch: bool, decoder: Any = _as_it_is
) -> Result:
    broker = KafkaBroker(job.bootstrap, logger=None, decoder=decoder)
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

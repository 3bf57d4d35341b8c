"""reactive_kafka as a user runs it: throttled commits, poison watch, metrics and health over HTTP,
all on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Any

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.topic import numbered
from reactive_kafka import App, Batch, BufferFullError, Message, Sending


def make_app(
    job: Job,
    *,
    sends: dict[str, Any] | None = None,
    tables: dict[str, Any] | None = None,
    **channel: Any,
) -> App:
    """An application with the one channel ``bench``, and ``out`` if it *sends*; what is not said is
    at its default.
    """
    return App(
        {
            "kafka": {"bootstrap_servers": job.bootstrap},
            "http": {"enabled": True, "port": 0},
            "incoming": {
                "bench": {
                    "topic": job.topic,
                    "group_id": job.group,
                    "auto_offset_reset": "earliest",
                    "commit_interval": "1s",
                    **channel,
                }
            },
            "outgoing": {} if sends is None else {"out": sends},
            **(tables or {}),
        }
    )


async def on_message(job: Job) -> Result:
    """A handler that takes the message with its metadata and does nothing."""
    meter = Meter(job.records)
    app = make_app(job)
    seen = 0
    mark = 1

    @app.incoming("bench")
    async def handle(message: Message[bytes]) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    return await run(app, meter)


async def on_bytes(job: Job, **channel: Any) -> Result:
    """A handler that takes the payload alone and does nothing."""
    meter = Meter(job.records)
    app = make_app(job, **channel)
    seen = 0
    mark = 1

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    return await run(app, meter)


on_bytes_at_once = partial(on_bytes, concurrency=1_000)


async def on_batch(job: Job) -> Result:
    """A handler that takes the payloads of up to 500 records at once and does nothing."""
    meter = Meter(job.records)
    app = make_app(job, batch_max_records=500)
    seen = 0
    mark = 1

    @app.incoming("bench")
    async def handle(batch: Batch[bytes]) -> None:
        nonlocal seen, mark
        for _ in batch.payloads:
            seen += 1
            if seen == mark:
                mark = meter.reached(seen)

    return await run(app, meter)


async def _waiting(at_once: int, job: Job) -> Result:
    """A handler that waits, so many of them at once, in any order."""
    meter = Meter(job.records)
    app = make_app(job, concurrency=at_once, ordering="unordered")
    started = seen = 0

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal started, seen
        if not started:
            started = 1
            meter.begin()
        await asyncio.sleep(job.wait_s)
        seen += 1
        if seen == job.records:
            meter.end()

    return await run(app, meter)


concurrent, concurrent_1000, concurrent_10000 = (
    partial(_waiting, at_once) for at_once in (256, 1_000, 10_000)
)


async def emit(job: Job) -> Result:
    """An emitter: ``send_nowait`` for each record, whose confirmations are all looked at."""
    meter = Meter(job.records)
    value = numbered(0)
    app = make_app(job, sends={"topic": job.target, "max_in_flight": 10_000})
    emitter = app.emitter("out")
    async with app:
        await emitter.send(value)
        sent: deque[Sending] = deque()
        meter.begin()
        for _ in range(job.records - 1):
            while True:
                try:
                    sent.append(emitter.send_nowait(value))
                    break
                except BufferFullError:
                    await sent[0]
                    while sent and sent[0].done():
                        _look(sent.popleft())
        await emitter.flush()
        while sent:
            _look(sent.popleft())
        meter.end()
    return meter.result()


def _look(sending: Sending) -> None:
    if sending.error is not None:
        raise sending.error


async def _in_transactions(size: int, job: Job) -> Result:
    """An emitter: so many records in each transaction, one transaction after the other."""
    meter = Meter(job.records)
    value = numbered(0)
    app = make_app(job, sends={"topic": job.target, "transactional_id": job.group})
    emitter = app.emitter("out")
    async with app:
        async with emitter.transaction() as tx:
            await tx.send(value)
        meter.begin()
        for start in range(1, job.records, size):
            async with emitter.transaction() as tx:
                for _ in range(min(size, job.records - start)):
                    await tx.send(value)
        meter.end()
    return meter.result()


async def _with_flushes(size: int, job: Job) -> Result:
    """The same without transactions: so many records are handed over, and waited for before the
    next ones.
    """
    meter = Meter(job.records)
    value = numbered(0)
    app = make_app(job, sends={"topic": job.target, "max_in_flight": 10_000})
    emitter = app.emitter("out")
    async with app:
        await emitter.send(value)
        meter.begin()
        for start in range(1, job.records, size):
            sent = [emitter.send_nowait(value) for _ in range(min(size, job.records - start))]
            await emitter.flush()
            for sending in sent:
                _look(sending)
        meter.end()
    return meter.result()


transactions_100, transactions_1000, transactions_10000 = (
    partial(_in_transactions, 10**power) for power in (2, 3, 4)
)
flushes_100, flushes_1000, flushes_10000 = (
    partial(_with_flushes, 10**power) for power in (2, 3, 4)
)


async def chain(job: Job, sends: dict[str, Any] | None = None, **channel: Any) -> Result:
    """A handler that returns what it got: the incoming record is acked when the broker has the
    outgoing one.
    """
    meter = Meter(job.records)
    app = make_app(job, sends={"topic": job.target, **(sends or {})}, **channel)
    seen = 0
    mark = 1

    @app.incoming("bench")
    @app.outgoing("out")
    async def handle(payload: bytes) -> bytes:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)
        return payload

    return await run(app, meter)


async def chain_10_000(job: Job) -> Result:
    """The same with more records on their way, which make larger batches."""
    return await chain(job, {"max_in_flight": 10_000}, max_in_flight=10_000)


async def run(app: App, meter: Meter) -> Result:
    """Run the application until the last record was handled."""
    async with app:
        await meter.wait()
    return meter.result()

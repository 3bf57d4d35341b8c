"""FastStream in the modes that are not measured elsewhere, and as a member that is killed."""

from __future__ import annotations

import asyncio
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream.message import StreamMessage

from benchmarks.contenders.meter import Result
from benchmarks.peers.contenders.work import AT_ONCE, SESSION_S, Task, Work


async def default(task: Task) -> Result:
    """Nothing said: the client commits by itself, and FastStream has no part in it."""
    work = Work(task)

    async def handle(body: bytes) -> None:
        work.did(body)

    return await _run(task, work, handle)


async def ack(task: Task) -> Result:
    """``AckPolicy.ACK``: it commits after each record and waits for the answer."""
    work = Work(task)

    async def handle(body: bytes) -> None:
        work.did(body)

    return await _run(task, work, handle, ack_policy=AckPolicy.ACK)


async def batch(task: Task) -> Result:
    """``batch=True`` with ``AckPolicy.ACK``: it commits after each batch and waits for the
    answer.
    """
    work = Work(task)

    async def handle(bodies: list[bytes]) -> None:
        for body in bodies:
            work.did(body)

    return await _run(task, work, handle, ack_policy=AckPolicy.ACK, batch=True)


async def gather(task: Task) -> Result:
    """The same with a thousand records at once, and ``asyncio.gather`` over them."""
    work = Work(task)

    async def handle_one(body: bytes) -> None:
        work.started()
        await asyncio.sleep(work.wait_s(body))
        work.did(body)

    async def handle(bodies: list[bytes]) -> None:
        await asyncio.gather(*map(handle_one, bodies))

    return await _run(task, work, handle, ack_policy=AckPolicy.ACK, batch=True, max_records=AT_ONCE)


async def workers(task: Task) -> Result:
    """A thousand workers, which it offers with auto commit only."""
    work = Work(task)

    async def handle(body: bytes) -> None:
        work.started()
        await asyncio.sleep(work.wait_s(body))
        work.did(body)

    return await _run(task, work, handle, max_workers=AT_ONCE)


async def _as_it_is(message: StreamMessage[Any]) -> Any:
    return message.body


async def _run(task: Task, work: Work, handle: Any, **options: Any) -> Result:
    broker = KafkaBroker(task.bootstrap, logger=None, decoder=_as_it_is)
    broker.subscriber(
        task.topic,
        group_id=task.group,
        auto_offset_reset="earliest",
        session_timeout_ms=int(SESSION_S * 1e3),
        heartbeat_interval_ms=2_000,
        **options,
    )(handle)
    if task.is_service:
        await FastStream(broker, logger=None).run()
        return work.result()
    await broker.start()
    try:
        await work.meter.wait()
    finally:
        await broker.stop()
    return work.result()

"""kstreams as it comes, and as a member that is killed, which commits by hand."""

import asyncio
import contextlib
import signal
import time
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError
from kstreams import ConsumerRecord, GetMany, Stream, create_engine
from kstreams.backends import Kafka

from benchmarks.contenders.meter import Result
from benchmarks.contenders.raw import COMMIT_EVERY_S
from benchmarks.peers.contenders.work import SESSION_S, Task, Work


async def default(task: Task) -> Result:
    """Nothing said: a record at a time, and the client commits by itself."""
    work = Work(task)

    async def handle(cr: ConsumerRecord) -> None:
        work.did(cr.value)

    await _run(task, work, Stream(task.topic, func=handle, config=_config(task)))
    return work.result()


async def committed(task: Task) -> Result:
    """``GetMany(500)``, and the positions of what is handled committed once a second, and at the
    end.
    """
    work = Work(task)
    positions: dict[int, int] = {}
    due = time.monotonic() + COMMIT_EVERY_S

    async def commit(stream: Stream) -> None:
        # What was taken away meanwhile is somebody else's business.
        with contextlib.suppress(CommitFailedError, IllegalStateError):
            await stream.commit(
                {TopicPartition(task.topic, one): offset for one, offset in positions.items()}
            )
        positions.clear()

    async def handle(cr: ConsumerRecord, stream: Stream) -> None:
        nonlocal due
        work.did(cr.value)
        positions[cr.partition] = cr.offset + 1
        if time.monotonic() >= due:
            await commit(stream)
            due = time.monotonic() + COMMIT_EVERY_S

    stream = Stream(
        task.topic,
        func=handle,
        get_many=GetMany(max_records=500, timeout_ms=200),
        config={**_config(task), "enable_auto_commit": False},
    )
    await _run(task, work, stream, commit)
    return work.result()


def _config(task: Task) -> dict[str, Any]:
    return {
        "group_id": task.group,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": int(SESSION_S * 1e3),
        "heartbeat_interval_ms": 2_000,
    }


async def _run(task: Task, work: Work, stream: Stream, at_end: Any = None) -> None:
    engine = create_engine(title="peers", backend=Kafka(bootstrap_servers=[task.bootstrap]))
    engine.add_stream(stream)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await engine.start()
    try:
        await (stop.wait() if task.is_service else work.meter.wait())
        if at_end is not None:
            await at_end(stream)
    finally:
        await engine.stop()

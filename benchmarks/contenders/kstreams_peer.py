"""kstreams with ``GetMany(500)``, its fastest mode; it leaves commits to the user, who commits once
a second here.
"""

import asyncio
import time

from aiokafka import TopicPartition
from kstreams import ConsumerRecord, GetMany, Stream, create_engine
from kstreams.backends import Kafka

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.contenders.raw import COMMIT_EVERY_S


async def getmany(job: Job) -> Result:
    """The handler gets one record and notes its position: a bare commit would pass what is not
    handled yet.
    """
    meter = Meter(job.records)
    positions: dict[int, int] = {}
    seen = 0
    mark = 1
    due = time.monotonic() + COMMIT_EVERY_S

    async def commit(stream: Stream) -> None:
        await stream.commit(
            {TopicPartition(job.topic, number): position for number, position in positions.items()}
        )

    async def handle(cr: ConsumerRecord, stream: Stream) -> None:
        nonlocal seen, mark, due
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)
        positions[cr.partition] = cr.offset + 1
        if time.monotonic() >= due:
            await commit(stream)
            due = time.monotonic() + COMMIT_EVERY_S

    engine = create_engine(title="bench", backend=Kafka(bootstrap_servers=[job.bootstrap]))
    stream = Stream(
        job.topic,
        func=handle,
        get_many=GetMany(max_records=500, timeout_ms=1000),
        config={
            "group_id": job.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        },
    )
    engine.add_stream(stream)
    await engine.start()
    try:
        await meter.wait()
        # The last record's handler returns.
        await asyncio.sleep(0)
        await commit(stream)
    finally:
        await engine.stop()
    return meter.result()

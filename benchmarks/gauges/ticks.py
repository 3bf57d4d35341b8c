"""What a tick of commits costs whose work might grow with what is kept, in CPU. No broker: the
engine alone.
"""

from __future__ import annotations

import time

from benchmarks.figures import Figures
from benchmarks.gauges.job import Job
from benchmarks.gauges.plan import TICK_MS, WORST_TICK_MS
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.commit.engines import CommitEngine

PARTITION = TopicPartition("orders", 0)
RECORDS = 1_000_000
CHUNK = 500
TICKS = 40
OLD = 100


async def kept_acks(job: Job) -> Figures:
    """A million acks stand behind records that are not settled.

    Before each tick a chunk more comes and is settled, and some of those that were not settled are,
    anywhere but at the position.
    """
    engine = CommitEngine(metadata=MetadataPolicy(keeps_acks=True))
    engine.begin(1, [PARTITION])
    tracker = OffsetTracker(PARTITION, 0, committed=0)
    engine.replace(tracker)
    engine.found(PARTITION, Committed(0))
    for start in range(0, RECORDS, CHUNK):
        tracker.deliver(range(start, start + CHUNK), start + CHUNK)
    step = RECORDS // job.given
    for start in range(0, RECORDS, step):
        tracker.settle_range(start + 1, start + step)
    took = []
    for tick in range(TICKS):
        start = RECORDS + tick * CHUNK
        tracker.deliver(range(start, start + CHUNK), start + CHUNK)
        tracker.settle_range(start, start + CHUNK)
        for number in range(1 + tick, job.given, max(TICKS, job.given // OLD)):
            tracker.settle(number * step)
        began = time.process_time()
        request = engine.plan(float(tick))
        assert request is not None
        engine.confirm(request, float(tick))
        took.append((time.process_time() - began) * 1e3)
    return {TICK_MS: sorted(took)[len(took) // 2], WORST_TICK_MS: max(took)}

"""How long a rebalance takes is from the first partition that goes to the last one that came."""

from __future__ import annotations

import asyncio

from reactive_kafka.client_metrics.rebalance_times import TimedRebalances
from reactive_kafka.clock import Clock
from reactive_kafka.records import TopicPartition
from tests.app.helpers import in_virtual_time, now
from tests.broker.metrics_receivers import Latencies

NOTHING = frozenset[TopicPartition]()


class SlowListener:
    """Takes two seconds for a revocation, and three for an assignment."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(2)

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        await asyncio.sleep(3)


@in_virtual_time
async def test_a_rebalance_lasts_from_its_revocation_to_the_end_of_its_assignment() -> None:
    latencies = Latencies()
    timed = TimedRebalances(SlowListener(), latencies, Clock(now, now))
    await timed.on_revoked(NOTHING)
    await asyncio.sleep(4)
    await timed.on_assigned(NOTHING, 1)
    await asyncio.sleep(100)
    await timed.on_assigned(NOTHING, 2)
    window = latencies.take()
    assert window is not None
    assert window.longest_s == 2 + 4 + 3
    assert window.average_s == (9 + 3) / 2
    assert latencies.total_s == 12
    assert latencies.take() is None

"""H22: a busy partition waits for the fetch of the quiet ones of its node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.broker.members import fill, joined
from tests.broker.test_kafka import KafkaTestCluster

pytestmark = pytest.mark.kafka

VALUE, RECORDS = "x" * 1_000, 3_000
"""Three fetches of the busy partition, of 1 MB each."""
AT_ONCE, WORK_S = 50, 0.01
"""So 1 MB of records takes 0.2 s, and the client has fetched the quiet partition after 0.1."""
HELD_S = 0.5
"""How long a node holds a fetch that brings nothing."""


async def longest_s(poll: Callable[[], Awaitable[int]]) -> float:
    """The longest time that a poll took while records were to come; *poll* says how many it has
    brought.
    """
    seen, longest = 0, 0.0
    while seen < RECORDS:
        began = time.monotonic()
        count = await poll()
        if seen:
            longest = max(longest, time.monotonic() - began)
        seen += count
        # The handlers.
        await asyncio.sleep(WORK_S * count / AT_ONCE)
    return longest


async def test_h22_a_busy_partition_does_not_wait_for_a_quiet_one(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: [VALUE] * RECORDS})
    async with joined(cluster, topic, group) as member:
        budgets = dict.fromkeys(await member.until_assigned(2), AT_ONCE)

        async def poll() -> int:
            return sum(
                len(chunk.records) for chunk in (await member.consumer.poll(budgets, 1.0)).chunks
            )

        assert await longest_s(poll) < HELD_S / 2

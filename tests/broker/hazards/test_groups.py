"""H10: fenced while draining. H13: calls that wait for a rebalance. H14: blocked loops. H16: two of
one name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import Committed, Message, TopicPartition
from reactive_kafka.errors import FencedError, NotOwnerError
from reactive_kafka.events import LoopBlocked
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until
from tests.broker.members import PATIENCE_S, Member, fill, joined
from tests.broker.test_kafka import KafkaTestCluster

pytestmark = pytest.mark.kafka

SESSION_S = 1.0
BLOCKED_S = 2.0
PROMPTLY_S = 1.0
QUICKLY = {
    "group_protocol": "classic",
    "session_timeout_ms": int(SESSION_S * 1000),
    "heartbeat_interval_ms": 100,
}
STATIC = {**QUICKLY, "session_timeout_ms": 6000, "group_instance_id": "orders-1"}


# -- H10


async def test_h10_the_real_consumer_has_a_minute_for_its_drain_and_our_own_defaults(
    rig: Rig, group: str
) -> None:
    """Row S15 of the faults."""
    topic = await rig.create_topic(1)
    rig.properties = {}
    async with joined(rig, topic, group) as member:
        consumer: Any = member.consumer
        settings = consumer.owned.group.member.settings
        assert settings.rebalance_timeout_ms == 60_000
        assert settings.session_timeout_ms == 45_000
        assert settings.heartbeat_interval_ms is None
        assert consumer.client.settings.metadata_max_age_ms == 30_000
        assert consumer.fetcher.settings.fetch_max_bytes == 8_000_000


async def test_h10_a_drain_longer_than_the_session_keeps_the_member_and_its_commit_lands(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    cluster.properties = QUICKLY
    async with joined(cluster, topic, group, "one") as one:
        await one.until_assigned(2)
        result: list[object] = []

        async def drain() -> None:
            # The work that is drained.
            await asyncio.sleep(2 * SESSION_S)
            await one.consumer.commit(dict.fromkeys(one.owned, Committed(0)), one.generation)
            result.append("stored")

        one.while_revoked = drain
        async with joined(cluster, topic, group, "two") as two:
            await two.until_assigned(1)
            await one.until_assigned(1)
        assert result == ["stored"]


# -- H13


@asynccontextmanager
async def in_a_rebalance(
    cluster: KafkaTestCluster, topic: str, group: str, seconds: float
) -> AsyncIterator[Member]:
    """A first member whose revocation takes its time, so that whoever joins next waits."""
    async with joined(cluster, topic, group, "slow") as slow:
        await slow.until_assigned(2)

        async def take_time() -> None:
            await asyncio.sleep(seconds)

        slow.while_revoked = take_time
        yield slow


async def test_h13_polls_checks_questions_and_stop_do_not_wait_for_a_rebalance(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    async with in_a_rebalance(cluster, topic, group, 30.0) as slow:
        async with joined(cluster, topic, group, "two") as two:
            await slow.until(lambda: slow.events[-1][0] == "revoking")
            partition = TopicPartition(topic, 0)
            for member in (slow, two):
                async with asyncio.timeout(PROMPTLY_S):
                    assert await member.polls_nothing({partition: 9}, 0.1)
                    await member.consumer.check()
                    assert await member.consumer.end_offsets([partition]) == {partition: 0}
            # It is still the owner, until the revocation is over.
            async with asyncio.timeout(PROMPTLY_S):
                await slow.consumer.commit({partition: Committed(0)}, slow.generation)
            began = time.monotonic()
        # Two has stopped.
        assert time.monotonic() - began < 2 * PROMPTLY_S
        began = time.monotonic()
    # Slow has stopped.
    assert time.monotonic() - began < 2 * PROMPTLY_S


# -- H14, a handler that blocks the loop


@pytest.mark.parametrize(
    "blocked_s", [1.2, BLOCKED_S, pytest.param(15.0, marks=pytest.mark.long_faults)]
)
async def test_h14_a_blocked_loop_is_told_and_the_channel_recovers(
    cluster: KafkaTestCluster, group: str, blocked_s: float
) -> None:
    """Row D3 of the faults."""
    topic = await cluster.create_topic(1)
    await fill(cluster, topic, {0: ["block", "go on"]})

    seen: list[bytes] = []

    async def handle(message: Message[bytes]) -> None:
        seen.append(message.payload)
        if message.payload == b"block" and len(seen) == 1:
            # What nobody should do.
            time.sleep(blocked_s)  # noqa: ASYNC251

    async with running(cluster.bootstrap_servers, topic, group, QUICKLY, handle) as diary:
        await until(lambda: diary.app.facts().loop_lag_s > blocked_s - 0.5, "the lag is told")
        blocked = diary.of(LoopBlocked)[0]
        assert "test_groups.py" in blocked.where and blocked.where.endswith(" handle"), (
            blocked.where
        )
        await until(lambda: diary.committed() == {0: 2}, "all is committed in spite of it")
        assert seen[0] == b"block"
        assert seen[-1] == b"go on"


async def test_h14_a_blocking_handler_in_a_thread_costs_neither_the_loop_nor_the_membership(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    await fill(cluster, topic, {0: ["block"]})

    def handle(message: Message[bytes]) -> None:
        time.sleep(BLOCKED_S)

    async with running(cluster.bootstrap_servers, topic, group, QUICKLY, handle) as diary:
        await until(lambda: diary.committed() == {0: 1}, "it is committed")
        assert diary.app.facts().loop_lag_s < SESSION_S / 2
        assert dict(diary.facts.rebalances) == {"assigned": 1, "revoked": 0, "lost": 0}


# -- H16, two of one name


async def test_h16_who_lost_its_static_name_says_so_stays_out_and_leaves_the_other_alone(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row C9 of the faults."""
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: ["a"], 1: ["b"]})
    cluster.properties = STATIC
    async with joined(cluster, topic, group, "one") as one:
        await one.until_assigned(2)
        async with joined(cluster, topic, group, "two") as two:
            owned = await two.until_assigned(2)
            await until_fenced(one)
            events = list(two.events)
            # Heartbeats of both would have failed in between.
            for _ in range(5):
                with pytest.raises(FencedError, match="group_instance_id = 'orders-1'"):
                    await one.consumer.poll({}, 0.2)
                await two.consumer.poll({}, 0.2)
            with pytest.raises(NotOwnerError):
                await one.consumer.commit(dict.fromkeys(owned, Committed(1)), one.generation)
            await two.take(2)
            await two.consumer.commit(dict.fromkeys(owned, Committed(1)), two.generation)
            assert two.events == events
            async with asyncio.timeout(PROMPTLY_S):
                await one.consumer.stop()
            assert await two.polls_nothing(dict.fromkeys(owned, 9))
            assert two.events == events


async def until_fenced(member: Member) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await member.consumer.poll({}, 0.1)
            except FencedError:
                return


async def test_h16_a_static_member_whose_session_has_ended_joins_again_under_its_name(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    cluster.properties = {**QUICKLY, "group_instance_id": "orders-1"}
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(1)
        before = member.generation
        # No heartbeat meanwhile.
        time.sleep(BLOCKED_S)  # noqa: ASYNC251
        await member.until(lambda: member.generation > before)
        assert len(member.owned) == 1


async def test_h16_the_application_stops_the_channel_that_lost_its_static_name_and_says_why(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Row C9 of the faults."""
    topic = await cluster.create_topic(1)
    async with running(cluster.bootstrap_servers, topic, group, STATIC) as one:
        await one.until_assigned(1)
        async with running(cluster.bootstrap_servers, topic, group, STATIC) as two:
            await until(lambda: one.facts.state == "failed", "the first has stopped")
            assert "group_instance_id = 'orders-1'" in str(one.facts.reason)
            assert not one.app.health().ready.is_up
            await fill(cluster, topic, {0: ["a"]})
            await until(lambda: two.committed() == {0: 1}, "the second works")
            assert two.facts.state == "running"

"""A consumer on a real Kafka that has rested: its fetches stood, and whatever happens then is
followed at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.kafka_consumer import AiokafkaConsumer
from reactive_kafka.records import TopicIds
from tests.broker.contract import fill, group
from tests.broker.members import PATIENCE_S, Member, joined
from tests.broker.test_kafka import KafkaTestCluster, cluster

__all__ = ["cluster", "group"]

pytestmark = pytest.mark.kafka

ANSWERED_S = 0.5
"""A fetch that is on its way is answered within that (``fetch_max_wait_ms``), and the next one asks
for all.
"""
SLACK_S = 1.0
RESTED_S = 2.0


async def rested(member: Member) -> None:
    """Poll until a fetch has stood for a while: its request is on its way for longer than the
    broker lets it wait.
    """
    consumer = member.consumer
    assert isinstance(consumer, AiokafkaConsumer)
    sent, since = consumer.fetcher._in_flight, time.monotonic()
    tasks = set(sent.values())
    async with asyncio.timeout(PATIENCE_S):
        while time.monotonic() - since < RESTED_S:
            await consumer.poll(dict.fromkeys(member.owned, 10), 0.2)
            if set(sent.values()) != tasks:
                tasks, since = set(sent.values()), time.monotonic()


async def took_s(event: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await event()
    return time.monotonic() - began


async def test_after_rest_records_pauses_resumes_and_seeks_are_followed_at_once(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with joined(cluster, topic, group) as member:
        await member.until_assigned(2)
        consumer = member.consumer
        await rested(member)
        await fill(cluster, topic, {0: ["a"]})
        assert await took_s(lambda: member.take(1)) < SLACK_S

        await rested(member)
        consumer.pause([second])
        consumer.start_at({first: 0})
        assert await took_s(lambda: member.take(1)) < ANSWERED_S + SLACK_S

        await rested(member)
        await fill(cluster, topic, {1: ["b"]})
        assert await member.polls_nothing({first: 1, second: 1})
        consumer.resume([second])
        assert await took_s(lambda: member.take(1)) < ANSWERED_S + SLACK_S

        await rested(member)
        consumer.start_at({first: 0, second: 0})
        assert await took_s(lambda: member.take(2)) < ANSWERED_S + SLACK_S


async def test_after_rest_a_rebalance_ends_what_stood(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    async with joined(cluster, topic, group) as one:
        await one.until_assigned(2)
        await rested(one)
        async with joined(cluster, topic, group) as other:
            poll = asyncio.create_task(one.poll_until(lambda poll: len(one.owned) == 1, {}))
            await other.until_assigned(1)
            await one.until_assigned(1)
            await poll
            await rested(one)
            await fill(cluster, topic, {0: ["a"], 1: ["b"]})
            assert [len(await member.take(1)) for member in (one, other)] == [1, 1]


async def has_another_id(consumer: AiokafkaConsumer, topic: str, before: TopicIds) -> bool:
    return any(
        one.ids.get(topic) not in (None, before.ids[topic])
        for one in await consumer.topic_ids([topic])
    )


async def test_after_rest_the_ids_of_topics_are_known_until_one_is_deleted(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    await fill(cluster, topic, {0: ["a"], 1: ["b"]})
    async with joined(cluster, topic, group) as member:
        consumer = member.consumer
        assert isinstance(consumer, AiokafkaConsumer)
        await member.take(2)
        await rested(member)
        [before] = await consumer.topic_ids([topic], of_all=True)
        await consumer.topic_ids([topic])
        asked_at = consumer._ids_asked[0]
        # None can have changed.
        assert await consumer.topic_ids([topic]) == []
        assert consumer._ids_asked[0] == asked_at
        await cluster.recreate_topic(topic, 2)
        # The ends of the old one: nothing else tells.
        await fill(cluster, topic, {0: ["A"], 1: ["B"]})
        async with asyncio.timeout(ANSWERED_S + 2 * SLACK_S):
            while not await has_another_id(consumer, topic, before):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

"""What every client must tell of the incarnations of topics; see :mod:`tests.broker.contract`."""

from __future__ import annotations

import asyncio
import uuid

from tests.broker.members import Cluster, inspecting, joined

PATIENCE_S = 20.0


class QuietTopicIdContract:
    """Brokers that may be too old to tell ids."""

    async def test_asking_for_the_id_of_a_topic_that_does_not_exist_creates_none(self, cluster: Cluster) -> None:
        topic, missing = await cluster.create_topic(1), f"missing-{uuid.uuid4().hex[:8]}"
        async with inspecting(cluster) as inspector:
            assert missing not in await inspector.topic_ids([topic, missing])
            assert missing not in await inspector.topics()
            assert await inspector.topic_ids([]) == {}


class TopicIdContract(QuietTopicIdContract):
    """Topics are told apart by their ids."""

    async def test_a_topic_that_was_made_anew_has_another_id_and_others_keep_theirs(
        self, cluster: Cluster, group: str
    ) -> None:
        topic, other = await cluster.create_topic(2), await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member:
            consumer = member.consumer
            async with asyncio.timeout(PATIENCE_S):
                while len(before := await consumer.topic_ids([topic, other])) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert before[topic] != before[other]
            assert await consumer.topic_ids([topic]) == {topic: before[topic]}
            await cluster.recreate_topic(topic, 3)
            async with asyncio.timeout(PATIENCE_S):
                while (after := await consumer.topic_ids([topic, other])).get(topic) in (None, before[topic]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert after[other] == before[other]

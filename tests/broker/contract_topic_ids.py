"""What every client must tell of the incarnations of topics; see :mod:`tests.broker.contract`."""

from __future__ import annotations

import asyncio
import uuid

from reactive_kafka.broker.client import ClusterQueries
from tests.broker.members import PATIENCE_S, Cluster, inspecting, joined


async def ids_of(asked: ClusterQueries, *topics: str) -> dict[str, str]:
    """topic -> its id, as all brokers give it that answer; those on which they disagree are left
    out.
    """
    answers = await asked.topic_ids(topics, of_all=True)
    given = {topic: {answer.ids.get(topic) for answer in answers} for topic in topics}
    return {topic: id for topic, [id, *others] in given.items() if id is not None and not others}


class QuietTopicIdContract:
    """Brokers that may be too old to tell ids."""

    async def test_asking_for_the_id_of_a_topic_that_does_not_exist_creates_none(
        self, cluster: Cluster
    ) -> None:
        topic, missing = await cluster.create_topic(1), f"missing-{uuid.uuid4().hex[:8]}"
        async with inspecting(cluster) as inspector:
            assert missing not in await ids_of(inspector, topic, missing)
            assert missing not in await inspector.topics()
            assert await ids_of(inspector) == {}


class TopicIdContract(QuietTopicIdContract):
    """Topics are told apart by their ids."""

    async def test_a_topic_that_was_made_anew_has_another_id_and_others_keep_theirs(
        self, cluster: Cluster, group: str
    ) -> None:
        topic, other = await cluster.create_topic(2), await cluster.create_topic(1)
        async with joined(cluster, topic, group) as member:
            consumer = member.consumer
            async with asyncio.timeout(PATIENCE_S):
                while len(before := await ids_of(consumer, topic, other)) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert before[topic] != before[other]
            assert await ids_of(consumer, topic) == {topic: before[topic]}
            await cluster.recreate_topic(topic, 3)
            async with asyncio.timeout(PATIENCE_S):
                while (after := await ids_of(consumer, topic, other)).get(topic) in (  # noqa: ASYNC110
                    None,
                    before[topic],
                ):  # noqa: ASYNC110, RUF100
                    await asyncio.sleep(0.05)
            assert after[other] == before[other]

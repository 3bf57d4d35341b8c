"""What a consumer asks the brokers for: topics, ends of logs, and who answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import aiokafka

from reactive_kafka.broker.aiokafka.metadata import anybody_answers, silent_leaders
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, by_topic, our_keys, theirs, times, within
from reactive_kafka.broker.client import Sight
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import TopicPartition


class Questions:
    """Asks through one client; see the methods of these names of :class:`reactive_kafka.broker.client.Consumer`."""

    def __init__(self, client: aiokafka.AIOKafkaConsumer) -> None:
        self._client = client

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self._client.beginning_offsets(theirs(partitions))
        return our_keys(await within(CALL_DEADLINE_S, ask, "asking for the log's beginning"))

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        await self._check_existence(partitions)
        ask = self._client.end_offsets(theirs(partitions))
        return our_keys(await within(CALL_DEADLINE_S, ask, "asking for the log's end"))

    async def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        await self._check_existence(times_ms)
        return await times(self._client, times_ms, CALL_DEADLINE_S)

    async def topics(self) -> dict[str, list[TopicPartition]]:
        return by_topic(
            await within(CALL_DEADLINE_S, self._client._client.fetch_all_metadata(), "asking for the topics")
        )

    async def check(self) -> None:
        if not await within(CALL_DEADLINE_S, anybody_answers(self._client._client), "asking any broker"):
            raise TransientBrokerError("no broker answers")

    async def look(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> Sight:
        """What cannot be read of these topics, as the last check was told, and of these partitions, by asking."""
        known = self._client._client.cluster
        forbidden = known.unauthorized_topics.intersection(topics)
        missing = {topic for topic in topics if topic not in forbidden and not known.partitions_for_topic(topic)}
        return Sight(frozenset(missing), frozenset(forbidden), await silent_leaders(self._client._client, partitions))

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Raise for a partition that is not there, which the client would ask for again and again.

        And it would ask for that topic alone from then on: a pattern would find no other.
        """
        client = self._client._client
        unknown = _unknown(client, partitions)
        if not unknown:
            return
        if client._topics:  # else it asks for all of them anyway
            for partition in unknown:
                client.add_topic(partition.topic)
        await within(CALL_DEADLINE_S, _updated(client), "asking for the topics")
        missing = _unknown(client, unknown)
        if missing:
            raise TransientBrokerError(f"no such partition: {', '.join(map(str, sorted(missing)))}")


def _unknown(client: Any, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    known = {topic: client.cluster.partitions_for_topic(topic) or () for topic in {one.topic for one in partitions}}
    return [partition for partition in partitions if partition.partition not in known[partition.topic]]


async def _updated(client: Any) -> None:
    await client.force_metadata_update()

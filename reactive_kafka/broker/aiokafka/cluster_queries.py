"""Queries of topics, logs and leaders, through aiokafka's client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.log_offsets import EARLIEST, LATEST, UNKNOWN_OFFSET, log_offsets
from reactive_kafka.broker.aiokafka.metadata_requests import ask_metadata
from reactive_kafka.broker.aiokafka.topic_ids import TopicIdQuestion, topic_ids, topic_ids_of_all
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import TopicIds, TopicPartition


class KafkaQueries:
    """The base of clients that ask the brokers through a ``KafkaClient``."""

    # How long an answer is waited for.
    deadline_s = CALL_DEADLINE_S
    # A number of Kafka's, for the ends of logs.
    _isolation_level = 0
    _client: Any = None
    _id_question: TopicIdQuestion | None = None

    @property
    def client(self) -> Any:
        """The connected ``KafkaClient``. TransientBrokerError: it has not started."""
        if self._client is None:
            raise TransientBrokerError("the client is not started")
        return self._client

    @property
    def is_closed(self) -> bool:
        """True before the start and after the stop."""
        return self._client is None

    async def topics(self, names: Collection[str] | None = None) -> dict[str, list[TopicPartition]]:
        client = self.client
        ask = _all_numbers(client) if names is None else _numbers_of(client, names)
        known = await within(self.deadline_s, ask, "asking for the topics")
        return {
            topic: [TopicPartition(topic, number) for number in sorted(known[topic])]
            for topic in sorted(known)
        }

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        if of_all:
            return await topic_ids_of_all(self.client, topics, self.deadline_s)
        if self._id_question is None or frozenset(topics) != self._id_question.topics:
            self._id_question = TopicIdQuestion(frozenset(topics))
        return await topic_ids(self.client, self._id_question, self.deadline_s)

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._log_offsets(
            dict.fromkeys(partitions, EARLIEST), "asking for the log's beginning"
        )

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._log_offsets(
            dict.fromkeys(partitions, LATEST), "asking for the log's end"
        )

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        times = {partition: max(0, time_ms) for partition, time_ms in times_ms.items()}
        found = await self._log_offsets(times, "asking for offsets by time")
        return {
            partition: None if offset == UNKNOWN_OFFSET else offset
            for partition, offset in found.items()
        }

    async def _log_offsets(
        self, times: Mapping[TopicPartition, int], doing: str
    ) -> dict[TopicPartition, int]:
        ask = log_offsets(self.client, times, self._isolation_level, self._check_existence)
        return await within(self.deadline_s, ask, doing)

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Raise TransientBrokerError if one of the partitions does not exist.

        The client itself would ask for it again and again. From then on it would also ask for that
        topic alone, so that a pattern found no other.
        """
        client = self.client
        unknown = _unknown(client, partitions)
        if not unknown:
            return
        if not client.asks_for_all_topics:
            for partition in unknown:
                client.add_topic(partition.topic)
        await within(self.deadline_s, client.force_metadata_update(), "asking for the topics")
        missing = _unknown(client, unknown)
        if missing:
            raise TransientBrokerError(f"no such partition: {', '.join(map(str, sorted(missing)))}")


async def _all_numbers(client: Any) -> dict[str, Collection[int]]:
    """Return topic -> the numbers of its partitions, of all topics but Kafka's internal ones."""
    known = await client.fetch_all_metadata()
    return {topic: known.partitions_for_topic(topic) or () for topic in known.topics()}


async def _numbers_of(client: Any, topics: Collection[str]) -> dict[str, Collection[int]]:
    """Return the same of those of these topics that exist. Creates none."""
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the topics: no broker is known")
    metadata = await ask_metadata(client, node, topics)
    return {
        topic["name"]: [partition["partition_index"] for partition in topic["partitions"]]
        for topic in metadata["topics"]
        if not topic["error_code"] and not topic["is_internal"]
    }


def _unknown(client: Any, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    known = {
        topic: client.cluster.partitions_for_topic(topic) or ()
        for topic in {partition.topic for partition in partitions}
    }
    return [
        partition for partition in partitions if partition.partition not in known[partition.topic]
    ]


async def know_topics(client: Any, topics: Collection[str]) -> None:
    """Make a client fetch the metadata of these topics.

    Raises:
        TransientBrokerError: No broker has answered.
    """
    await within(CALL_DEADLINE_S, client.set_topics(topics), "asking for the topics")


def partitions_of(client: Any, topics: Collection[str]) -> set[TopicPartition]:
    """Return the partitions that a client knows of these topics."""
    known = {topic: client.cluster.partitions_for_topic(topic) or () for topic in topics}
    return {TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers}


async def silent_leaders(
    client: Any, partitions: Collection[TopicPartition], was_answered: Callable[[int], bool]
) -> dict[TopicPartition, str | None]:
    """Return partition -> its leader that does not answer, or None if it has no leader.

    Sends one small request to each leader, except to those for which *was_answered* is true.
    """
    leaders = {
        partition: client.cluster.leader_for_partition(partition) for partition in partitions
    }
    nodes = sorted(
        {
            node
            for node in leaders.values()
            if node is not None and node != -1 and not was_answered(node)
        }
    )
    answers = await asyncio.gather(*(_answers(client, node) for node in nodes))
    silent_nodes = {
        node for node, has_answered in zip(nodes, answers, strict=True) if not has_answered
    }
    silent_nodes.add(-1)
    return {
        partition: None if node == -1 else _address(client, node)
        for partition, node in leaders.items()
        if node in silent_nodes
    }


async def anybody_answers(client: Any) -> bool:
    """True if any broker answers.

    Asks one for metadata, and all of them for nothing if that one takes long. Failed metadata is no
    answer yet: a broker closes the connection when the time of a login is over.
    """
    update = client.force_metadata_update()
    await asyncio.wait([update], timeout=CALL_DEADLINE_S / 2)
    if update.done() and update.result():
        return True
    requests = [
        asyncio.create_task(_answers(client, broker.nodeId)) for broker in client.cluster.brokers()
    ]
    try:
        for answer in asyncio.as_completed([update, *requests]):
            if await answer:
                return True
    finally:
        await cancel([request for request in requests if not request.done()])
    return False


async def _answers(client: Any, node: int) -> bool:
    """True if a node answers an empty request. It may have to wait for a fetch before it."""
    try:
        await within(CALL_DEADLINE_S, ask_metadata(client, node, []), "asking a leader")
    except BrokerError:
        return False
    return True


def _address(client: Any, node: int) -> str:
    broker = client.cluster.broker_metadata(node)
    return str(node) if broker is None else f"{node} at {broker.host}:{broker.port}"

"""The connections that fetches are sent on, and what aiokafka's client knows of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.consumer.fetching.response_decoding import FetchAnswer
from reactive_kafka.records import TopicPartition

NO_LEADER = -1


class ClientConnections:
    """The connections of a ``KafkaClient``, for a fetcher.

    Args:
        client: Is connected.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    async def send(self, fetch: NodeFetch) -> FetchAnswer:
        try:
            answer: FetchAnswer = await self._client.send(fetch.node, fetch)
        except kafka_errors.KafkaError as error:
            raise translate(error) from error
        return answer

    def leader_of(self, partition: TopicPartition) -> int | None:
        leader: int | None = self._client.cluster.leader_for_partition(partition)
        return None if leader == NO_LEADER else leader

    def has_node(self, node: int) -> bool:
        return self._client.cluster.broker_metadata(node) is not None

    def request_metadata(self) -> None:
        self._client.force_metadata_update()

    def on_metadata(self, came: Callable[[], None]) -> None:
        """Call *came* whenever there is new metadata."""
        self._client.cluster.add_listener(lambda cluster: came())

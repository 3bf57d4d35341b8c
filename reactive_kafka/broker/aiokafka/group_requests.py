"""Sends requests of our own to the coordinator of a group, through aiokafka's client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import aiokafka

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.wire.definitions import API_VERSIONS, METADATA
from reactive_kafka.broker.wire.requests import Request, call
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import TransientBrokerError


class CoordinatorRequests:
    """Finds the coordinator of the group of a consumer, and asks it.

    Args:
        client: A connected consumer with a ``group_id``, which has joined no group. Its own
            coordinator object is used only to find the node.
    """

    def __init__(self, client: aiokafka.AIOKafkaConsumer) -> None:
        self._client = client._client
        self._coordinator = client._coordinator

    async def ask(self, api: Api, values: Mapping[str, Any]) -> Mapping[str, Any]:
        doing = f"sending {api.request.name}"
        answer = await within(CALL_DEADLINE_S, self._ask(api, values), doing)
        found: Mapping[str, Any] = answer.values
        return found

    async def _ask(self, api: Api, values: Mapping[str, Any]) -> Any:
        await self._coordinator.ensure_coordinator_known()
        return await self._coordinator._send_req(Request(api, values))

    def coordinator_moved(self) -> None:
        self._coordinator.coordinator_dead()

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        node = self._client.get_random_node()
        if node is None:
            raise TransientBrokerError("asking for the names of topics: no broker is known")
        values = {
            "topics": [{"topic_id": topic_id, "name": None} for topic_id in ids],
            "allow_auto_topic_creation": False,
        }
        # Only version 12 and newer take topics without a name.
        asking = call(self._client, node, METADATA, values, versions="12+")
        answer = await within(CALL_DEADLINE_S, asking, "asking for the names of topics")
        return {topic["topic_id"]: topic["name"] for topic in answer["topics"] if topic["name"]}


async def has_api(client: Any, api: Api) -> bool:
    """True if a broker of the cluster has *api*.

    Raises:
        TransientBrokerError: No broker has answered.
    """
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking a broker for its version: no broker is known")
    # Version 2 has no fields but these. Brokers answer versions that they do not have, too.
    asking = call(client, node, API_VERSIONS, {}, versions="0-2")
    answer = await within(CALL_DEADLINE_S, asking, "asking a broker for its version")
    return any(found["api_key"] == api.key for found in answer["api_keys"])

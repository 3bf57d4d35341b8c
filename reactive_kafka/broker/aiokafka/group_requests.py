"""Finds the coordinator of a group, and sends it requests of our own, through our client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup, CoordinationType

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.connections.broker_connection import SentRequest
from reactive_kafka.broker.aiokafka.error_classes import is_retriable
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.consumer.membership.group_parts import (
    LEAVE_DEADLINE_S,
    LOST_LEAVE_DEADLINE_S,
    TopicView,
)
from reactive_kafka.broker.error_codes import error_code
from reactive_kafka.broker.wire.definitions import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_CONFIGS,
    JOIN_GROUP,
    LEAVE_GROUP,
    METADATA,
    SYNC_GROUP,
)
from reactive_kafka.broker.wire.errors import MessageEncodeError
from reactive_kafka.broker.wire.requests import ANY, Answer, Request, call
from reactive_kafka.broker.wire.schema import Api, versions_of
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.records import TopicPartition
from reactive_kafka.version import VERSION

JOINING = "joining"
"""The connection for requests that are answered when all members have sent theirs.

A broker answers the requests of a connection one after the other. On this one they hold up neither
commits nor heartbeats.
"""
INVISIBLE_CODES = frozenset({3, 17, 29})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED: for this client
such a topic does not exist.
"""
LAST_LEAVE_OF_MOCK = 4
GROUP_RESOURCE = 32
"""The type of a group among the resources that have configs (KIP-848)."""
SESSION_TIMEOUT = "consumer.session.timeout.ms"
"""The config of a group. Its default is the broker's ``group.consumer.session.timeout.ms``."""
RETRY_S = 0.1
"""Between two attempts to connect to the coordinator. Lookups have growing pauses of their own."""


class CoordinatorRequests:
    """Finds the coordinator of one group, and asks it. See ``GroupRequests``.

    Args:
        client: Is connected.
        group_id: The group.

    Attributes:
        node: The node of the coordinator; None: it has to be looked up.
    """

    def __init__(self, client: KafkaClient, group_id: str) -> None:
        self.group_id = group_id
        self.node: int | None = None
        self._client = client
        self._looking_up = asyncio.Lock()
        # The last heartbeat of the consumer protocol, and its values.
        self._heartbeat: Request | None = None
        self._heartbeat_values: Mapping[str, Any] = {}

    @property
    def unanswered(self) -> Collection[SentRequest]:
        """The requests on the connection for heartbeats and commits, which are not answered yet."""
        connection = self._client.connection(self.node, ConnectionGroup.COORDINATION)
        return () if connection is None else connection.unanswered

    async def find(self) -> None:
        """Look the coordinator up, and connect to it. Tries again until it is found.

        Raises:
            aiokafka.errors.KafkaError: The broker refuses, for example for want of a right.
        """
        if self.node is not None:
            return
        async with self._looking_up:
            while self.node is None:
                try:
                    node = await self._client.coordinator_lookup(
                        CoordinationType.GROUP, self.group_id
                    )
                except kafka_errors.GroupAuthorizationFailedError as error:
                    raise kafka_errors.GroupAuthorizationFailedError(self.group_id) from error
                except kafka_errors.KafkaError as error:
                    if not is_retriable(error):
                        raise
                    self._client.force_metadata_update()
                    continue
                if await self._client.ready(node, group=ConnectionGroup.COORDINATION):
                    self.node = node
                else:
                    await asyncio.sleep(RETRY_S)

    def coordinator_moved(self) -> None:
        """Look the coordinator up again before the next request."""
        self.node = None

    def leave_deadline_s(self) -> float:
        return LOST_LEAVE_DEADLINE_S if self.node is None else LEAVE_DEADLINE_S

    async def is_connected(self) -> bool:
        """Connect to the coordinator, if it is not connected. Returns False if that fails."""
        if self.node is None:
            return False
        return await self._client.ready(self.node, group=ConnectionGroup.COORDINATION)

    async def send(self, request: Any, connection: Any = ConnectionGroup.COORDINATION) -> Any:
        """Send a request in one attempt, and return the client's answer.

        Raises:
            aiokafka.errors.KafkaError: No coordinator is known, or it has not answered.
        """
        node = self.node
        if node is None:
            raise kafka_errors.GroupCoordinatorNotAvailableError()
        try:
            return await self._client.send(node, request, group=connection)
        except kafka_errors.KafkaError:
            # The node may be gone.
            self.coordinator_moved()
            raise

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float = CALL_DEADLINE_S,
    ) -> Mapping[str, Any]:
        """Send one request, see ``GroupRequests``."""
        connection: Any = ConnectionGroup.COORDINATION
        if api in (JOIN_GROUP, SYNC_GROUP):
            connection = JOINING
        request = self._request(api, values)
        doing = f"sending {api.request.name}"
        if self.node is None:
            # Longer than the longest pause between two lookups.
            await within(CALL_DEADLINE_S, self.find(), "looking up the coordinator")
        try:
            answer: Answer = await within(deadline_s, self.send(request, connection), doing)
        except MessageEncodeError as error:
            # For example a group_instance_id, which Kafka has since 2.3.
            raise FatalBrokerError(f"the coordinator is too old: {error}") from error
        return answer.values

    def _request(
        self, api: Api, values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    ) -> Request:
        """Return a new request, or the last heartbeat if the next one says the same.

        At rest all of them do, and the last one is encoded already.
        """
        versions = partial(_versions_to_use, api)
        if api is not CONSUMER_GROUP_HEARTBEAT or callable(values):
            return Request(api, values, versions)
        if self._heartbeat is None or self._heartbeat_values != values:
            self._heartbeat = Request(api, values, versions)
            self._heartbeat_values = values
        return self._heartbeat

    async def session_timeout_s(self) -> float | None:
        values = {
            "resources": [
                {
                    "resource_type": GROUP_RESOURCE,
                    "resource_name": self.group_id,
                    "configuration_keys": [SESSION_TIMEOUT],
                }
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        answer = await _ask_any(
            self._client, DESCRIBE_CONFIGS, values, ANY, "asking for the settings of the group"
        )
        found = (config for result in answer["results"] for config in result["configs"])
        for config in found:
            if config["name"] == SESSION_TIMEOUT and config["value"]:
                return float(config["value"]) / 1000
        return None

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        values = {
            "topics": [{"topic_id": topic_id, "name": None} for topic_id in ids],
            "allow_auto_topic_creation": False,
        }
        # Only version 12 and newer take topics without a name.
        answer = await _ask_any(
            self._client, METADATA, values, "12+", "asking for the names of topics"
        )
        return {topic["topic_id"]: topic["name"] for topic in answer["topics"] if topic["name"]}

    async def look_up(self, topics: Collection[str]) -> TopicView:
        values = {
            "topics": [{"name": topic} for topic in sorted(topics)],
            "allow_auto_topic_creation": False,
        }
        # Version 1 and newer take an empty list for no topics, and name racks. librdkafka's mock
        # cluster answers version 9 wrongly, which has nothing that is needed here.
        return _view(await _ask_any(self._client, METADATA, values, "4-8", "looking up topics"))


def _versions_to_use(api: Api, highest: int) -> str:
    """Return the versions to use at a broker that has *highest*.

    librdkafka's mock cluster, which is the embedded broker, has the first flexible version of these
    requests as its last one, and reads it wrongly. Of LeaveGroup it knows only the form with a
    single member. Kafka 2.4, the only other broker with these last versions, loses nothing by
    older ones.
    """
    if api is LEAVE_GROUP and highest == LAST_LEAVE_OF_MOCK:
        return "0-2"
    first_flexible = versions_of(api.request.flexible).first
    return f"0-{first_flexible - 1}" if 0 < first_flexible == highest else ANY


async def cluster_features(client: KafkaClient) -> Iterable[Mapping[str, Any]]:
    """Return the features that are switched on in the cluster. Before Kafka 2.7 none has a name.

    Raises:
        TransientBrokerError: No broker has answered.
    """
    values = {
        "client_software_name": "reactive-kafka",
        "client_software_version": VERSION,
    }
    doing = "asking a broker for its features"
    answer = await _ask_any(client, API_VERSIONS, values, ANY, doing)
    features: Iterable[Mapping[str, Any]] = answer.get("finalized_features", ())
    return features


async def _ask_any(
    client: KafkaClient, api: Api, values: Mapping[str, Any], versions: str, doing: str
) -> Mapping[str, Any]:
    """Ask any broker that the client knows."""
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError(f"{doing}: no broker is known")
    asking = call(client, node, api, values, versions=versions)
    return await within(CALL_DEADLINE_S, asking, doing)


def _view(answer: Mapping[str, Any]) -> TopicView:
    """Return what the leader needs to know of an answer to a metadata request.

    Raises:
        TransientBrokerError: The broker does not know a topic well enough yet.
    """
    racks = {broker["node_id"]: broker["rack"] for broker in answer["brokers"]}
    has_racks = any(racks.values())
    partitions = {}
    replica_racks = {}
    for topic in answer["topics"]:
        code = topic["error_code"]
        if code in INVISIBLE_CODES:
            continue
        if code:
            raise TransientBrokerError(
                f"looking up topics: {topic['name']}: {error_code(code).name} ([Error {code}])"
            )
        name = topic["name"]
        partitions[name] = sorted(row["partition_index"] for row in topic["partitions"])
        for row in topic["partitions"] if has_racks else ():
            replica_racks[TopicPartition(name, row["partition_index"])] = frozenset(
                rack for node in row["replica_nodes"] if (rack := racks.get(node))
            )
    return TopicView(partitions, replica_racks)

"""Sends the requests of a member of a classic group through aiokafka's client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from aiokafka.client import ConnectionGroup, CoordinationType

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.consumer.membership.classic_group.classic_membership import TopicView
from reactive_kafka.broker.error_codes import error_code
from reactive_kafka.broker.wire.definitions import JOIN_GROUP, METADATA, SYNC_GROUP
from reactive_kafka.broker.wire.errors import MessageEncodeError
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.records import TopicPartition

JOINING = "joining"
"""The connection for requests that are answered when all members have sent theirs.

A broker answers the requests of a connection one after the other. On this one they hold up neither
commits nor heartbeats.
"""
INVISIBLE_CODES = frozenset({3, 17, 29})
"""UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED: for this client
such a topic does not exist.
"""


class ClassicCoordinatorRequests:
    """Finds the coordinator of a group, and asks it. See ``ClassicGroupRequests``.

    Args:
        client: A connected ``AIOKafkaClient``.
        group_id: The group.
    """

    def __init__(self, client: Any, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        # The node of the coordinator; None: it has to be looked up.
        self._node: int | None = None

    async def ask(
        self,
        api: Api,
        values: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        deadline_s: float,
    ) -> Mapping[str, Any]:
        """Send one request, see ``ClassicGroupRequests``.

        The client waits for ``request_timeout_ms`` at most. The coordinator takes a JoinGroup that
        is sent again for the same one.
        """
        node = self._node
        if node is None:
            looking_up = self._client.coordinator_lookup(CoordinationType.GROUP, self._group_id)
            node = int(await within(CALL_DEADLINE_S, looking_up, "looking up the coordinator"))
            self._node = node
        connection: Any = ConnectionGroup.COORDINATION
        if api in (JOIN_GROUP, SYNC_GROUP):
            connection = JOINING
        sending = call(self._client, node, api, values, group=connection)
        try:
            return await within(deadline_s, sending, f"sending {api.request.name}")
        except MessageEncodeError as error:
            # For example a group_instance_id, which Kafka has since 2.3.
            raise FatalBrokerError(f"the coordinator is too old: {error}") from error
        except TransientBrokerError:
            # The node may be gone.
            self.coordinator_moved()
            raise

    def coordinator_moved(self) -> None:
        self._node = None

    async def look_up(self, topics: Collection[str]) -> TopicView:
        node = self._client.get_random_node()
        if node is None:
            raise TransientBrokerError("looking up topics: no broker is known")
        values = {
            "topics": [{"name": topic} for topic in sorted(topics)],
            "allow_auto_topic_creation": False,
        }
        # Version 1 and newer take an empty list for no topics, and name racks.
        asking = call(self._client, node, METADATA, values, versions="4-9")
        answer = await within(CALL_DEADLINE_S, asking, "looking up topics")
        return _view(answer)


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

"""Asks for the ids of topics: a recreated topic has another id.

The request is not part of aiokafka.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Collection
from io import BytesIO
from random import sample
from typing import Any

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import TopicIds

TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
NO_ID = bytes(16)

MOST_ASKED = 16
"""How many brokers are asked at once, at most."""
OTHERS_S = 1.0
"""How long other brokers may take after the first answer: a frozen one delays a start by that."""


# aiokafka is untyped.
class Uuid(AbstractType[bytes]):  # type: ignore[misc]
    """A field of sixteen bytes, which aiokafka has no type for."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class MetadataResponse_v10(Response):  # type: ignore[misc]
    """Source: MetadataResponse.json of Kafka."""

    API_KEY = 3
    API_VERSION = 10
    _BROKER = (("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT), TAGS)
    _NODES = (
        ("replicas", CompactArray(Int32)),
        ("isr", CompactArray(Int32)),
        ("offline", CompactArray(Int32)),
    )
    _PARTITION = (
        ("error_code", Int16),
        ("partition", Int32),
        ("leader", Int32),
        ("leader_epoch", Int32),
        *_NODES,
        TAGS,
    )
    _TOPIC = (
        ("error_code", Int16),
        ("topic", TEXT),
        ("topic_id", Uuid),
        ("is_internal", Boolean),
        ("partitions", CompactArray(*_PARTITION)),
        ("authorized_operations", Int32),
        TAGS,
    )
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(*_BROKER)),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        ("topics", CompactArray(*_TOPIC)),
        ("authorized_operations", Int32),
        TAGS,
    )


class MetadataRequest_v10(RequestStruct):  # type: ignore[misc]
    """Source: MetadataRequest.json of Kafka. Spoken by Kafka 2.8 and newer."""

    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse_v10
    _TOPIC = (("topic_id", Uuid), ("topic", TEXT), TAGS)
    _ALSO = (("cluster_authorized_operations", Boolean), ("topic_authorized_operations", Boolean))
    SCHEMA = Schema(
        ("topics", CompactArray(*_TOPIC)), ("allow_auto_topic_creation", Boolean), *_ALSO, TAGS
    )


class TopicIdQuestion(Request[MetadataRequest_v10]):  # type: ignore[misc]
    """The request for the ids of topics.

    Args:
        topics: Their names.
        creates: A broker with auto-creation creates missing topics.
        tells_rights: The answer has what this client may do with each topic (KIP-430).
    """

    API_KEY = 3

    def __init__(
        self, topics: Collection[str], *, creates: bool = False, tells_rights: bool = False
    ) -> None:
        self.topics = topics
        self._creates = creates
        self._tells_rights = tells_rights

    def build(self, version: Any) -> Any:
        topics: list[Any] = [(NO_ID, topic, {}) for topic in sorted(self.topics)]
        return version(topics, self._creates, False, self._tells_rights, {})


async def topic_ids(
    client: Any, question: TopicIdQuestion, deadline_s: float = CALL_DEADLINE_S
) -> list[TopicIds]:
    """Return the ids that one random broker knows. A broker before 2.8 has none."""
    if not question.topics:
        return []
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the ids of topics: no broker is known")
    answer = await _ask(client, node, question, deadline_s)
    return [] if answer is None else [answer]


async def topic_ids_of_all(
    client: Any, topics: Collection[str], deadline_s: float = CALL_DEADLINE_S
) -> list[TopicIds]:
    """Return what each broker says: the first within the deadline, others within a second of it.

    In a large cluster only some brokers are asked, chosen at random: each may need a connection.

    Raises:
        TransientBrokerError: No broker has answered.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    if not (topics and nodes):
        return await topic_ids(client, TopicIdQuestion(topics), deadline_s)
    requests = [
        asyncio.create_task(_ask(client, node, TopicIdQuestion(topics), deadline_s))
        for node in sample(nodes, min(MOST_ASKED, len(nodes)))
    ]
    try:
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(requests, timeout=OTHERS_S)
        if not any(_has_answered(request) for request in requests):
            await asyncio.wait(requests)
    finally:
        await cancel([request for request in requests if not request.done()])
    answered = [request.result() for request in requests if _has_answered(request)]
    if not answered:
        raise TransientBrokerError("asking for the ids of topics: no broker answers")
    return [answer for answer in answered if answer is not None]


def _has_answered(request: asyncio.Task[TopicIds | None]) -> bool:
    return request.done() and not request.cancelled() and request.exception() is None


async def _ask(
    client: Any, node: int, question: TopicIdQuestion, deadline_s: float
) -> TopicIds | None:
    """Return the answer of one broker; None: it is older than 2.8 and has no ids."""
    try:
        answer = await within(
            deadline_s, client.send(node, question), "asking for the ids of topics"
        )
    except NotImplementedError:
        # aiokafka raises this if the broker does not have this version.
        return None
    alive = frozenset(broker[0] for broker in answer.brokers)
    return TopicIds(node, ids_of(answer), alive, answer.cluster_id or None)


def ids_of(answer: Any) -> dict[str, str]:
    """Return topic -> its id in the form of Kafka's own tools, for topics that exist."""
    return {
        topic: urlsafe_b64encode(raw).decode().rstrip("=")
        for error_code, topic, raw, *_ in answer.topics
        if not error_code and raw != NO_ID
    }

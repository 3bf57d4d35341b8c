"""Which incarnation of a topic there is: its id, asked with one request that aiokafka does not know."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection
from io import BytesIO
from typing import Any

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, within
from reactive_kafka.errors import TransientBrokerError

TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
NO_ID = bytes(16)


class Uuid(AbstractType[bytes]):  # type: ignore[misc]  # aiokafka is untyped
    """Sixteen bytes, which aiokafka has no type for."""

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
    _NODES = (("replicas", CompactArray(Int32)), ("isr", CompactArray(Int32)), ("offline", CompactArray(Int32)))
    _PARTITION = (
        ("error_code", Int16),
        ("partition", Int32),
        ("leader", Int32),
        ("leader_epoch", Int32),
        *_NODES,
        TAGS,
    )
    _TOPIC = (
        ("error_code", Int16), ("topic", TEXT), ("topic_id", Uuid), ("is_internal", Boolean),
        ("partitions", CompactArray(*_PARTITION)), ("authorized_operations", Int32), TAGS,
    )  # fmt: skip
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("brokers", CompactArray(*_BROKER)), ("cluster_id", TEXT),
        ("controller_id", Int32), ("topics", CompactArray(*_TOPIC)), ("authorized_operations", Int32), TAGS,
    )  # fmt: skip


class MetadataRequest_v10(RequestStruct):  # type: ignore[misc]
    """Source: MetadataRequest.json of Kafka. Spoken by Kafka 2.8 and newer."""

    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse_v10
    _TOPIC = (("topic_id", Uuid), ("topic", TEXT), TAGS)
    _ALSO = (("cluster_authorized_operations", Boolean), ("topic_authorized_operations", Boolean))
    SCHEMA = Schema(("topics", CompactArray(*_TOPIC)), ("allow_auto_topic_creation", Boolean), *_ALSO, TAGS)


class TopicIdQuestion(Request[MetadataRequest_v10]):  # type: ignore[misc]
    """The question for the ids of some topics.

    Args:
        topics: Their names.
        creates: Whether a broker that creates topics by themselves creates those that do not exist.
        tells_rights: Whether the answer has what this client may do with each topic (KIP-430).
    """

    API_KEY = 3

    def __init__(self, topics: Collection[str], *, creates: bool = False, tells_rights: bool = False) -> None:
        self.topics = topics
        self._creates = creates
        self._tells_rights = tells_rights

    def build(self, version: Any) -> Any:
        topics: list[Any] = [(NO_ID, topic, {}) for topic in sorted(self.topics)]
        return version(topics, self._creates, False, self._tells_rights, {})


async def topic_ids(client: Any, question: TopicIdQuestion, deadline_s: float = CALL_DEADLINE_S) -> dict[str, str]:
    """topic -> its id, of those in the question that exist and have one. A broker before 2.8 tells none."""
    if not question.topics:
        return {}
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the ids of topics: no broker is known")
    try:
        answer = await within(deadline_s, client.send(node, question), "asking for the ids of topics")
    except NotImplementedError:  # so aiokafka says that the broker does not speak this version
        return {}
    return ids_of(answer)


def ids_of(answer: Any) -> dict[str, str]:
    """What an answer tells, in the form in which Kafka's own tools show it."""
    return {
        topic: urlsafe_b64encode(raw).decode().rstrip("=")
        for error_code, topic, raw, *_ in answer.topics
        if not error_code and raw != NO_ID
    }

"""The names that spans and metrics use, and the attributes of spans. Pure.

Source: OpenTelemetry's semantic conventions for messaging and for Kafka, 1.44.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal, NamedTuple

from reactive_kafka.failure.headers import qualified_name
from reactive_kafka.outgoing.reply_headers import correlation_id_of
from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.tracing.clusters import ClusterAttributes

NAME = "reactive_kafka"
"""The name of the tracer and the meter, the messaging system of memory channels, and the prefix of
attributes that the conventions do not define.
"""
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions that the names here belong to."""
MOST_LINKS = 128
"""How many links a span gets. An SDK keeps no more by default, and drops the oldest."""
CHANNEL = f"{NAME}.channel"
ATTEMPT = f"{NAME}.attempt"
UNLINKED = f"{NAME}.unlinked"
STRATEGY = f"{NAME}.failure_strategy"
PARTITIONS = f"{NAME}.partitions"
OWN = (CHANNEL, ATTEMPT, UNLINKED, STRATEGY, PARTITIONS)
"""The attributes that the conventions do not define."""
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
GROUP = "messaging.consumer.group.name"
CLIENT_ID = "messaging.client.id"
COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
TOPIC = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
KEY = "messaging.kafka.message.key"
TOMBSTONE = "messaging.kafka.message.tombstone"
CONVERSATION = "messaging.message.conversation_id"

Operation = Literal["send", "receive", "process", "ack", "nack", "commit"]
OPERATION_TYPES: Mapping[Operation, str] = MappingProxyType(
    {
        "send": "send",
        "receive": "receive",
        "process": "process",
        "ack": "settle",
        "nack": "settle",
        "commit": "settle",
    }
)
"""Operation -> its type, of which the conventions have a closed list."""
Attributes = Mapping[str, str | int | bool]
NOTHING: Attributes = MappingProxyType({})


class LinkedRecord(NamedTuple):
    """A record that a span links to."""

    partition: TopicPartition
    offset: int
    headers: HeaderPairs


class OperationAttributes:
    """The attributes that all spans of one operation of a channel have.

    Args:
        cluster: The Kafka cluster of the channel; None: it is a memory channel.
        client_id: The setting ``client_id`` of the channel, if it has one.
    """

    def __init__(
        self,
        channel: str,
        operation: Operation,
        cluster: ClusterAttributes | None,
        *,
        group_id: str | None = None,
        client_id: object = None,
    ) -> None:
        self.operation = operation
        self.cluster = cluster
        own: dict[str, str | int | bool] = {
            SYSTEM: NAME if cluster is None else "kafka",
            OPERATION_NAME: operation,
            OPERATION_TYPE: OPERATION_TYPES[operation],
            CHANNEL: channel,
        }
        if group_id is not None:
            own[GROUP] = group_id
        if isinstance(client_id, str):
            own[CLIENT_ID] = client_id
        self._own = own
        # The attributes of the cluster that `_all` was made with.
        self._of_cluster: Attributes = NOTHING
        self._all: Attributes = own

    def all(self) -> Attributes:
        """Return the attributes, with those of the cluster that are known so far."""
        cluster = self.cluster
        if cluster is not None and self._of_cluster is not cluster.attributes:
            self._of_cluster = cluster.attributes
            self._all = {**self._own, **cluster.attributes}
        return self._all


def span_name(operation: Operation, topic: str | None) -> str:
    """Return the name of a span: ``process orders``, or ``process`` for several topics."""
    return operation if topic is None else f"{operation} {topic}"


def position_attributes(partition: TopicPartition, offset: int) -> Attributes:
    """Return the attributes with the topic, the partition and the offset of a record."""
    return {TOPIC: partition.topic, PARTITION: str(partition.partition), OFFSET: offset}


def content_attributes(
    key: bytes | None, value: object, headers: HeaderPairs
) -> dict[str, str | int | bool]:
    """Return what spans say of the content of one record.

    It is the key, if it is text; whether there is no value; and the id of the request, if the
    record is a request or a reply.
    """
    attributes: dict[str, str | int | bool] = {}
    if key is not None:
        # The conventions leave out a key that has no canonical form as text.
        with suppress(UnicodeDecodeError):
            attributes[KEY] = key.decode()
    if value is None:
        attributes[TOMBSTONE] = True
    if headers:
        correlation_id = correlation_id_of(headers)
        if correlation_id is not None:
            with suppress(UnicodeDecodeError):
                attributes[CONVERSATION] = correlation_id.decode()
    return attributes


def error_type(error: BaseException) -> str:
    """Return the class of an error by its name: ``ValueError``, ``shop.orders.OutOfStock``."""
    return qualified_name(type(error)).removeprefix("builtins.")

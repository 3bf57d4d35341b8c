"""The attributes of spans. Pure.

Source: OpenTelemetry's semantic conventions for messaging and for Kafka, 1.30 and later.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal, NamedTuple

from reactive_kafka.failure.headers import qualified_name
from reactive_kafka.records import HeaderPairs, TopicPartition

NAME = "reactive_kafka"
"""The name of the tracer, the messaging system of memory channels, and the prefix of attributes
that the conventions do not define.
"""
MOST_LINKS = 128
"""How many links a span gets. An SDK keeps no more by default, and drops the oldest."""
CHANNEL = f"{NAME}.channel"
ATTEMPT = f"{NAME}.attempt"
UNLINKED = f"{NAME}.unlinked"
COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
TOPIC = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
KEY = "messaging.kafka.message.key"
TOMBSTONE = "messaging.kafka.message.tombstone"

Operation = Literal["process", "send"]
Attributes = Mapping[str, str | int | bool]
NOTHING: Attributes = MappingProxyType({})


class LinkedRecord(NamedTuple):
    """A record that a span links to."""

    partition: TopicPartition
    offset: int
    headers: HeaderPairs


def channel_attributes(
    channel: str,
    operation: Operation,
    *,
    is_kafka: bool,
    group_id: str | None = None,
    client_id: object = None,
) -> Attributes:
    """Return the attributes that all spans of a channel have."""
    attributes = {
        "messaging.system": "kafka" if is_kafka else NAME,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        CHANNEL: channel,
    }
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    if isinstance(client_id, str):
        attributes["messaging.client.id"] = client_id
    return attributes


def position_attributes(partition: TopicPartition, offset: int) -> Attributes:
    """Return the attributes with the topic, the partition and the offset of a record."""
    return {TOPIC: partition.topic, PARTITION: str(partition.partition), OFFSET: offset}


def content_attributes(key: bytes | None, *, is_tombstone: bool) -> Attributes:
    """Return the attributes with the key, if it is text, and with whether there is no value."""
    attributes: dict[str, str | bool] = {}
    if key is not None:
        # The conventions leave out a key that has no canonical form as text.
        with suppress(UnicodeDecodeError):
            attributes[KEY] = key.decode()
    if is_tombstone:
        attributes[TOMBSTONE] = True
    return attributes


def error_type(error: BaseException) -> str:
    """Return the class of an error by its name: ``ValueError``, ``shop.orders.OutOfStock``."""
    return qualified_name(type(error)).removeprefix("builtins.")

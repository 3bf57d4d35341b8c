"""What spans are called, and what they say. Pure.

Source: OpenTelemetry's semantic conventions of messaging and of Kafka, 1.30 and later.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from reactive_kafka.failure.headers import qualified_name
from reactive_kafka.records import HeaderPairs, TopicPartition

NAME = "reactive_kafka"
"""Of the tracer, of the system where it is not Kafka, and before what the conventions have no name
for.
"""
MOST_LINKS = 128
"""Most links of a span; an SDK keeps no more by default, and drops the oldest."""
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


class Place(NamedTuple):
    """A record, as a link names it."""

    partition: TopicPartition
    offset: int
    headers: HeaderPairs


def of_channel(
    channel: str,
    operation: Operation,
    *,
    is_kafka: bool,
    group_id: str | None = None,
    client_id: object = None,
) -> Attributes:
    """What all spans of a channel say."""
    found = {
        "messaging.system": "kafka" if is_kafka else NAME,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        CHANNEL: channel,
    }
    if group_id is not None:
        found["messaging.consumer.group.name"] = group_id
    if isinstance(client_id, str):
        found["messaging.client.id"] = client_id
    return found


def of_place(partition: TopicPartition, offset: int) -> Attributes:
    """Where a record stands."""
    return {TOPIC: partition.topic, PARTITION: str(partition.partition), OFFSET: offset}


def of_content(key: bytes | None, *, is_tombstone: bool) -> Attributes:
    """What is said of the content: the key, where it is text, and whether there is no value."""
    found: dict[str, str | bool] = {}
    if key is not None and (text := _text(key)) is not None:
        found[KEY] = text
    if is_tombstone:
        found[TOMBSTONE] = True
    return found


def error_type(error: BaseException) -> str:
    """The class of an error, as spans name it: ``ValueError``, ``shop.orders.OutOfStock``."""
    return qualified_name(type(error)).removeprefix("builtins.")


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        # The conventions: a key without one canonical form is left out.
        return None

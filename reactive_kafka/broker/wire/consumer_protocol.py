"""What consumers of a classic group tell each other: subscriptions and assignments. Pure.

The coordinator passes these bytes on and does not read them. In front of each is its version. A
member may be newer than we are: it only adds fields at the end, so these are left unread.
Source: ``ConsumerProtocol`` of Kafka's clients.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from reactive_kafka.broker.wire.codec import Values, decode_first, encode
from reactive_kafka.broker.wire.definitions import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from reactive_kafka.broker.wire.errors import MessageDecodeError
from reactive_kafka.broker.wire.lengths import Buffer
from reactive_kafka.broker.wire.schema import WireMessage, versions_of

_VERSION = Struct(">h")


def encode_subscription(values: Values, version: int | None = None) -> bytes:
    """Return the metadata of a member, for JoinGroup; in the newest version by default.

    Raises:
        MessageEncodeError: A value does not fit.
    """
    return _encode(CONSUMER_PROTOCOL_SUBSCRIPTION, values, version)


def decode_subscription(content: Buffer) -> dict[str, Any]:
    """Return the values in the metadata of a member.

    Raises:
        MessageDecodeError: These bytes are no subscription of a consumer.
    """
    return _decode(CONSUMER_PROTOCOL_SUBSCRIPTION, content)


def encode_assignment(values: Values, version: int | None = None) -> bytes:
    """Return the assignment of a member, for SyncGroup; in the newest version by default.

    Raises:
        MessageEncodeError: A value does not fit.
    """
    return _encode(CONSUMER_PROTOCOL_ASSIGNMENT, values, version)


def decode_assignment(content: Buffer) -> dict[str, Any]:
    """Return the values in the assignment of a member.

    Raises:
        MessageDecodeError: These bytes are no assignment of a consumer.
    """
    return _decode(CONSUMER_PROTOCOL_ASSIGNMENT, content)


def _encode(message: WireMessage, values: Values, version: int | None) -> bytes:
    if version is None:
        version = versions_of(message.versions).last
    return _VERSION.pack(version) + encode(message, version, values)


def _decode(message: WireMessage, content: Buffer) -> dict[str, Any]:
    if len(content) < _VERSION.size:
        raise MessageDecodeError(f"{message.name}: {len(content)} bytes have no version")
    (version,) = _VERSION.unpack_from(content)
    known = versions_of(message.versions)
    if version < known.first:
        raise MessageDecodeError(f"{message.name}: the version {version}")
    values, _ = decode_first(message, min(version, known.last), content, _VERSION.size)
    return values

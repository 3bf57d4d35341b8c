"""What can be wrong with a message on the wire."""

from __future__ import annotations

from reactive_kafka.errors import FatalBrokerError, ReactiveKafkaError, TransientBrokerError


class MessageEncodeError(ReactiveKafkaError, ValueError):
    """The values do not fit the message in this version. The text names message and field."""


class MessageDecodeError(TransientBrokerError):
    """The bytes are not this message in this version: they are damaged, cut off, or too many."""


class NoCommonVersionError(FatalBrokerError):
    """The broker and this client have no version of a request in common."""

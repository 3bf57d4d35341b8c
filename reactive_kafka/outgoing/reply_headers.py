"""The headers of requests and replies. Pure.

Source: SmallRye's ``KafkaRequestReply``, which uses the same names.
"""

from __future__ import annotations

from typing import NamedTuple

from reactive_kafka.errors import EncodeError
from reactive_kafka.records import HeaderPairs
from reactive_kafka.wire import topic_problem

CORRELATION_ID = "REPLY_CORRELATION_ID"
TOPIC = "REPLY_TOPIC"
PARTITION = "REPLY_PARTITION"
_OF_A_REQUEST = frozenset((CORRELATION_ID, TOPIC, PARTITION))
_PARTITION_BYTES = 4


class ReplyTo(NamedTuple):
    """Where the reply to a request goes, and the id that matches it to the request."""

    topic: str
    # None: any partition, because the requester reads all of them.
    partition: int | None
    correlation_id: bytes


def reply_to(headers: HeaderPairs) -> ReplyTo | None:
    """Return where the reply goes, by the headers of a record; None if it is no request.

    Where a header occurs twice, the last one counts.

    Raises:
        EncodeError: The headers name no place that a reply can be sent to.
    """
    found = {name: value for name, value in headers if name in _OF_A_REQUEST}
    if CORRELATION_ID not in found or TOPIC not in found:
        return None
    correlation_id = found[CORRELATION_ID]
    topic = found[TOPIC]
    partition = found.get(PARTITION)
    if correlation_id is None:
        raise _refused(CORRELATION_ID, "it has no value")
    try:
        name = (topic or b"").decode()
    except UnicodeDecodeError as error:
        raise _refused(TOPIC, f"not UTF-8 text: {error.reason} at byte {error.start}") from None
    if problem := topic_problem(name):
        raise _refused(TOPIC, problem)
    return ReplyTo(name, None if PARTITION not in found else _number(partition), correlation_id)


def request_headers(given: HeaderPairs, topic: str, correlation_id: bytes) -> HeaderPairs:
    """Return the headers of a request: those *given*, then its own.

    Headers of another request among those given are dropped.
    """
    # Without REPLY_PARTITION, because all partitions of the topic are read.
    own = ((CORRELATION_ID, correlation_id), (TOPIC, topic.encode()))
    return (*(header for header in given if header[0] not in _OF_A_REQUEST), *own)


def correlation_id_of(headers: HeaderPairs) -> bytes | None:
    """Return the id of the request that a reply answers; None if it has no such header."""
    found = None
    for name, value in headers:
        if name == CORRELATION_ID:
            found = value
    return found


def _number(partition: bytes | None) -> int:
    found = -1 if partition is None else int.from_bytes(partition, "big", signed=True)
    if partition is None or len(partition) != _PARTITION_BYTES or found < 0:
        shown = partition if partition is None else partition[:16]
        raise _refused(
            PARTITION, f"{shown!r} is no partition: expected {_PARTITION_BYTES} bytes, 0 or above"
        )
    return found


def _refused(header: str, why: str) -> EncodeError:
    return EncodeError(f"no reply can be sent, because of the request's header {header}: {why}")

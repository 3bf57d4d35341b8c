"""The headers of requests and replies: what a request bears, and where its reply goes. Pure.

Source: SmallRye's ``KafkaRequestReply``, whose names these are.
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
    """Where the reply to a request goes, and what tells the requester that it is this one's."""

    topic: str
    # None: the requester reads all of them.
    partition: int | None
    correlation_id: bytes


def reply_to(headers: HeaderPairs) -> ReplyTo | None:
    """What the headers of a request say; None: it is no request. Of each header the last one
    counts.

    Raises:
        EncodeError: They say what no reply can be sent to.
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
    """The headers of a request: those *given*, without what they may say of another request, then
    its own.
    """
    # No REPLY_PARTITION: all partitions of the topic are read.
    own = ((CORRELATION_ID, correlation_id), (TOPIC, topic.encode()))
    return (*(header for header in given if header[0] not in _OF_A_REQUEST), *own)


def correlation_id_of(headers: HeaderPairs) -> bytes | None:
    """What a reply says which request it answers; None: it says nothing."""
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

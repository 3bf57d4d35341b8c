"""Decodes the answer to a fetch. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from reactive_kafka.broker.consumer.fetching.request_encoding import (
    FIRST_WITH_RACKS,
    FIRST_WITH_SESSIONS,
)
from reactive_kafka.records import TopicPartition

HEADER_BYTES = 4
"""An answer begins with the number of its request."""

_LENGTH = Struct(">i")
_SESSION = Struct(">hi")
_TOPIC_LENGTH = Struct(">h")
_ABORTED = Struct(">qq")
_BEFORE_ABORTED = {4: Struct(">ihqq"), **dict.fromkeys(range(5, 12), Struct(">ihqqq"))}
"""Version of a fetch -> the fields of a partition that precede its aborted transactions."""

NO_REPLICA = -1
_UNKNOWN = -1


class PartitionAnswer(NamedTuple):
    """What the answer to a fetch says of one partition."""

    partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    # -1 if the broker does not say.
    log_start: int
    # Producer id and first offset of each aborted transaction in the content.
    aborted: Sequence[tuple[int, int]]
    # The node to fetch from next; -1: none is named.
    preferred_replica: int
    # Record batches.
    content: bytes


class FetchAnswer(NamedTuple):
    """The answer to a fetch."""

    # Of the session; 0 if there is none.
    error_code: int
    session_id: int
    partitions: Sequence[PartitionAnswer]

    @property
    def is_empty(self) -> bool:
        """True if it says nothing that the same answer would not say a second time.

        Not so with an error, with records, and with a replica to read from.
        """
        return not self.error_code and not any(
            row.error_code or row.content or row.preferred_replica >= 0 for row in self.partitions
        )


def decode_fetch_response(version: int, frame: memoryview) -> FetchAnswer:
    """Decode the answer to a fetch that was sent in *version*.

    Source: FetchResponse.json of Kafka.

    Raises:
        ValueError: The answer is cut short.
    """
    try:
        return _decode(version, frame)
    except error as cut_short:
        raise ValueError("the answer to a fetch is cut short") from cut_short


def _decode(version: int, frame: memoryview) -> FetchAnswer:
    # The time for which the broker has held the answer back comes first.
    pos = HEADER_BYTES + _LENGTH.size
    error_code = 0
    session_id = 0
    if version >= FIRST_WITH_SESSIONS:
        error_code, session_id = _SESSION.unpack_from(frame, pos)
        pos += _SESSION.size
    found: list[PartitionAnswer] = []
    (count,) = _LENGTH.unpack_from(frame, pos)
    pos += _LENGTH.size
    for _ in range(count):
        (length,) = _TOPIC_LENGTH.unpack_from(frame, pos)
        pos += _TOPIC_LENGTH.size
        topic = str(frame[pos : pos + length], "utf-8")
        pos = _partitions(version, topic, frame, pos + length, found)
    return FetchAnswer(error_code, session_id, found)


def _partitions(
    version: int, topic: str, frame: memoryview, pos: int, found: list[PartitionAnswer]
) -> int:
    """Append the partitions of one topic to *found*. Returns the position after them."""
    before_aborted = _BEFORE_ABORTED[version]
    length_of = _LENGTH.unpack_from
    (count,) = length_of(frame, pos)
    pos += 4
    for _ in range(count):
        number, code, high_watermark, stable, *start = before_aborted.unpack_from(frame, pos)
        pos += before_aborted.size
        log_start = start[0] if start else _UNKNOWN
        (length,) = length_of(frame, pos)
        pos += 4
        aborted: Sequence[tuple[int, int]] = ()
        if length > 0:
            end = pos + length * _ABORTED.size
            aborted = list(_ABORTED.iter_unpack(frame[pos:end]))
            pos = end
        replica = NO_REPLICA
        if version >= FIRST_WITH_RACKS:
            (replica,) = length_of(frame, pos)
            pos += 4
        (length,) = length_of(frame, pos)
        pos += 4
        content = b""
        if length > 0:
            content = bytes(frame[pos : pos + length])
            pos += length
        if pos > len(frame):
            raise ValueError("the answer to a fetch is cut short")
        partition = TopicPartition(topic, number)
        found.append(
            PartitionAnswer(
                partition, code, high_watermark, stable, log_start, aborted, replica, content
            )
        )
    return pos

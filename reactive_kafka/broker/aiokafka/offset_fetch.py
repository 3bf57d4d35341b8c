"""Asking a group's coordinator for positions (OffsetFetch), in the version that tells the newest ones (H17)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from reactive_kafka.records import Committed, TopicPartition

UNSTABLE_OFFSET_COMMIT = 88
"""Brokers before 4.0: a commit of this partition is still being stored, ask again."""
TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)


class OffsetFetchResponse_v7(Response):  # type: ignore[misc]  # aiokafka is untyped
    """Source: OffsetFetchResponse.json of Kafka."""

    API_KEY = 9
    API_VERSION = 7
    _POSITION = (("partition", Int32), ("offset", Int64), ("leader_epoch", Int32), ("metadata", TEXT))
    _PARTITION = (*_POSITION, ("error_code", Int16), TAGS)
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(*_PARTITION)), TAGS)
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", CompactArray(*_TOPIC)), ("error_code", Int16), TAGS)


class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]  # aiokafka is untyped
    """Source: OffsetFetchRequest.json of Kafka. Spoken by Kafka 2.5 and newer."""

    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v7
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(Int32)), TAGS)
    SCHEMA = Schema(("group_id", TEXT), ("topics", CompactArray(*_TOPIC)), ("require_stable", Boolean), TAGS)


class OffsetFetch(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v7]):  # type: ignore[misc]
    """The question for the positions of *group_id*: those of *partitions*, or None for all that it has.

    A coordinator that has just taken over tells the positions that it knows to be on all in-sync replicas, and for
    up to a second that may be fewer than were confirmed to us: a channel that starts then would repeat what it has
    committed. ``require_stable`` makes the coordinator wait until all that it has is stored, as Java's clients ask
    it to. aiokafka's own request ends at version 3, which cannot say so; brokers before 2.5 get that one.
    """

    API_KEY = 9

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> None:
        self._group_id = group_id
        self._topics: dict[str, list[int]] | None = None if partitions is None else {}
        for topic, number in partitions or ():
            self._topics.setdefault(topic, []).append(number)  # type: ignore[union-attr]

    def build(self, version: Any) -> Any:
        """The request in the newest version that both sides speak."""
        topics = None if self._topics is None else list(self._topics.items())
        if version is OffsetFetchRequest_v3:
            return version(self._group_id, topics)
        tagged: list[Any] | None = None if topics is None else [(topic, numbers, {}) for topic, numbers in topics]
        return version(self._group_id, tagged, True, {})


def error_of(answer: Any) -> Any:
    """The class of the first error in an answer of a coordinator, None if it has none.

    The one of the whole answer comes with an empty list of topics, when the coordinator has moved or still loads.
    aiokafka's own ``committed()`` does not look at it, and takes the empty list for "nothing is committed": reading
    then began where ``auto_offset_reset`` says, so that records were repeated, or with ``latest`` lost.
    """
    of_the_whole = getattr(answer, "error_code", 0)
    topics = getattr(answer, "topics", None) or ()
    for code in (of_the_whole, *(row[_error_at(answer)] for _, rows, *_ in topics for row in rows)):
        if code == UNSTABLE_OFFSET_COMMIT:  # unknown to aiokafka, which would not ask again
            return kafka_errors.GroupLoadInProgressError
        if code:
            return kafka_errors.for_code(code)
    return None


def positions(answer: Any) -> dict[TopicPartition, Committed]:
    """What an answer without errors tells; partitions without a position are left out."""
    return {
        TopicPartition(topic, row[0]): Committed(row[1], row[_error_at(answer) - 1] or "")
        for topic, rows, *_ in answer.topics
        for row in rows
        if row[1] >= 0
    }


def _error_at(answer: Any) -> int:
    return -2 if isinstance(answer, OffsetFetchResponse_v7) else -1

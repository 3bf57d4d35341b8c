"""The requests about a group's positions, of which aiokafka lacks two. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v3
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from reactive_kafka.broker.consumer.membership.group_parts import CommitIdentity
from reactive_kafka.broker.wire import requests as wire_requests
from reactive_kafka.broker.wire.definitions import OFFSET_COMMIT
from reactive_kafka.records import Committed, TopicPartition

TEXT = CompactString("utf-8")
TAGS = ("tags", TaggedFields)
NO_LEADER_EPOCH = -1
INSTANCE_ID_SINCE = 7
"""The first version of OffsetCommit with ``group_instance_id``."""


def commit_request(
    group_id: str, identity: CommitIdentity, offsets: Mapping[TopicPartition, Committed]
) -> wire_requests.Request:
    """Return the request that commits *offsets* for the member that *identity* names."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), position in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": position.offset,
                "committed_metadata": position.metadata,
            }
        )

    def values(version: int) -> dict[str, Any]:
        return {
            "group_id": group_id,
            "generation_id_or_member_epoch": identity.generation_or_epoch,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id if version >= INSTANCE_ID_SINCE else None,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }

    # Only version 9 and newer know member epochs. Version 10 names topics by their ids.
    return wire_requests.Request(OFFSET_COMMIT, values, "9" if identity.is_epoch else "2-8")


def commit_codes(answer: wire_requests.Answer) -> list[tuple[TopicPartition, int]]:
    """Return the partitions in the answer to a commit, each with its error code."""
    return [
        (TopicPartition(topic["name"], row["partition_index"]), row["error_code"])
        for topic in answer.values["topics"]
        for row in topic["partitions"]
    ]


# aiokafka is untyped.
class OffsetFetchResponse_v7(Response):  # type: ignore[misc]
    """Source: OffsetFetchResponse.json of Kafka."""

    API_KEY = 9
    API_VERSION = 7
    _POSITION = (
        ("partition", Int32),
        ("offset", Int64),
        ("leader_epoch", Int32),
        ("metadata", TEXT),
    )
    _PARTITION = (*_POSITION, ("error_code", Int16), TAGS)
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(*_PARTITION)), TAGS)
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("topics", CompactArray(*_TOPIC)), ("error_code", Int16), TAGS
    )


# aiokafka is untyped.
class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]
    """Source: OffsetFetchRequest.json of Kafka. Spoken by Kafka 2.5 and newer."""

    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v7
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(Int32)), TAGS)
    SCHEMA = Schema(
        ("group_id", TEXT), ("topics", CompactArray(*_TOPIC)), ("require_stable", Boolean), TAGS
    )


# aiokafka is untyped.
class TxnOffsetCommitResponse_v3(Response):  # type: ignore[misc]
    """Source: TxnOffsetCommitResponse.json of Kafka."""

    API_KEY = 28
    API_VERSION = 3
    _TOPIC = (
        ("topic", TEXT),
        ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), TAGS)),
        TAGS,
    )
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", CompactArray(*_TOPIC)), TAGS)


# aiokafka is untyped.
class TxnOffsetCommitRequest_v3(RequestStruct):  # type: ignore[misc]
    """Source: TxnOffsetCommitRequest.json of Kafka. Spoken by Kafka 2.5 and newer."""

    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = TxnOffsetCommitResponse_v3
    _POSITION = (
        ("partition", Int32),
        ("offset", Int64),
        ("leader_epoch", Int32),
        ("metadata", TEXT),
        TAGS,
    )
    _TOPIC = (("topic", TEXT), ("partitions", CompactArray(*_POSITION)), TAGS)
    _PRODUCER = (
        ("transactional_id", TEXT),
        ("group_id", TEXT),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
    )
    _MEMBER = (("generation_id", Int32), ("member_id", TEXT), ("group_instance_id", TEXT))
    SCHEMA = Schema(*_PRODUCER, *_MEMBER, ("topics", CompactArray(*_TOPIC)), TAGS)


class TxnOffsetCommit(Request[TxnOffsetCommitRequest_v3]):  # type: ignore[misc]
    """Positions for a transaction, in the name of a member of one generation (KIP-447).

    aiokafka's own request has version 0, which names no member: a member that was frozen, and has
    lost its partitions meanwhile, could still store positions. Brokers before 2.5 do not have this
    version and are refused.
    """

    API_KEY = 28

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments

    def build(self, version: Any) -> Any:
        return version(*self._arguments)


class OffsetFetch(Request[OffsetFetchRequest_v3 | OffsetFetchRequest_v7]):  # type: ignore[misc]
    """Asks for the positions of *group_id*: of *partitions*, or of all (None).

    A coordinator that has just taken over returns the positions that it knows to be on all in-sync
    replicas. For up to a second these may be fewer than were confirmed to us, and a channel that
    starts then would repeat records. ``require_stable`` makes the coordinator wait until everything
    is stored; Java's clients set it, too. aiokafka's own request has version 3, which lacks the
    field. It is used for brokers before 2.5.
    """

    API_KEY = 9

    def __init__(self, group_id: str, partitions: Iterable[TopicPartition] | None) -> None:
        self._group_id = group_id
        self.is_to_be_stable = True
        self._topics: dict[str, list[int]] | None = None if partitions is None else {}
        for topic, number in partitions or ():
            self._topics.setdefault(topic, []).append(number)  # type: ignore[union-attr]

    def build(self, version: Any) -> Any:
        """Return the request in the newest version that both sides have."""
        topics = None if self._topics is None else list(self._topics.items())
        if version is OffsetFetchRequest_v3:
            return version(self._group_id, topics)
        tagged: list[Any] | None = (
            None if topics is None else [(topic, numbers, {}) for topic, numbers in topics]
        )
        return version(self._group_id, tagged, self.is_to_be_stable, {})

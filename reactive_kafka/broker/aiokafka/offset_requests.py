"""The requests about a group's positions, and what their answers say. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reactive_kafka.broker.client import TransactionId
from reactive_kafka.broker.consumer.membership.group_parts import CommitIdentity
from reactive_kafka.broker.wire.definitions import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from reactive_kafka.broker.wire.requests import Request
from reactive_kafka.records import Committed, TopicPartition

INSTANCE_ID_SINCE = 7
"""The first version of OffsetCommit with ``group_instance_id``."""
STABLE_SINCE = 7
"""The first version of OffsetFetch with ``require_stable``, of Kafka 2.5. Newer versions ask for
several groups at once.
"""


def commit_request(
    group_id: str, identity: CommitIdentity, offsets: Mapping[TopicPartition, Committed]
) -> Request:
    """Return the request that commits *offsets* for the member that *identity* names."""
    topics = _by_topic(offsets)

    def values(version: int) -> dict[str, Any]:
        return {
            "group_id": group_id,
            "generation_id_or_member_epoch": identity.generation_or_epoch,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id if version >= INSTANCE_ID_SINCE else None,
            "topics": topics,
        }

    # Only version 9 and newer know member epochs. Version 10 names topics by their ids.
    return Request(OFFSET_COMMIT, values, "9" if identity.is_epoch else "2-8")


def commit_in_request(
    transaction: TransactionId,
    group_id: str,
    identity: CommitIdentity,
    offsets: Mapping[TopicPartition, Committed],
) -> Request:
    """Return the request that adds *offsets* to a transaction, in the name of a member (KIP-447).

    Older versions, and aiokafka's own request, name no member: a member that was frozen, and has
    lost its partitions meanwhile, could still store positions. So brokers before 2.5 are refused.
    """
    values = {
        "transactional_id": transaction.transactional_id,
        "group_id": group_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "generation_id_or_member_epoch": identity.generation_or_epoch,
        "member_id": identity.member_id,
        "group_instance_id": identity.instance_id,
        "topics": _by_topic(offsets),
    }
    # Version 4 has other errors. Version 5 is for transactions that need no AddOffsetsToTxn
    # (KIP-890).
    return Request(TXN_OFFSET_COMMIT, values, "3")


def _by_topic(offsets: Mapping[TopicPartition, Committed]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), position in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": position.offset,
                "committed_metadata": position.metadata,
            }
        )
    return [{"name": topic, "partitions": rows} for topic, rows in topics.items()]


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], *, is_stable: bool = True
) -> Request:
    """Return the request for a group's positions of some partitions.

    A coordinator that has just taken over returns the positions that it knows to be on all in-sync
    replicas. For up to a second these may be fewer than were confirmed to us, and a channel that
    starts then would repeat records. *is_stable* makes the coordinator wait until everything is
    stored; Java's clients set it, too. Brokers before 2.5 do not know it.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)

    def values(version: int) -> dict[str, Any]:
        return {
            "group_id": group_id,
            "topics": [
                {"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()
            ],
            "require_stable": is_stable and version >= STABLE_SINCE,
        }

    # Version 6 is the first flexible one. librdkafka's mock cluster, which is the embedded broker,
    # has it as its last one, and reads such versions of other requests wrongly.
    return Request(OFFSET_FETCH, values, lambda highest: "7" if highest >= STABLE_SINCE else "2-5")


def fetch_all_request(group_id: str, *, is_stable: bool = True) -> Request:
    """Return the request for all positions of a group.

    Only Kafka 2.5 and newer take it. librdkafka's mock cluster, which is the embedded broker, would
    answer that it has no list of them.
    """
    values = {"group_id": group_id, "topics": None, "require_stable": is_stable}
    return Request(OFFSET_FETCH, values, str(STABLE_SINCE))


def codes_in(answer: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return partition -> its error code in the answer to one of these requests."""
    return {
        TopicPartition(topic["name"], row["partition_index"]): row["error_code"]
        for topic in answer["topics"]
        for row in topic["partitions"]
    }


def positions_in(answer: Mapping[str, Any]) -> dict[TopicPartition, Committed]:
    """Return the positions in an answer without errors. Partitions without one are left out."""
    return {
        TopicPartition(topic["name"], row["partition_index"]): Committed(
            row["committed_offset"], row["metadata"] or ""
        )
        for topic in answer["topics"]
        for row in topic["partitions"]
        if row["committed_offset"] >= 0
    }

"""Asks the leaders of partitions for offsets of their logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.error_classes import class_for, is_retriable
from reactive_kafka.broker.wire.definitions import LIST_OFFSETS
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.records import TopicPartition

LATEST = -1
EARLIEST = -2
"""What Kafka takes for a time: the end of the log, and its beginning."""
UNKNOWN_OFFSET = -1
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
"""The log is of a format without times (before Kafka 0.10)."""
# Newer versions have other encodings, and nothing that is asked for here.
_VERSIONS = "1-5"
_CONSUMER = -1
_RETRY_S = 0.1


async def log_offsets(
    client: Any,
    times: Mapping[TopicPartition, int],
    isolation_level: int,
    check_existence: Callable[[Collection[TopicPartition]], Awaitable[None]],
) -> dict[TopicPartition, int]:
    """Return partition -> its first offset at or after a time in ms since the epoch.

    :data:`UNKNOWN_OFFSET` if no record is that late. The caller sets a deadline: leaders are asked
    until all have answered.

    Args:
        client: A ``KafkaClient``.
        times: Also :data:`LATEST` and :data:`EARLIEST`.
        isolation_level: A number of Kafka's. With ``read_committed`` the end is the last stable
            offset.
        check_existence: Called with the partitions that are to be asked for, each time. A topic may
            be deleted meanwhile.

    Raises:
        aiokafka.errors.KafkaError: A leader refuses.
        Exception: What *check_existence* raises.
    """
    found: dict[TopicPartition, int] = {}
    left = dict(times)
    wait_s = 0.0
    while True:
        await check_existence(left)
        try:
            found |= await _ask_leaders(client, left, isolation_level)
        except kafka_errors.KafkaError as error:
            if not is_retriable(error):
                raise
        left = {partition: time for partition, time in times.items() if partition not in found}
        if not left:
            return found
        await client.force_metadata_update()
        await asyncio.sleep(wait_s)
        wait_s = _RETRY_S


async def _ask_leaders(
    client: Any, times: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, int]:
    """Return what the leaders answer, without partitions whose leader is not known or has moved."""
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for partition, time in times.items():
        node = client.cluster.leader_for_partition(partition)
        if node is None:
            # From now on the client asks for the metadata of this topic, too. A consumer does not
            # get here: it has checked that the partition exists.
            client.add_topic(partition.topic)
        elif node != -1:
            by_node.setdefault(node, {})[partition] = time
    answers = await asyncio.gather(
        *(_ask(client, node, of_node, isolation_level) for node, of_node in by_node.items())
    )
    return {partition: offset for answer in answers for partition, offset in answer.items()}


async def _ask(
    client: Any, node: int, times: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, int]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, number), time in times.items():
        topics.setdefault(topic, []).append({"partition_index": number, "timestamp": time})

    def values(version: int) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "replica_id": _CONSUMER,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }
        if version >= 2:
            asked["isolation_level"] = isolation_level
        return asked

    answer = await call(client, node, LIST_OFFSETS, values, versions=_VERSIONS)
    found: dict[TopicPartition, int] = {}
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["name"], row["partition_index"])
            code = row["error_code"]
            if code == UNSUPPORTED_FOR_MESSAGE_FORMAT:
                found[partition] = UNKNOWN_OFFSET
            elif code:
                error = class_for(code)(str(partition))
                if not is_retriable(error):
                    raise error
            else:
                found[partition] = row["offset"]
    return found

"""Asks for the topics of a cluster, and for the offsets that their logs have."""

from __future__ import annotations

from collections.abc import Collection

from reactive_kafka.broker.client import Inspector
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.records import LogRange, TopicPartition


class UnknownTopicError(FatalBrokerError):
    """A topic that was named does not exist."""


async def known_topics(inspector: Inspector, *topics: str) -> dict[str, list[TopicPartition]]:
    """Return topic -> partitions for the whole cluster.

    Raises:
        UnknownTopicError: One of *topics* does not exist.
    """
    known = await inspector.topics()
    missing = [topic for topic in topics if topic not in known]
    if missing:
        raise UnknownTopicError(
            f"unknown topic {', '.join(missing)}; the cluster has {', '.join(known) or 'none'}"
        )
    return known


async def logs_of(
    inspector: Inspector, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    """Return partition -> the offsets that its log has."""
    if not partitions:
        return {}
    starts = await inspector.beginning_offsets(partitions)
    ends = await inspector.end_offsets(partitions)
    return {tp: LogRange(starts[tp], ends[tp]) for tp in partitions}

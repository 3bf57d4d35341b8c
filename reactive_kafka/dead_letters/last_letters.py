"""Reads the newest dead letters of a topic without joining a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from reactive_kafka.broker.topic_lookup import known_topics, logs_of
from reactive_kafka.dead_letters.letters import LetterOrigin, letter_of, origin_of
from reactive_kafka.dead_letters.replay import COMMITTED, LetterCluster, reading_ranges
from reactive_kafka.records import LogRange, TopicPartition

KEPT_TIMES = 4
"""How many times more letters than wanted are kept while the partitions are read."""


@dataclass(frozen=True, slots=True)
class LastLetters:
    """The newest letters of a topic.

    Attributes:
        letters: As :func:`letter_of` returns them, values included; the newest first.
        offsets: How many offsets the topic has.
    """

    letters: Sequence[Mapping[str, Any]]
    offsets: int


async def last_letters(
    cluster: LetterCluster, topic: str, count: int, origin: LetterOrigin | None = None
) -> LastLetters:
    """Return the last *count* letters of a topic, or those among them that come from *origin*.

    Raises:
        UnknownTopicError: There is no such topic.
        ReplayError: The topic cannot be read.
    """
    found: list[dict[str, Any]] = []
    async with cluster.clients(**COMMITTED) as (connector, inspector):
        logs = await logs_of(inspector, (await known_topics(inspector, topic))[topic])
        ranges = ends_of(logs, count)
        async with reading_ranges(cluster, connector, ranges) as chunks:
            async for chunk in chunks:
                # Each becomes a few short texts at once, so that large values are not kept.
                found += [
                    letter_of(chunk.partition, record, with_value=True)
                    for record in chunk.records
                    if origin is None or origin_of(record.headers) == origin
                ]
                if len(found) > KEPT_TIMES * count:
                    # There may be many partitions.
                    found = nlargest(count, found, key=_newest_first)
    return LastLetters(
        nlargest(count, found, key=_newest_first),
        sum(end - start for start, end in logs.values()),
    )


def ends_of(logs: Mapping[TopicPartition, LogRange], count: int) -> dict[TopicPartition, LogRange]:
    """Return the last *count* offsets of each log."""
    return {
        partition: LogRange(max(log.start, log.end - count), log.end)
        for partition, log in logs.items()
    }


def _newest_first(letter: Mapping[str, Any]) -> tuple[int, int]:
    return letter["timestamp_ms"] or 0, letter["offset"]

"""Partitions as Kafka's messages have them: an array of topics, each with its numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reactive_kafka.records import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Return the value of the array, sorted."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": of_topic} for topic, of_topic in numbers.items()]


def partitions_of(topics: Iterable[Mapping[str, Any]]) -> frozenset[TopicPartition]:
    """Return the partitions in the value of such an array."""
    return frozenset(
        TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"]
    )

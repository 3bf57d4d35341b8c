"""What a channel reads has one answer, which everybody asks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from reactive_kafka.config.schema import AssignedPartition, IncomingSettings, Reads
from reactive_kafka.records import TopicPartition

PACKAGE = Path(__file__).parents[2] / "reactive_kafka"
ASSIGNED = Reads(assign=(AssignedPartition(partition=TopicPartition("orders", 1)),))


@pytest.mark.parametrize(
    ("reads", "topic", "expected"),
    [
        (Reads(topics=("orders", "refunds")), "refunds", True),
        (Reads(topics=("orders",)), "orders-2", False),
        (Reads(pattern="ord.*"), "orders", True),
        (Reads(pattern="ord"), "orders", False),  # the whole name
        (Reads(pattern=".*"), "__consumer_offsets", False),  # the broker's own
        (Reads(topics=("__consumer_offsets",)), "__consumer_offsets", True),  # named on purpose
        (ASSIGNED, "orders", True),
        (ASSIGNED, "refunds", False),
    ],
)
def test_a_channel_reads_its_topics_what_its_pattern_fits_or_what_it_is_assigned(
    reads: Reads, topic: str, expected: bool
) -> None:
    assert reads.has(topic) is expected
    settings = IncomingSettings(
        name="orders", group_id="billing", topics=reads.topics, pattern=reads.pattern, assign=reads.assign
    )
    assert settings.reads == reads


def test_of_assigned_topics_it_reads_the_assigned_partitions() -> None:
    assert ASSIGNED.has_partition(TopicPartition("orders", 1))
    assert not ASSIGNED.has_partition(TopicPartition("orders", 0))
    assert Reads(pattern="ord.*").has_partition(TopicPartition("orders", 0))


def test_nobody_matches_a_channels_pattern_beside_it() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(name.name == "TopicPattern" for name in node.names)
    }
    clients = {"broker/aiokafka/consumer.py", "broker/memory/consumer.py", "broker/memory/group.py"}
    assert users == clients | {"config/schema.py"}

"""What a rebalance asks of a member, one step after the other. Pure."""

from __future__ import annotations

from typing import NamedTuple

from reactive_kafka.records import TopicPartition


class RevokeStep(NamedTuple):
    """Give up these partitions. They may be committed until the listener has returned."""

    partitions: frozenset[TopicPartition]


class AssignStep(NamedTuple):
    """Take these partitions, perhaps none, in the current generation."""

    partitions: frozenset[TopicPartition]


class LoseStep(NamedTuple):
    """The group has removed the member: these partitions are lost, and cannot be committed."""

    partitions: frozenset[TopicPartition]


RebalanceStep = RevokeStep | AssignStep | LoseStep

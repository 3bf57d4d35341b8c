"""When a partition is paused at the client, and when it is resumed."""

from __future__ import annotations

from reactive_kafka.commit.metadata.pending import MetadataPolicy
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.valves import PAUSE_AFTER_S, Valves
from reactive_kafka.records import TopicPartition

A, B = (TopicPartition("orders", number) for number in range(2))


def partitions() -> tuple[Partition, Partition]:
    return Partition(A, MetadataPolicy()), Partition(B, MetadataPolicy())


def test_a_partition_without_room_is_paused_only_after_a_while() -> None:
    valves, (_, b) = Valves(), partitions()
    assert valves.update([b], [A], [], 0.0) == ([], [])
    assert valves.update([b], [A], [], PAUSE_AFTER_S / 2) == ([], [])
    assert valves.update([b], [A], [], PAUSE_AFTER_S) == ([B], [])
    assert b.is_paused
    assert valves.update([b], [A], [], PAUSE_AFTER_S + 1) == ([], [])


def test_a_partition_that_had_room_in_between_waits_again_before_it_is_paused() -> None:
    valves, (a, _) = Valves(), partitions()
    valves.update([a], [], [], 0.0)
    valves.update([], [A], [], 0.9)
    assert valves.update([a], [], [], 1.1) == ([], [])
    assert valves.update([a], [], [], 2.1) == ([A], [])


def test_a_stopped_partition_is_paused_at_once() -> None:
    a, _ = partitions()
    assert Valves().update([a], [B], [A], 0.0) == ([A], [])


def test_a_paused_partition_is_resumed_as_soon_as_there_is_room() -> None:
    valves, (a, _) = Valves(), partitions()
    valves.update([a], [], [A], 0.0)
    assert valves.update([], [A], [], 0.1) == ([], [A])
    assert not a.is_paused


def test_a_partition_that_starts_anew_in_the_same_assignment_is_still_paused_and_is_resumed() -> None:
    valves, (a, b) = Valves(), partitions()
    valves.update([a, b], [], [A, B], 0.0)
    valves.update([b], [], [], 1.0)
    assert valves.update([b], [A], [], 2.0) == ([], [A])


def test_what_an_assignment_has_opened_is_paused_again_at_the_client() -> None:
    valves, (a, _) = Valves(), partitions()
    valves.update([a], [], [A], 0.0)
    a.is_paused = False  # as the table does it when a partition is assigned: the client has forgotten its pauses
    assert valves.update([a], [], [A], 0.5) == ([A], [])
    assert valves.update([], [A], [], 0.6) == ([], [A])

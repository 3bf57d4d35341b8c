"""Chooses what is fetched next. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import islice
from math import inf
from typing import NamedTuple

from reactive_kafka.broker.consumer.fetching.prefetch import HELD_S
from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.records import TopicPartition

SOME = 8
"""How many of the last answers :func:`has_to_wait` looks at."""


class FetchPlan(NamedTuple):
    """What to fetch now, and when to look again without being told."""

    # Node -> the partitions to ask it for.
    partitions: dict[int, list[ReadPartition]]
    # Node -> when the newest records came that were fetched from it and are not taken.
    newest_held_at: dict[int, float]
    # Infinite if nothing changes by itself.
    look_at: float
    # True if the leader of a partition is not known.
    lacks_leader: bool


def plan_fetches(
    reads: ReadPartitions, in_flight: Collection[int], hurried: Collection[int], now: float
) -> FetchPlan:
    """Return what to fetch of which node.

    Args:
        reads: The partitions.
        in_flight: The nodes that have not answered their last fetch.
        hurried: The nodes that are asked although records which they have sent are still held.
        now: The time.
    """
    newest_held_at: dict[int, float] = {}
    for state in reads.held.values():
        node = state.node(now)
        if node is not None and state.piece is not None:
            newest_held_at[node] = max(state.piece.came_at, newest_held_at.get(node, -inf))
    look_at = inf
    busy = set(in_flight)
    for node, held_at in newest_held_at.items():
        if node not in busy and node not in hurried and held_at + HELD_S > now:
            busy.add(node)
            look_at = min(look_at, held_at + HELD_S)
    found: defaultdict[int, list[ReadPartition]] = defaultdict(list)
    lacks_leader = False
    for state in reads.states.values():
        if state.piece is not None or state.error is not None or not state.is_flowing:
            continue
        node = state.leader if state.replica is None else state.node(now)
        if node is None:
            lacks_leader = True
        elif state.retry_at > now:
            look_at = min(look_at, state.retry_at)
        elif node not in busy:
            found[node].append(state)
    return FetchPlan(found, newest_held_at, look_at, lacks_leader)


def has_to_wait(
    reads: ReadPartitions, partition: TopicPartition, in_flight: Collection[int], now: float
) -> bool:
    """True if a partition whose records are all taken would not be fetched now, but later.

    Planning goes through all partitions. It runs by itself when the last answer of a node has come,
    and when the records of a node have been held for long. Only the last answers are looked at
    here, which is good enough.
    """
    state = reads.states.get(partition)
    node = None if state is None else state.node(now)
    if node in in_flight:
        return True
    return any(
        held.node(now) == node and held.piece is not None and held.piece.came_at + HELD_S > now
        for held in islice(reversed(reads.held.values()), SOME)
    )

"""When to fetch the next records while the last ones are still being handled. Pure.

A node is asked for the next records when all that it has sent are taken, or are a tenth of a second
old. Two things would be lost by that alone. With 1,000 partitions a broker needs 20 ms for an
answer of 8 MB, and there is nothing to handle meanwhile: a fifth of the time. And an answer of 8 MB
has the records of only 8 partitions with a backlog: with 100 of them the workers of the others wait
for more than a second.
"""

from __future__ import annotations

from collections.abc import Collection

from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions

HELD_S = 0.1
"""For so long a node is not asked for other partitions while records that it has sent are held."""

LEFT = 4
"""Fetch ahead when the bytes that are left, times this, fit into an answer of the largest size."""

FULL = 0.75
"""A broker whose answer has this share of ``fetch_max_bytes`` has more, in other partitions."""

HELD_PART = 8
"""A fetch may wait for this fraction of the time for which records of its node have been held."""


def most_wait_ms(newest_held_at: float, now: float) -> float:
    """Return how long a fetch may wait at a node while records of its other partitions are held.

    The fetch does not ask for those partitions, and nothing more is sent to the node before it is
    answered. If all held records are taken by then, there is nothing to handle: with one busy
    partition among quiet ones that was most of 500 ms after each of its answers.

    Args:
        newest_held_at: When the newest of them came.
        now: The time.
    """
    return (now - newest_held_at) * 1000 / HELD_PART


def runs_low(reads: ReadPartitions, answer_bytes: int) -> bool:
    """True if little is left of what was fetched, and most partitions have no records.

    Args:
        reads: The partitions.
        answer_bytes: ``fetch_max_bytes``.
    """
    held = len(reads.held)
    if not held or 2 * held > len(reads.states):
        return False
    return reads.left_bytes * LEFT <= answer_bytes


def nodes_to_hurry(
    held: Collection[ReadPartition], in_flight: Collection[int], now: float
) -> set[int]:
    """Return the nodes of held records that can be asked for their other partitions now.

    Their next fetch must not wait for new records: the partitions with held records are not in it,
    and would wait for its answer.
    """
    nodes = {state.node(now) for state in held}
    return {node for node in nodes if node is not None and node not in in_flight}

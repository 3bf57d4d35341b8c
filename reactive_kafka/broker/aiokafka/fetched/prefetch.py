"""Fetches the next records while the last ones are still being handled. No I/O.

aiokafka fetches from a node when all records of that node are taken, or a tenth of a second old.
Two things are lost by that. With 1,000 partitions a broker needs 20 ms for an answer of 8 MB, and
there was nothing to handle meanwhile: a fifth of the time. And an answer of 8 MB has the records of
only 8 partitions with a backlog: with 100 of them the workers of the others waited for more than a
second.
"""

from __future__ import annotations

from math import inf
from typing import Any

LEFT = 4
"""Fetch ahead when the bytes that are left, times this, fit into an answer of the largest size."""

FULL = 0.75
"""A broker whose answer has this share of ``fetch_max_bytes`` has more, in other partitions."""

HELD_PART = 8
"""A fetch may wait for this fraction of the time for which records of its node have been held."""


def most_wait_ms(fetcher: Any, node_id: int, now: float) -> float:
    """Return how long a fetch may wait at a node while records of its other partitions are held.

    The fetch does not ask for those partitions, and nothing more is sent to the node before it is
    answered. If all held records are taken by then, there is nothing to handle: with one busy
    partition among quiet ones that was most of 500 ms after each of its answers.

    Args:
        fetcher: aiokafka's.
        node_id: The node that is about to be asked.
        now: Monotonic time.

    Returns:
        Infinite if no records of the node are held.
    """
    held_since: list[float] = [
        held._created
        for partition, held in fetcher._records.items()
        if fetcher._select_read_replica(partition) == node_id
    ]
    if not held_since:
        return inf
    return (now - max(held_since)) * 1000 / HELD_PART


def runs_low(fetcher: Any, partitions: int) -> bool:
    """True if little is left of what was fetched, and most of the *partitions* have no records.

    All of what was fetched must be in the hands of readers: only they know how much is left.
    """
    held = fetcher._records.values()
    if not held or 2 * len(held) > partitions:
        return False
    readers = [result.__dict__.get("reader") for result in held]
    left_bytes = sum(reader.left_bytes for reader in readers if reader is not None)
    return None not in readers and left_bytes * LEFT <= fetcher._fetch_max_bytes


def fetch_others_now(fetcher: Any) -> set[int]:
    """Make the client fetch the partitions that have no records, without waiting for the held ones.

    Returns:
        The nodes of held records that have no fetch on its way. Their next fetch must not wait for
        new records: the partitions with held records are not in it, and would wait for its answer.
    """
    nodes: set[int] = {
        fetcher._select_read_replica(partition) for partition in fetcher._records
    } - fetcher._in_flight
    for partition, held in fetcher._records.items():
        if fetcher._select_read_replica(partition) in nodes:
            held._backoff = 0
    if nodes:
        fetcher._notify(fetcher._wait_consume_future)
    return nodes


def wait_for_held_again(fetcher: Any) -> None:
    """Restore the client's waiting for held records, after a fetch that did not wait for them.

    Otherwise the next fetch might wait long for new records of other partitions.
    """
    for held in fetcher._records.values():
        held._backoff = fetcher._prefetch_backoff

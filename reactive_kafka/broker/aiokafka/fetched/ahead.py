"""The next fetch while the last of what came is worked on. No I/O.

The client fetches from a node when all that came of it is taken, or a tenth of a second old. At
1,000 partitions a broker needs 20 ms for 8 MB, in which there was nothing to do: a fifth of the
time. And 8 MB are 8 partitions of those with a backlog: of 100 the workers of the others waited for
more than a second.
"""

from __future__ import annotations

from math import inf
from typing import Any

LEFT = 4
"""An answer of the largest size is worth so many of what is left when the next one is asked for:
one at a time is held, and a part of another."""

FULL = 0.75
"""An answer that has so much of ``fetch_max_bytes`` says that the broker has more, of other
partitions too.
"""

HELD_PART = 8
"""Of the time that a partition's records have been held for, a fetch without it waits for so small
a part at most.
"""


def most_wait_ms(fetcher: Any, node_id: int, now: float) -> float:
    """How long a fetch may wait at a node that records of other partitions are held of (*now*:
    monotonic).

    It asks for none of these, and nothing more is sent to the node before its answer. When they are
    all taken by then there is nothing to do: with one busy partition among quiet ones, for most of
    the 500 ms after each of its pieces.
    """
    of_node = [
        held._created
        for one, held in fetcher._records.items()
        if fetcher._select_read_replica(one) == node_id
    ]
    return (now - max(of_node)) * 1000 / HELD_PART if of_node else inf


def runs_low(fetcher: Any, partitions: int) -> bool:
    """Whether little is left of what came, all of which is being read, and most of the *partitions*
    have nothing.
    """
    held = fetcher._records.values()
    if not held or 2 * len(held) > partitions:
        return False
    readers = [one.__dict__.get("reader") for one in held]
    left_bytes = sum(one.left_bytes for one in readers if one is not None)
    return None not in readers and left_bytes * LEFT <= fetcher._fetch_max_bytes


def hurry(fetcher: Any) -> set[int]:
    """Have the client fetch what it has nothing of; from which nodes others are held, as far as
    they are asked now.

    Those fetches are to bring what a node has at hand: what is held is not in them, and would wait
    for their answers.
    """
    nodes: set[int] = {
        fetcher._select_read_replica(one) for one in fetcher._records
    } - fetcher._in_flight
    for one, held in fetcher._records.items():
        if fetcher._select_read_replica(one) in nodes:
            held._backoff = 0
    if nodes:
        fetcher._notify(fetcher._wait_consume_future)
    return nodes


def rest(fetcher: Any) -> None:
    """That fetch was answered: the next one waits again for what is held, or it might wait long for
    other records.
    """
    for held in fetcher._records.values():
        held._backoff = fetcher._prefetch_backoff

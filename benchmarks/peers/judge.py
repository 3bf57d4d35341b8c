"""What a group has lost and repeated, from the journals of its members and from what it has
committed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.peers.journal import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came out.

    Args:
        sent: Records that were written to the topic.
        lost: Those that nobody has handled, and that nobody will: the committed position is beyond
            them.
        unread: Those that nobody has handled, and that would still be read: the group had stopped
            to work.
        repeated_kills: Calls of a handler with a record that one had handled before, up to the end
            of the kills.
        repeated_restarts: The same from then on, in the rolling restarts.
    """

    sent: int
    lost: int
    unread: int
    repeated_kills: int
    repeated_restarts: int


def judged(
    sent: Mapping[int, int],
    handled_in_kills: Iterable[Position],
    handled_in_restarts: Iterable[Position],
    committed: Mapping[int, int],
) -> Verdict:
    """The verdict.

    Args:
        sent: Partition -> how many records stand in it; their offsets count from 0.
        handled_in_kills: What members have handled up to the end of the kills, in any order.
        handled_in_restarts: What they have handled after that.
        committed: Partition -> the position that the group has committed.
    """
    first = list(handled_in_kills)
    second = list(handled_in_restarts)
    known = set(first)
    every = known.union(second)
    for partition, offset in every:
        if not 0 <= offset < sent.get(partition, 0):
            raise ValueError(
                f"a journal names record {offset} of partition {partition}, which was never sent"
            )
    missing = [
        (partition, offset)
        for partition, count in sent.items()
        for offset in range(count)
        if (partition, offset) not in every
    ]
    lost = sum(offset < committed.get(partition, 0) for partition, offset in missing)
    return Verdict(
        sent=sum(sent.values()),
        lost=lost,
        unread=len(missing) - lost,
        repeated_kills=len(first) - len(known),
        repeated_restarts=len(second) - (len(every) - len(known)),
    )

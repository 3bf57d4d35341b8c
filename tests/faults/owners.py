"""Judges who wrote each commit (I4), and when a group was left alone. Pure.

The groups' own topic has the commits and the assignments in the order in which the coordinator took
them. It does not tell who wrote a commit: that is what was seen on the wire.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.faults.checker import Commit, Violation
from tests.faults.history import Partition

# Times of the broker are whole milliseconds.
CLOCK_S = 0.005


class Generation(NamedTuple):
    """An assignment as the coordinator has stored it: partition -> the client id of its owner."""

    t: float
    number: int
    owners: Mapping[Partition, str]


class Asked(NamedTuple):
    """A request on the wire to commit an offset."""

    t: float
    client: str
    generation: int
    tp: Partition
    offset: int


GroupLog = Sequence[Generation | Commit]


def commits_of_strangers(log: GroupLog, asked: Sequence[Asked]) -> Iterator[Violation]:
    """I4: each stored commit was asked for by who owned the partition then, as a member of that
    generation.
    """
    requests: dict[tuple[Partition, int], list[Asked]] = defaultdict(list)
    for one in asked:
        requests[one.tp, one.offset].append(one)
    now = Generation(0.0, -1, {})
    for entry in log:
        if isinstance(entry, Generation):
            now = entry
            continue
        owner = now.owners.get(entry.tp)
        before = [one for one in requests[entry.tp, entry.offset] if one.t <= entry.t + CLOCK_S]
        if not any(one.client == owner and one.generation == now.number for one in before):
            who = (
                ", ".join(
                    sorted({f"{one.client} of generation {one.generation}" for one in before})
                )
                or "nobody"
            )
            yield Violation(
                "I4",
                f"{entry.tp[0]}-{entry.tp[1]}: {entry.offset} was committed at {entry.t:.3f} by {who}; "
                f"the owner was {owner}, generation {now.number}",
            )


def rebalances(log: GroupLog, start: float, end: float) -> int:
    """How many assignments the group was given between two times."""
    return sum(isinstance(entry, Generation) and start < entry.t < end for entry in log)


def disturbed(log: GroupLog, still: Sequence[tuple[str, float, float]]) -> Iterator[Violation]:
    """I4: while something goes on that concerns no member (its name, start and end), the group is
    left alone.
    """
    for name, start, end in still:
        if number := rebalances(log, start, end):
            yield Violation(
                "I4", f"{number} rebalances during {name}, from {start:.3f} to {end:.3f}"
            )

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
    """An assignment of a classic group as the coordinator has stored it: partition -> the client id
    of its owner.
    """

    t: float
    number: int
    owners: Mapping[Partition, str]


class GroupEpoch(NamedTuple):
    """A group of the consumer protocol begins an epoch: something about its members or topics has
    changed.
    """

    t: float
    number: int


class MemberEpoch(NamedTuple):
    """What the coordinator has stored of one member of a group of the consumer protocol.

    Attributes:
        epoch: Of the member: its commits have to name it.
        partitions: What it owns, and what it has not given up yet. Empty once it has left.
    """

    t: float
    member: str
    client: str
    epoch: int
    partitions: frozenset[Partition]


class Asked(NamedTuple):
    """A request on the wire to commit an offset; *generation*: of a classic member, or the epoch of
    one of the consumer protocol.
    """

    t: float
    client: str
    generation: int
    tp: Partition
    offset: int


GroupEntry = Generation | GroupEpoch | MemberEpoch | Commit
GroupLog = Sequence[GroupEntry]


class _Owner(NamedTuple):
    """Who owns a partition, and in which generations or epochs it has done so without interruption.

    Attributes:
        member: Empty: of a classic group, which names no member ids here.
    """

    client: str
    member: str
    since: int
    until: int


class _Owners:
    """Who owns each partition, as the log of a group goes on."""

    def __init__(self) -> None:
        self._of: dict[Partition, _Owner] = {}
        self._number = -1

    def take(self, entry: Generation | GroupEpoch | MemberEpoch) -> None:
        if isinstance(entry, Generation):
            self._number = entry.number
            self._of = {
                tp: _Owner(client, "", entry.number, entry.number)
                for tp, client in entry.owners.items()
            }
        elif isinstance(entry, GroupEpoch):
            self._number = entry.number
        else:
            self._take_member(entry)

    def _take_member(self, entry: MemberEpoch) -> None:
        before = self._of
        self._of = {
            tp: owner
            for tp, owner in before.items()
            if owner.member != entry.member or tp in entry.partitions
        }
        for tp in entry.partitions:
            owner = before.get(tp)
            # Of a classic group that is moved to the consumer protocol with its members.
            is_kept = owner is not None and (
                owner.member == entry.member or (owner.client == entry.client and not owner.member)
            )
            since = owner.since if owner is not None and is_kept else entry.epoch
            self._of[tp] = _Owner(entry.client, entry.member, since, entry.epoch)

    def may_commit(self, one: Asked) -> bool:
        owner = self._of.get(one.tp)
        if owner is None or one.client != owner.client:
            return False
        return owner.since <= one.generation <= owner.until

    def describe(self, tp: Partition) -> str:
        owner = self._of.get(tp)
        if owner is None:
            return f"the owner was None, generation {self._number}"
        since = "" if owner.since == owner.until else f" since {owner.since}"
        return f"the owner was {owner.client}, generation {owner.until}{since}"


def commits_of_strangers(log: GroupLog, asked: Sequence[Asked]) -> Iterator[Violation]:
    """I4: each stored commit was asked for by who owned the partition then, as a member of that
    generation, or of an epoch in which it has owned the partition without interruption.
    """
    requests: dict[tuple[Partition, int], list[Asked]] = defaultdict(list)
    for one in asked:
        requests[one.tp, one.offset].append(one)
    owners = _Owners()
    for entry in log:
        if not isinstance(entry, Commit):
            owners.take(entry)
            continue
        before = [one for one in requests[entry.tp, entry.offset] if one.t <= entry.t + CLOCK_S]
        if not any(map(owners.may_commit, before)):
            who = (
                ", ".join(
                    sorted({f"{one.client} of generation {one.generation}" for one in before})
                )
                or "nobody"
            )
            yield Violation(
                "I4",
                f"{entry.tp[0]}-{entry.tp[1]}: {entry.offset} was committed at {entry.t:.3f} by {who}; "
                f"{owners.describe(entry.tp)}",
            )


class LeftBehind(NamedTuple):
    """A member of the classic protocol loses all that it owns, through no fault of its own.

    The last member of the consumer protocol was gone, so the broker made the group a classic one
    again. Its generation is the group's epoch, and the member had not reached that: its commits and
    heartbeats are refused with ILLEGAL_GENERATION.
    """

    t: float
    client: str


def left_behind(log: GroupLog) -> Iterator[LeftBehind]:
    """Each member that was left behind when the broker made its group a classic one again."""
    epochs: dict[str, int] = {}
    for entry in log:
        if isinstance(entry, MemberEpoch) and entry.epoch >= 0:
            epochs[entry.client] = entry.epoch
        elif isinstance(entry, Generation):
            behind = [client for client, epoch in epochs.items() if epoch < entry.number]
            yield from (LeftBehind(entry.t, client) for client in behind)
            epochs.clear()


def rebalances(log: GroupLog, start: float, end: float) -> int:
    """How many assignments the group was given between two times; in the consumer protocol, how
    many epochs it began.
    """
    return sum(
        isinstance(entry, Generation | GroupEpoch) and start < entry.t < end for entry in log
    )


def disturbed(log: GroupLog, still: Sequence[tuple[str, float, float]]) -> Iterator[Violation]:
    """I4: while something goes on that concerns no member (its name, start and end), the group is
    left alone.
    """
    for name, start, end in still:
        if number := rebalances(log, start, end):
            yield Violation(
                "I4", f"{number} rebalances during {name}, from {start:.3f} to {end:.3f}"
            )

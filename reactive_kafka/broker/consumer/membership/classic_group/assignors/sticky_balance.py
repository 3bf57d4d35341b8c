"""Even shares that leave partitions with their owners where they can. Pure.

Both sticky assignors use it. First each member keeps what it owns and may still read, then
partitions without an owner are given out, then partitions move until shares are even. Shares are
even if no member can get a partition from one that has at least two more, also not by way of other
members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
    Shares,
    ordered,
)
from reactive_kafka.records import TopicPartition


def valid_owners(
    claims: Mapping[str, tuple[Iterable[TopicPartition], int]],
) -> dict[TopicPartition, str | None]:
    """Return partition -> the member that owns it, None if two members claim it equally.

    Of two members that claim a partition the one with the newer generation owns it: the other one
    has missed that it was taken away.

    Args:
        claims: Member id -> what it says it owns, and the generation in which it was assigned that.
    """
    owners: dict[TopicPartition, str | None] = {}
    generations: dict[TopicPartition, int] = {}
    for member_id, (partitions, generation) in claims.items():
        for partition in partitions:
            known = generations.get(partition)
            if known is None or generation > known:
                owners[partition] = member_id
                generations[partition] = generation
            elif generation == known and owners[partition] != member_id:
                owners[partition] = None
    return owners


def sticky_shares(
    members: Mapping[str, MemberSubscription],
    partitions: Mapping[str, Sequence[int]],
    owners: Mapping[TopicPartition, str | None],
) -> Shares:
    """Return even shares in which as many partitions as possible stay with their owners."""
    read = {
        member_id: member.topics & partitions.keys()
        for member_id, member in ((it, members[it]) for it in ordered(members))
    }
    existing = [
        TopicPartition(topic, number)
        for topic in sorted(partitions)
        for number in partitions[topic]
    ]
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in read}
    free = []
    for partition in existing:
        owner = owners.get(partition)
        if owner is not None and partition.topic in read.get(owner, ()):
            kept[owner].append(partition)
        else:
            free.append(partition)
    if len(set(map(frozenset, read.values()))) == 1:
        # Nobody reads a topic that is not in the only set of topics.
        readable = [partition for partition in free if partition.topic in next(iter(read.values()))]
        return _equal_shares(kept, readable)
    return _Balancing(read, kept, free, owners).shares()


def _equal_shares(
    kept: Mapping[str, Sequence[TopicPartition]], free: Iterable[TopicPartition]
) -> Shares:
    """Return the shares of members that all read the same topics.

    Args:
        kept: Member id -> what it owns.
        free: Partitions without an owner, in the order in which they are dealt.
    """
    left = list(free)
    total = len(left) + sum(map(len, kept.values()))
    least, extra = divmod(total, len(kept))
    # Members that own the most keep one more than others, so that fewer partitions move.
    by_size = sorted(kept, key=lambda member_id: -len(kept[member_id]))
    rooms = {member_id: least + (place < extra) for place, member_id in enumerate(by_size)}
    shares: Shares = {}
    for member_id, owned in kept.items():
        shares[member_id] = set(owned[: rooms[member_id]])
        left.extend(owned[rooms[member_id] :])
    turns = deque(member_id for member_id in kept if len(shares[member_id]) < rooms[member_id])
    for partition in sorted(left):
        member_id = turns.popleft()
        shares[member_id].add(partition)
        if len(shares[member_id]) < rooms[member_id]:
            turns.append(member_id)
    return shares


_Step = tuple[str, str, int]
"""A move of one partition: the giver, the taker, and the class of its topic."""


@dataclass(slots=True)
class _Holding:
    """The partitions of one class of topics that a member has."""

    own: list[TopicPartition] = field(default_factory=list)
    # Those that it did not own before.
    others: list[TopicPartition] = field(default_factory=list)

    def take_for(self, target: str, owners: Mapping[TopicPartition, str | None]) -> TopicPartition:
        """Remove the partition that moves to *target*: its own one, or else one without owner."""
        if not self.others:
            return self.own.pop()
        for index, partition in enumerate(self.others):
            if owners.get(partition) == target:
                return self.others.pop(index)
        return self.others.pop()


class _Balancing:
    """The shares of members that read different topics, until they are even.

    Topics that the same members read are one class: it does not matter which of them moves.
    """

    def __init__(
        self,
        read: Mapping[str, Collection[str]],
        kept: Mapping[str, Sequence[TopicPartition]],
        free: Iterable[TopicPartition],
        owners: Mapping[TopicPartition, str | None],
    ) -> None:
        self._owners = owners
        self._readers_of_class: list[tuple[str, ...]] = []
        self._class_of_topic = self._classes(read)
        # Member id -> class of topics -> partitions of it that the member has.
        self._held: dict[str, dict[int, _Holding]] = {member: {} for member in read}
        self._load = dict.fromkeys(read, 0)
        for member_id, partitions in kept.items():
            for partition in partitions:
                self._add(member_id, partition)
        self._give_out(free)

    def shares(self) -> Shares:
        """Move partitions until shares are even, and return them.

        Partitions without an owner move first. If they are enough, no member loses one that it
        owns: the second round of a cooperative rebalance takes nothing away, and ends it.
        """
        self._even_out(may_move_own=False)
        self._even_out(may_move_own=True)
        self._bring_home()
        return {
            member: {partition for held in classes.values() for partition in held.own + held.others}
            for member, classes in self._held.items()
        }

    def _even_out(self, *, may_move_own: bool) -> None:
        """Move partitions from members with the most until no chain leads to one with two less."""
        # Members from which there is no such chain. They stay like that: a chain between other
        # members changes nothing for them.
        done: set[str] = set()
        while len(done) < len(self._load):
            giver = max(
                (member for member in self._load if member not in done), key=self._load.__getitem__
            )
            enough = self._load[giver] - 2
            reached, chain = self._search(giver, done, enough, may_move_own=may_move_own)
            if chain:
                self._move_along(chain)
            else:
                done |= reached

    def _bring_home(self) -> None:
        """Return partitions to the members that own them where shares stay as even as they are."""
        for holder, classes in self._held.items():
            for topics, held in list(classes.items()):
                for partition in list(held.others):
                    owner = self._owners.get(partition)
                    if owner in self._readers_of_class[topics] and partition in held.others:
                        self._bring_back(holder, owner, topics)

    def _bring_back(self, holder: str, owner: str, topics: int) -> None:
        """Return one partition, if a chain from its owner ends where one more does no harm."""
        enough = self._load[holder] - 1
        _, chain = self._search(owner, (), enough, may_move_own=False, other_end=holder)
        if chain is not None:
            self._move_along([*chain, (holder, owner, topics)])

    def _classes(self, read: Mapping[str, Collection[str]]) -> dict[str, int]:
        """Return topic -> the number of its class, and note the readers of each class."""
        readers: dict[str, list[str]] = {}
        for member_id, topics in read.items():
            for topic in topics:
                readers.setdefault(topic, []).append(member_id)
        numbers: dict[tuple[str, ...], int] = {}
        found = {}
        for topic in sorted(readers):
            found[topic] = numbers.setdefault(tuple(readers[topic]), len(numbers))
        self._readers_of_class = list(numbers)
        return found

    def _give_out(self, free: Iterable[TopicPartition]) -> None:
        """Give partitions without an owner to the readers with the smallest shares.

        Those that few members read go first, because others have more choice.
        """
        known = [partition for partition in free if partition.topic in self._class_of_topic]
        known.sort(key=lambda it: len(self._readers_of_class[self._class_of_topic[it.topic]]))
        for partition in known:
            readers = self._readers_of_class[self._class_of_topic[partition.topic]]
            self._add(min(readers, key=self._load.__getitem__), partition)

    def _search(
        self,
        giver: str,
        closed: Collection[str],
        enough: int,
        *,
        may_move_own: bool,
        other_end: str | None = None,
    ) -> tuple[set[str], list[_Step] | None]:
        """Look for the cheapest chain of moves from *giver* to a member that may get one more.

        Args:
            giver: The member with which the chain starts.
            closed: Members that no chain may lead through.
            enough: A chain may end with a member that has at most so many partitions.
            may_move_own: Whether members may lose partitions that they own.
            other_end: A chain may end with this member, too.

        Returns:
            The members in reach, and the chain. It is None if there is none, and empty if *giver*
            may be the end.
        """
        came_from: dict[str, tuple[str, int]] = {}
        costs = {giver: 0}
        found: set[str] = set()
        waiting = deque([giver])
        while waiting:
            source = waiting.popleft()
            if source in found:
                continue
            found.add(source)
            if self._load[source] <= enough or source == other_end:
                return found, self._chain(giver, source, came_from)
            for topics, held in self._held[source].items():
                if not held.others and not (may_move_own and held.own):
                    continue
                # Moving a partition away from its owner costs one, any other move nothing.
                cost = costs[source] + (not held.others)
                for target in self._readers_of_class[topics]:
                    if target in found or target in closed:
                        continue
                    if cost < costs.get(target, cost + 1):
                        costs[target] = cost
                        came_from[target] = (source, topics)
                        if cost == costs[source]:
                            waiting.appendleft(target)
                        else:
                            waiting.append(target)
        return found, None

    def _chain(
        self, giver: str, last: str, came_from: Mapping[str, tuple[str, int]]
    ) -> list[_Step]:
        """Return the moves that lead from *giver* to *last*, the last one first."""
        chain = []
        target = last
        while target != giver:
            source, topics = came_from[target]
            chain.append((source, target, topics))
            target = source
        return chain

    def _move_along(self, chain: Iterable[_Step]) -> None:
        for source, target, topics in chain:
            partition = self._held[source][topics].take_for(target, self._owners)
            self._load[source] -= 1
            self._add(target, partition)

    def _add(self, member_id: str, partition: TopicPartition) -> None:
        topics = self._class_of_topic[partition.topic]
        held = self._held[member_id].setdefault(topics, _Holding())
        if self._owners.get(partition) == member_id:
            held.own.append(partition)
        else:
            held.others.append(partition)
        self._load[member_id] += 1

"""The positions of a group, in Kafka and in the stores of its channels, and how they are set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from reactive_kafka.broker.client import GroupDescription, GroupMember, Inspector
from reactive_kafka.checkpoint.store import Checkpoint
from reactive_kafka.cli.cluster import Cluster, known_topics
from reactive_kafka.cli.errors import Failure
from reactive_kafka.cli.offsets_plan import Change, Log
from reactive_kafka.cli.stores import Stores, is_of
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a group in one partition.

    Attributes:
        kafka: What Kafka has stored; None: nothing.
        keeper: The channel that keeps the position in a store; None: only Kafka has it.
        row: What that store has; None: nothing.
    """

    partition: TopicPartition
    log: Log
    kafka: Committed | None = None
    keeper: str | None = None
    row: Checkpoint | None = None

    @property
    def stored(self) -> Committed | None:
        """Where the group continues: the store's position if it has one, otherwise Kafka's."""
        if self.row is not None and self.row.position is not None:
            return Committed(self.row.position, self.row.metadata)
        return self.kafka

    @property
    def position(self) -> int | None:
        """The offset of :attr:`stored`."""
        return None if self.stored is None else self.stored.offset

    @property
    def state(self) -> str | None:
        """The application's, encoded, if a store keeps it."""
        return None if self.row is None else self.row.state

    @property
    def lag(self) -> int | None:
        """Records behind; None if nothing is committed."""
        return None if self.position is None else max(0, self.log.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment.

    Attributes:
        group: What Kafka says about it; None where its channel joins no group at all.
        positions: Ascending by partition.
    """

    name: str
    group: GroupDescription | None
    positions: tuple[Position, ...]

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return () if self.group is None else self.group.members

    def check_idle(self) -> None:
        """Check that no member would commit over the positions that are about to be set.

        Raises:
            Failure: It has members, or the broker does not tell.
        """
        if self.members:
            raise Failure(f"group {self.name!r} has members, stop them first: {'; '.join(map(shown, self.members))}")
        if self.group is not None and self.group.state is None:
            raise Failure(f"the broker does not say whether group {self.name!r} has members")


def shown(member: GroupMember) -> str:
    """A member as one line of text; its client chose the names."""
    return one_line(f"{member.client_id} at {member.host} ({member.member_id})")


async def look(cluster: Cluster, group: str, topics: Sequence[str] = (), *, may_be_new: bool = False) -> GroupView:
    """What a group has in these topics; without any: in those where it has something.

    Args:
        may_be_new: The group need not exist.

    Raises:
        Failure: The broker knows no such group or topic.
    """
    async with _clients(cluster, group) as (inspector, stores):
        return await _look(cluster, inspector, stores, group, topics, may_be_new=may_be_new)


@asynccontextmanager
async def _clients(cluster: Cluster, group: str) -> AsyncIterator[tuple[Inspector, Stores]]:
    async with cluster.inspector() as inspector, AsyncExitStack() as closing:
        yield inspector, Stores(cluster.channels, group, closing)


async def _look(
    cluster: Cluster, inspector: Inspector, stores: Stores, group: str, topics: Sequence[str], *, may_be_new: bool
) -> GroupView:
    known = await known_topics(inspector, *topics)
    described, committed = None, {}
    if is_in_kafka(cluster, group):
        described = await inspector.describe_group(group)
        committed = await inspector.committed(group)
    kept = [tp for topic, its in known.items() if stores.channel_of(topic) is not None for tp in its]
    rows = await stores.rows(kept)
    if not (may_be_new or committed or rows or (described is not None and described.exists)):
        raise Failure(f"unknown group {group!r}: it has no members and has committed nothing")
    wanted = topics or sorted({tp.topic for tp in (*committed, *rows) if tp.topic in known})
    partitions = sorted(tp for topic in wanted for tp in known[topic])
    logs = await logs_of(inspector, partitions)
    positions = (
        Position(tp, logs[tp], committed.get(tp), stores.channel_of(tp.topic), rows.get(tp)) for tp in partitions
    )
    return GroupView(group, described, tuple(positions))


def is_in_kafka(cluster: Cluster, group: str) -> bool:
    """Whether Kafka keeps positions under this name, and not only the store of a channel that joins no group."""
    named = [channel for channel in cluster.channels if is_of(channel, group)]
    return not named or any(channel.group_id is not None for channel in named)


async def logs_of(inspector: Inspector, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
    """partition -> what is left of it."""
    if not partitions:
        return {}
    starts, ends = await inspector.beginning_offsets(partitions), await inspector.end_offsets(partitions)
    return {tp: Log(starts[tp], ends[tp]) for tp in partitions}


async def times_of(cluster: Cluster, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """partition -> offset of the first record at or after a time in milliseconds; None: there is none yet."""
    async with cluster.inspector() as inspector:
        return await inspector.offsets_for_times(times_ms)


async def carry_out(cluster: Cluster, view: GroupView, changes: Sequence[Change]) -> None:
    """Set positions, the stores' before Kafka's, and read them back.

    Args:
        view: What the changes were decided on; it must still be true.

    Raises:
        Failure: The group has members, or other positions than *view* says, or has them afterwards.
    """
    topics = sorted({change.partition.topic for change in changes})
    wanted = {change.partition: change for change in changes}
    before = {one.partition: one.stored for one in view.positions}
    async with _clients(cluster, view.name) as (inspector, stores):
        now = await _look(cluster, inspector, stores, view.name, topics, may_be_new=True)
        now.check_idle()
        theirs = (one for one in now.positions if one.partition in wanted)
        moved = [str(one.partition) for one in theirs if one.stored != before[one.partition]]
        if moved:
            raise Failure(f"nothing was changed: the group has moved meanwhile, {', '.join(moved)}; look again")
        rows = {one.partition: one.row for one in now.positions if one.row is not None}
        await stores.write(wanted, rows)
        if now.group is not None:
            await inspector.commit(view.name, {tp: Committed(one.after, one.metadata) for tp, one in wanted.items()})
        after = await _look(cluster, inspector, stores, view.name, topics, may_be_new=True)
    _check(after, wanted)


def _check(view: GroupView, wanted: Mapping[TopicPartition, Change]) -> None:
    """Check that the group has the new positions.

    Raises:
        Failure: It has not.
    """
    wrong = [
        f"{one.partition}: {'nothing' if one.position is None else one.position} instead of {change.after}"
        for one in view.positions
        if (change := wanted.get(one.partition)) is not None and one.stored != Committed(change.after, change.metadata)
    ]
    if wrong:
        raise Failure(f"written, and something else was read back: {'; '.join(wrong)}")

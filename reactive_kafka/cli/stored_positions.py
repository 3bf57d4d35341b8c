"""Reads and sets the positions of a group, in Kafka and in checkpoint stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from reactive_kafka.broker.client import GroupDescription, GroupMember, Inspector
from reactive_kafka.broker.topic_lookup import known_topics, logs_of
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, Write
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.cli.cluster_access import ClusterAccess
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import Change
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import Committed, LogRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a group in one partition."""

    partition: TopicPartition
    log: LogRange
    # What Kafka has stored.
    kafka: Committed | None = None
    # The channel that keeps the position in a store. None: only Kafka has it.
    keeper: str | None = None
    # What that store has.
    row: Checkpoint | None = None

    @property
    def stored(self) -> Committed | None:
        """Where the group continues: the store's position if it has one, otherwise Kafka's."""
        if self.row is not None and self.row.position is not None:
            return Committed(self.row.position, self.row.metadata)
        return self.kafka

    @property
    def position(self) -> int | None:
        return None if self.stored is None else self.stored.offset

    @property
    def state(self) -> str | None:
        """The encoded state of the application, if a store keeps one."""
        return None if self.row is None else self.row.state

    @property
    def lag(self) -> int | None:
        """Records behind; None if nothing is committed."""
        return None if self.position is None else max(0, self.log.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment."""

    name: str
    # What Kafka says about it. None if its channel does not join a group.
    group: GroupDescription | None
    # Ascending by partition.
    positions: tuple[Position, ...]

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return () if self.group is None else self.group.members

    def check_idle(self) -> None:
        """Raise CommandFailed if a member might overwrite positions that are about to be set.

        Also if the broker does not say who the members are.
        """
        if self.members:
            members = "; ".join(map(member_text, self.members))
            raise CommandFailed(f"group {self.name!r} has members, stop them first: {members}")
        if self.group is not None and self.group.state is None:
            raise CommandFailed(f"the broker does not say whether group {self.name!r} has members")


def member_text(member: GroupMember) -> str:
    """Return a member as one line of text. Its client chose the names, so they are escaped."""
    return one_line(f"{member.client_id} at {member.host} ({member.member_id})")


def member_json(member: GroupMember) -> dict[str, Any]:
    """Return a member as JSON."""
    partitions = [partition._asdict() for partition in member.partitions]
    return {**member._asdict(), "partitions": partitions}


async def read_group(
    cluster: ClusterAccess, group: str, topics: Sequence[str] = (), *, may_be_new: bool = False
) -> GroupView:
    """Return the members and positions of a group.

    Args:
        cluster: Where to ask.
        group: The name of the group.
        topics: The topics to show. Without any: those in which the group has a position.
        may_be_new: The group need not exist.

    Raises:
        CommandFailed: There is no such topic, or no such group.
    """
    async with _clients(cluster, group) as (inspector, stores):
        return await _read_group(inspector, stores, topics, may_be_new=may_be_new)


@asynccontextmanager
async def _clients(cluster: ClusterAccess, group: str) -> AsyncIterator[tuple[Inspector, _Stores]]:
    async with cluster.clients() as (_, inspector), AsyncExitStack() as closing:
        yield inspector, _Stores(cluster.channels, group, closing)


async def _read_group(
    inspector: Inspector, stores: _Stores, topics: Sequence[str], *, may_be_new: bool
) -> GroupView:
    group = stores.group
    known = await known_topics(inspector, *topics)
    described = None
    committed = {}
    if stores.is_in_kafka:
        described = await inspector.describe_group(group)
        committed = await inspector.committed(group)
    rows = await stores.rows([tp for partitions in known.values() for tp in partitions])
    exists = committed or rows or (described is not None and described.exists)
    if not exists and not may_be_new:
        raise CommandFailed(f"unknown group {group!r}: it has no members and has committed nothing")
    wanted = topics or sorted({tp.topic for tp in (*committed, *rows) if tp.topic in known})
    partitions = sorted(tp for topic in wanted for tp in known[topic])
    logs = await logs_of(inspector, partitions)
    positions = (
        Position(tp, logs[tp], committed.get(tp), stores.channel_of(tp.topic), rows.get(tp))
        for tp in partitions
    )
    return GroupView(group, described, tuple(positions))


async def set_positions(cluster: ClusterAccess, view: GroupView, changes: Sequence[Change]) -> None:
    """Set positions, first in the stores and then in Kafka, and read them back.

    Raises:
        CommandFailed: The group has members; its positions differ from *view*, for which the
            changes were decided; or they are not as wanted afterwards.
    """
    topics = sorted({change.partition.topic for change in changes})
    wanted = {change.partition: change for change in changes}
    before = {position.partition: position.stored for position in view.positions}
    async with _clients(cluster, view.name) as (inspector, stores):
        now = await _read_group(inspector, stores, topics, may_be_new=True)
        now.check_idle()
        moved = [
            str(position.partition)
            for position in now.positions
            if position.partition in wanted and position.stored != before[position.partition]
        ]
        if moved:
            raise CommandFailed(
                "nothing was changed: positions of the group have moved in the meantime: "
                f"{', '.join(moved)}. Look at them again"
            )
        await stores.write(wanted, {position.partition: position.row for position in now.positions})
        if now.group is not None:
            await inspector.commit(
                view.name,
                {tp: Committed(change.after, change.metadata) for tp, change in wanted.items()},
            )
        after = await _read_group(inspector, stores, topics, may_be_new=True)
    wrong = []
    for position in after.positions:
        change = wanted.get(position.partition)
        if change is None or position.stored == Committed(change.after, change.metadata):
            continue
        read_back = "nothing" if position.position is None else position.position
        wrong.append(f"{position.partition}: {read_back} instead of {change.after}")
    if wrong:
        raise CommandFailed(
            f"the positions were written, but others were read back: {'; '.join(wrong)}"
        )


def is_of(channel: IncomingSettings, group: str) -> bool:
    """Return whether a channel reads for this group.

    In a store, a channel without a group uses its own name.
    """
    return group == (channel.group_id or channel.name)


class _Stores:
    """The stores in which channels of one group keep its positions.

    A store is opened when it is first used. *closing* closes them all.
    """

    def __init__(
        self, channels: Sequence[IncomingSettings], group: str, closing: AsyncExitStack
    ) -> None:
        self.group = group
        self._closing = closing
        named = [channel for channel in channels if is_of(channel, group)]
        # Whether Kafka keeps positions under this name, and not only the store of a channel that
        # joins no group.
        self.is_in_kafka = not named or any(channel.group_id is not None for channel in named)
        self._reads = {
            channel.name: channel.subscription
            for channel in named
            if channel.checkpoint is not None
        }
        self._urls = {
            channel.name: channel.checkpoint.store
            for channel in named
            if channel.checkpoint is not None
        }
        self._opened: dict[str, CheckpointStore] = {}

    def channel_of(self, topic: str) -> str | None:
        """Return the channel that keeps this topic's positions in a store; None without one."""
        for name, subscription in self._reads.items():
            if subscription.reads(topic):
                return name
        return None

    async def rows(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        """Return partition -> its row, for the partitions that have one."""
        found: dict[TopicPartition, Checkpoint] = {}
        for name, in_store in self._by_channel(partitions).items():
            found.update(await self._store(name).read(self.group, in_store))
        return found

    async def write(
        self,
        changes: Mapping[TopicPartition, Change],
        rows: Mapping[TopicPartition, Checkpoint | None],
    ) -> None:
        """Write the rows, each with a new token, so that an owner that still runs loses them.

        It then reads them again. A state belongs to its position: a move back drops it, a move
        forward keeps it.

        Raises:
            CommandFailed: A row has changed since *rows* were read.
        """
        for name, in_store in self._by_channel(changes).items():
            writes = {tp: _moving(changes[tp], rows.get(tp)) for tp in in_store}
            refused = await self._store(name).write(self.group, writes)
            if refused:
                names = ", ".join(map(str, sorted(refused)))
                raise CommandFailed(
                    f"the store of channel {name!r} has changed in the meantime: {names}. Look at "
                    "the positions again"
                )

    def _by_channel(
        self, partitions: Collection[TopicPartition]
    ) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            name = self.channel_of(partition.topic)
            if name is not None:
                found.setdefault(name, []).append(partition)
        return found

    def _store(self, name: str) -> CheckpointStore:
        if name not in self._opened:
            self._opened[name] = open_store(self._urls[name])
            self._closing.push_async_callback(self._opened[name].close)
        return self._opened[name]


def _moving(change: Change, row: Checkpoint | None) -> Write:
    """Return the write that moves a row. It is refused if the row is not the one that was read."""
    token, position = (0, None) if row is None else row[:2]
    moved = Checkpoint(token + 1, change.after, change.state, change.metadata)
    return Write(token, moved, position)

"""The positions of a group, in Kafka and in the checkpoint stores of its channels, and how they are
set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from reactive_kafka.broker.client import GroupDescription, GroupMember, Inspector
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, Write
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.cli.cluster_access import ClusterAccess, known_topics
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import Change, LogRange
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a group in one partition."""

    partition: TopicPartition
    log: LogRange
    # What Kafka has stored.
    kafka: Committed | None = None
    # The channel that keeps the position in a store; None: only Kafka has it.
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
        """The application's, encoded, if a store keeps it."""
        return None if self.row is None else self.row.state

    @property
    def lag(self) -> int | None:
        """Records behind; None if nothing is committed."""
        return None if self.position is None else max(0, self.log.end - self.position)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at one moment."""

    name: str
    # What Kafka says about it; None where its channel joins no group at all.
    group: GroupDescription | None
    # Ascending by partition.
    positions: tuple[Position, ...]

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return () if self.group is None else self.group.members

    def check_idle(self) -> None:
        """Raise CommandFailed if a member might commit over positions that are about to be set, or the
        broker hides them.
        """
        if self.members:
            raise CommandFailed(
                f"group {self.name!r} has members, stop them first: {'; '.join(map(shown, self.members))}"
            )
        if self.group is not None and self.group.state is None:
            raise CommandFailed(f"the broker does not say whether group {self.name!r} has members")


def shown(member: GroupMember) -> str:
    """A member as one line of text; its client chose the names."""
    return one_line(f"{member.client_id} at {member.host} ({member.member_id})")


async def look(
    cluster: ClusterAccess, group: str, topics: Sequence[str] = (), *, may_be_new: bool = False
) -> GroupView:
    """What a group has in these topics; without any: in those where it has something.

    CommandFailed: the broker knows no such topic, or no such group, and *may_be_new* is not said of it.
    """
    async with _clients(cluster, group) as (inspector, stores):
        return await _look(inspector, stores, topics, may_be_new=may_be_new)


@asynccontextmanager
async def _clients(cluster: ClusterAccess, group: str) -> AsyncIterator[tuple[Inspector, _Stores]]:
    async with cluster.clients() as (_, inspector), AsyncExitStack() as closing:
        yield inspector, _Stores(cluster.channels, group, closing)


async def _look(
    inspector: Inspector, stores: _Stores, topics: Sequence[str], *, may_be_new: bool
) -> GroupView:
    group = stores.group
    known = await known_topics(inspector, *topics)
    described = None
    committed = {}
    if stores.is_in_kafka:
        described = await inspector.describe_group(group)
        committed = await inspector.committed(group)
    rows = await stores.rows([partition for its in known.values() for partition in its])
    if not (may_be_new or committed or rows or (described is not None and described.exists)):
        raise CommandFailed(f"unknown group {group!r}: it has no members and has committed nothing")
    wanted = topics or sorted({tp.topic for tp in (*committed, *rows) if tp.topic in known})
    partitions = sorted(tp for topic in wanted for tp in known[topic])
    logs = await logs_of(inspector, partitions)
    positions = (
        Position(tp, logs[tp], committed.get(tp), stores.channel_of(tp.topic), rows.get(tp))
        for tp in partitions
    )
    return GroupView(group, described, tuple(positions))


async def logs_of(
    inspector: Inspector, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    """partition -> what is left of it."""
    if not partitions:
        return {}
    starts = await inspector.beginning_offsets(partitions)
    ends = await inspector.end_offsets(partitions)
    return {tp: LogRange(starts[tp], ends[tp]) for tp in partitions}


async def carry_out(cluster: ClusterAccess, view: GroupView, changes: Sequence[Change]) -> None:
    """Set positions, the stores' before Kafka's, and read them back.

    CommandFailed: the group has members, or other positions than *view*, on which the changes were
    decided, or has them afterwards.
    """
    topics = sorted({change.partition.topic for change in changes})
    wanted = {change.partition: change for change in changes}
    before = {one.partition: one.stored for one in view.positions}
    async with _clients(cluster, view.name) as (inspector, stores):
        now = await _look(inspector, stores, topics, may_be_new=True)
        now.check_idle()
        theirs = (one for one in now.positions if one.partition in wanted)
        moved = [str(one.partition) for one in theirs if one.stored != before[one.partition]]
        if moved:
            raise CommandFailed(
                f"nothing was changed: the group has moved meanwhile, {', '.join(moved)}; look again"
            )
        await stores.write(wanted, {one.partition: one.row for one in now.positions})
        if now.group is not None:
            await inspector.commit(
                view.name, {tp: Committed(one.after, one.metadata) for tp, one in wanted.items()}
            )
        after = await _look(inspector, stores, topics, may_be_new=True)
    wrong = [
        f"{one.partition}: {'nothing' if one.position is None else one.position} instead of {change.after}"
        for one in after.positions
        if (change := wanted.get(one.partition)) is not None
        and one.stored != Committed(change.after, change.metadata)
    ]
    if wrong:
        raise CommandFailed(f"written, and something else was read back: {'; '.join(wrong)}")


def is_of(channel: IncomingSettings, group: str) -> bool:
    """Whether a channel reads for this group; one without a group goes by its own name in a
    store.
    """
    return group == (channel.group_id or channel.name)


class _Stores:
    """The stores in which channels of one group keep its positions, opened when first used;
    *closing* closes them.
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
        """The channel that keeps the positions of this topic in a store; None: Kafka keeps them."""
        return next(
            (name for name, subscription in self._reads.items() if subscription.reads(topic)), None
        )

    async def rows(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        """partition -> its row, without those that have none."""
        found: dict[TopicPartition, Checkpoint] = {}
        for name, theirs in self._by_channel(partitions).items():
            found.update(await self._store(name).read(self.group, theirs))
        return found

    async def write(
        self,
        changes: Mapping[TopicPartition, Change],
        rows: Mapping[TopicPartition, Checkpoint | None],
    ) -> None:
        """Take the rows over, each with a new token: an owner that still runs loses them, and reads
        them again.

        A state goes with the position that it belongs to: a move back drops it, one forward keeps
        it. CommandFailed: a row is not as in *rows* any more.
        """
        for name, theirs in self._by_channel(changes).items():
            writes = {tp: _taking(changes[tp], rows.get(tp)) for tp in theirs}
            refused = await self._store(name).write(self.group, writes)
            if refused:
                names = ", ".join(map(str, sorted(refused)))
                raise CommandFailed(
                    f"the store of channel {name!r} has changed meanwhile: {names}; look again"
                )

    def _by_channel(
        self, partitions: Collection[TopicPartition]
    ) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            if (name := self.channel_of(partition.topic)) is not None:
                found.setdefault(name, []).append(partition)
        return found

    def _store(self, name: str) -> CheckpointStore:
        if name not in self._opened:
            self._opened[name] = open_store(self._urls[name])
            self._closing.push_async_callback(self._opened[name].close)
        return self._opened[name]


def _taking(change: Change, row: Checkpoint | None) -> Write:
    """The write that moves a row, which must still be the one that was read."""
    token, position = (0, None) if row is None else row[:2]
    return Write(
        token, Checkpoint(token + 1, change.after, change.state, change.metadata), position
    )

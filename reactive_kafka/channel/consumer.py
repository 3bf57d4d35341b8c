"""One client of a channel: its connection, the partitions it has, what comes in from them, and its commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import anyio

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.connection import Connection, ConnectionParts
from reactive_kafka.channel.roles import Role
from reactive_kafka.channel.signals import ChannelSignals, ClientSignals
from reactive_kafka.clock import Clock
from reactive_kafka.commit.metadata.pending import MetadataPolicy
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.workers import Workers
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.observe.events import Observer
from reactive_kafka.partitions.assignment import Assignment, AssignmentParts
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.engine import CommitEngine
from reactive_kafka.partitions.facts import AssignmentFacts, CommitFacts
from reactive_kafka.partitions.fetcher import Fetcher, FetcherParts
from reactive_kafka.partitions.locate import StartPositions, StartSignals
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice
from reactive_kafka.partitions.start import Where
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.hook import DeliveryHook, NoHook
from reactive_kafka.verdicts.partition import verdicts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What the clients of one channel share.

    Attributes:
        reader: Makes the clients that read the channel's own topics; the connector those of delayed retries.
        arrival: Set where an application that iterates is to look again.
        resume: Where a channel that is restarted goes on, in partitions that no group assigns.
        held_back: The partitions that are not to be fetched, whatever room there is.
        received: Counts records that came from a partition.
        keeps_plans: Ranges that an earlier owner has planned are handled as planned.
        hook: The channel's checkpoint store.
    """

    connector: Connector
    reader: Connector
    clock: Clock
    observer: Observer
    spawn: Spawn
    acknowledger: Acknowledger
    lanes: Lanes
    workers: Workers
    arrival: asyncio.Event
    commits: CommitFacts
    history: AssignmentFacts
    resume: Mapping[TopicPartition, int]
    held_back: Callable[[], Iterable[TopicPartition]]
    received: Callable[[TopicPartition, int], None]
    hook: DeliveryHook
    keeps_plans: bool = False


class ChannelConsumer:
    """One client of a channel, from its start until it is closed."""

    def __init__(self, role: Role, shared: SharedParts, signals: ChannelSignals) -> None:
        settings, clock, observer = role.settings, shared.clock, shared.observer
        self._role = role
        self._shared = shared
        self.signals = ClientSignals(signals)
        self._scopes: list[anyio.CancelScope] = []
        policy = MetadataPolicy(
            is_exact=_is_exact(settings), keeps_acks=settings.keep_out_of_order_acks, room=shared.commits.room
        )
        self.table = PartitionTable(
            is_static=bool(settings.assign), policy=policy, starts=_starts(settings, shared.resume)
        )
        self.engine = CommitEngine(role.strategy, self.table)
        self.committer = Committer(settings.name, self.engine, clock, observer, _confirmed, facts=shared.commits)
        self.owned = OwnedPartitions(role.name, self.table, shared.lanes, shared.acknowledger, shared.workers.abandon)
        self.starts = StartPositions(
            settings, self.owned, self.committer, StartSignals(self.signals.fail, self._retained), observer,
            shared.history.resets, keeps_plans=shared.keeps_plans, tells_topics=role.name == settings.name,
        )  # fmt: skip
        self.assignment = Assignment(
            AssignmentParts(
                settings=settings, owned=self.owned, starts=self.starts, committer=self.committer, engine=self.engine,
                acknowledger=shared.acknowledger, workers=shared.workers, clock=clock, observer=observer,
                hooks=role.hooks, facts=shared.history,
            ),
            self.signals,
        )  # fmt: skip
        self.fetcher = Fetcher(
            FetcherParts(
                settings=settings, table=self.table, starts=self.starts, lanes=shared.lanes, workers=shared.workers,
                acknowledger=shared.acknowledger, clock=clock, observer=observer, arrival=shared.arrival,
                held_back=shared.held_back, received=shared.received, replays_avoided=shared.history.avoided,
                delays=role.delays or {}, hook=NoHook(settings.name) if self.is_for_retries else shared.hook,
            )
        )  # fmt: skip
        self.connection = Connection(
            role.name,
            settings,
            shared.connector if self.is_for_retries else shared.reader,
            ConnectionParts(self.assignment, self.starts, self.committer, self.fetcher),
            self.signals,
            clock,
            observer,
        )

    # -- life

    def start(self, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start its tasks; they connect, once *after* is over, and go on trying where no broker answers."""
        connect = self.connection.run if after is None else self._connecting(after)
        self._spawn(connect, f"channel {self._role.name}")
        self._spawn(self._until_closed(self.committer.run), f"committer of {self._role.name}")
        if self.is_for_retries:
            self._spawn(self._until_closed(self.fetcher.delayed.run), f"delayed retries of {self._role.settings.name}")

    def _connecting(self, after: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        first = self._until_closed(after)

        async def run() -> None:
            await first()
            await self.connection.run()

        return run

    def _spawn(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        self._shared.spawn(task, name)

    def _until_closed(self, task: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        scope = anyio.CancelScope()
        self._scopes.append(scope)

        async def run() -> None:
            with scope:
                await task()

        return run

    async def close(self) -> None:
        """Leave the group, and refuse every verdict that comes later."""
        try:
            await self.connection.close()
        finally:
            self.signals.is_closed = True
            for scope in self._scopes:
                scope.cancel()
            self.assignment.close()

    # -- what the channel asks

    @property
    def name(self) -> str:
        """The client's."""
        return self._role.name

    @property
    def is_for_retries(self) -> bool:
        """Whether it reads the channel's retry topics."""
        return self._role.is_for_retries

    @property
    def is_joined(self) -> bool:
        """Whether it has an assignment now."""
        return self.signals.is_joined

    @property
    def has_joined(self) -> bool:
        """Whether it has had an assignment since it started; an empty one counts."""
        return self.assignment.has_joined

    def progress(self) -> None:
        """There may be room for new records, or a drain may be over."""
        self.assignment.changed()
        self.connection.wake()

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        """Go on from somewhere else in a partition that this client has.

        Raises:
            NotOwnerError: It was taken away meanwhile.
            BrokerError: The log's ends could not be asked for.
        """
        await self.starts.seek(partition, where)
        self.progress()

    async def store_plans(self, trackers: Collection[OffsetTracker]) -> bool:
        """Commit until the group has the plans of these trackers; False as soon as one of them is not ours."""
        return await self.committer.store_plans(trackers)

    # -- what its parts tell

    def start_anew(self, partition: TopicPartition) -> None:
        """Another owner has a partition's row: discard what there is of it, and start anew if it is still ours."""
        one = self.table.get(partition)
        if one is not None:
            self.owned.drop(one)

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a partition that waits to hear whether it is retained: somebody else may have had its row."""
        one = self.table.get(partition)
        if one is not None and one.left is not None:
            self.owned.drop(one)

    def _retained(self) -> None:
        """What waited in partitions that are retained may be taken again."""
        self._shared.workers.work_is_there()
        self._shared.arrival.set()
        self.fetcher.delayed.changed.set()  # records that are not due yet are retained, too


def _confirmed(tracker: OffsetTracker, position: int) -> None:
    """The broker has stored a position."""
    verdicts_of(tracker).commits.confirmed(position)


def _is_exact(settings: IncomingSettings) -> bool:
    """Whether records' own strings are kept apart: in order, the newest is always that of the last record."""
    is_ordered = settings.ordering == "partition" or settings.commit_strategy == "ignore"
    return settings.offset_metadata_strategy == "exact" and not is_ordered


def _starts(settings: IncomingSettings, resume: Mapping[TopicPartition, int]) -> dict[TopicPartition, Choice]:
    """Where the settings, or the end of the session before, have the first reading of a partition start."""
    given = {one.partition: Choice(one.start) for one in settings.assign if one.start is not None}
    return given | {one: Choice(where, is_resumed=True) for one, where in resume.items()}


def owner_of(members: Iterable[ChannelConsumer], partition: TopicPartition, channel: str) -> ChannelConsumer:
    """The client that has a partition.

    Raises:
        NotOwnerError: None has it, or it is being let go.
    """
    for member in members:
        if member.assignment.has(partition):
            return member
    raise NotOwnerError(f"channel {channel!r}: {partition} is not ours")

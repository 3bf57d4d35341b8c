"""One client of a channel: its connection, the partitions it has, what comes in from them, and its commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import anyio

from reactive_kafka.channel.connection import Connection
from reactive_kafka.channel.signals import ChannelSignals, ClientSignals
from reactive_kafka.channel.spec import Role
from reactive_kafka.commit.metadata.pending import MetadataPolicy
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.partitions.assignment import Assignment
from reactive_kafka.partitions.committer import Committer
from reactive_kafka.partitions.engine import CommitEngine
from reactive_kafka.partitions.fetcher import Fetcher
from reactive_kafka.partitions.locate import StartPositions
from reactive_kafka.partitions.owned import OwnedPartitions
from reactive_kafka.partitions.partition import Choice
from reactive_kafka.partitions.parts import ClientParts
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.hook import NoHook
from reactive_kafka.verdicts.partition import verdicts_of


class ChannelConsumer:
    """One client of a channel, from its start until it is closed."""

    def __init__(self, role: Role, shared: ClientParts, signals: ChannelSignals) -> None:
        hook, reader = shared.hook, shared.reader
        if role.is_for_retries:
            hook, reader = NoHook(role.settings.name), shared.connector
        settings, parts = role.settings, replace(shared, settings=role.settings, hook=hook, reader=reader)
        self.name = role.name
        self.is_for_retries = role.is_for_retries
        self._parts = parts
        self.signals = ClientSignals(signals)
        self._scopes: list[anyio.CancelScope] = []
        policy = MetadataPolicy(_is_exact(settings), settings.keep_out_of_order_acks, parts.commits.room)
        starts = _starts(settings, parts.resume)
        self.table = PartitionTable(is_static=bool(settings.assign), policy=policy, starts=starts)
        self.engine = CommitEngine(role.strategy, self.table, hook.is_in_transaction)
        self.committer = Committer(
            settings.name, self.engine, parts.clock, parts.observer, _confirmed, facts=parts.commits
        )
        self.owned = OwnedPartitions(role.name, self.table, parts.lanes, parts.acknowledger, parts.workers.abandon)
        self.starts = StartPositions(
            parts, self.owned, self.committer, self.signals.fail, self._retained,
            tells_topics=role.name == settings.name,
        )  # fmt: skip
        self.assignment = Assignment(
            parts, self.owned, self.starts, self.committer, role.hooks, self.signals.exit, self.signals.joined
        )
        self.fetcher = Fetcher(parts, self.table, self.starts, role.delays or {})
        self.connection = Connection(
            role.name, parts, self.assignment, self.starts, self.committer, self.fetcher, self.signals
        )
        # These and the methods below are what a checkpoint store asks of a client.
        self.reads_with = self.table.has
        self.retains = self.starts.is_retained
        self.due = self.engine.due_with
        self.stored = self.engine.stored_with

    def start(self, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start its tasks; they connect, once *after* is over, and go on trying where no broker answers."""
        spawn, channel = self._parts.spawn, self._parts.settings.name
        spawn(self.connection.run if after is None else self._connecting(after), f"channel {self.name}")
        spawn(self._until_closed(self.committer.run), f"committer of {self.name}")
        if self.is_for_retries:
            spawn(self._until_closed(self.fetcher.delayed.run), f"delayed retries of {channel}")

    def _connecting(self, after: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        first = self._until_closed(after)

        async def run() -> None:
            await first()
            await self.connection.run()

        return run

    def _until_closed(self, task: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        scope = anyio.CancelScope()
        self._scopes.append(scope)

        async def run() -> None:
            with scope:
                await task()

        return run

    async def close(self) -> None:
        try:
            await self.connection.close()
        finally:
            self.signals.is_closed = True
            for scope in self._scopes:
                scope.cancel()
            self.assignment.close()

    def progress(self) -> None:
        """There may be room for new records, or a drain may be over."""
        self.assignment.changed()
        self.connection.wake()

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or may retain its partition."""
        return self.table.of(tracker) is not None

    def keeps(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, and the partition is not being released."""
        return self.table.has(tracker) and self.assignment.has(tracker.partition)

    def start_over(self, partition: TopicPartition) -> None:
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
        self._parts.workers.work_is_there()
        self._parts.arrival.set()
        self.fetcher.delayed.changed.set()  # records that are not due yet are retained, too


def _confirmed(tracker: OffsetTracker, position: int) -> None:
    verdicts_of(tracker).confirmed(position)


def _is_exact(settings: IncomingSettings) -> bool:
    """Whether records' own strings are kept apart: in order, the newest is always that of the last record."""
    is_ordered = settings.ordering == "partition" or settings.commit_strategy == "ignore"
    return settings.offset_metadata_strategy == "exact" and not is_ordered


def _starts(settings: IncomingSettings, resume: Mapping[TopicPartition, int]) -> dict[TopicPartition, Choice]:
    """Where the settings, or the end of the session before, have the first reading of a partition start."""
    given = {one.partition: Choice(one.start) for one in settings.assign if one.start is not None}
    return given | {one: Choice(where, is_resumed=True) for one, where in resume.items()}

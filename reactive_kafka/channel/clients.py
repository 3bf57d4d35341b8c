"""The clients of a channel's session: each has a connection, its partitions, and their commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import anyio

from reactive_kafka.assignment.assignment import Assignment
from reactive_kafka.assignment.deadlines import without_group
from reactive_kafka.assignment.drain import HandlerDrain
from reactive_kafka.assignment.handover import Handover
from reactive_kafka.assignment.history import AssignmentReports
from reactive_kafka.assignment.lifeline import Lifeline
from reactive_kafka.assignment.new_partitions import NewPartitions
from reactive_kafka.assignment.partition_starter import PartitionStarter
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.assignment.rebalance_hooks import HookRunner
from reactive_kafka.assignment.recreated_topics import RecreatedTopics
from reactive_kafka.broker.client import Connector, Consumer, TransactionId
from reactive_kafka.channel.caught_up import CatchUp
from reactive_kafka.channel.client_connection import ClientConnection
from reactive_kafka.channel.client_roles import ClientRole, is_exact, starts_of
from reactive_kafka.channel.record_handling import RecordHandling
from reactive_kafka.channel.session_signals import ChannelSignals, ClientSignals
from reactive_kafka.channel.totals import ChannelTotals
from reactive_kafka.client_metrics.consumer_points import ConsumedPartition
from reactive_kafka.client_metrics.metrics_pusher import MetricsPusher
from reactive_kafka.commit.commit_engine import CommitEngine
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.every import every_of
from reactive_kafka.commit.uncommitted import UncommittedBound
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.fetching.delayed_records import DelayedRecords
from reactive_kafka.fetching.fetcher import Fetcher
from reactive_kafka.fetching.header_filter import header_filter_of
from reactive_kafka.fetching.intake import IntakeListeners, RecordIntake
from reactive_kafka.fetching.read_failures import ReadFailures
from reactive_kafka.fetching.stops import FetchStops
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.partitions.client_partitions import ClientPartitions
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Ranges
from reactive_kafka.tasks import Handle, Spawn, Work, all_ended
from reactive_kafka.tracking.metadata.pending import MetadataPolicy, PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery_hook import DeliveryHook


class ChannelConsumer:
    """One client of a channel, from its start until it is closed.

    Args:
        reader: Makes its Kafka clients.
        hook: The checkpoint store or the transactions of the channel, if they cover this client.
        facts: Returns the facts of the channel.
    """

    def __init__(
        self,
        role: ClientRole,
        context: ClientContext,
        handling: RecordHandling,
        totals: ChannelTotals,
        signals: ChannelSignals,
        *,
        reader: Connector,
        hook: DeliveryHook,
        outages: OutageReports,
        facts: Callable[[], ChannelFacts],
        spawn: Spawn,
    ) -> None:
        self.name = role.name
        self.is_for_retries = role.is_for_retries
        self._context = context
        self._handling = handling
        self._totals = totals
        self._hook = hook
        self._spawn = spawn
        self.signals = ClientSignals(signals)
        self._tasks: list[Handle] = []
        # Of what runs before it connects.
        self._before = anyio.CancelScope()
        self.group_id = role.settings.group_id
        reports = AssignmentReports(context.channel, context.observer, totals.history)

        self.table = self._make_table(role)
        self.owned = ClientPartitions(
            role.name,
            self.table,
            handling.lanes,
            handling.acknowledger,
            handling.workers.abandon,
        )
        self._make_commits(role)
        self._make_assignment(role, reports)
        self._make_fetching(role, reports)
        self.connection = ClientConnection(
            role.name,
            context,
            reader,
            self.signals,
            assignment=self.assignment,
            starts=self.starts,
            committer=self.committer,
            fetcher=self.fetcher,
            lifeline=self.lifeline,
            outages=outages,
            pusher=self._pusher_of(role, facts),
        )
        # These and the methods below are what a checkpoint store, or a transaction of Kafka's, asks
        # of a client.
        self.reads_with = self.table.has
        self.retains = self.starts.is_retained
        self.due = self.engine.due_with
        self.stored = self.engine.stored_with

    def _pusher_of(
        self, role: ClientRole, facts: Callable[[], ChannelFacts]
    ) -> MetricsPusher | None:
        """Return what pushes the metrics of this client; None: the settings do not want it."""
        client = role.settings.client
        if not client.get("enable_metrics_push", True):
            return None
        labels = {"group_id": self.group_id} | {
            name: client.get(name) for name in ("group_instance_id", "client_rack")
        }
        return MetricsPusher(
            role.name,
            {name: str(value) for name, value in labels.items() if value},
            self._context.clock,
            partitions=self._read_partitions,
            assigned=lambda: len(self.table.ours),
            # Those of the channel are pushed once.
            facts=facts if role.name == self._context.channel else None,
        )

    def _read_partitions(self) -> list[ConsumedPartition]:
        return [
            ConsumedPartition(partition.id, partition.live.position, partition.log.end)
            for partition in self.table
            if partition.live is not None
        ]

    def _make_table(self, role: ClientRole) -> PartitionTable:
        settings = role.settings
        policy = MetadataPolicy(
            is_exact=is_exact(settings),
            keeps_acks=settings.keep_out_of_order_acks,
            # Kafka deletes the positions of a topic with the topic. A store does not. And a reader
            # may commit once more before it notices that the topic was recreated: a channel that
            # is to fail then must know it in the next process, too.
            tells_topic=settings.on_recreated_topic == "fail"
            or (settings.checkpoint is not None and not role.is_for_retries),
            room=self._totals.commits.room,
        )
        ranges: dict[TopicPartition, Ranges] = {}
        if settings.assign:
            ranges = self._totals.ranges
            ranges.update(settings.ranges)
        return PartitionTable(
            is_static=bool(settings.assign),
            policy=policy,
            starts=starts_of(settings, self._totals.resume),
            ranges=ranges,
            unanswered=self._totals.unanswered,
        )

    def _make_commits(self, role: ClientRole) -> None:
        context = self._context
        settings = context.settings
        self.engine = CommitEngine(role.strategy, self.table, self._hook.is_in_transaction)
        self.committer = Committer(
            context.channel,
            self.engine,
            context.clock,
            context.observer,
            self._confirmed,
            facts=self._totals.commits,
            every=every_of(settings, role.strategy, self.engine.ahead),
        )
        self.uncommitted = UncommittedBound(
            role.most_uncommitted,
            role.strategy,
            self.engine.ahead,
            self.committer.request,
            failing=lambda: self.committer.failing,
            stored_at=lambda: self.committer.stored_at,
            refused=self.engine.refused_unstored,
            is_strict=settings.max_uncommitted is not None,
        )

    def _make_assignment(self, role: ClientRole, reports: AssignmentReports) -> None:
        context = self._context
        handling = self._handling
        settings = context.settings
        incarnations = self._totals.history.incarnations
        handover = Handover(
            reports, keeps_plans=handling.keeps_plans, keeps_acks=settings.keep_out_of_order_acks
        )
        starter = PartitionStarter(
            settings,
            self.owned,
            reports,
            handover,
            self.signals.fail,
            forget_skips=self._totals.skips.forget,
        )
        topics = settings.subscription.topics
        self.starts = PositionLookup(
            context,
            self.owned,
            self.committer,
            starter,
            RecreatedTopics(topics, incarnations, self.owned, self.committer, starter),
            NewPartitions(context, incarnations, reports_topics=role.name == settings.name),
            self._retained,
            keeps_positions=self._hook.keeps_positions,
        )
        self.handlers = HandlerDrain(context, self.owned, handling.workers, handling.acknowledger)
        self.assignment = Assignment(
            context,
            self.owned,
            self.starts,
            self.committer,
            self.handlers,
            HookRunner(context, role.hooks, self.signals.exit),
            reports,
            self._joined,
        )
        self.lifeline = Lifeline(
            context, self.owned, handling.lanes, handling.workers, self._retained, self.signals.fail
        )
        hooks = role.hooks.on_caught_up
        self.catch_up = CatchUp(
            context,
            self.table,
            hooks,
            lambda: self.committer.consumer,
            self.signals.exit,
            delays_readiness=settings.ready == "caught-up" and not role.is_for_retries,
        )

    def _make_fetching(self, role: ClientRole, reports: AssignmentReports) -> None:
        context = self._context
        settings = context.settings
        handling = self._handling
        totals = self._totals
        failures = ReadFailures(context, self.starts, reports, handling.arrival.set)
        delayed = DelayedRecords(
            context.clock,
            self.table,
            handling.lanes,
            handling.workers,
            role.delays or {},
            handling.arrived,
            # Otherwise ranges would have holes, and a transaction would wait for a record that is
            # behind it in its lane.
            in_order=handling.workers.works_elsewhere or self._hook.runs_in_order,
        )
        listeners = IntakeListeners(
            arrived=handling.arrived,
            received=totals.received,
            holds=handling.holds,
            times=totals.times,
            skips=totals.skips,
            skipped=handling.skipped,
            header_filter=header_filter_of(settings.filter_headers),
            filtered=handling.filtered,
            measures=settings.max_in_flight_bytes is not None
            or settings.batch_max_bytes is not None,
        )
        intake = RecordIntake(
            context.clock,
            self.starts,
            handling.lanes,
            handling.workers,
            delayed,
            failures,
            reports,
            listeners,
        )
        self.fetcher = Fetcher(
            context,
            self.table,
            handling.lanes,
            handling.workers,
            handling.acknowledger,
            FetchStops(self.table, self.uncommitted, failures, handling.held_back),
            intake,
            self._hook,
        )

    def start(self, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start its tasks. They connect, and keep trying while no broker answers.

        Args:
            after: Runs before the client connects.
        """
        channel = self._context.channel
        connect = self.connection.run if after is None else self._connecting(after)
        self._spawn(connect, f"channel {self.name}")
        self._until_closed(self.committer.run, f"committer of {self.name}")
        if self.catch_up.is_wanted:
            self._until_closed(self.catch_up.run, f"catching up of {self.name}")
        if self.is_for_retries:
            self._until_closed(self.fetcher.intake.delayed.run, f"delayed retries of {channel}")

    def _connecting(self, after: Callable[[], Awaitable[None]]) -> Work:
        async def run() -> None:
            with self._before:
                await after()
            await self.connection.run()

        return run

    def _until_closed(self, work: Work, name: str) -> None:
        # They are cancelled once. A second time would cut off the cleanup of a commit that is on
        # its way to a store.
        handle = self._spawn(work, name)
        if handle is not None:
            self._tasks.append(handle)

    def _joined(self) -> None:
        self.catch_up.begins()
        self.lifeline.group_answers()
        # A poll that is waiting asks for no partition of the new assignment.
        self.connection.wake()
        self.signals.joined()

    async def close(self) -> None:
        try:
            await self.connection.close()
        finally:
            self.signals.is_closed = True
            self._before.cancel()
            for task in self._tasks:
                task.cancel()
            self.assignment.close()

    def progress(self) -> None:
        """There may be room for new records, or a drain may be over."""
        self.handlers.changed()
        self.connection.made_progress()

    def knows(self, tracker: OffsetTracker) -> bool:
        """Return whether it reads with the tracker, or may retain its partition."""
        return self.table.partition_of(tracker) is not None

    def takes_less(self, pending: Collection[PendingCommit]) -> None:
        """Note that the broker does not take the metadata of these positions: it is too long."""
        self.table.policy.refused(pending)

    async def commit_in(
        self, transaction: TransactionId, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Commit positions in a transaction, as a member of this generation.

        Raises:
            BrokerError: As ``commit_in`` of the consumer.
        """
        await self._consumer().commit_in(transaction, offsets, self.table.generation)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        """Return what the group has stored; raises as ``committed`` of the consumer."""
        return await self._consumer().committed(partitions)

    def _consumer(self) -> Consumer:
        if self.committer.consumer is None:
            raise TransientBrokerError(f"channel {self.name!r} is not connected to the broker")
        return self.committer.consumer

    def keeps(self, tracker: OffsetTracker) -> bool:
        """Return whether it reads with the tracker, and the partition is not being released."""
        return self.table.has(tracker) and self.assignment.has(tracker.partition)

    def start_over(self, partition: TopicPartition) -> None:
        """Discard the state of a partition whose row has another owner.

        If the partition is still ours, reading starts again.
        """
        known = self.table.get(partition)
        if known is not None:
            self.owned.drop(known)
            self.connection.wake()

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a suspended partition. Another owner may have had its row meanwhile."""
        known = self.table.get(partition)
        if known is not None and known.left is not None:
            self.owned.drop(known)

    def _confirmed(self, tracker: OffsetTracker, position: int) -> None:
        verdicts_of(tracker).confirmed(position)
        if self.uncommitted.is_reached:
            self.connection.wake()

    def _retained(self) -> None:
        """Let workers take the records that waited in partitions which are retained."""
        self.committer.records_came()
        self._handling.arrived()
        # Records that are not due yet are retained, too.
        self.fetcher.intake.delayed.changed.set()


class ChannelClients(list[ChannelConsumer]):
    """The clients of a session: its consumers, then the client of delayed retries if it has one.

    The list is made before the clients. The parts that they need, and that need them, get the list.
    """

    @property
    def consumers(self) -> list[ChannelConsumer]:
        """The clients without the one of delayed retries."""
        return [client for client in self if not client.is_for_retries]

    @property
    def are_joined(self) -> bool:
        """Whether each consumer has an assignment now."""
        return all(client.signals.is_joined for client in self.consumers)

    @property
    def group_protocol(self) -> str | None:
        """The protocol of the group; None without a group, and while no client is connected."""
        for client in self.consumers:
            if client.committer.consumer is not None:
                return client.committer.consumer.group_protocol()
        return None

    @property
    def have_joined(self) -> bool:
        """Whether each consumer has had an assignment; an empty one counts."""
        return all(client.assignment.has_joined for client in self.consumers)

    @property
    def is_positioned(self) -> bool:
        """Whether every client has its assignment, and reading has begun in all of it."""
        return all(client.signals.is_joined and client.starts.are_done for client in self)

    @property
    def idle_consumers(self) -> int | None:
        """How many consumers have no partition while others have some.

        None: it is not known. The consumers are not in the same generation of their group.
        """
        having = [bool(client.table.ours) for client in self.consumers]
        if not self.are_joined or len({client.table.generation for client in self.consumers}) != 1:
            return None
        return having.count(False) if any(having) else 0

    def trackers(self) -> list[OffsetTracker]:
        """Return the trackers of the partitions that are ours."""
        return [tracker for client in self for tracker in client.table.trackers.values()]

    def all_trackers(self) -> list[OffsetTracker]:
        """Return the trackers of all partitions, also of suspended ones."""
        return [tracker for client in self for tracker in client.table.all_trackers()]

    def holding(self, *, also_left: bool = False) -> list[OffsetTracker]:
        """Return the trackers that hold a record, which are few.

        Args:
            also_left: Those of suspended partitions are among them.
        """
        held = [partition for client in self for partition in client.fetcher.intake.holding()]
        found = [partition.tracker if also_left else partition.live for partition in held]
        return [tracker for tracker in found if tracker is not None]

    def in_flight(self) -> int:
        """Return how many records a handler or the application has, without a verdict."""
        return sum(client.owned.in_flight() for client in self)

    def made_progress(self) -> None:
        """Note that there may be room for new records, or that a drain may be over."""
        for client in self:
            client.progress()

    def take_nothing_new(self) -> None:
        """Call no handler any more."""
        for client in self:
            client.handlers.take_nothing_new(for_good=True)

    async def drain(self, deadline: float, *, to_the_end: bool = False) -> None:
        """Take nothing new, and wait for the handlers that run, until *deadline* (monotonic)."""
        await all_ended(
            *(client.handlers.drain(deadline, to_the_end=to_the_end) for client in self)
        )

    async def release(self, deadline: float) -> None:
        """Run the hooks, wait for unsettled records until *deadline* (monotonic), and commit."""
        await all_ended(
            *(client.assignment.release(without_group(deadline), during="stop") for client in self)
        )

    async def close(self) -> None:
        """Leave the groups. Verdicts that come later are refused."""
        await all_ended(*(client.close() for client in self))

    def request_commit(self, tracker: OffsetTracker) -> int:
        """Ask the client that reads with a tracker to commit; return what it would commit."""
        for client in self:
            if client.table.has(tracker):
                client.committer.request()
            elif client.table.partition_of(tracker) is None:
                continue
            return client.engine.reached(tracker)
        return tracker.committable

    async def store_plans(self, trackers: Iterable[OffsetTracker]) -> bool:
        """Commit until the groups have stored the plans of these trackers.

        Returns:
            False as soon as one of their partitions is not ours.
        """
        planned = tuple(trackers)
        shares = [
            (client, [tracker for tracker in planned if client.table.has(tracker)])
            for client in self
        ]
        if sum(len(share) for _, share in shares) < len(planned):
            return False
        are_stored = True
        tasks = list[asyncio.Task[None]]()
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [
                    group.create_task(_stored(client, share)) for client, share in shares if share
                ]
        except* _NotOursError:
            are_stored = False
        if not are_stored:
            return False
        for task in tasks:
            # It raises if a task was cancelled. A TaskGroup ignores that, and nothing was stored.
            task.result()
        return True


class _NotOursError(Exception):
    """Plans cannot be stored any more."""


async def _stored(client: ChannelConsumer, trackers: Collection[OffsetTracker]) -> None:
    if not await client.committer.store_plans(trackers):
        raise _NotOursError

"""One life of a channel: all that its start makes, and that a restart makes anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.consumer import ChannelConsumer, SharedParts, roles
from reactive_kafka.channel.storage import Storage
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.strategy import CommitStrategy
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.pauses import Pauses
from reactive_kafka.delivery.poison import PoisonGuard
from reactive_kafka.delivery.workers import HandlerTotals, NoWorkers, Workers, WorkerSetup
from reactive_kafka.errors import describe
from reactive_kafka.observe.events import ChannelFailed, Observer
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.outgoing.letters import Failures
from reactive_kafka.partitions.assignment import AssignmentFacts, Hooks
from reactive_kafka.partitions.committer import CommitFacts
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tasks import Spawn, Tasks, each
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.delivery import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelParts:
    """What a channel is given.

    Attributes:
        tasks: The application's; those of the channel fail the channel.
        make_workers: Makes the channel's dispatcher; None: the application iterates.
        key_of: What records are ordered by, with ``ordering = "key"``.
        reader: Makes the clients that read the channel's own topics; None: the connector, as those of delayed retries.
        keeps_plans: Ranges that an earlier owner has planned are handled as planned.
        store: Of positions and states, with ``commit_strategy = "checkpoint"``.
        codec: Of the states in it.
    """

    settings: IncomingSettings
    strategy: CommitStrategy
    connector: Connector
    clock: Clock
    observer: Observer
    tasks: Tasks
    hooks: Hooks = field(default_factory=Hooks)
    decode_key: Callable[[bytes | None], Any] | None = None
    make_workers: Callable[[WorkerSetup], Workers] | None = None
    key_of: Callable[[RawRecord], Hashable] | None = None
    reader: Connector | None = None
    keeps_plans: bool = False
    store: CheckpointStore | None = None
    codec: Codec | None = None


@dataclass(slots=True)
class ChannelTotals:
    """What a channel counts, and where it stood, through all of its lives.

    Attributes:
        resume: Where a life ended, in partitions that no group assigns: the next one goes on there, and not at the
            start that the settings choose, or it would pass what the life before had not settled.
    """

    totals: dict[TopicPartition, PartitionTotals] = field(default_factory=dict)
    commits: CommitFacts = field(default_factory=CommitFacts)
    history: AssignmentFacts = field(default_factory=AssignmentFacts)
    resume: dict[TopicPartition, int] = field(default_factory=dict)
    pauses: Pauses = field(default_factory=Pauses)
    handlers: HandlerTotals = field(default_factory=HandlerTotals)

    def totals_of(self, partition: TopicPartition) -> PartitionTotals:
        """The counters of one partition."""
        totals = self.totals.get(partition)
        if totals is None:
            totals = self.totals[partition] = PartitionTotals()
        return totals

    def received(self, partition: TopicPartition, records: int) -> None:
        """Count records that came."""
        self.totals_of(partition).received += records


class Host(Protocol):
    """What a life needs from its channel."""

    def is_over(self) -> bool:
        """The channel has failed or is closed."""

    def is_taking(self) -> bool:
        """Records are wanted at all."""

    def connects(self) -> None:
        """A client is being built again."""

    def joined(self) -> None:
        """A client has its assignment."""

    def fail(self, reason: BaseException) -> bool:
        """The channel stops; False if it was stopping or had failed before."""

    def exit(self, reason: BaseException) -> None:
        """Something of the application's asked the process to end."""


class ChannelSession:
    """The clients, lanes, workers and verdicts of a channel, from a start to a failure or the stop.

    Attributes:
        members: Its clients; the last one may be that of delayed retries.
        arrival: Set where an application that iterates is to look again.
        has_let_go: Set once it is over after a failure.
    """

    def __init__(self, parts: ChannelParts, totals: ChannelTotals, host: Host) -> None:
        settings, clock, observer = parts.settings, parts.clock, parts.observer
        self._parts = parts
        self._totals_ = totals
        self._host = host
        self.spawn: Spawn = parts.tasks.of(self._task_failed)
        self.arrival = asyncio.Event()
        self.has_let_go = asyncio.Event()
        self.lanes = Lanes(shared=settings.ordering == "unordered", key_of=parts.key_of, pauses=totals.pauses)
        self.workers: Workers = NoWorkers()
        if parts.make_workers is not None:
            is_ending = parts.tasks.is_ending
            self.workers = parts.make_workers(
                WorkerSetup(settings, self.lanes, clock, self.spawn, totals.handlers, is_ending)
            )
        self.failures = Failures(settings, parts.connector, clock, observer, self.spawn)
        self.acknowledger = Acknowledger(
            settings, self.failures, clock, observer, totals.totals_of, self.spawn, self.fail, self.made_progress,
            commits_at_ack=parts.strategy.commits_at_ack,
        )  # fmt: skip
        self.acknowledger.decode_key = parts.decode_key
        self.acknowledger.request_commit = self._request_commit
        self.acknowledger.tell_owed(self.workers.blocks_on)
        self.storage: Storage | None = None
        reader, strategy = parts.reader or parts.connector, parts.strategy
        if parts.store is not None and parts.codec is not None:
            self.storage = Storage(
                settings, parts.store, parts.codec, clock, observer, self.acknowledger,
                lambda: self.members, totals.history.dropped,
            )  # fmt: skip
            reader, strategy = self.storage.reader(reader), self.storage.strategy
        self.guard = PoisonGuard(settings, totals.totals_of, self, clock, observer)
        shared = SharedParts(
            connector=parts.connector, reader=reader, clock=clock, observer=observer,
            spawn=self.spawn,
            acknowledger=self.acknowledger, lanes=self.lanes, workers=self.workers, arrival=self.arrival,
            commits=totals.commits, history=totals.history, resume=totals.resume,
            held_back=self._held_back, received=totals.received, keeps_plans=parts.keeps_plans,
            rows=None if self.storage is None else self.storage.rows,
        )  # fmt: skip
        self.members = [ChannelConsumer(role, shared, self) for role in roles(settings, strategy, parts.hooks)]

    # -- from start to end

    def start(self) -> None:
        """Start all that runs; it connects, and goes on trying where no broker answers."""
        self.failures.start()
        for member in self.members:
            member.start(after=self.failures.prepared if member.is_for_retries else None)
        if self.guard.is_wanted:
            self.spawn(self.guard.run, f"poison watch of {self._parts.settings.name}")

    def take_nothing_new(self) -> None:
        """Let no handler be called from here on."""
        for member in self.members:
            member.assignment.take_nothing_new(for_good=True)

    def stop_retrying(self) -> None:
        """End waits between attempts, and wake whom an application iterates with."""
        self.workers.stop_retrying()
        self.arrival.set()

    async def drain(self, deadline: float, *, to_the_end: bool = False) -> None:
        """Take nothing new, and wait for the handlers that run, until *deadline* (monotonic)."""
        await each(*(member.assignment.drain(deadline, to_the_end=to_the_end) for member in self.members))

    async def release(self, deadline: float) -> None:
        """Run the hooks, wait for what is still unsettled until *deadline*, and commit."""
        await each(*(member.assignment.release(deadline, during="stop") for member in self.members))

    async def leave(self) -> None:
        """Leave the groups and close; every verdict that comes later is refused."""
        if self._parts.settings.assign:
            self._totals_.resume.update({one.partition: one.committable for one in self.all_trackers()})
        async with AsyncExitStack() as steps:  # each is taken, whatever those before it have raised
            steps.callback(self.arrival.set)
            steps.callback(self.workers.close)
            steps.push_async_callback(self.failures.stop)
            await each(*(member.close() for member in self.members))

    async def store_plans(self, trackers: Iterable[OffsetTracker]) -> bool:
        """Commit until the groups have the plans of these trackers; False as soon as one of them is not ours."""
        every = tuple(trackers)
        shares = [(one, [tracker for tracker in every if one.table.has(tracker)]) for one in self.members]
        if sum(len(share) for _, share in shares) < len(every):
            return False
        are_stored, tasks = True, list[asyncio.Task[None]]()
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(_stored(member, share)) for member, share in shares if share]
        except* _NotOursError:
            are_stored = False
        for task in tasks if are_stored else ():
            task.result()  # raises where one was cancelled: for a group that is no failure, and nothing was stored
        return are_stored

    def look_at_pauses(self) -> None:
        """The channel's pauses have changed: what waits may be taken and fetched, or not."""
        for member in self.members:
            self.lanes.look_at_pauses([one.lane for one in member.table if one.lane is not None])
            member.progress()
        self.workers.work_is_there()
        self.arrival.set()

    def _held_back(self) -> set[TopicPartition]:
        """The partitions that are not to be fetched, whatever room there is."""
        held_back, pauses = set(self.guard.held_back()), self._totals_.pauses
        if pauses:
            held_back.update(one.partition for one in self.trackers() if pauses.has(one.partition))
        return held_back

    # -- what it knows

    @property
    def consumers(self) -> list[ChannelConsumer]:
        """The clients without that of delayed retries."""
        return [member for member in self.members if not member.is_for_retries]

    @property
    def are_joined(self) -> bool:
        """Whether each of its consumers has an assignment now."""
        return all(member.is_joined for member in self.consumers)

    @property
    def idle_consumers(self) -> int | None:
        """How many of them have no partition while others have; None: not known before all are of one generation."""
        having = [bool(member.table.ours) for member in self.consumers]
        is_known = self.are_joined and len({member.table.generation for member in self.consumers}) == 1
        if not is_known:
            return None
        return having.count(False) if any(having) else 0

    @property
    def have_joined(self) -> bool:
        """Whether each of its consumers has had an assignment; an empty one counts."""
        return all(member.has_joined for member in self.consumers)

    @property
    def is_positioned(self) -> bool:
        """Whether every client has its assignment, and reading has begun in all of it."""
        return all(member.is_joined and member.starts.are_done for member in self.members)

    def trackers(self) -> list[OffsetTracker]:
        """Those of the partitions that are ours."""
        return [tracker for member in self.members for tracker in member.table.trackers.values()]

    def all_trackers(self) -> list[OffsetTracker]:
        """Also those of partitions that may come straight back."""
        return [tracker for member in self.members for tracker in member.table.all_trackers()]

    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(member.owned.in_flight() for member in self.members)

    # -- what its parts ask and tell

    def is_over(self) -> bool:
        """Whether it has ended, or is ending."""
        return self.has_let_go.is_set() or self._host.is_over()

    def is_taking(self) -> bool:
        """Records are wanted at all."""
        return not self.has_let_go.is_set() and self._host.is_taking()

    def connects(self) -> None:
        """A client is being built again."""
        self._host.connects()

    def joined(self) -> None:
        """A client has its assignment."""
        self._host.joined()

    def fail(self, reason: BaseException) -> bool:
        """The channel stops; not for what comes late, when another life may have begun."""
        return not self.has_let_go.is_set() and self._host.fail(reason)

    def exit(self, reason: BaseException) -> None:
        """A hook asked the process to end."""
        self._host.exit(reason)

    def _task_failed(self, error: BaseException) -> None:
        """A bug in a task (of ours, or of the client) stops this channel, and no other; told with its traceback."""
        if not self.fail(error):
            name = self._parts.settings.name
            self._parts.observer.on(ChannelFailed(channel=name, reason=describe(error), error=error))

    def made_progress(self) -> None:
        """There may be room for new records, or a drain may be over."""
        for member in self.members:
            member.progress()

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """End the handler of a record; its messages without a verdict."""
        return self.workers.interrupt(tracker, index)

    def dead_letter(self, message: Delivery, reason: BaseException) -> None:
        """Write a record to the dead-letter topic, and settle it then."""
        self.acknowledger.dead_letter(message, reason)

    def _request_commit(self, tracker: OffsetTracker) -> int:
        """Have the client that reads with a tracker commit; the position that it would commit."""
        for member in self.members:
            if member.table.has(tracker):
                member.committer.request()
            elif member.table.of(tracker) is None:
                continue
            return member.engine.reached(tracker)
        return tracker.committable


class _NotOursError(Exception):
    """Plans cannot be stored any more."""


async def _stored(member: ChannelConsumer, trackers: Collection[OffsetTracker]) -> None:
    if not await member.store_plans(trackers):
        raise _NotOursError

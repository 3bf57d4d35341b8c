"""One session of a channel: all that a start creates, and a restart creates again; and what is
known of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any

from reactive_kafka.channel.client_parts import ClientParts
from reactive_kafka.channel.clients import ChannelClients, ChannelConsumer
from reactive_kafka.channel.connection import CONNECTING
from reactive_kafka.channel.functions import HEADER
from reactive_kafka.channel.signals import ChannelSignals
from reactive_kafka.channel.spec import ChannelSpec, ChannelTotals, roles
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.checkpoint.hook import CheckpointHook
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lanes import CappedLanes, Lanes
from reactive_kafka.delivery.limit import LimitedCappedLanes, LimitedLanes
from reactive_kafka.delivery.poison import PoisonGuard
from reactive_kafka.delivery.workers import Workers, WorkerSetup, WorkerSignals
from reactive_kafka.observe.events import ConsumersIdle
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.outgoing.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.letters import Failures
from reactive_kafka.partitions.partition import Partition, is_done, lag_begins
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.tracking.poison_watch import oldest_started
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.hook import DeliveryHook, NoHook, SharedHook
from reactive_kafka.verdicts.nack import VerdictParts

# Partitions at each look, ten times a second: a thousand would cost a twentieth of a core.
LOOKED_AT = 100
# Of a channel's clients, named in one reason.
MOST_ERRORS = 3


class ChannelSession:
    """The clients, lanes, workers and verdicts of a channel, from a start to a failure or the
    stop.
    """

    def __init__(
        self,
        spec: ChannelSpec,
        totals: ChannelTotals,
        status: ChannelStatus,
        *,
        fail: Callable[[BaseException], bool],
        exit: Callable[[BaseException], None],
        joined: Callable[[], None],
    ) -> None:
        settings = spec.settings
        services = spec.services
        clock = services.clock
        observer = services.observer
        self._settings = settings
        self._clock = clock
        # An application that iterates over the channel has what a handler would have.
        self._iterates = spec.make_workers is None
        self.commits = settings.commit_strategy != "ignore"
        self._totals = totals
        self.schemas = spec.schemas
        self._looked_at = 0
        # Everything tells the clients something, and they need everything: so their (empty) set and
        # the signals come first, and the clients last. The workers come after the acknowledger,
        # which they give their verdicts to, and it is told by them in turn only which lanes a
        # failure strategy holds up.
        self.clients = clients = ChannelClients()
        self.signals = signals = ChannelSignals(status, fail, exit, joined, clients.made_progress)
        self.spawn: Spawn = services.tasks.of(signals.task_failed)
        # Set when an application that iterates is to look again.
        self.arrival = asyncio.Event()
        self.lanes = self._lanes(spec)
        self.hook = self._hook(spec)
        self.failures = Failures(settings, services.connector, clock, observer, self.spawn)
        verdicts = VerdictParts(
            settings=settings,
            clock=clock,
            observer=observer,
            totals=totals.totals_of,
            spawn=self.spawn,
            hook=self.hook,
            fail=signals.fail,
            progress=signals.made_progress,
            request_commit=clients.request_commit,
            # Asked for late: the workers are made after the acknowledger, because they tell it of
            # failures.
            blocks_on=lambda *nack: self.workers.blocks_on(*nack),  # noqa: PLW0108
            commits_at_ack=spec.strategy.commits_at_ack,
            decode_key=spec.decode_key,
            has_events=settings.cloud_events,
        )
        self.acknowledger = Acknowledger(verdicts, self.failures)
        self.worker_signals = WorkerSignals(
            verdicts, self.acknowledger, signals.exit, clients.store_plans
        )
        self.workers = self._workers(spec)
        self.guard = PoisonGuard(
            verdicts,
            self.workers,
            self.acknowledger.dead_letter,
            clients.holding,
            lambda: clients.holding(also_left=True),
            signals.is_over,
            is_held_up=self._is_held_up,
            kept=self.kept,
        )
        shared = ClientParts(
            settings=settings,
            clock=clock,
            observer=observer,
            spawn=self.spawn,
            connector=services.connector,
            outages=OutageReports(settings.name, observer),
            reader=self.hook.reader(spec.connector or services.connector),
            acknowledger=self.acknowledger,
            lanes=self.lanes,
            workers=self.workers,
            arrival=self.arrival,
            commits=totals.commits,
            history=totals.history,
            resume=totals.resume,
            times=totals.times,
            held_back=self._held_back,
            received=totals.received,
            keeps_plans=spec.keeps_plans,
            hook=self.hook,
            holds=self.guard.begin,
        )
        for role in roles(settings, spec.strategy, spec.hooks):
            clients.append(ChannelConsumer(role, shared, signals))

    def _lanes(self, spec: ChannelSpec) -> Lanes:
        settings = self._settings
        totals = self._totals
        given: Any = {
            "shared": settings.ordering == "unordered",
            "key_of": spec.key_of,
            "pauses": totals.pauses,
        }
        # No function of users.
        given["keys_are_total"] = settings.key is None or settings.key.startswith(HEADER)
        limited: Any = (totals.limit, spec.services.clock, self._may_start)
        most = None if spec.keeps_plans else settings.concurrency_per_partition
        if most is None:
            return Lanes(**given) if totals.limit is None else LimitedLanes(*limited, **given)
        given["most"] = most
        return (
            CappedLanes(**given) if totals.limit is None else LimitedCappedLanes(*limited, **given)
        )

    def _may_start(self) -> None:
        self.workers.work_is_there()
        self.arrival.set()

    def _hook(self, spec: ChannelSpec) -> DeliveryHook:
        if spec.transactions is not None:
            name = spec.settings.name
            observer = spec.services.observer
            return ExactlyOnce(name, spec.transactions, observer, lambda: self.clients, self.spawn)
        if spec.checkpoint is None:
            return (SharedHook if spec.is_shared else NoHook)(spec.settings.name)
        store = spec.checkpoint.store
        services = spec.services
        rows = CheckpointRows(
            spec.settings, store, lambda: self.clients, services.clock, services.observer
        )
        fail = self.signals.fail
        duplicates = self._totals.history.dropped
        return CheckpointHook(spec.settings, rows, spec.checkpoint.codec, fail, duplicates)

    def _workers(self, spec: ChannelSpec) -> Workers:
        if spec.make_workers is None:
            return Workers()
        clock = spec.services.clock
        is_ending = spec.services.tasks.is_ending
        setup = WorkerSetup(
            spec.settings,
            self.lanes,
            clock,
            self.spawn,
            self.hook,
            self._totals.handlers,
            is_ending,
            trackers=self.clients.holding,
        )
        return spec.make_workers(self.worker_signals, setup)

    def _is_held_up(self) -> bool:
        """Whether it waits for its brokers, or a handler of it for those that it uses."""
        if self.workers.waits_for_outage:
            return True
        now = self._clock.monotonic()
        return any(
            client.connection.broker_error is not None or client.lifeline.not_ready(now) is not None
            for client in self.clients
        )

    def kept(self) -> Iterable[Held]:
        """The records that the application keeps without a verdict, by partition."""
        if self._iterates:
            return ((tracker, tracker.open_at_handlers()) for tracker in self.clients.holding())
        return self.workers.left_unsettled()

    def start(self) -> None:
        """Start all that runs; it connects, and goes on trying while no broker answers."""
        self.failures.start()
        for client in self.clients:
            client.start(after=self.failures.prepared if client.is_for_retries else None)
        if self.guard.is_wanted:
            self.spawn(self.guard.run, f"poison watch of {self._settings.name}")

    def stop_retrying(self) -> None:
        """End waits between attempts, and wake an application that iterates."""
        self.workers.stop_retrying()
        self.arrival.set()

    async def leave(self) -> None:
        """Leave the groups and close; every verdict that comes later is refused."""
        if self._settings.assign:
            left = [one for client in self.clients.consumers for one in client.table.all_trackers()]
            self._totals.resume.update({one.partition: one.outside_plans(one.safe) for one in left})
        # Each is taken, whatever those before it have raised.
        async with AsyncExitStack() as steps:
            steps.callback(self.arrival.set)
            steps.callback(self.guard.end)
            steps.callback(self.workers.close)
            steps.callback(self.lanes.close)
            steps.callback(self.acknowledger.skips.tell)
            steps.push_async_callback(self.failures.stop)
            await self.clients.close()

    def no_more_to_come(self) -> None:
        """All that is wanted has been read: batches do not wait to fill."""
        if not self.lanes.is_at_end:
            self.lanes.is_at_end = True
            self.workers.work_is_there()

    def hold(self) -> None:
        """Let nothing be taken any more, without telling anybody: this is the copy of a forked
        child.
        """
        self._totals.pauses.pause("this is a forked child")
        self._look_at_pauses()

    def pauses_changed(self) -> None:
        """What waits may be taken and fetched, or not, as the channel's pauses say now."""
        self._look_at_pauses()
        self.clients.made_progress()
        self.workers.work_is_there()
        self.workers.resumed()
        self.arrival.set()

    def _look_at_pauses(self) -> None:
        for client in self.clients:
            self.lanes.look_at_pauses([one.lane for one in client.table if one.lane is not None])

    def look(self) -> None:
        """Let go of what was settled lately, by whomever: it is timed then; of many partitions in
        turns.
        """
        trackers = [] if self.guard.is_resting else self.clients.holding()
        first = self._looked_at if self._looked_at < len(trackers) else 0
        self._looked_at = first + LOOKED_AT
        for tracker in trackers[first : self._looked_at]:
            tracker.compact()

    def _held_back(self) -> set[TopicPartition]:
        held_back = set(self.guard.held_back())
        pauses = self._totals.pauses
        if pauses:
            held_back.update(
                one.partition for one in self.clients.trackers() if pauses.has(one.partition)
            )
        return held_back


def channel_facts(
    settings: IncomingSettings,
    status: ChannelStatus,
    session: ChannelSession,
    totals: ChannelTotals,
    last_partitions: tuple[PartitionFacts, ...] | None,
    now: float,
) -> ChannelFacts:
    """The facts at *now* (monotonic); *last_partitions* are those that a channel had when it
    failed.
    """
    for tracker in session.clients.trackers():
        # When somebody asks, and not at each ack.
        session.acknowledger.count_acks(tracker)
    state = _state(status, session, totals)
    commits = totals.commits
    history = totals.history
    handlers = totals.handlers
    partitions = partition_facts(session, now) if last_partitions is None else last_partitions
    return ChannelFacts(
        channel=settings.name,
        state=state,
        reason=status.why_failed(now),
        on_poison=settings.on_poison,
        failure_strategies=_failure_strategies(settings),
        poison_limit_s=settings.unprocessed_record_max_age_s,
        has_joined=status.has_joined,
        paused_by=totals.pauses.reasons,
        stopped_by=status.stopped_by,
        limited_by=str(settings.rate_limit) if session.lanes.holds_back else None,
        broker_error=None if status.stopped_by else _broker_error(session),
        partitions=partitions,
        poison=session.guard.facts(now),
        totals=totals.bounded(one.partition for one in partitions),
        commits=dict(commits.outcomes),
        commit_durations=commits.durations,
        handler_durations=handlers.durations,
        retries=handlers.retries,
        record_ages=totals.times.ages,
        delivery_delays=totals.times.delays,
        rebalances=dict(history.rebalances),
        resets=dict(history.resets),
        unreadable=dict(history.unreadable),
        abandoned_handlers=history.abandoned + handlers.abandoned,
        replays_avoided=history.replays_avoided,
        duplicates_dropped=history.duplicates_dropped,
        unsynced_age_s=session.hook.behind_s(),
        metadata_dropped=commits.room.dropped,
        warnings=tuple(filter(None, (commits.room.warning, *_warnings(settings, session, now)))),
        not_ready=()
        if status.stopped_by
        else tuple(dict.fromkeys(_not_ready(session, state, now))),
        health_enabled=settings.health_enabled,
    )


def _state(status: ChannelStatus, session: ChannelSession, totals: ChannelTotals) -> ChannelState:
    if status.state != "running":
        return status.state
    if totals.pauses.reasons:
        return "paused"
    return "done" if _is_done(session) else "running"


def _is_done(session: ChannelSession) -> bool:
    """Whether the ranges that the channel reads are read and settled, and nothing waits to be
    retried.
    """
    read = [one for client in session.clients.consumers for one in client.table]
    return (
        bool(read)
        and all(map(is_done, read))
        and not any(one.unsettled for one in session.clients.all_trackers())
    )


def _broker_error(session: ChannelSession) -> str | None:
    """Why the broker cannot be used, each reason once: that of retries may have a connection of its
    own.
    """
    found = dict.fromkeys(
        error for client in session.clients if (error := client.connection.broker_error)
    )
    return (
        "; ".join([error for error in found if error != CONNECTING][:MOST_ERRORS] or found) or None
    )


def _warnings(settings: IncomingSettings, session: ChannelSession, now: float) -> Iterator[str]:
    if idle := session.clients.idle_consumers:
        yield ConsumersIdle(channel=settings.name, idle=idle, consumers=settings.consumers).text()
    for client in session.clients:
        yield from client.connection.stable.warnings(now)


def _failure_strategies(settings: IncomingSettings) -> tuple[str, ...]:
    """The labels that nacks are counted by: strategies, and the ack mode if that is "pre" or
    "none".
    """
    names = [settings.failure_strategy, *settings.failure_routes.values()]
    names += [settings.on_poison] * (settings.on_poison == "dead-letter-queue")
    names += [settings.ack] * (settings.ack in ("pre", "none"))
    return tuple(dict.fromkeys(names))


def partition_facts(
    session: ChannelSession, now: float, *, also_left: bool = False
) -> tuple[PartitionFacts, ...]:
    """The facts at *now* of the partitions that are ours, with *also_left* of suspended ones
    too.
    """
    found: list[PartitionFacts] = []
    for client in session.clients:
        stopped = client.fetcher.stops.now(now)
        for one in client.table:
            tracker = one.tracker if also_left else one.live
            if tracker is not None:
                is_paused = (one.fetch.is_paused or one.id in stopped) and not one.is_read_out
                found.append(_partition(session, one, tracker, now, is_paused=is_paused))
    return tuple(found)


def _partition(
    session: ChannelSession, one: Partition, tracker: OffsetTracker, now: float, *, is_paused: bool
) -> PartitionFacts:
    oldest = oldest_started(tracker)
    behind = lag_begins(tracker, tracker.committed, commits=session.commits)
    return PartitionFacts(
        partition=one.id,
        position=tracker.position,
        committed=tracker.committed,
        log_end=one.log.end,
        lag=None if one.log.end is None else max(0, one.log.end - behind),
        in_flight=one.in_flight,
        queued=one.queued,
        oldest_unacked_s=None
        if oldest is None
        else max(0.0, session.guard.watch.age_s(oldest[1], now)),
        paused=is_paused,
        metadata_units=one.commits.metadata.units(tracker),
        done=is_done(one),
    )


def _not_ready(session: ChannelSession, state: ChannelState, now: float) -> Iterator[str]:
    for client in session.clients:
        yield from filter(None, (client.uncommitted.not_ready(now), client.lifeline.not_ready(now)))
        yield from client.fetcher.stops.failures.reasons
        yield from client.connection.reach.not_ready
        if client.starts.not_begun is not None and not client.starts.are_done:
            yield client.starts.not_begun
        if (why := client.committer.not_stored) is not None and state in (
            "running",
            "paused",
            "done",
        ):
            yield f"the last commit was not stored: {why}"
    yield from session.hook.not_ready()
    yield from session.schemas.not_ready() if session.schemas is not None else ()
    yield from session.acknowledger.not_ready
    yield from session.workers.not_ready(now)

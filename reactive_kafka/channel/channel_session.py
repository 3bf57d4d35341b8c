"""One session of a channel: all that a start creates, and a restart creates again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from reactive_kafka.channel.after import AfterChannels
from reactive_kafka.channel.blueprint import ByIteration, ByWorkers, ChannelBlueprint
from reactive_kafka.channel.client_roles import client_roles
from reactive_kafka.channel.clients import ChannelClients, ChannelConsumer
from reactive_kafka.channel.named_functions import HEADER
from reactive_kafka.channel.position_keeping import SessionAccess
from reactive_kafka.channel.record_handling import RecordHandling
from reactive_kafka.channel.session_signals import ChannelSignals
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.channel.totals import ChannelTotals
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.lanes.limited import LimitedLane, ValueLimit
from reactive_kafka.delivery.lanes.limits import StartLimit
from reactive_kafka.delivery.lanes.queue import LaneQueue, StartGate
from reactive_kafka.delivery.poison_guard import PoisonGuard
from reactive_kafka.delivery.workers.interface import (
    ChannelWorkers,
    LaneProgress,
    NoWorkers,
    WorkerSetup,
)
from reactive_kafka.delivery.workers.slots import ChannelSlots
from reactive_kafka.failure.strategies import ChannelStrategies
from reactive_kafka.nacks.handling import FailureHandling
from reactive_kafka.nacks.letter_writer import LetterWriter
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Flag, Spawn
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import NoHook

LOOKED_AT = 100
"""How many partitions are looked at ten times a second. A thousand would cost 5 % of a core."""
_KEYS_WITHOUT_KEY: dict[str, KeyOf] = {
    "partition": lambda record: None,
    "unordered": lambda record: object(),
}
"""The ordering key of records in lanes with a rate for each value: they have keys in any case."""


class ChannelSession:
    """The clients, lanes, workers and verdicts of a channel, from a start to a failure or a stop.

    A restart creates all of it again, except what is counted. What comes late from an old session
    finds closed trackers, and cannot fail the new session.
    """

    def __init__(
        self,
        blueprint: ChannelBlueprint,
        totals: ChannelTotals,
        status: ChannelStatus,
        *,
        fail: Callable[[BaseException], bool],
        exit: Callable[[BaseException], None],
        joined: Callable[[], None],
        facts: Callable[[], ChannelFacts],
        outages: OutageReports,
    ) -> None:
        settings = blueprint.settings
        services = blueprint.services
        clock = services.clock
        observer = services.observer
        consumption = blueprint.consumption
        self._settings = settings
        self._clock = clock
        # An application that iterates over the channel has the records that a handler would have.
        self._iterates = isinstance(consumption, ByIteration)
        self.commits = settings.commit_strategy != "ignore"
        self._totals = totals
        self.schemas = blueprint.reading.schemas
        self._next_looked_at = 0
        # The parts need each other. The set of clients and the signals come first, still empty:
        # everything signals to the clients. The clients themselves come last: they need everything.
        clients = ChannelClients()
        signals = ChannelSignals(status, fail, exit, joined, clients.made_progress)
        self.clients = clients
        self.signals = signals
        self.spawn: Spawn = services.tasks.of(signals.task_failed)
        # Set when an application that iterates has to look again.
        self.arrival = Flag()
        self._after_channels = blueprint.after
        # None: no channel comes before this one.
        self.after: AfterChannels | None = None
        self.slots = None if blueprint.limit is None else ChannelSlots(blueprint.limit)
        self.lanes = self._new_lanes(consumption)
        self.hook = blueprint.positions.make_hook(
            SessionAccess(
                settings=settings,
                services=services,
                clients=clients,
                fail=signals.fail,
                spawn=self.spawn,
                count_duplicates=totals.history.dropped,
            )
        )
        context = ChannelContext(
            settings=settings,
            clock=clock,
            observer=observer,
            totals=totals.totals_of,
            spawn=self.spawn,
            fail=signals.fail,
            progress=signals.made_progress,
            watch=blueprint.watch,
        )
        self.letters = LetterWriter(settings, services.connector, clock, observer, self.spawn)
        nacks = FailureHandling(
            context,
            self.hook,
            ChannelStrategies(settings),
            self.letters,
            # Looked up at each call. The workers are made later, because they give their failures
            # to this object.
            blocks_on=lambda *nack: self.workers.blocks_on(*nack),  # noqa: PLW0108
        )
        commits_at_ack = blueprint.strategy.commits_at_ack
        self.acknowledger = Acknowledger(
            context,
            nacks,
            self.hook,
            request_commit=clients.request_commit if commits_at_ack else None,
            decode_key=blueprint.reading.decode_key,
            has_events=settings.cloud_events,
            not_started=self._not_started,
        )
        self.progress = LaneProgress(context, self.acknowledger)
        self.workers = self._new_workers(consumption, context, services.tasks.is_ending)
        self.guard = PoisonGuard(
            context,
            self.workers,
            nacks.dead_letter,
            clients.holding,
            lambda: clients.holding(also_left=True),
            signals.is_over,
            is_held_up=self._is_held_up,
            kept=self.kept,
        )
        self._handling = RecordHandling(
            lanes=self.lanes,
            workers=self.workers,
            acknowledger=self.acknowledger,
            arrival=self.arrival,
            held_back=self._held_back,
            holds=self.guard.begin,
            keeps_plans=isinstance(consumption, ByWorkers) and consumption.keeps_plans,
        )
        reader = self.hook.reader(blueprint.connector or services.connector)
        for role in client_roles(settings, blueprint.strategy, blueprint.hooks):
            is_covered = self.hook.covers_retries or not role.is_for_retries
            client = ChannelConsumer(
                role,
                ClientContext(role.settings, clock, observer, totals.problems[role.name]),
                self._handling,
                totals,
                signals,
                reader=reader if is_covered else services.connector,
                hook=self.hook if is_covered else NoHook(role.settings.name),
                outages=outages,
                facts=facts,
                spawn=self.spawn,
            )
            clients.append(client)

    def _new_lanes(self, consumption: ByWorkers | ByIteration) -> LaneQueue:
        settings = self._settings
        key_of = None
        keeps_plans = False
        if isinstance(consumption, ByWorkers):
            key_of = consumption.key_of
            keeps_plans = consumption.keeps_plans
        limit: StartGate | None = None
        value_limit = None
        if self._totals.limit is not None:
            limit = StartLimit(self._totals.limit, self._clock, self._may_start)
        elif self._totals.value_limit is not None:
            value_limit = ValueLimit(
                self._totals.value_limit,
                self._clock,
                self._offer,
                self._may_start,
            )
            key_of = key_of or _KEYS_WITHOUT_KEY[settings.ordering]
        if self._after_channels:
            self.after = AfterChannels(self._after_channels, limit, self._may_start)
            limit = self.after
        return LaneQueue(
            shared=settings.ordering == "unordered",
            key_of=key_of,
            # Keys and headers can always be read; a function of users may fail.
            keys_are_total=settings.key is None or settings.key.startswith(HEADER),
            pauses=self._totals.pauses,
            most_per_lane=None if keeps_plans else settings.concurrency_per_partition,
            limit=limit,
            value_limit=value_limit,
            # So each call waits for its turn among the channels that share the limit.
            one_by_one=self.slots is not None,
        )

    def _offer(self, lane: LimitedLane) -> None:
        # A method, because the lanes are made with the limit.
        self.lanes.offer(lane)

    def _not_started(self, delivery: Delivery) -> None:
        self.lanes.not_started(delivery.topic_partition, delivery.record)

    def _may_start(self) -> None:
        # A method, because the lanes are made before the object that handles their records.
        self._handling.arrived()

    def _new_workers(
        self,
        consumption: ByWorkers | ByIteration,
        context: ChannelContext,
        is_ending: Callable[[], bool],
    ) -> ChannelWorkers:
        if isinstance(consumption, ByIteration):
            return NoWorkers()
        setup = WorkerSetup(
            channel=context,
            acknowledger=self.acknowledger,
            lanes=self.lanes,
            exit=self.signals.exit,
            store_plans=self.clients.store_plans,
            totals=self._totals.handlers,
            times=self._totals.times,
            is_ending=is_ending,
            trackers=self.clients.holding,
            hold=self._hold_for_handler,
            slots=self.slots,
        )
        return consumption.make(setup)

    def _is_held_up(self) -> bool:
        """Return whether the channel waits for its brokers, or a handler for those that it uses."""
        if self.workers.waits_for_outage:
            return True
        now = self._clock.monotonic()
        return any(
            client.connection.broker_error is not None or client.lifeline.not_ready(now) is not None
            for client in self.clients
        )

    def kept(self) -> Iterable[Held]:
        """Return the records that the application keeps without a verdict, by partition."""
        if self._iterates:
            return ((tracker, tracker.open_at_handlers()) for tracker in self.clients.holding())
        return self.workers.left_unsettled()

    def start(self) -> None:
        """Start all tasks. They connect, and keep trying while no broker answers."""
        self.letters.start()
        for client in self.clients:
            client.start(after=self.letters.prepared if client.is_for_retries else None)
        if self.guard.is_wanted:
            self.spawn(self.guard.run, f"poison watch of {self._settings.name}")

    def stop_retrying(self) -> None:
        """End waits between attempts, and wake an application that iterates."""
        self.workers.stop_retrying()
        self.arrival.set()

    async def leave(self) -> None:
        """Leave the groups and close. Verdicts that come later are refused."""
        if self._settings.assign:
            left = [
                tracker
                for client in self.clients.consumers
                for tracker in client.table.all_trackers()
            ]
            self._totals.resume.update(
                {tracker.partition: self._resume_position(tracker) for tracker in left}
            )
        # The stack takes every step, whatever the others raise, the last one pushed first.
        async with AsyncExitStack() as steps:
            steps.callback(self.arrival.set)
            steps.callback(self.guard.end)
            steps.callback(self.workers.close)
            steps.callback(self.lanes.close)
            if self.slots is not None:
                steps.callback(self.slots.close)
            steps.callback(self.acknowledger.skips.tell)
            steps.push_async_callback(self.letters.stop)
            steps.callback(self.hook.close)
            await self.clients.close()

    def _resume_position(self, tracker: OffsetTracker) -> int:
        """Return where the next session continues in a partition that no group assigns."""
        if self.hook.keeps_positions:
            # The states of the records behind that position end with this session.
            return tracker.stored
        return tracker.outside_plans(tracker.safe)

    def no_more_to_come(self) -> None:
        """Note that everything that is wanted has been read, so batches do not wait to fill."""
        if not self.lanes.is_at_end:
            self.lanes.is_at_end = True
            self.workers.work_is_there()

    def hold(self) -> None:
        """Let no record be taken any more, without an event: this is the copy in a forked child."""
        self._totals.pauses.pause("this is a forked child")
        self._look_at_pauses()

    def _hold_for_handler(self, partitions: Iterable[TopicPartition] | None) -> Callable[[], None]:
        """Start no record of these partitions, for ``Later``. Returns the call that ends the hold.

        Args:
            partitions: None: all of the channel.
        """
        end = self._totals.pauses.hold(partitions)
        self.pauses_changed()

        def end_hold() -> None:
            end()
            # The lanes of a session that is over are dropped.
            if not self.signals.is_over():
                self.pauses_changed()

        return end_hold

    def pauses_changed(self) -> None:
        """Take and fetch records as the channel's pauses allow now."""
        self._look_at_pauses()
        self.clients.made_progress()
        self.workers.work_is_there()
        self.workers.resumed()
        self.arrival.set()

    def _look_at_pauses(self) -> None:
        for client in self.clients:
            self.lanes.look_at_pauses(
                [partition.lane for partition in client.table if partition.lane is not None]
            )

    def compact_windows(self) -> None:
        """Drop settled records from the windows and record their latency; at most 100 partitions.

        If there are more, the next call continues with the others.
        """
        trackers = [] if self.guard.is_resting else self.clients.holding()
        first = self._next_looked_at if self._next_looked_at < len(trackers) else 0
        self._next_looked_at = first + LOOKED_AT
        for tracker in trackers[first : self._next_looked_at]:
            tracker.compact()

    def _held_back(self) -> set[TopicPartition]:
        held_back = set(self.guard.held_back())
        pauses = self._totals.pauses
        if pauses:
            held_back.update(
                tracker.partition
                for tracker in self.clients.trackers()
                if pauses.has(tracker.partition)
            )
        return held_back

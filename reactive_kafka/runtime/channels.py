"""Builds the channels of one run from their plans, starts them, and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.blueprint import ByIteration, ByWorkers, ChannelBlueprint, MakeWorkers
from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.position_keeping import (
    PositionKeeping,
    PositionsInGroup,
    PositionsInStore,
    PositionsInTransactions,
)
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.checkpoint.state_codec import codec_for
from reactive_kafka.commit.strategy import strategy_for
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.shared_limit import SharedLimit
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.formats.registered.channel_schemas import ChannelSchemas, SchemaRequester
from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.memory_channels.memory_channel import MemoryChannel
from reactive_kafka.observe.events import EndFailed
from reactive_kafka.observe.facts import (
    ChannelFacts,
    DurationHistogram,
    OutgoingFacts,
    SparkFacts,
)
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel, producer_properties
from reactive_kafka.outgoing.target import Target
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.planning.channel_plans import IncomingPlan, MemoryPlan, OutgoingPlan
from reactive_kafka.runtime.handler_workers import HandlerSurroundings, handler_workers
from reactive_kafka.runtime.jobs import Jobs
from reactive_kafka.runtime.run_plan import RunEnvironment, RunPlan
from reactive_kafka.runtime.sources import Sources
from reactive_kafka.runtime.store_opening import connector_of_ranges, source_of_ranges, store_of
from reactive_kafka.runtime.topic_creation import DeclaredTopics
from reactive_kafka.runtime.tracing import RunTracing
from reactive_kafka.tasks import Fails, HomeLoop, all_ended, outcome_of, outcome_text

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkFunction
    from reactive_kafka.spark.channel.runner import SparkRunner
    from reactive_kafka.spark.session.spark_engine import SparkEngine


FLUSHED_S = 10.0
"""How long outgoing channels have to write what they have accepted, once the others have left."""
ALL_FLUSHED_S = 12.0
"""How long after the drain outgoing channels stop writing at the latest.

In an outage the last commits use some of that time. The process is ended 15 s after the drain
(``CLOSING_S``), and its dependencies have to close before that.
"""
LEAST_FLUSHED_S = 2.0
"""How long outgoing channels have to write even if stopping Spark has used up all other time."""


class RunChannels:
    """The channels, sources and jobs of one run, and the Spark session under them.

    Raises:
        ConfigError: A strategy or a store of a channel cannot be made.
    """

    def __init__(
        self,
        plan: RunPlan,
        environment: RunEnvironment,
        services: RunServices,
        dependencies: Dependencies,
        fails: Fails,
    ) -> None:
        self._plan = plan
        self._dependencies = dependencies
        self._open_store = environment.open_store or store_of
        self._services = services
        # Called when a task of the application fails that belongs to no channel.
        self._fails = fails
        self._context = copy_context()
        self._runners: dict[str, SparkRunner] = {}
        channels = plan.channels
        self._spark = self._spark_engine(environment.spark)
        self.home = HomeLoop()
        self.registry = self._schema_registry(
            [
                *(incoming.reading.schemas for incoming in channels.incoming.values()),
                *(outgoing.registered for outgoing in channels.outgoing.values()),
            ]
        )
        self.tracing = RunTracing(plan.settings.tracing, services.clock)
        self._topics = DeclaredTopics(plan.settings, services.observer)
        self._producers: dict[str, TransactionalProducers] = {}
        # Whether the outgoing channels have been started, and whether they are being closed.
        self._has_started = False
        self._is_closing = False
        self._limits = {
            name: SharedLimit(name, limit.concurrency)
            for name, limit in plan.settings.limits.items()
        }
        self._memory = {
            name: self.tracing.memory(settings, services.clock, services.observer)
            for name, settings in plan.settings.memory.items()
        }
        unfed = set(channels.unfed).difference(plan.emitters)
        self.outgoing: dict[str, Target] = {
            name: self._build_outgoing(outgoing)
            for name, outgoing in channels.outgoing.items()
            if name not in unfed
        }
        self.outgoing.update(self._memory)
        for name, memory in channels.memory.items():
            make = self._handler_workers(memory, awaits_commits=True)
            # The target keeps it.
            MemoryChannel(memory.settings, self._memory[name], services, make)
        self._jobs = Jobs(plan.hooks.jobs, services, self._context, fails)
        self.incoming = {
            name: self._build_incoming(incoming) for name, incoming in channels.incoming.items()
        }
        self._sources = Sources(
            channels.sources, self.outgoing.__getitem__, dependencies, services.tasks
        )
        # What users get from app.channel().
        self.faces = {name: Channel(channel) for name, channel in self.incoming.items()}

    def _spark_engine(self, given: SparkEngine | None) -> SparkEngine | None:
        """Return what runs Spark, or None if no channel needs it."""
        incoming = self._plan.channels.incoming.values()
        modes = {channel.settings.spark.mode for channel in incoming if channel.spark is not None}
        if not modes or given is not None:
            return given if modes else None
        from reactive_kafka.spark.session.spark_engine import SparkEngine

        return SparkEngine(
            self._plan.settings.spark,
            ranges="ranges" in modes,
            sends=bool(self._plan.channels.outgoing),
        )

    def _schema_registry(self, used: Iterable[object]) -> SchemaRequester | None:
        """Return the schema registry, or None if no channel uses it."""
        if not any(used):
            return None
        from reactive_kafka.schemas.schema_registry import Registry

        settings = self._plan.settings.schema_registry
        return Registry(
            settings, self._services.clock, self._services.tasks, self._services.observer
        )

    def _build_outgoing(self, plan: OutgoingPlan) -> OutgoingChannel:
        services = self._services

        def fail(error: BaseException) -> None:
            channel.writer.fail(error)

        channel = OutgoingChannel(
            plan.settings,
            self._connector_of(plan.settings),
            services.clock,
            services.observer,
            services.tasks.of(fail),
            encode=plan.encode,
            encode_key=plan.encode_key,
            partitioner=plan.partitioner,
            producers=self._transactional(plan.settings),
            registered=plan.registered,
            watch=self.tracing.sends(plan.settings),
        )
        if plan.registered is not None:
            plan.registered.schemas.connect(self.registry)
        return channel

    def _transactional(self, settings: OutgoingSettings) -> TransactionalProducers | None:
        """Return the producers of a transactional channel; channels with the same id share them."""
        transactional_id = settings.transactional_id
        if transactional_id is None:
            return None
        if transactional_id not in self._producers:
            services = self._services
            self._producers[transactional_id] = TransactionalProducers(
                transactional_id,
                self._connector_of(settings),
                services.clock,
                settings.name,
                producer_properties(settings),
            )
        return self._producers[transactional_id]

    def _connector_of(self, settings: OutgoingSettings) -> Connector:
        connector = self._topics.of_outgoing(settings, self._services.connector)
        return self.tracing.producers(settings, connector)

    def sending(self, name: str) -> Target:
        """Return an outgoing channel for an emitter. It is built if nothing has fed it so far.

        Raises:
            ChannelClosedError: The outgoing channels are being closed.
        """
        if name not in self.outgoing:
            if self._is_closing:
                raise ChannelClosedError(f"outgoing channel {name!r} has stopped")
            self.outgoing[name] = self._build_outgoing(self._plan.channels.outgoing[name])
            if self._has_started:
                self.outgoing[name].start()
        return self.outgoing[name]

    def _build_incoming(self, plan: IncomingPlan) -> ChannelLifecycle:
        settings = plan.settings
        services = self._services
        strategy = strategy_for(settings)
        if plan.reading.schemas is not None:
            plan.reading.schemas.connect(self.registry)
        commit_durations = DurationHistogram()
        connector = self._topics.of_incoming(settings, services.connector)
        services = replace(
            services, connector=self.tracing.consumers(settings, connector, commit_durations)
        )
        of_ranges = None
        if plan.spark is not None:
            of_ranges = connector_of_ranges(settings, services.connector)
        return ChannelLifecycle(
            ChannelBlueprint(
                settings=settings,
                services=services,
                strategy=strategy,
                consumption=self._consumption(plan, awaits_commits=strategy.commits_at_ack),
                reading=plan.reading,
                hooks=self._jobs.with_hooks(settings, self._plan.hooks.of(settings.name)),
                positions=self._positions(plan),
                connector=of_ranges,
                after={name: partial(self._has_waiting, name) for name in settings.after},
                limit=None if settings.limit is None else self._limits[settings.limit],
                handlers=plan.handler_names,
                commit_durations=commit_durations,
                watch=self.tracing.verdicts(settings),
                receives=self.tracing.receives(settings),
            )
        )

    def _has_waiting(self, name: str) -> bool:
        # Looked up at each call: a channel may come after one that is built later.
        return self.incoming[name].has_waiting()

    def _consumption(self, plan: IncomingPlan, *, awaits_commits: bool) -> ByWorkers | ByIteration:
        if plan.spark is not None:
            make = self._spark_workers(plan.settings, plan.spark, plan.reading.schemas)
            return ByWorkers(make, plan.key_of, keeps_plans=True)
        if plan.handlers:
            make = self._handler_workers(plan, awaits_commits=awaits_commits)
            return ByWorkers(make, plan.key_of)
        skipping = self._skipping(plan)
        return ByIteration(skipping if skipping.is_needed else None)

    def _positions(self, plan: IncomingPlan) -> PositionKeeping:
        """Return where a channel keeps its positions.

        Raises:
            ConfigError: Its store cannot be opened.
        """
        settings = plan.settings
        if plan.transactional_id is not None:
            return PositionsInTransactions(self._producers[plan.transactional_id])
        codec = codec_for(settings)
        if settings.checkpoint is None or codec is None:
            return PositionsInGroup(is_broadcast=plan.is_broadcast)
        try:
            store = self._open_store(settings.checkpoint)
        except ValueError as error:
            where = settings.place("checkpoint.store", settings.checkpoint.store)
            raise ConfigError(f"{where}: {error}") from error
        return PositionsInStore(store, codec, self._outboxes(plan))

    def _outboxes(self, plan: IncomingPlan) -> list[OutgoingChannel]:
        """Return the channels with an outbox that the handlers of a channel send to."""
        targets = [self.outgoing[name] for name in plan.outgoing]
        return [
            target
            for target in targets
            if isinstance(target, OutgoingChannel) and target.settings.outbox
        ]

    def _skipping(self, plan: IncomingPlan | MemoryPlan) -> Skipping:
        if isinstance(plan, MemoryPlan):
            return Skipping(plan.settings, None, self._services.clock.wall)
        return Skipping(
            plan.settings,
            plan.filter,
            self._services.clock.wall,
            filters_undecoded=plan.filters_undecoded,
        )

    def _handler_workers(
        self, plan: IncomingPlan | MemoryPlan, *, awaits_commits: bool
    ) -> MakeWorkers:
        watch = self.tracing.calls(plan.settings, is_kafka=isinstance(plan, IncomingPlan))
        surroundings = HandlerSurroundings(
            dependencies=self._dependencies,
            target=self.outgoing.__getitem__,
            context=self._context,
            # Asked each time: an added channel comes later than some emitters. A channel that
            # nothing feeds is there for an emitter that the application asks for later.
            has_emitters=bool(self._plan.emitters or self._plan.channels.unfed),
        )
        return handler_workers(
            plan,
            surroundings,
            self._skipping(plan),
            awaits_commits=awaits_commits,
            watch=watch,
        )

    def _spark_workers(
        self, settings: IncomingSettings, spark: SparkFunction, schemas: ChannelSchemas | None
    ) -> MakeWorkers:
        from reactive_kafka.runtime.spark_sends import SparkSends
        from reactive_kafka.spark.channel.dispatcher import SparkDispatcher
        from reactive_kafka.spark.channel.refetch import records_of
        from reactive_kafka.spark.channel.runner import SparkRunner

        services = self._services
        source = source_of_ranges(settings, services.connector)
        # It is made if any channel has a Spark function.
        assert self._spark is not None  # noqa: S101
        runner = SparkRunner(
            self._spark,
            spark,
            settings,
            source=source,
            observer=services.observer,
            clock=services.clock,
            schemas=schemas,
            send_rows=SparkSends(self._plan.settings, services.connector, self.home, self.sending),
            watch=self.tracing.calls(settings),
        )
        # All sessions of the channel share the runner, so its counts survive restarts.
        self._runners[settings.name] = runner
        fetch = partial(records_of, services.connector, settings, observer=services.observer)
        return lambda setup: SparkDispatcher(setup, runner, fetch)

    async def start(self) -> None:
        """Start Spark, and the channels that are enabled and have a handler.

        The others start when the application iterates over them, or starts them.
        """
        await self._start_spark()
        self._has_started = True
        for channel in self.outgoing.values():
            channel.start()
        for name, plan in self._plan.channels.incoming.items():
            if not plan.settings.enabled:
                self.incoming[name].stay_stopped()
            elif plan.has_handler:
                self.incoming[name].start()
        self._sources.start()
        self._jobs.start()

    async def _start_spark(self) -> None:
        if self._spark is None:
            return
        plans = self._plan.channels.incoming.values()
        if any(plan.spark is not None and plan.settings.enabled for plan in plans):
            await self._spark.start(self._fails)
        else:
            self._spark.prepare(self._fails)

    def add(self, plan: IncomingPlan) -> Channel:
        """Build one more incoming channel, and start it if it is ``enabled``."""
        for name in plan.outgoing:
            # A channel that nothing has fed so far is built now.
            self.sending(name)
        self.registry = self.registry or self._schema_registry([plan.reading.schemas])
        # The context of the run, and not that of the caller: its tasks inherit it.
        context = self._context.copy()
        channel = context.run(self._build_incoming, plan)
        self.incoming[channel.name] = channel
        self.faces[channel.name] = Channel(channel)
        context.run(channel.start if plan.settings.enabled else channel.stay_stopped)
        return self.faces[channel.name]

    async def drain(self, deadlines: Mapping[str, float]) -> None:
        """Call no more handlers, and wait for those that run.

        Args:
            deadlines: Channel -> until when its handlers may run (monotonic).
        """
        await self._sources.stop()
        quiet = self._take_step(
            "draining",
            {name: channel.quiesce(deadlines[name]) for name, channel in self.incoming.items()},
        )
        await all_ended(self._jobs.drain(deadlines), quiet)
        # Memory channels drain last. Records of the other channels wait for the acks of their
        # values.
        await self._take_step(
            "draining",
            {name: channel.drain(deadlines[name]) for name, channel in self._memory.items()},
        )

    async def leave(self, deadlines: Mapping[str, float]) -> None:
        """Commit for the last time, leave the groups, and end Spark and the outgoing channels."""
        await self._take_step(
            "leaving",
            {name: channel.finish(deadlines[name]) for name, channel in self.incoming.items()},
        )
        if self._spark is not None:
            # The stop of Spark has time limits of its own.
            error = await outcome_of(self._spark.stop, "stop Spark", None)
            if error is not None:
                self._tell_end_failed("*", "stopping Spark", error)
        now = self._services.clock.monotonic()
        drained_by = max(deadlines.values(), default=now)
        given_up_at = max(drained_by + ALL_FLUSHED_S, now + LEAST_FLUSHED_S)
        await self.close_outgoing(max(drained_by, min(now + FLUSHED_S, given_up_at)))

    async def close_outgoing(self, deadline: float) -> None:
        """Write what was accepted until *deadline* (monotonic), and close. It happens once.

        Senders that still wait then get an error.
        """
        if not self._is_closing:
            self._is_closing = True
            await self._take_step(
                "closing", {name: channel.stop(deadline) for name, channel in self._memory.items()}
            )
            kafka = {
                name: channel for name, channel in self.outgoing.items() if name not in self._memory
            }
            await self._take_step(
                "closing", {name: channel.stop(deadline) for name, channel in kafka.items()}
            )

    async def _take_step(self, doing: str, ends: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Await a step of all channels. An error of one is reported, and stops no other."""
        errors = await asyncio.gather(*ends.values(), return_exceptions=True)
        for channel, error in zip(ends, errors, strict=True):
            if error is not None:
                self._tell_end_failed(channel, doing, error)

    def _tell_end_failed(self, channel: str, doing: str, error: BaseException) -> None:
        self._services.observer.on(
            EndFailed(channel=channel, doing=doing, reason=outcome_text(error), error=error)
        )

    def drain_timeouts(self) -> dict[str, float]:
        """Return how long a stop waits for the handlers and jobs of each channel, by its name.

        A memory channel has the longest time of the others: their records wait for its values.
        """
        own = {name: channel.settings.drain_timeout_s for name, channel in self.incoming.items()}
        memory = {
            name: channel.settings.drain_timeout_s
            for name, channel in self._plan.channels.memory.items()
        }
        own |= dict.fromkeys(memory, max(own.values())) if own else memory
        return own | self._jobs.drain_timeouts(own)

    def facts(self) -> tuple[ChannelFacts, ...]:
        """Return what is known about the incoming channels that have started."""
        return tuple(channel.facts() for channel in self.faces.values() if channel.is_started)

    def outgoing_facts(self) -> tuple[OutgoingFacts, ...]:
        """Return what is known about the outgoing channels."""
        return tuple(
            replace(
                channel.facts() if isinstance(channel, OutgoingChannel) else channel.writer.facts(),
                health_enabled=channel.settings.health_enabled,
                topic=getattr(channel.settings, "topic", None),
            )
            for channel in self.outgoing.values()
        )

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        """Return what is known about the Spark batches of each channel, once Spark is needed."""
        if self._spark is None or not self._spark.is_open:
            return ()
        return tuple(runner.facts() for runner in self._runners.values())

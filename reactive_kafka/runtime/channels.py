"""The channels of one run, and the Spark session under them: built from the application's spec,
started and ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.memory import MemoryChannel
from reactive_kafka.channel.spec import ChannelSpec, CheckpointSpec, MakeWorkers, RunServices
from reactive_kafka.checkpoint.state_codec import codec_for
from reactive_kafka.commit.strategy import strategy_for
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.formats.registered.channel_schemas import ChannelSchemas, SchemaRequester
from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.handlers.spec import IncomingSpec, OutgoingSpec
from reactive_kafka.observe.events import EndFailed
from reactive_kafka.observe.facts import ChannelFacts, OutgoingFacts, SparkFacts
from reactive_kafka.outgoing.channel import OutgoingChannel, producer_properties
from reactive_kafka.outgoing.memory import Target
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.runtime.handlers import handler_workers
from reactive_kafka.runtime.jobs import Jobs
from reactive_kafka.runtime.opening import reader_of, source_of_ranges, store_of
from reactive_kafka.runtime.sources import Sources
from reactive_kafka.runtime.spec import RunSpec
from reactive_kafka.runtime.tracing import RunTracing
from reactive_kafka.tasks import Fails, HomeLoop, each, outcome_of, told_of

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkFunction
    from reactive_kafka.spark.channel.runner import SparkRunner


FLUSHED_S = 10.0
"""How long outgoing channels have at least, at the end, to write what they have accepted."""


class RunChannels:
    """Everything that a run of an application reads, writes and computes with.

    A strategy or a store of a channel that cannot be made is a ConfigError.
    """

    def __init__(
        self, spec: RunSpec, services: RunServices, dependencies: Dependencies, fails: Fails
    ) -> None:
        self._spec = spec
        self._dependencies = dependencies
        self._services = services
        # Told where a task of the application, and of no channel, fails.
        self._fails = fails
        self._context = copy_context()
        self._runners: dict[str, SparkRunner] = {}
        incoming = spec.app.incoming
        modes = {one.settings.spark.mode for one in incoming.values() if one.spark is not None}
        self._spark = spec.spark if modes else None
        if modes and self._spark is None:
            from reactive_kafka.spark.session.spark_engine import SparkEngine

            self._spark = SparkEngine(spec.settings.spark, ranges="ranges" in modes)
        self.home = HomeLoop()
        used = [
            *(one.schemas for one in incoming.values()),
            *(one.values for one in spec.app.outgoing.values()),
        ]
        self.registry = self._schema_registry(used)
        self.tracing = RunTracing(spec.settings.tracing)
        self._producers: dict[str, TransactionalProducers] = {}
        # The outgoing channels: whether they have been started, and whether they are being closed.
        self._has_started = False
        self._is_closing = False
        unfed = set(spec.app.unfed).difference(spec.emitters)
        self._memory = {
            name: self.tracing.memory(one, services.clock, services.observer)
            for name, one in spec.settings.memory.items()
        }
        self.outgoing: dict[str, Target] = {
            name: self._outgoing(one)
            for name, one in spec.app.outgoing.items()
            if name not in unfed
        }
        self.outgoing.update(self._memory)
        for name, one in spec.app.memory.items():
            # Each is settled by itself.
            make = self._workers(one, awaits_commits=True)
            # Kept by its target.
            MemoryChannel(one.settings, self._memory[name], services, make)
        self._jobs = Jobs(spec.hooks.jobs, services, self._context, fails)
        self.incoming = {name: self._incoming(one) for name, one in incoming.items()}
        self._sources = Sources(
            spec.app.sources, self.outgoing.__getitem__, dependencies, services.tasks
        )
        # What users hold of them.
        self.faces = {name: Channel(channel) for name, channel in self.incoming.items()}

    def _schema_registry(self, used: Iterable[object]) -> SchemaRequester | None:
        """The registry, if anything uses one."""
        if not any(used):
            return None
        from reactive_kafka.schemas.schema_registry import Registry

        settings = self._spec.settings.schema_registry
        return Registry(
            settings, self._services.clock, self._services.tasks, self._services.observer
        )

    def _outgoing(self, spec: OutgoingSpec) -> OutgoingChannel:
        services = self._services

        def fail(error: BaseException) -> None:
            channel.writer.fail(error)

        channel = self.tracing.outgoing(spec.settings)(
            spec.settings,
            services.connector,
            services.clock,
            services.observer,
            services.tasks.of(fail),
            encode=spec.encode,
            encode_key=spec.encode_key,
            partitioner=spec.partitioner,
            producers=self._transactional(spec.settings),
            registered=spec.values,
        )
        if spec.values is not None:
            spec.values.schemas.connect(self.registry)
        return channel

    def _transactional(self, settings: OutgoingSettings) -> TransactionalProducers | None:
        """The producers of a transactional channel, which those with the same id share."""
        own_id = settings.transactional_id
        services = self._services
        if own_id is None:
            return None
        if own_id not in self._producers:
            properties = producer_properties(settings)
            made = TransactionalProducers(
                own_id, services.connector, services.clock, settings.name, properties
            )
            self._producers[own_id] = made
        return self._producers[own_id]

    def sending(self, name: str) -> Target:
        """An outgoing channel for an emitter; one that nothing has fed so far is made, and started
        with the others.

        ChannelClosedError: the outgoing channels are being closed, and it would be left behind.
        """
        if name not in self.outgoing:
            if self._is_closing:
                raise ChannelClosedError(f"outgoing channel {name!r} has stopped")
            self.outgoing[name] = self._outgoing(self._spec.app.outgoing[name])
            if self._has_started:
                self.outgoing[name].start()
        return self.outgoing[name]

    def _incoming(self, spec: IncomingSpec) -> ChannelLifecycle:
        settings = spec.settings
        strategy = strategy_for(spec.settings)
        if spec.schemas is not None:
            spec.schemas.connect(self.registry)
        make = None
        skipping = _skipping(spec, self._services)
        if spec.spark is not None:
            make = self._spark_workers(settings, spec.spark, spec.schemas)
        elif spec.handler is not None:
            make = self._workers(spec, awaits_commits=strategy.commits_at_ack)
        return ChannelLifecycle(
            ChannelSpec(
                settings=settings,
                strategy=strategy,
                services=self._services,
                hooks=self._jobs.with_hooks(settings, self._spec.hooks.of(settings.name)),
                make_workers=make,
                checkpoint=self._checkpoint(settings),
                transactions=None
                if spec.transactional_id is None
                else self._producers[spec.transactional_id],
                decode=spec.decode,
                decode_record=spec.decode_record,
                decode_key=spec.decode_key,
                key_of=spec.key_of if spec.has_handler else None,
                connector=reader_of(spec, self._services.connector),
                schemas=spec.schemas,
                skipping=skipping if skipping.is_needed else None,
                is_shared=spec.is_shared,
                keeps_plans=spec.spark is not None,
            )
        )

    def _checkpoint(self, settings: IncomingSettings) -> CheckpointSpec | None:
        codec = codec_for(settings)
        if settings.checkpoint is None or codec is None:
            return None
        try:
            store = (self._spec.open_store or store_of)(settings.checkpoint)
        except ValueError as error:
            raise ConfigError(
                f"{settings.place('checkpoint.store', settings.checkpoint.store)}: {error}"
            ) from error
        return CheckpointSpec(store, codec)

    def _workers(self, spec: IncomingSpec, *, awaits_commits: bool) -> MakeWorkers:
        target = self.outgoing.__getitem__
        skipping = _skipping(spec, self._services)
        spans = self.tracing.calls(spec.settings, is_kafka=spec.settings.name not in self._memory)
        make = partial(handler_workers, spec, target, self._dependencies, self._context, skipping)
        # A channel that nothing feeds is there for an emitter that the application asks for later.
        has_emitters = bool(self._spec.emitters or self._spec.app.unfed)
        return make(awaits_commits=awaits_commits, has_emitters=has_emitters, spans=spans)

    def _spark_workers(
        self, settings: IncomingSettings, spark: SparkFunction, schemas: ChannelSchemas | None
    ) -> MakeWorkers:
        from reactive_kafka.spark.channel.dispatcher import SparkDispatcher
        from reactive_kafka.spark.channel.refetch import records_of
        from reactive_kafka.spark.channel.runner import SparkRunner

        services = self._services
        source = source_of_ranges(settings, services.connector)
        # Made if a channel has a Spark function.
        assert self._spark is not None  # noqa: S101
        runner = SparkRunner(
            self._spark,
            spark,
            settings,
            source=source,
            observer=services.observer,
            clock=services.clock,
            schemas=schemas,
            spans=self.tracing.calls(settings),
        )
        # One for all sessions of the channel: its counts go on through restarts.
        self._runners[settings.name] = runner
        fetch = partial(records_of, services.connector, settings, observer=services.observer)
        return lambda signals, setup: SparkDispatcher(
            setup, runner, signals, services.observer, fetch
        )

    async def start(self) -> None:
        """Start Spark, and what is enabled and has a handler; other channels start when they are
        iterated over.
        """
        if self._spark is not None:
            await self._spark.start(self._fails)
        self._has_started = True
        for channel in self.outgoing.values():
            channel.start()
        for name, spec in self._spec.app.incoming.items():
            if not spec.settings.enabled:
                self.incoming[name].leave_off()
            elif spec.has_handler:
                self.incoming[name].start()
        self._sources.start()
        self._jobs.start()

    def add(self, spec: IncomingSpec) -> Channel:
        """Make one more incoming channel, and start it if it is ``enabled``."""
        for name in spec.outgoing:
            # Those that nothing has fed so far.
            self.sending(name)
        self.registry = self.registry or self._schema_registry([spec.schemas])
        # Not that of whoever asks for it.
        context = self._context.copy()
        channel = context.run(self._incoming, spec)
        self.incoming[channel.name] = channel
        self.faces[channel.name] = Channel(channel)
        context.run(channel.start if spec.settings.enabled else channel.leave_off)
        return self.faces[channel.name]

    async def drain(self, deadlines: Mapping[str, float]) -> None:
        """Call no handler any more, and wait for those that run, until each channel's deadline
        (monotonic).
        """
        await self._sources.stop()
        quiet = self._each(
            "draining", {name: one.quiesce(deadlines[name]) for name, one in self.incoming.items()}
        )
        await each(self._jobs.drain(deadlines), quiet)
        # Handlers of memory channels go on until now, or the records that led there would wait in
        # vain for their acks.
        await self._each(
            "draining", {name: one.drain(deadlines[name]) for name, one in self._memory.items()}
        )

    async def leave(self, deadlines: Mapping[str, float]) -> None:
        """Commit for the last time, leave the groups, and end Spark and the outgoing channels."""
        await self._each(
            "leaving", {name: one.finish(deadlines[name]) for name, one in self.incoming.items()}
        )
        if self._spark is not None:
            # It has bounds of its own.
            error = await outcome_of(self._spark.stop, "stop Spark", None)
            if error is not None:
                self._tell_end_failed("*", "stopping Spark", error)
        await self.close_outgoing(
            max([self._services.clock.monotonic() + FLUSHED_S, *deadlines.values()])
        )

    async def close_outgoing(self, deadline: float) -> None:
        """Write what was accepted until *deadline* (monotonic), tell who waits for the rest, and
        close; once.
        """
        if not self._is_closing:
            self._is_closing = True
            await self._each(
                "closing", {name: one.stop(deadline) for name, one in self._memory.items()}
            )
            kafka = {name: one for name, one in self.outgoing.items() if name not in self._memory}
            await self._each("closing", {name: one.stop(deadline) for name, one in kafka.items()})

    async def _each(self, doing: str, ends: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Bring every channel's end to its end, whatever another one's raises; that is told."""
        errors = await asyncio.gather(*ends.values(), return_exceptions=True)
        for channel, error in zip(ends, errors, strict=True):
            if error is not None:
                self._tell_end_failed(channel, doing, error)

    def _tell_end_failed(self, channel: str, doing: str, error: BaseException) -> None:
        self._services.observer.on(
            EndFailed(channel=channel, doing=doing, reason=told_of(error), error=error)
        )

    def drain_timeouts(self) -> dict[str, float]:
        """channel -> how long a stop waits for its handlers and jobs; of a memory channel as long
        as for any other.

        Also of channels that are never iterated over: they cannot start any more.
        """
        own = {name: one.settings.drain_timeout_s for name, one in self.incoming.items()}
        memory = {name: one.settings.drain_timeout_s for name, one in self._spec.app.memory.items()}
        own |= dict.fromkeys(memory, max(own.values())) if own else memory
        return own | self._jobs.drain_timeouts(own)

    def facts(self) -> tuple[ChannelFacts, ...]:
        """What is known about the incoming channels that have started."""
        return tuple(channel.facts() for channel in self.faces.values() if channel.is_started)

    def outgoing_facts(self) -> tuple[OutgoingFacts, ...]:
        """What is known about the outgoing channels."""
        return tuple(
            replace(
                one.facts() if isinstance(one, OutgoingChannel) else one.writer.facts(),
                health_enabled=one.settings.health_enabled,
            )
            for one in self.outgoing.values()
        )

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        """What is known about the Spark batches of each channel."""
        return tuple(runner.facts() for runner in self._runners.values())


def _skipping(spec: IncomingSpec, services: RunServices) -> Skipping:
    return Skipping(spec.settings, spec.filter, services.clock.wall)

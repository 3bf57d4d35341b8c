"""Builds the channels of a run from the application's spec: each with its workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.connect import KafkaConnector
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.spec import ChannelSpec, CheckpointSpec, MakeWorkers, Reading, RunServices
from reactive_kafka.checkpoint.codec import codec_for
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.commit.strategy import strategy_for
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import CheckpointSettings
from reactive_kafka.delivery.batches import BatchDispatcher
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.records import Dispatcher
from reactive_kafka.delivery.workers import Workers, WorkerSetup, WorkerSignals
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.handlers.spec import IncomingSpec, OutgoingSpec
from reactive_kafka.handlers.threads import as_async
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.emit import Emitter
from reactive_kafka.runtime.spec import OpenStore, RunSpec
from reactive_kafka.spark.batches.function import SparkFunction
from reactive_kafka.tasks import Spawn

if TYPE_CHECKING:
    from reactive_kafka.spark.channel.runner import SparkRunner
    from reactive_kafka.spark.session.engine import SparkEngine


class ChannelBuilder:
    """Builds the channels of one run.

    Args:
        spark: The session, if a channel has a Spark function.

    Attributes:
        runners: Channel -> what runs its Spark batches.
    """

    def __init__(self, spec: RunSpec, services: RunServices, spark: SparkEngine | None) -> None:
        self._services = services
        self._hooks = spec.hooks
        self._spark = spark
        self._open_store: OpenStore = spec.open_store or _open_store
        self._context = copy_context()
        self.runners: dict[str, SparkRunner] = {}

    def outgoing(self, spec: OutgoingSpec) -> OutgoingChannel:
        """An outgoing channel."""
        services = self._services

        def fail(error: BaseException) -> None:
            channel.fail(error)

        channel = OutgoingChannel(
            spec.settings, services.connector, services.clock, services.observer, services.tasks.of(fail),
            encode=spec.encode, encode_key=spec.encode_key,
        )  # fmt: skip
        return channel

    def incoming(self, spec: IncomingSpec, outgoing: Mapping[str, OutgoingChannel]) -> ChannelLifecycle:
        """An incoming channel; what its handler returns goes to *outgoing*."""
        settings, strategy = spec.settings, strategy_for(spec.settings)
        make: MakeWorkers | None = None
        if spec.spark is not None:
            make = self._spark_workers(settings, spec.spark)
        elif spec.handler is not None:
            targets = [outgoing[name] for name in spec.outgoing]
            make = self._workers(spec, spec.handler, targets, awaits_commits=strategy.commits_at_ack)
        reading = Reading(
            decode=spec.decode,
            decode_key=spec.decode_key,
            key_of=spec.key_of if spec.has_handler else None,
            connector=self._reader(spec),
            keeps_plans=spec.spark is not None,
        )
        return ChannelLifecycle(
            ChannelSpec(
                settings=settings,
                strategy=strategy,
                services=self._services,
                hooks=self._hooks.of(settings.name),
                reading=reading,
                make_workers=make,
                checkpoint=self._checkpoint(settings),
            )
        )

    def _reader(self, spec: IncomingSpec) -> Connector | None:
        if spec.spark is None or spec.settings.spark.mode != "ranges":
            return None
        from reactive_kafka.broker.ranges import RangesConnector

        return RangesConnector(self._services.connector)

    def _checkpoint(self, settings: IncomingSettings) -> CheckpointSpec | None:
        codec = codec_for(settings)
        if settings.checkpoint is None or codec is None:
            return None
        try:
            store = self._open_store(settings.checkpoint)
        except ValueError as error:
            raise ConfigError(f"{settings.place('checkpoint.store', settings.checkpoint.store)}: {error}") from error
        return CheckpointSpec(store, codec)

    def _workers(
        self, spec: IncomingSpec, handler: HandlerSpec, targets: list[OutgoingChannel], *, awaits_commits: bool
    ) -> MakeWorkers:
        kind = BatchDispatcher if handler.shape is Shape.BATCH else Dispatcher
        # The workers are the limit: a thread that never returns must not keep a place in another one.
        call = handler.function if handler.is_async else as_async(handler.function, CapacityLimiter(inf))

        def make(signals: WorkerSignals, setup: WorkerSetup) -> Workers:
            invocation = Invocation(
                name=handler.name,
                call=call,
                decode=spec.decode,
                wants_message=handler.shape is Shape.MESSAGE,
                ack=spec.settings.ack,
                emit=Emitter(targets, setup.spawn, settles=spec.settings.ack == "post") if targets else None,
                refusal=spec.refusal,
                decodes_keys=spec.decode_key is not None,
                is_blocking=not handler.is_async,
                awaits_commits=awaits_commits,
            )
            return kind(replace(setup, spawn=self._from_the_start(setup.spawn)), invocation, signals)

        return make

    def _from_the_start(self, spawn: Spawn) -> Spawn:
        """Starts tasks in the context in which the application was started.

        A task would otherwise inherit the context of whoever wakes a worker, which may be a handler that resumes a
        channel, or acks what another one waits for.
        """

        def start(task: Callable[[], Awaitable[None]], name: str) -> None:
            self._context.copy().run(spawn, task, name)

        return start

    def _spark_workers(self, settings: IncomingSettings, spark: SparkFunction) -> MakeWorkers:
        from reactive_kafka.spark.channel.dispatcher import SparkDispatcher
        from reactive_kafka.spark.channel.refetch import records_of
        from reactive_kafka.spark.channel.runner import SparkRunner
        from reactive_kafka.spark.session.kafka_source import KafkaSource

        services, source = self._services, None
        if settings.spark.mode == "ranges":
            source = KafkaSource(settings, partial(_servers, services.connector, settings))
        assert self._spark is not None  # noqa: S101  # made if a channel has a Spark function
        runner = SparkRunner(
            self._spark, spark, settings, source=source, observer=services.observer, clock=services.clock
        )
        self.runners[settings.name] = runner  # one for all sessions of the channel: its counts go on through restarts
        fetch = partial(records_of, services.connector, settings)
        return lambda signals, setup: SparkDispatcher(setup, runner, signals, services.observer, fetch)


def _open_store(settings: CheckpointSettings) -> CheckpointStore:
    from reactive_kafka.checkpoint.stores.opening import open_store

    return open_store(settings.store)


def _servers(connector: Connector, settings: IncomingSettings) -> str:
    """The bootstrap servers of a channel, for Spark's executors."""
    named = settings.client.get("bootstrap_servers")
    return connector.bootstrap(named) if isinstance(connector, KafkaConnector) else str(named)

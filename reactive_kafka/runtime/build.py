"""Makes the channels of an application from its AppSpec: each with what works on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.connect import KafkaConnector
from reactive_kafka.channel.channel import IncomingChannel
from reactive_kafka.checkpoint.codec import codec_for
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import CheckpointSettings, IncomingSettings
from reactive_kafka.delivery.batches import BatchDispatcher
from reactive_kafka.delivery.records import Dispatcher, Invocation
from reactive_kafka.delivery.workers import Workers, WorkerSetup
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.hooks import HookSet
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.handlers.spec import IncomingSpec, OutgoingSpec
from reactive_kafka.handlers.threads import as_async
from reactive_kafka.observe.events import Observer
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.emit import Emitter
from reactive_kafka.spark.batches.function import SparkFunction
from reactive_kafka.tasks import Spawn, Tasks

if TYPE_CHECKING:
    from reactive_kafka.spark.channel.runner import SparkRunner
    from reactive_kafka.spark.session.engine import SparkEngine

Stores = Callable[[CheckpointSettings], CheckpointStore]


class Maker:
    """Makes channels for one run.

    Args:
        on_exit: A handler asked the process to end.
        spark: The session, where a channel has a Spark function.
        runners: Channel -> what runs its Spark batches; filled here, for the facts.
        stores: Opens the checkpoint stores; None: by their URLs.
    """

    def __init__(
        self,
        connector: Connector,
        hooks: HookSet,
        clock: Clock,
        observer: Observer,
        tasks: Tasks,
        *,
        on_exit: Callable[[BaseException], None],
        spark: SparkEngine | None,
        runners: dict[str, SparkRunner],
        stores: Stores | None = None,
    ) -> None:
        self._connector = connector
        self._hooks = hooks
        self._clock = clock
        self._observer = observer
        self._tasks = tasks
        self._on_exit = on_exit
        self._spark = spark
        self._runners = runners
        self._stores = stores
        self._context = copy_context()

    def outgoing(self, spec: OutgoingSpec) -> OutgoingChannel:
        """An outgoing channel."""

        def fail(error: BaseException) -> None:
            channel.fail(error)

        channel = OutgoingChannel(
            spec.settings, self._connector, self._clock, self._observer, self._tasks.of(fail),
            encode=spec.encode, encode_key=spec.encode_key,
        )  # fmt: skip
        return channel

    def incoming(self, spec: IncomingSpec, outgoing: Mapping[str, OutgoingChannel]) -> IncomingChannel:
        """An incoming channel with its workers, which send to *outgoing* what their handlers return."""
        make: Callable[[IncomingChannel, WorkerSetup], Workers] | None = None
        reader: Connector | None = None
        handler, spark = spec.handler, spec.spark
        if spark is not None:
            make = lambda channel, setup: self._spark_workers(spec, spark, channel, setup)  # noqa: E731
            if spec.settings.spark.mode == "ranges":
                from reactive_kafka.broker.ranges import RangesConnector

                reader = RangesConnector(self._connector)
        elif handler is not None:
            make = lambda channel, setup: self._workers(spec, handler, channel, setup, outgoing)  # noqa: E731
        return IncomingChannel(
            spec.settings, self._connector, self._clock, self._observer, self._tasks,
            decode=spec.decode, decode_key=spec.decode_key,
            hooks=self._hooks.of(spec.settings.name), make_workers=make,
            key_of=spec.key_of if make is not None else None, on_exit=self._on_exit,
            reader=reader, keeps_plans=spark is not None, **self._storage(spec.settings),
        )  # fmt: skip

    def _storage(self, settings: IncomingSettings) -> dict[str, Any]:
        """The store of a channel's positions, and the codec of its states; nothing where it has none."""
        if settings.checkpoint is None:
            return {}
        try:
            store = (self._stores or _open_store)(settings.checkpoint)
        except ValueError as error:
            raise ConfigError(f"{settings.place('checkpoint.store', settings.checkpoint.store)}: {error}") from error
        return {"store": store, "codec": codec_for(settings)}

    def _workers(
        self,
        spec: IncomingSpec,
        handler: HandlerSpec,
        channel: IncomingChannel,
        setup: WorkerSetup,
        outgoing: Mapping[str, OutgoingChannel],
    ) -> Workers:
        settings = spec.settings
        is_async = handler.is_async
        # the workers are the limit: a thread that never returns must not keep a place in another one
        call = handler.function if is_async else as_async(handler.function, CapacityLimiter(inf))
        emit = None
        if spec.outgoing:
            targets = [outgoing[name] for name in spec.outgoing]
            emit = Emitter(targets, setup.spawn, settles=settings.ack == "post")
        invocation = Invocation(
            name=handler.name,
            call=call,
            decode=spec.decode,
            wants_message=handler.shape is Shape.MESSAGE,
            ack=settings.ack,
            emit=emit,
            refusal=spec.refusal,
            decodes_keys=spec.decode_key is not None,
            is_blocking=not is_async,
            awaits_commits=channel.strategy.commits_at_ack,
        )
        kind = BatchDispatcher if handler.shape is Shape.BATCH else Dispatcher
        return kind(replace(setup, spawn=self._from_the_start(setup.spawn)), invocation, channel)

    def _from_the_start(self, spawn: Spawn) -> Spawn:
        """Starts tasks in the context in which the application was started, and not in that of whoever wakes a worker.

        That may be a handler, which resumes a channel or acks what another one waits for.
        """

        def start(task: Callable[[], Awaitable[None]], name: str) -> None:
            self._context.copy().run(spawn, task, name)

        return start

    def _spark_workers(
        self, spec: IncomingSpec, spark: SparkFunction, channel: IncomingChannel, setup: WorkerSetup
    ) -> Workers:
        from reactive_kafka.spark.channel.dispatcher import SparkDispatcher
        from reactive_kafka.spark.channel.refetch import records_of

        settings = spec.settings
        runner = self._runners.get(settings.name)
        if runner is None:  # else the channel is restarted, and its counts go on
            runner = self._runners[settings.name] = self._runner(settings, spark)
        fetch = partial(records_of, self._connector, settings)
        return SparkDispatcher(setup, runner, channel, self._observer, fetch)

    def _runner(self, settings: IncomingSettings, spark: SparkFunction) -> SparkRunner:
        from reactive_kafka.spark.channel.runner import SparkRunner
        from reactive_kafka.spark.session.kafka_source import KafkaSource

        assert self._spark is not None  # noqa: S101  # made where a channel has a Spark function
        source = None
        if settings.spark.mode == "ranges":
            source = KafkaSource(settings, partial(_servers, self._connector, settings))
        return SparkRunner(
            self._spark, spark.function, settings.name, settings.spark,
            payload=spark.payload, source=source, observer=self._observer, clock=self._clock,
            cancel_limit_s=settings.drain_timeout_s,
        )  # fmt: skip


def _open_store(settings: CheckpointSettings) -> CheckpointStore:
    from reactive_kafka.checkpoint.stores.opening import open_store

    return open_store(settings.store)


def _servers(connector: Connector, settings: IncomingSettings) -> str:
    """Where executors find the brokers of a channel."""
    named = settings.client.get("bootstrap_servers")
    return connector.bootstrap(named) if isinstance(connector, KafkaConnector) else str(named)

"""The application: decorators and hooks, from configuration to running channels, and the way to the end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio import CapacityLimiter

from reactive_kafka.blocking import as_async, calls_in_threads
from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.collector import fewer_collections
from reactive_kafka.config.load import load_settings
from reactive_kafka.config.schema import RetrySettings, Settings
from reactive_kafka.errors import ChannelClosedError, ConfigError, MissingExtraError
from reactive_kafka.incoming.channel import Hooks, IncomingChannel
from reactive_kafka.incoming.dispatch import BatchDispatcher, Dispatcher, Invocation
from reactive_kafka.incoming.handler import Shape
from reactive_kafka.incoming.lanes import Lanes
from reactive_kafka.observe.events import ChannelFailed, Event, HookFailed, Observer, Observers
from reactive_kafka.observe.facts import AppFacts
from reactive_kafka.observe.health import Health, health
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.emit import Emitter
from reactive_kafka.registration import Consuming, Incoming, Plan, Registry, ack_mode, retry_settings
from reactive_kafka.signals import StopSignals, exit_now

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette

    from reactive_kafka.http.server import HttpServer
    from reactive_kafka.spark.engine import SparkEngine
    from reactive_kafka.spark.runner import SparkRunner

F = TypeVar("F", bound=Callable[..., Any])
logger = logging.getLogger("reactive_kafka")

LAG_TICK_S = 0.1
LAG_WINDOW = 100  # ticks of which the worst is told: ten seconds
CANCELLED_S = 1.0
"""How long handlers that were cancelled at the deadline may take to end."""


class App:
    """An application: named channels from a configuration, and the functions decorated for them.

    Args:
        config: A path (TOML, YAML, JSON), nested tables, or None: ``$REACTIVE_KAFKA_CONFIG``, else
            ``./reactive-kafka.toml``. It is read at start-up, not now.
        observer: Is told every event, beside the log.
    """

    def __init__(
        self, config: str | Path | Mapping[str, Any] | None = None, *, observer: Observer | None = None
    ) -> None:
        self._source = config
        self._overrides: Mapping[str, Any] | None = None
        self._registry = Registry()
        self._start_hooks: list[Callable[[], Any]] = []
        self._stop_hooks: list[Callable[[], Any]] = []
        self._assigned_hooks: dict[str, list[Callable[..., Any]]] = {}
        self._revoked_hooks: dict[str, list[Callable[..., Any]]] = {}
        log = LogObserver()
        self._observer: Observer = Observers([log, observer] if observer is not None else [log])
        self._clock: Clock = SYSTEM_CLOCK
        self._connector: Connector | None = None
        self._settings: Settings | None = None
        self._plan: Plan | None = None
        self._run: _Run | None = None
        self._metrics: CollectorRegistry | None = None

    # -- decorators

    def incoming(
        self,
        channel: str,
        *,
        ack: str | None = None,
        retry: int | Mapping[str, Any] | RetrySettings | None = None,
    ) -> Callable[[F], F]:
        """Hand the records of a channel to the decorated function.

        Args:
            channel: The name of an ``[incoming.NAME]`` table.
            ack: ``"post"`` (acked when it returns, nacked when it raises), ``"manual"``, ``"pre"`` or ``"none"``;
                None: what the channel is configured with, ``"post"`` by default.
            retry: Calls in all, or a table like ``[incoming.NAME.retry]``; None: as configured.

        Raises:
            ConfigError: The function's signature is not one of a handler.
        """
        decorated = Incoming(channel, ack_mode(ack), retry_settings(retry))

        def decorate(function: F) -> F:
            entry = self._registry.of(function)
            entry.look(sys._getframe(1))
            entry.incoming.append(decorated)
            return function

        return decorate

    def outgoing(self, channel: str) -> Callable[[F], F]:
        """Send what the decorated function returns to an ``[outgoing.NAME]`` channel; None sends nothing."""

        def decorate(function: F) -> F:
            self._registry.of(function).outgoing.append(channel)
            return function

        return decorate

    def spark(self, channel: str) -> Callable[[F], F]:
        """Run the decorated function, ``(df, batch)``, as Spark jobs over batches of a channel.

        Raises:
            ConfigError: Its signature is another, or the channel has one already.
        """

        def decorate(function: F) -> F:
            from reactive_kafka.spark.batch import check_spark_function

            check_spark_function(function, channel)
            if channel in self._registry.spark:
                raise ConfigError(f"channel {channel!r} has two Spark functions")
            self._registry.spark[channel] = function
            return function

        return decorate

    def on_start(self, function: F) -> F:
        """Call the function (no arguments, async or not) before the channels start."""
        self._start_hooks.append(function)
        return function

    def before_stop(self, function: F) -> F:
        """Call the function (no arguments, async or not) when handlers have ended and partitions are still ours."""
        self._stop_hooks.append(function)
        return function

    def on_assigned(self, channel: str) -> Callable[[F], F]:
        """Call the function with a frozenset of TopicPartition before reading begins in them."""
        return _hook_into(self._assigned_hooks, channel)

    def on_revoked(self, channel: str) -> Callable[[F], F]:
        """Call the function with a frozenset of TopicPartition while they are still ours, before the last commit."""
        return _hook_into(self._revoked_hooks, channel)

    def observe(self, observer: Observer) -> None:
        """Tell *observer* every event too, beside the log, from the next start on."""
        self._observer = Observers([self._observer, observer])

    # -- configuration

    @property
    def plan(self) -> Plan:
        """How the handlers fit the settings; found out now if it has not been."""
        if self._plan is None:
            self.configure()
        assert self._plan is not None  # noqa: S101  # for the type checker
        return self._plan

    @property
    def settings(self) -> Settings:
        """The settings; read now if they have not been."""
        return self._settings or self.configure()

    def configure(
        self, source: str | Path | Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read the configuration and fit the handlers to it, without connecting.

        Args:
            source: Replaces what the App was given.
            overrides: Nested tables over everything else, as from a command line.

        Raises:
            ConfigError: Whatever is wrong, all of it at once.
            MissingExtraError: Something configured or decorated needs a package that is not installed.
        """
        if source is not None:
            self._source = source
        if overrides is not None:
            self._overrides = overrides
        settings = load_settings(self._source, environ=os.environ, overrides=self._overrides)
        for channel in {*self._assigned_hooks, *self._revoked_hooks} - settings.incoming.keys():
            raise ConfigError(f"a hook names the channel {channel!r}, and no [incoming.{channel}] is configured")
        self._plan = self._registry.plan(settings)
        if self._registry.spark:
            from reactive_kafka.spark.session import check_spark

            check_spark()
        self._settings = settings
        return settings

    # -- running

    async def start(self) -> None:
        """Configure, serve HTTP, and start the channels; they connect in the background.

        Raises:
            ConfigError: The configuration or a handler is wrong, or the HTTP port is in use.
            MissingExtraError: A package is missing.
            RuntimeError: It is running already.
        """
        if self._run is not None:
            raise RuntimeError("the application is running")
        if self._plan is None:
            self.configure()
        run = self._run = _Run(self)
        try:
            await run.start()
        except BaseException:
            self._run = None
            raise

    async def stop(self, drain: bool = True) -> None:
        """Stop fetching, let handlers finish, commit, leave the groups and close. Calling it again waits for the end.

        Args:
            drain: False: handlers get no time to finish.
        """
        run = self._run
        if run is None:
            return
        run.ask_to_stop(drain=drain)
        try:
            self._left_tasks = not await run.wait_stopped()
        finally:
            if run.has_ended:
                self._run = None

    async def __aenter__(self) -> App:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def run(self, *, exit_on_failure: bool = False) -> None:
        """Run until SIGINT or SIGTERM, then drain and return. A second signal exits at once, with 1.

        Args:
            exit_on_failure: Also end, with 1, when a channel has failed; the others are drained first.

        Raises:
            SystemExit: 2 when the configuration is wrong (the report is printed), 1 when the application failed;
                a handler's own.
        """
        self._exit_on_failure = exit_on_failure
        try:
            self._run_loop()
        except (ConfigError, MissingExtraError) as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None

    def _run_loop(self) -> None:
        if self._plan is None:
            self.configure()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(self._main())
            if self._left_tasks or calls_in_threads():
                exit_now(code)  # closing the loop, or the interpreter, would wait for them
        if code:
            raise SystemExit(code)

    async def _main(self) -> int:
        loop = asyncio.get_running_loop()
        await self.start()
        run = self._run
        assert run is not None  # noqa: S101  # for the type checker

        def ask() -> None:
            loop.call_soon_threadsafe(run.ask_to_stop)

        with StopSignals(ask, self._longest_drain_s, lambda: run.last_turn):
            await run.wait_asked()
            await self.stop()
        return run.exit_code()

    def _longest_drain_s(self) -> float:
        return max((channel.drain_timeout_s for channel in self.settings.incoming.values()), default=0.0)

    _exit_on_failure = False
    _left_tasks = False  # handlers that ignored their cancellation still run

    # -- what users ask

    def channel(self, name: str) -> IncomingChannel:
        """An incoming channel, while the application runs.

        Raises:
            ChannelClosedError: The application is not running.
            KeyError: No such channel is configured.
        """
        if self._run is None:
            raise ChannelClosedError("the application is not running")
        return self._run.incoming[name]

    def facts(self) -> AppFacts:
        """What is known about the application now."""
        if self._run is None:
            return AppFacts(started=False, stopping=False, loop_lag_s=0.0)
        return self._run.facts()

    def health(self) -> Health:
        """The probes, from the same facts as metrics and the log."""
        return health(self.facts())

    @property
    def registry(self) -> CollectorRegistry:
        """The Prometheus registry; it reads plain integers when it is scraped."""
        if self._metrics is None:
            from reactive_kafka.observe.prometheus import registry

            self._metrics = registry(self.facts)
        return self._metrics

    @property
    def asgi(self) -> Starlette:
        """The ASGI application with health, metrics and the page, to be mounted in another."""
        from reactive_kafka.http.asgi import make_asgi

        return make_asgi(self)

    @property
    def http(self) -> HttpServer | None:
        """The HTTP server, with the port it got; None where it is off or the application is not running."""
        return self._run.http if self._run is not None else None


class _Run:
    """One run of an application: its task group, its channels, and its end."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._clock = app._clock
        self._observer = app._observer
        if app._exit_on_failure:
            self._observer = Observers([app._observer, _FailureWatch(self)])
        assert app._settings is not None and app._plan is not None  # noqa: S101  # start() has configured
        self._settings = app._settings
        self._plan = app._plan
        self._asked = asyncio.Event()
        self._are_stubborn = asyncio.Event()
        self._drain = True
        self._is_started = False
        self._is_stopping = False
        self._exit: BaseException | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._tasks: Any = None
        self._lags: deque[float] = deque([0.0], maxlen=LAG_WINDOW)
        self._runners: dict[str, SparkRunner] = {}
        self._engine: SparkEngine | None = None
        self.incoming: dict[str, IncomingChannel] = {}
        self.outgoing: dict[str, OutgoingChannel] = {}
        self.http: HttpServer | None = None
        self.last_turn = self._clock.monotonic()

    # -- from start to end

    async def start(self) -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(started), name="reactive_kafka")
        try:
            await asyncio.wait([started, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await self._supervisor  # raises why it could not start
        except asyncio.CancelledError:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            raise
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def ask_to_stop(self, drain: bool = True) -> None:
        self._drain = self._drain and drain
        self._asked.set()

    async def wait_asked(self) -> None:
        """Wait until somebody asks for a stop, or the application fails."""
        assert self._supervisor is not None  # noqa: S101  # for the type checker
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait([asked, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()

    async def wait_stopped(self) -> bool:
        """Wait for the end; False if handlers ignore their cancellation, so that it may never come."""
        assert self._supervisor is not None  # noqa: S101  # for the type checker
        stubborn = asyncio.ensure_future(self._are_stubborn.wait())
        try:
            await asyncio.wait([stubborn, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stubborn.cancel()
        if not self._supervisor.done():
            logger.warning("handlers ignore their cancellation and are left behind; their records stay uncommitted")
            return False
        await self._supervisor  # raises why it failed
        return True

    @property
    def has_ended(self) -> bool:
        """Whether it is over, or left behind with handlers that ignore their cancellation."""
        return self._are_stubborn.is_set() or (self._supervisor is not None and self._supervisor.done())

    def exit_code(self) -> int:
        """0; or what a handler asked for with SystemExit."""
        if isinstance(self._exit, SystemExit):
            code = self._exit.code
            return code if isinstance(code, int) else 0 if code is None else 1
        return 0

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        """Owns everything that runs: opened and closed in this one task."""
        async with AsyncExitStack() as stack:
            stack.enter_context(fewer_collections())
            if self._settings.http.enabled:
                from reactive_kafka.http.server import serve

                http = self._settings.http
                self.http = await stack.enter_async_context(serve(self._app.asgi, http.host, http.port))
            for hook in self._app._start_hooks:
                await as_async(hook)()
            connector = self._app._connector or _default_connector(self._settings)
            stack.push_async_callback(connector.close)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._spawn(self._measure_lag, "loop lag")
                await self._make_channels(connector)
                self._is_started = True
                started.set_result(None)
                await self._asked.wait()
                await self._end()
                stubborn = asyncio.get_running_loop().call_later(CANCELLED_S, self._are_stubborn.set)
                tasks.cancel_scope.cancel()
            stubborn.cancel()

    def _spawn(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.start_soon(task, name=name)

    async def _make_channels(self, connector: Connector) -> None:
        for name, sending in self._plan.outgoing.items():
            used = any(name in consuming.outgoing for consuming in self._plan.incoming.values())
            if used:
                self.outgoing[name] = OutgoingChannel(
                    sending.settings, connector, self._clock, self._observer, self._spawn,
                    encode=sending.encode, encode_key=sending.encode_key,
                )  # fmt: skip
                self.outgoing[name].start()
        if self._app._registry.spark:
            from reactive_kafka.spark.engine import SparkEngine

            self._engine = SparkEngine(self._settings.spark)
            await self._engine.start()
        for name, consuming in self._plan.incoming.items():
            self.incoming[name] = self._make_channel(consuming, connector)
        for name, channel in self.incoming.items():
            if self._plan.incoming[name].plan is not None or self._plan.incoming[name].spark is not None:
                channel.start()

    def _make_channel(self, consuming: Consuming, connector: Connector) -> IncomingChannel:
        name = consuming.settings.name
        make: Callable[[IncomingChannel, Lanes], Any] | None = None
        if consuming.spark is not None:
            make = lambda channel, lanes: self._spark_dispatcher(consuming, channel, lanes)  # noqa: E731
        elif consuming.plan is not None:
            make = lambda channel, lanes: self._dispatcher(consuming, channel, lanes)  # noqa: E731
        return IncomingChannel(
            consuming.settings, connector, self._clock, self._observer, self._spawn,
            decode=consuming.decode,
            decode_key=consuming.decode_key,
            hooks=Hooks(
                tuple(as_async(hook) for hook in self._app._assigned_hooks.get(name, ())),
                tuple(as_async(hook) for hook in self._app._revoked_hooks.get(name, ())),
            ),
            make_workers=make,
            on_exit=self._handler_exits,
        )  # fmt: skip

    def _dispatcher(self, consuming: Consuming, channel: IncomingChannel, lanes: Lanes) -> Dispatcher:
        plan, settings = consuming.plan, consuming.settings
        assert plan is not None  # noqa: S101  # for the type checker
        call = plan.function
        if not plan.is_async:
            call = as_async(plan.function, CapacityLimiter(settings.concurrency))
        emit = None
        if consuming.outgoing:
            channels = [self.outgoing[name] for name in consuming.outgoing]
            emit = Emitter(channels, self._spawn, settles=settings.ack == "post")
        invocation = Invocation(
            name=plan.name,
            call=call,
            decode=consuming.decode,
            wants_message=plan.shape is Shape.MESSAGE,
            ack=settings.ack,
            emit=emit,
            refusal=consuming.refusal,
        )
        kind = BatchDispatcher if plan.shape is Shape.BATCH else Dispatcher
        return kind(settings, lanes, invocation, channel, self._clock, self._spawn)

    def _spark_dispatcher(self, consuming: Consuming, channel: IncomingChannel, lanes: Lanes) -> Any:
        from reactive_kafka.incoming.spark_dispatch import SparkDispatcher
        from reactive_kafka.spark.runner import SparkRunner

        settings = consuming.settings
        assert self._engine is not None and consuming.spark is not None  # noqa: S101  # for the type checker
        runner = SparkRunner(
            self._engine, consuming.spark, settings.name, settings.spark, group_id=settings.group_id, clock=self._clock
        )
        self._runners[settings.name] = runner
        return SparkDispatcher(settings, lanes, runner, channel, self._clock, self._spawn)

    def _handler_exits(self, reason: BaseException) -> None:
        self._exit = self._exit or reason
        logger.warning("a handler asked the process to end: %r", reason)
        self.ask_to_stop()

    def channel_failed(self, channel: str) -> None:
        """End the application, with 1: whoever runs it wants that rather than one channel less."""
        self._exit = self._exit or SystemExit(1)
        logger.warning("channel %r has failed, and the application ends for it", channel)
        self.ask_to_stop()

    # -- the end

    async def _end(self) -> None:
        """Quiet first, then the hooks while the partitions are ours, then the last commits, then close."""
        self._is_stopping = True
        now = self._clock.monotonic()
        running = [channel for name, channel in self.incoming.items() if channel.is_started]
        deadlines = {
            channel.name: now + (channel.settings.drain_timeout_s if self._drain else 0.0) for channel in running
        }
        await _all([channel.quiesce(deadlines[channel.name]) for channel in running])
        for hook in self._app._stop_hooks:
            await self._before_stop(hook, max(deadlines.values(), default=now))
        await _all([channel.finish(deadlines[channel.name]) for channel in running])
        if self._engine is not None:
            await self._engine.stop()
        await _all([channel.stop() for channel in self.outgoing.values()])

    async def _before_stop(self, hook: Callable[[], Any], deadline: float) -> None:
        try:
            async with asyncio.timeout(max(1.0, deadline - self._clock.monotonic())):
                await as_async(hook)()
        except Exception as error:  # a hook of the application: told, and the stop goes on
            self._observer.on(HookFailed(channel="*", hook="before_stop", reason=repr(error)))

    # -- what is known

    async def _measure_lag(self) -> None:
        """How late the loop turns: what every handler, heartbeat and probe has to wait."""
        while True:
            due = self._clock.monotonic() + LAG_TICK_S
            await asyncio.sleep(LAG_TICK_S)
            self.last_turn = self._clock.monotonic()
            self._lags.append(max(0.0, self.last_turn - due))

    def facts(self) -> AppFacts:
        return AppFacts(
            started=self._is_started,
            stopping=self._is_stopping,
            loop_lag_s=max(self._lags),
            channels=tuple(channel.facts() for channel in self.incoming.values() if channel.is_started),
            outgoing=tuple(channel.facts() for channel in self.outgoing.values()),
            spark=tuple(runner.facts() for runner in self._runners.values()),
        )


class _FailureWatch:
    """Ends the run of an application at the first channel that fails."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def on(self, event: Event) -> None:
        if isinstance(event, ChannelFailed):
            self._run.channel_failed(event.channel)


async def _all(calls: list[Any]) -> None:
    if calls:
        await asyncio.gather(*calls)


def _default_connector(settings: Settings) -> Connector:
    from reactive_kafka.broker.connect import KafkaConnector

    return KafkaConnector(settings.bootstrap_servers)


def _hook_into(hooks: dict[str, list[Callable[..., Any]]], channel: str) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        hooks.setdefault(channel, []).append(function)
        return function

    return decorate


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

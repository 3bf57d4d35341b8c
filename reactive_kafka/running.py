"""One run of an application: everything that runs is opened and closed here, in one task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from reactive_kafka.blocking import as_async
from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.collector import fewer_collections
from reactive_kafka.config.schema import Settings
from reactive_kafka.errors import describe
from reactive_kafka.incoming.channel import IncomingChannel
from reactive_kafka.making import HookSet, Maker, Stores
from reactive_kafka.observe.events import ChannelFailed, Event, HookFailed, LoopBlocked, Observer, Observers
from reactive_kafka.observe.facts import AppFacts, SparkFacts
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.registration import Plan

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.http.server import HttpServer
    from reactive_kafka.spark.engine import SparkEngine
    from reactive_kafka.spark.runner import SparkRunner

logger = logging.getLogger("reactive_kafka")

LAG_TICK_S = 0.1
LAG_WINDOW = 100  # ticks of which the worst is told: ten seconds
LAG_WARNED_S = 1.0
"""A loop that stood still for so long is told: heartbeats wait for it, and a session is 45 s by default."""
CANCELLED_S = 1.0
"""How long handlers that were cancelled at the deadline may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What a run is made of.

    Attributes:
        connector: None: what the settings say.
        spark: The engine of Spark channels; None: what the settings say.
        stores: Opens the checkpoint stores; None: what the settings say.
        exit_on_failure: The first channel that fails ends the run, with 1.
    """

    settings: Settings
    plan: Plan
    hooks: HookSet
    asgi: Callable[[], Starlette]
    connector: Connector | None
    clock: Clock
    observer: Observer
    log: LogObserver
    exit_on_failure: bool
    spark: SparkEngine | None = None
    stores: Stores | None = None


class Run:
    """One run of an application: its task group, its channels, and its end."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._clock = design.clock
        self._observer = design.observer
        if design.exit_on_failure:
            self._observer = Observers([design.observer, _FailureWatch(self)])
        self._plan = design.plan
        self._asked = asyncio.Event()
        self._are_stubborn = asyncio.Event()
        self._drain = True
        self._is_started = False
        self._is_stopping = False
        self._exit: BaseException | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._tasks: Any = None
        self._lags: deque[float] = deque([0.0], maxlen=LAG_WINDOW)
        self._spark: SparkEngine | None = None
        self._runners: dict[str, SparkRunner] = {}
        self.incoming: dict[str, IncomingChannel] = {}
        self.outgoing: dict[str, OutgoingChannel] = {}
        self.http: HttpServer | None = None
        self.connector: Connector | None = None
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
            stack.callback(self._design.log.close)
            http = self._design.settings.http
            if http.enabled:
                from reactive_kafka.http.server import serve

                self.http = await stack.enter_async_context(serve(self._design.asgi(), http.host, http.port))
            for hook in self._design.hooks.start:
                await as_async(hook)()
            connector = self.connector = self._design.connector or default_connector(self._design.settings)
            stack.push_async_callback(connector.close)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._spawn(self._measure_lag, "loop lag")
                await self._start_spark()
                self._fill(self._maker(connector))
                self._is_started = True
                started.set_result(None)
                await self._asked.wait()
                await self._end()
                stubborn = asyncio.get_running_loop().call_later(CANCELLED_S, self._are_stubborn.set)
                tasks.cancel_scope.cancel()
            stubborn.cancel()

    def _spawn(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.start_soon(task, name=name)

    async def _start_spark(self) -> None:
        modes = {one.settings.spark.mode for one in self._plan.incoming.values() if one.spark is not None}
        if modes:
            self._spark = self._design.spark or _spark_engine(self._design.settings, ranges="ranges" in modes)
            await self._spark.start()

    def _maker(self, connector: Connector) -> Maker:
        return Maker(
            connector, self._design.hooks, self._clock, self._observer, self._spawn,
            on_exit=self._handler_exits, spark=self._spark, runners=self._runners, stores=self._design.stores,
        )  # fmt: skip

    def _fill(self, maker: Maker) -> None:
        """Make the channels, and start those that somebody works on."""
        for name, sending in self._plan.outgoing.items():
            if any(name in consuming.outgoing for consuming in self._plan.incoming.values()):
                self.outgoing[name] = maker.outgoing(sending)
                self.outgoing[name].start()
        for name, consuming in self._plan.incoming.items():
            self.incoming[name] = maker.incoming(consuming, self.outgoing)
        for name, consuming in self._plan.incoming.items():
            if consuming.has_handler:
                self.incoming[name].start()

    def _handler_exits(self, reason: BaseException) -> None:
        self._exit = self._exit or reason
        logger.warning("a handler asked the process to end: %r", reason)
        self.ask_to_stop()

    def channel_failed(self, channel: str) -> None:
        """End the application, with 1: whoever runs it wants that rather than one channel less for good."""
        if self.incoming[channel].comes_back:
            return
        self._exit = self._exit or SystemExit(1)
        logger.warning("channel %r has failed, and the application ends for it", channel)
        self.ask_to_stop()

    # -- the end

    async def _end(self) -> None:
        """Quiet first, then the hooks while the partitions are ours, then the last commits, then close."""
        self._is_stopping = True
        now = self._clock.monotonic()
        running = list(self.incoming.values())  # also those that nobody has iterated over yet: now nobody can
        deadlines = {
            channel.name: now + (channel.settings.drain_timeout_s if self._drain else 0.0) for channel in running
        }
        await _all([channel.quiesce(deadlines[channel.name]) for channel in running])
        for hook in self._design.hooks.before_stop:
            await self._before_stop(hook, max(deadlines.values(), default=now))
        await _all([channel.finish(deadlines[channel.name]) for channel in running])
        if self._spark is not None:
            await self._spark.stop()
        await _all([channel.stop() for channel in self.outgoing.values()])

    async def _before_stop(self, hook: Callable[[], Any], deadline: float) -> None:
        try:
            async with asyncio.timeout(max(1.0, deadline - self._clock.monotonic())):
                await as_async(hook)()
        except Exception as error:  # a hook of the application: told, and the stop goes on
            self._observer.on(HookFailed(channel="*", hook="before_stop", reason=describe(error), error=error))

    # -- what is known

    async def _measure_lag(self) -> None:
        """How late the loop turns: what every handler, heartbeat and probe has to wait."""
        while True:
            due = self._clock.monotonic() + LAG_TICK_S
            await asyncio.sleep(LAG_TICK_S)
            self.last_turn = self._clock.monotonic()
            self._lags.append(max(0.0, self.last_turn - due))
            if self._lags[-1] >= LAG_WARNED_S:
                self._observer.on(LoopBlocked(lag_s=self._lags[-1]))
            self._design.log.flush()

    def facts(self) -> AppFacts:
        return AppFacts(
            started=self._is_started,
            stopping=self._is_stopping,
            loop_lag_s=max(self._lags),
            channels=tuple(channel.facts() for channel in self.incoming.values() if channel.is_started),
            outgoing=tuple(channel.facts() for channel in self.outgoing.values()),
            spark=self.spark_facts(),
        )

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        return tuple(runner.facts() for runner in self._runners.values())


class _FailureWatch:
    """Ends the run of an application at the first channel that fails and is not started again by itself."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on(self, event: Event) -> None:
        if isinstance(event, ChannelFailed):
            self._run.channel_failed(event.channel)


async def _all(calls: list[Any]) -> None:
    if calls:
        await asyncio.gather(*calls)


def _spark_engine(settings: Settings, *, ranges: bool) -> SparkEngine:
    from reactive_kafka.spark.engine import SparkEngine

    return SparkEngine(settings.spark, ranges=ranges)


def default_connector(settings: Settings) -> Connector:
    """What connects, as the settings say."""
    from reactive_kafka.broker.connect import KafkaConnector

    return KafkaConnector(settings.bootstrap_servers)

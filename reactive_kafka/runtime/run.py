"""One run of an application: everything that runs is opened and closed here, in one task."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.spec import RunServices
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import Settings
from reactive_kafka.errors import describe
from reactive_kafka.handlers.hooks import HookSet
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.spec import AppSpec
from reactive_kafka.handlers.threads import as_async
from reactive_kafka.observe.events import ChannelFailed, EndFailed, Event, HookFailed, LoopBlocked, Observer, Observers
from reactive_kafka.observe.facts import AppFacts, SparkFacts
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.runtime.build import ChannelBuilder, OpenStore
from reactive_kafka.runtime.gc import fewer_collections
from reactive_kafka.tasks import Tasks, outcome_of, told_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.http.server import HttpServer
    from reactive_kafka.spark.channel.runner import SparkRunner
    from reactive_kafka.spark.session.engine import SparkEngine

logger = logging.getLogger("reactive_kafka")

LAG_TICK_S = 0.1
LAG_WINDOW = 100  # ticks of which the worst is told: ten seconds
LAG_WARNED_S = 1.0
"""A loop that stood still for so long is told: heartbeats wait for it, and a session is 45 s by default."""
CANCELLED_S = 1.0
"""How long handlers that were cancelled at the end may take to clean up; then they are left behind."""
CLOSED_S = 5.0
"""How long a connector may take to close."""


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
    spec: AppSpec
    hooks: HookSet
    asgi: Callable[[], Starlette]
    connector: Connector | None
    clock: Clock
    observer: Observer
    log: LogObserver
    exit_on_failure: bool
    spark: SparkEngine | None = None
    stores: OpenStore | None = None


class Run:
    """One run of an application: its task group, its channels, and its end."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._clock = design.clock
        self._observer = design.observer
        if design.exit_on_failure:
            self._observer = Observers([design.observer, _FailureWatch(self)])
        self._spec = design.spec
        self._context = copy_context()  # what hooks of the start set in it, handlers find
        self._asked = asyncio.Event()
        self._drain = True
        self._is_started = False
        self._is_stopping = False
        self._exit: BaseException | None = None
        self._failure: str | None = None
        self._is_log_broken = False
        self._left: list[str] = []  # tasks that have ignored their cancellation
        self._supervisor: asyncio.Task[None] | None = None
        self._lags: deque[float] = deque([0.0], maxlen=LAG_WINDOW)
        self._spark: SparkEngine | None = None
        self._runners: dict[str, SparkRunner] = {}
        self.incoming: dict[str, ChannelLifecycle] = {}
        self.channels: dict[str, Channel] = {}  # what users hold of them
        self.outgoing: dict[str, OutgoingChannel] = {}
        self.http: HttpServer | None = None
        self.connector: Connector | None = None
        self.last_turn = self._clock.monotonic()

    # -- from start to end

    async def start(self) -> None:
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(started), name="reactive_kafka", context=self._context)
        try:
            await asyncio.wait([started, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await self._supervisor  # raises why it could not start
        except asyncio.CancelledError:
            if started.done():  # clients may be members by now: they are closed in order, or would stay for ever
                self.ask_to_stop(drain=False)
            else:
                self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            raise

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
        """Wait for the end; False if handlers have ignored their cancellation, and are left behind."""
        assert self._supervisor is not None  # noqa: S101  # for the type checker
        await asyncio.wait([self._supervisor])
        if not self._supervisor.cancelled():
            self._supervisor.result()  # raises why it failed
        return not self._left

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self._supervisor is not None and self._supervisor.done()

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
            stack.callback(self._log, self._design.log.close)
            tasks = Tasks()
            http = self._design.settings.http
            if http.enabled:
                from reactive_kafka.http.server import serve

                serving = serve(self._design.asgi(), http.host, http.port, fails=self._failed)
                self.http = await stack.enter_async_context(serving)

            def make() -> None:
                connector = self.connector = self._design.connector or default_connector(self._design.settings)
                stack.push_async_callback(_close, connector)
                stack.push_async_callback(self._end_tasks, tasks)
                self._make_channels(connector, tasks)

            await self._run_start_hooks(then=make)
            tasks.start(self._measure_lag, "loop lag", self._failed)
            await self._start_spark()
            self._start_channels()
            self._is_started = True
            started.set_result(None)
            await self._asked.wait()
            await self._end()

    async def _end_tasks(self, tasks: Tasks) -> None:
        """Cancel what still runs: once, and what it cleans up then is waited for within bounds."""
        self._left = await tasks.end(CANCELLED_S)
        if self._left:
            names = ", ".join(self._left)
            logger.warning("left behind: %s; what ran there stays uncommitted", names)

    async def _run_start_hooks(self, then: Callable[[], None]) -> None:
        """In tasks of their own: a hook may cancel its task, also late, and this one is to live as long as the run.

        *then* comes in the same turn of the loop as the end of the last hook: a task that a hook has started, and that
        asks for a channel in its first line, finds it.
        """
        hooks = self._design.hooks.start
        if not hooks:
            then()
        for number, hook in enumerate(hooks, 1):

            async def run(hook: Callable[[], Any] = hook, is_last: bool = number == len(hooks)) -> None:
                await as_async(hook)()
                if is_last:
                    then()

            error = await outcome_of(run, "on_start hook", None, self._context)
            if isinstance(error, asyncio.CancelledError):  # for whoever starts the application that is no cancellation
                raise RuntimeError(f"the on_start hook {name_and_place(hook)} ended with {told_of(error)}") from error
            if error is not None:
                raise error

    def _failed(self, error: BaseException) -> None:
        """Something of the application's own has failed, and no channel: it ends in order, with 1."""
        self._failure = self._failure or describe(error)
        self._exit = self._exit or SystemExit(1)
        logger.error("the application has failed, and ends: %s", describe(error), exc_info=error)
        self.ask_to_stop()

    def _make_channels(self, connector: Connector, tasks: Tasks) -> None:
        """The channels, which do nothing yet."""
        modes = {one.settings.spark.mode for one in self._spec.incoming.values() if one.spark is not None}
        if modes:
            self._spark = self._design.spark or _spark_engine(self._design.settings, ranges="ranges" in modes)
        services = RunServices(
            connector=connector, clock=self._clock, observer=self._observer, tasks=tasks, exit=self._handler_exits
        )
        maker = ChannelBuilder(services, self._design.hooks, self._spark, self._design.stores)
        self._runners = maker.runners
        for name, sending in self._spec.outgoing.items():
            if any(name in channel.outgoing for channel in self._spec.incoming.values()):
                self.outgoing[name] = maker.outgoing(sending)
        for name, channel in self._spec.incoming.items():
            self.incoming[name] = maker.incoming(channel, self.outgoing)
            self.channels[name] = Channel(self.incoming[name])

    async def _start_spark(self) -> None:
        if self._spark is not None:
            await self._spark.start(self._failed)

    def _start_channels(self) -> None:
        """Those that somebody works on."""
        for sending in self.outgoing.values():
            sending.start()
        for name, channel in self._spec.incoming.items():
            if channel.has_handler:
                self.incoming[name].start()

    def _handler_exits(self, reason: BaseException) -> None:
        self._exit = self._exit or reason
        logger.warning("a handler asked the process to end: %r", reason)
        self.ask_to_stop()

    def channel_failed(self, channel: str) -> None:
        """End the application, with 1: whoever runs it wants that rather than one channel less for good."""
        if channel not in self.incoming or self.incoming[channel].status.restarts_at is not None:
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
        await self._each("draining", {one.name: one.quiesce(deadlines[one.name]) for one in running})
        for hook in self._design.hooks.before_stop:
            await self._before_stop(hook, max(deadlines.values(), default=now))
        await self._each("leaving", {one.name: one.finish(deadlines[one.name]) for one in running})
        if self._spark is not None:
            error = await outcome_of(self._spark.stop, "stop Spark", None)  # it has bounds of its own
            if error is not None:
                self._observer.on(EndFailed(channel="*", doing="stopping Spark", reason=told_of(error), error=error))
        await self._each("closing", {name: channel.stop() for name, channel in self.outgoing.items()})

    async def _each(self, doing: str, ends: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Bring every channel's end to its end, whatever another one's raises; that is told."""
        errors = await asyncio.gather(*ends.values(), return_exceptions=True)
        for channel, error in zip(ends, errors, strict=True):
            if error is not None:
                self._observer.on(EndFailed(channel=channel, doing=doing, reason=told_of(error), error=error))

    async def _before_stop(self, hook: Callable[[], Any], deadline: float) -> None:
        within_s = max(1.0, deadline - self._clock.monotonic())
        error = await outcome_of(as_async(hook), "before_stop hook", within_s)
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._handler_exits(error)
        elif error is not None:  # a hook of the application: told, and the stop goes on
            self._observer.on(HookFailed(channel="*", hook="before_stop", reason=told_of(error), error=error))

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
            self._log(self._design.log.flush)

    def _log(self, write: Callable[[], None]) -> None:
        """Write what the log holds back; a handler of somebody's that raises must end nothing."""
        try:
            write()
        except Exception:  # logging is what is broken: stderr is what is left, once
            if not self._is_log_broken:
                self._is_log_broken = True
                traceback.print_exc(file=sys.stderr)

    def facts(self) -> AppFacts:
        return AppFacts(
            started=self._is_started,
            stopping=self._is_stopping,
            ended=(self.failure or "the application has ended") if self.has_ended else None,
            loop_lag_s=max(self._lags),
            channels=tuple(channel.facts() for channel in self.channels.values() if channel.is_started),
            outgoing=tuple(channel.facts() for channel in self.outgoing.values()),
            spark=self.spark_facts(),
        )

    @property
    def failure(self) -> str | None:
        """Why it has failed; None: it has not."""
        why, supervisor = self._failure, self._supervisor
        if why is None and supervisor is not None and supervisor.done() and not supervisor.cancelled():
            error = supervisor.exception()
            why = None if error is None else describe(error)
        return None if why is None else f"the application has failed: {why}"

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        return tuple(runner.facts() for runner in self._runners.values())


class _FailureWatch:
    """Ends the run of an application at the first channel that fails and is not started again by itself."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on(self, event: Event) -> None:
        if isinstance(event, ChannelFailed):
            self._run.channel_failed(event.channel)


async def _close(connector: Connector) -> None:
    error = await outcome_of(connector.close, "close the connector", CLOSED_S)
    if error is not None:
        raise error


def _spark_engine(settings: Settings, *, ranges: bool) -> SparkEngine:
    from reactive_kafka.spark.session.engine import SparkEngine

    return SparkEngine(settings.spark, ranges=ranges)


def default_connector(settings: Settings) -> Connector:
    """What connects, as the settings say."""
    from reactive_kafka.broker.connect import KafkaConnector

    return KafkaConnector(settings.bootstrap_servers)

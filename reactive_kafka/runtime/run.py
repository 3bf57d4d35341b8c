"""One run of an application, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.errors import ChannelClosedError, describe
from reactive_kafka.handlers.declared_hooks import Hook, checked_hook
from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.observe.events import (
    ChannelFailed,
    EmbeddedBrokerStarted,
    EndFailed,
    Event,
    HookFailed,
    Observer,
    Observers,
    SafeCaller,
)
from reactive_kafka.observe.facts import AppFacts, SparkFacts
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.runtime.channels import RunChannels
from reactive_kafka.runtime.end_of_run import EndOfRun
from reactive_kafka.runtime.forked import no_children
from reactive_kafka.runtime.jobs import ALONE_S
from reactive_kafka.runtime.loop import LoopLag, fewer_collections
from reactive_kafka.runtime.readiness import ReadinessChecks
from reactive_kafka.runtime.run_plan import RunEnding, RunEnvironment, RunPlan
from reactive_kafka.runtime.start_hooks import run_start_hooks
from reactive_kafka.runtime.start_messages import not_started, start_warnings
from reactive_kafka.runtime.states import TRANSITIONS, RunState
from reactive_kafka.state_table import next_state
from reactive_kafka.tasks import Flag, HomeLoop, Tasks, outcome_of, outcome_text

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from reactive_kafka.http.server import HttpServer

logger = logging.getLogger("reactive_kafka")

CANCELLED_S = 1.0
"""How long handlers that are cancelled at the end may clean up. Then they are left behind."""
CLOSED_S = 5.0
"""How long a connector, and the dependencies of the application, may take to close."""


class Run:
    """One run of an application. One task opens and closes everything that runs."""

    def __init__(
        self,
        plan: RunPlan,
        environment: RunEnvironment,
        ending: RunEnding,
        make_asgi: Callable[[], Starlette],
    ) -> None:
        self.home = HomeLoop()
        self._plan = plan
        self._environment = environment
        self._make_asgi = make_asgi
        self._clock = environment.clock
        # A logging handler that raises must not end the run.
        self._log = SafeCaller()
        self._observer: Observer = environment.observer
        observers = [environment.observer]
        if ending.on_failure:
            observers.append(self)
        self._end_of_run: EndOfRun | None = None
        if ending.when_caught_up:
            self._end_of_run = EndOfRun(self.ask_to_stop, self._log)
            observers.append(self._end_of_run)
        if len(observers) > 1:
            self._observer = Observers(observers)
        self.lag = LoopLag(
            self._clock,
            self._observer,
            partial(_tick, self, partial(self._log.call, environment.log.flush)),
        )
        self._dependencies = Dependencies(plan.dependencies)
        self._readiness = ReadinessChecks(
            plan.hooks.readiness, self._clock, self._observer, self._handler_exits
        )
        # Handlers find the context variables that on_start hooks set.
        self._context = copy_context()
        self._state: RunState = "starting"
        self._stop_asked = Flag()
        # False: handlers get no time to finish.
        self._drain = True
        self._exit: BaseException | None = None
        self._failure: str | None = None
        # Names of tasks that have ignored their cancellation and are left behind.
        self.left: list[str] = []
        self._supervisor: asyncio.Task[None] | None = None
        # Cuts the start off that is under way. None: none is.
        self._start_limit: asyncio.Timeout | None = None
        # None until every on_start hook has returned.
        self.channels: RunChannels | None = None
        self.connector: Connector | None = None
        # None until the start begins.
        self.tasks: Tasks | None = None
        self.http: HttpServer | None = None

    async def start(self) -> None:
        """Start everything. The channels connect in the background.

        Cancellation:
            What has started is stopped, and handlers get no time to finish.
        """
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(
            self._supervise(started), name="reactive_kafka", context=self._context
        )
        try:
            await asyncio.wait([started, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                # The supervisor has failed, and this raises its error. Or a stop has cut it off.
                await self._supervisor
                return
        except asyncio.CancelledError:
            # Clients may be members by now. Without a stop they would stay in their groups until
            # their sessions end.
            if started.done():
                self.ask_to_stop(drain=False)
            else:
                self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            raise
        if self._plan.logs_warnings:
            tracing_problem = self.channels.tracing.problem if self.channels is not None else None
            for text in start_warnings(self._plan, tracing_problem):
                self._log.call(logger.warning, "%s", text)
        for text in not_started(self._plan):
            self._log.call(logger.info, "%s", text)

    def add_channel(self, plan: IncomingPlan, warnings: Iterable[str]) -> Channel:
        """Run one more incoming channel, until the end.

        Raises:
            ChannelClosedError: The run has not started, or it ends.
        """
        is_stopping = self._stop_asked.is_set()
        if self.channels is None or self._state != "running" or is_stopping:
            state = "stopping" if is_stopping else self._state
            raise ChannelClosedError(
                f"channel {plan.settings.name!r} cannot be added: the application is {state}"
            )
        for text in warnings:
            self._log.call(logger.warning, "%s", text)
        return self.channels.add(plan)

    def ask_to_stop(self, drain: bool = True) -> None:
        """Ask the run to end. A start that is under way gets as long as handlers get in a stop."""
        self._drain = self._drain and drain
        self._stop_asked.set()
        self._limit_start()

    def _limit_start(self) -> None:
        """Bound the rest of the start: a hook of the application may never end."""
        limit = self._start_limit
        if limit is None or limit.expired():
            return
        until = asyncio.get_running_loop().time() + (self.drain_s() if self._drain else 0.0)
        before = limit.when()
        limit.reschedule(until if before is None else min(before, until))

    def drain_s(self) -> float:
        """Return how long a stop that begins now may wait for handlers and jobs, at most."""
        if self.channels is not None:
            return max(self.channels.drain_timeouts().values(), default=0.0)
        channels = self._plan.channels
        timeouts = [plan.settings.drain_timeout_s for plan in channels.incoming.values()]
        timeouts += [plan.settings.drain_timeout_s for plan in channels.memory.values()]
        return max(timeouts, default=ALONE_S)

    async def wait_asked(self) -> None:
        """Wait until a stop is asked for, or the application fails."""
        # For the type checker.
        assert self._supervisor is not None  # noqa: S101
        asked = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait([asked, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()

    async def wait_stopped(self) -> None:
        """Wait for the end. Raises what the run has failed with."""
        # For the type checker.
        assert self._supervisor is not None  # noqa: S101
        # The event loop of a run that has ended may be closed: nothing of it can be awaited then.
        if not self.has_ended:
            await asyncio.wait([self._supervisor])
        if self._supervisor.done() and not self._supervisor.cancelled():
            self._supervisor.result()

    @property
    def has_ended(self) -> bool:
        """Whether the run is over, also because its event loop was closed under it."""
        if self._supervisor is not None and self._supervisor.get_loop().is_closed():
            return True
        return self._state == "ended"

    @property
    def http_text(self) -> str:
        """Where it serves HTTP, for the log."""
        if self.http is not None:
            return self.http.url
        if self._plan.settings.http.enabled and self._environment.handed_connections is not None:
            return "through the supervisor"
        return "off"

    def exit_code(self) -> int:
        """Return the exit code of the process.

        It is what a handler asked for with SystemExit; 1 if the run was to end when everything is
        handled and committed, and that has not happened; else 0.
        """
        if isinstance(self._exit, SystemExit):
            code = self._exit.code
            if code is None:
                return 0
            return code if isinstance(code, int) else 1
        if self._end_of_run is not None and (why := self._end_of_run.why_not()) is not None:
            self._log.call(
                logger.error,
                "not everything that was there at the start is handled and committed: %s",
                why,
            )
            return 1
        return 0

    def _change(self, event: str) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, "run")

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        """Open everything, wait for the stop, and close everything, in this one task."""
        # The stack closes in reverse what was opened, also when the next step fails. Tasks are
        # cancelled before the connector closes, the log is flushed after the last event, and the
        # run has ended only when nothing of it is left. One task does all of it, so cancelling the
        # caller of start() cannot interrupt the stop.
        async with AsyncExitStack() as stack:
            stack.callback(self._change, "end")
            at_once = sum(channel.concurrency for channel in self._plan.settings.incoming.values())
            stack.enter_context(fewer_collections(at_once))
            stack.enter_context(no_children(self._hold))
            stack.callback(self._log.call, self._environment.log.close)
            tasks = Tasks()
            self.tasks = tasks
            http = self._plan.settings.http
            handed = self._environment.handed_connections
            if http.enabled and handed is not None:
                from reactive_kafka.http.server import serve_handed

                taking = serve_handed(self._make_asgi(), handed, fails=self._failed)
                await stack.enter_async_context(taking)
            elif http.enabled:
                from reactive_kafka.http.server import serve

                serving = serve(self._make_asgi(), http.host, http.port, fails=self._failed)
                self.http = await stack.enter_async_context(serving)

            def make() -> None:
                servers = self._plan.settings.bootstrap_servers
                connector = self._environment.connector or KafkaConnector(
                    servers, self._embedded_broker_started
                )
                self.connector = connector
                stack.push_async_callback(_close, connector)
                # Dependencies end after all handlers: the tasks end first.
                stack.push_async_callback(_end, self._dependencies, self._observer)
                stack.push_async_callback(self._end_tasks, tasks)
                services = RunServices(
                    connector=connector,
                    clock=self._clock,
                    observer=self._observer,
                    tasks=tasks,
                    exit=self._handler_exits,
                )
                # The channels are built, but not started.
                self.channels = RunChannels(
                    self._plan, self._environment, services, self._dependencies, self._failed
                )

            try:
                async with asyncio.timeout(None) as self._start_limit:
                    if self._stop_asked.is_set():
                        self._limit_start()
                    await run_start_hooks(self._plan.hooks.start, self._context, then=make)
                    # The last hook is followed by make().
                    assert self.channels is not None  # noqa: S101
                    tasks.start(self.lag.measure, "loop lag", self._failed)
                    await self._dependencies.open(self._failed, tasks.is_ending)
                    await self.channels.start()
                    self._readiness.start(tasks, self._context, self._failed)
            except TimeoutError:
                if self._start_limit is None or not self._start_limit.expired():
                    raise
                text = "the start is cut off: it has not ended, and the application is to stop"
                self._log.call(logger.warning, text)
                return
            finally:
                self._start_limit = None
            self._change("started")
            started.set_result(None)
            if self._end_of_run is not None:
                tasks.start(
                    partial(self._end_of_run.wait, self.channels), "end of the run", self._failed
                )
            await self._stop_asked.wait()
            self._change("stop")
            await self._end(self.channels)

    def _embedded_broker_started(self, address: str) -> None:
        self._observer.on(EmbeddedBrokerStarted(address=address))

    def _hold(self) -> None:
        if self.channels is not None:
            for channel in self.channels.incoming.values():
                channel.session.hold()

    async def _end_tasks(self, tasks: Tasks) -> None:
        """Cancel what still runs, once, and wait for its cleanup within bounds."""
        # After a failure there was no stop. Threads may then wait for what they have sent.
        if self.channels is not None:
            await self.channels.close_outgoing(self._clock.monotonic())
        self.left = await tasks.end(CANCELLED_S)
        if self.left:
            names = ", ".join(self.left)
            self._log.call(
                logger.warning, "left behind: %s; what ran there stays uncommitted", names
            )

    def _failed(self, error: BaseException) -> None:
        """End the run in order, with exit code 1: a task that belongs to no channel has failed."""
        self._failure = self._failure or describe(error)
        self._exit = self._exit or SystemExit(1)
        failed = partial(logger.error, exc_info=error)
        self._log.call(failed, "the application has failed, and ends: %s", describe(error))
        self.ask_to_stop()

    def _handler_exits(self, reason: BaseException) -> None:
        self._exit = self._exit or reason
        self._log.call(
            logger.warning,
            "a handler, hook, job or readiness function asked the process to end: %r",
            reason,
        )
        self.ask_to_stop()

    def on(self, event: Event) -> None:
        """End the run, with exit code 1, when a channel fails that does not restart by itself."""
        if not isinstance(event, ChannelFailed) or self.channels is None:
            return
        channel = self.channels.incoming.get(event.channel)
        # An outgoing channel may have the same name, and its failure ends nothing.
        if (
            channel is not None
            and channel.status.state == "failed"
            and channel.status.restarts_at is None
        ):
            self._exit = self._exit or SystemExit(1)
            text = "channel %r has failed, and the application ends for it"
            self._log.call(logger.warning, text, event.channel)
            self.ask_to_stop()

    async def _end(self, channels: RunChannels) -> None:
        """Drain, run the hooks while the partitions are ours, then commit, leave and close."""
        # The hooks may close what the functions look at.
        self._readiness.stop()
        now = self._clock.monotonic()
        timeouts = channels.drain_timeouts()
        deadlines = {
            name: now + (timeout_s if self._drain else 0.0) for name, timeout_s in timeouts.items()
        }
        await channels.drain(deadlines)
        for hook in self._plan.hooks.before_stop:
            await self._before_stop(hook, max(deadlines.values(), default=now))
        await channels.leave(deadlines)

    async def _before_stop(self, hook: Hook, deadline: float) -> None:
        within_s = max(1.0, deadline - self._clock.monotonic())
        error = await outcome_of(checked_hook("before_stop", hook), "before_stop hook", within_s)
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._handler_exits(error)
        elif error is not None:
            # The stop continues.
            self._observer.on(
                HookFailed(channel="*", hook="before_stop", reason=outcome_text(error), error=error)
            )

    def facts(self) -> AppFacts:
        """Return what is known about the application now."""
        channels = self.channels
        return AppFacts(
            started=self._state != "starting",
            stopping=self._state == "stopping",
            ended=(self.failure or "the application has ended") if self.has_ended else None,
            loop_lag_s=self.lag.worst_s,
            channels=channels.facts() if channels is not None else (),
            outgoing=channels.outgoing_facts() if channels is not None else (),
            spark=self.spark_facts(),
            readiness=self._readiness.facts(self._clock.monotonic()),
        )

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        """Return the Spark part of :meth:`facts`, at a fraction of the cost."""
        return self.channels.spark_facts() if self.channels is not None else ()

    @property
    def failure(self) -> str | None:
        """Why the run has failed. None: it has not."""
        why = self._failure
        supervisor = self._supervisor
        if (
            why is None
            and supervisor is not None
            and supervisor.done()
            and not supervisor.cancelled()
        ):
            error = supervisor.exception()
            why = None if error is None else describe(error)
        return None if why is None else f"the application has failed: {why}"


def _tick(run: Run, flush: Callable[[], None]) -> None:
    """Write what the log holds back, and time settled records. Called ten times a second."""
    flush()
    if run.channels is not None:
        for channel in run.channels.incoming.values():
            channel.session.compact_windows()


async def _close(connector: Connector) -> None:
    error = await outcome_of(connector.close, "close the connector", CLOSED_S)
    if error is not None:
        raise error


async def _end(dependencies: Dependencies, observer: Observer) -> None:
    error = await dependencies.close(CLOSED_S)
    if error is not None:
        doing = "ending the dependencies of the application"
        observer.on(EndFailed(channel="*", doing=doing, reason=outcome_text(error), error=error))

"""The Spark engine of an application: one session, and concurrent jobs off the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.blame import reason_of
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.session.blocking import SessionMaker
from reactive_kafka.spark.session.classic import ClassicMaker, warm_up_columns
from reactive_kafka.spark.session.connect import ConnectMaker, check_connect
from reactive_kafka.spark.session.driver import check_classic
from reactive_kafka.spark.session.kafka_source import brings_connector, connector_jars
from reactive_kafka.spark.session.spark_job import PROGRESS_INTERVAL_S, RunningJob, to_its_end
from reactive_kafka.spark.session.supervisor import FAREWELL_S, LIMITS, SessionLimits, Supervisor
from reactive_kafka.tasks import Fails, Handle, log_failure

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")


class Turns:
    """Gives turns in the order of requests: no job overtakes one that waits to run alone."""

    def __init__(self) -> None:
        self._running = 0
        # The running job wants to be alone.
        self._is_exclusive = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold a turn during the block; with *alone* it is the only one.

        Cancellation: Safe. The turn goes to the next job.
        """
        await self._enter(alone)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, alone: bool) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                # The next ones may have waited behind this one.
                self._grant()
            else:
                # The turn was granted at the same moment.
                self._leave()
            raise

    def _leave(self) -> None:
        self._running -= 1
        self._is_exclusive = False
        self._grant()

    def _grant(self) -> None:
        while self._waiting and not self._is_exclusive:
            alone, granted = self._waiting[0]
            if alone and self._running and not granted.cancelled():
                return
            self._waiting.popleft()
            if not granted.cancelled():
                self._running += 1
                self._is_exclusive = alone
                granted.set_result(None)


class SparkEngine:
    """Runs jobs on the application's Spark session, each in a thread of its own.

    A session that ends or stays in trouble is replaced.

    Args:
        settings: The table ``[spark]``.
        ranges: Executors must be able to read Kafka.
        sends: Functions may send to topics, see :func:`maker_for`.
        limits: Timeouts.
        maker: Opens the sessions. None: as the settings say.
    """

    def __init__(
        self,
        settings: SparkSettings,
        *,
        ranges: bool = False,
        sends: bool = False,
        limits: SessionLimits = LIMITS,
        maker: SessionMaker | None = None,
    ) -> None:
        self._settings = settings
        self._ranges = ranges
        self._sends = sends
        self._limits = limits
        self._maker = maker
        self._turns = Turns()
        # Calls of `make` in threads.
        self._making: set[asyncio.Future[Any]] = set()
        self._supervisor: Supervisor | None = None
        self._supervising: Handle | None = None
        self._fails: Fails = log_failure
        self._reason = "Spark has not been started"

    @property
    def is_open(self) -> bool:
        """True if Spark was told to start: a channel needs it."""
        return self._supervising is not None

    @property
    def ready(self) -> bool:
        """True if a job would run at once."""
        return self._supervisor is not None and self._supervisor.reason is None

    @property
    def reason(self) -> str | None:
        """Why it is not ready, in one line. None: it is ready."""
        return self._supervisor.reason if self._supervisor else self._reason

    @property
    def driver_pid(self) -> int | None:
        """The id of the Java process. None: there is none, or it is not ours."""
        opened = self._supervisor.current if self._supervisor else None
        return opened.session.driver_pid if opened else None

    async def start(self, fails: Fails = log_failure) -> None:
        """Start Spark in the background, and import what columns need.

        *fails* is called if the task that keeps the session up ends by itself, because there will
        be no session any more.

        Raises:
            ConfigError, MissingExtraError: As :func:`maker_for`.
        """
        self.prepare(fails)
        assert self._supervisor is not None  # noqa: S101
        (await self._supervisor.control.submit(warm_up_columns)).get()
        self.open()

    def prepare(self, fails: Fails = log_failure) -> None:
        """Check that Spark can be started, for an application whose Spark channels start later.

        Raises:
            ConfigError, MissingExtraError: As :func:`maker_for`.
        """
        maker = self._maker or maker_for(self._settings, ranges=self._ranges, sends=self._sends)
        self._supervisor = Supervisor(maker, self._limits)
        self._fails = fails

    def open(self) -> None:
        """Start Spark in the background, unless that has been done."""
        if self._supervising is None and self._supervisor is not None:
            self._supervising = Handle(self._supervisor.keep_up, "spark-supervisor", self._fails)

    async def run(
        self,
        job: Callable[[Any], T],
        *,
        timeout_s: float,
        description: str,
        pool: str = "default",
        alone: bool = False,
        cancel_limit_s: float | None = None,
        on_progress: Callable[[JobProgress], None] = lambda _: None,
    ) -> T:
        """Call *job* with the session, in a thread, as soon as Spark is ready; return its result.

        Args:
            job: The function. It may block.
            timeout_s: How long it may run, from when it starts.
            description: For Spark's pages and for errors.
            pool: The FAIR pool of its Spark jobs, which share cores.
            alone: Wait until no other job runs, and let no other start meanwhile.
            cancel_limit_s: How long it may take to end when it is cancelled. None: the limit of the
                engine.
            on_progress: Called in a thread, about twice a second and at the end.

        Raises:
            OffloadError: It failed, or was cancelled for its timeout. The subclass says what is to
                blame, and ``__cause__`` is the error that *job* has raised.

        Cancellation: Cancels the Spark job, and waits until the function has returned and its last
        task has ended, but no longer than *cancel_limit_s*.
        """
        async with self._turns.turn(alone=alone):
            if self._supervisor is None:
                raise RuntimeError("the engine has not been started")
            opened = await self._supervisor.ready_session()
            limit_s = self._limits.cancel_s if cancel_limit_s is None else cancel_limit_s
            running = RunningJob(
                self._supervisor, opened, description, pool, timeout_s, limit_s, on_progress
            )
            return await running.run(job)

    async def make(self, call: Callable[[Any], T]) -> T | None:
        """Call a function that starts no job with the session, in a thread; return its result.

        None: there is no session, it is not ready any more, or the call has raised.

        Cancellation: The call continues in its thread.
        """
        async with self._turns.turn():
            opened = self._supervisor.current if self._supervisor else None
            if self._supervisor is None or opened is None or not opened.is_ready:
                return None
            opened.made += 1
            made = self._supervisor.jobs.submit(partial(call, opened.session.spark))
            self._making.add(made)
            made.add_done_callback(self._making.discard)
            made.add_done_callback(opened.has_made)
            while not made.done():
                # The call may never return if the driver hangs, and the job that needs its result
                # waits without a limit. So stop waiting as soon as the session is in trouble.
                if self._supervisor.current is not opened or not self.ready:
                    return None
                await asyncio.wait({made}, timeout=PROGRESS_INTERVAL_S)
            error = made.result().error
            if error is not None:
                logger.debug(
                    "a DataFrame could not be made ahead, so its job makes it: %s", reason_of(error)
                )
            return made.result().value

    async def stop(self) -> None:
        """Stop Spark and its Java process, whatever their state is, in a bounded time.

        Cancellation: Waits until Spark has stopped.
        """
        await to_its_end(self._stop())

    async def _stop(self) -> None:
        if self._supervising is not None:
            self._supervising.cancel()
            await asyncio.wait({self._supervising.task})
        # Wait for these calls, because Py4J would log their errors when the driver ends.
        if self._making:
            await asyncio.wait(self._making, timeout=FAREWELL_S)
        if self._supervisor is not None:
            await self._supervisor.stop()
        self._supervisor = None
        self._reason = "Spark is stopped"


def _cached_connector() -> tuple[str, ...]:
    """Return the jars of the Kafka connector in the cache; none if they are not all there."""
    try:
        return tuple(map(str, connector_jars()))
    except ConfigError:
        # Only the functions know whether they need it. If one does, ``batch.send`` says what to do.
        return ()


def maker_for(
    settings: SparkSettings,
    *,
    ranges: bool = False,
    sends: bool = False,
    places: Sequence[str] = (),
) -> SessionMaker:
    """Return what opens the sessions that *settings* describe. Nothing is imported or started.

    Args:
        settings: The table ``[spark]``.
        ranges: Executors must be able to read Kafka.
        sends: Functions may send to topics. The Kafka connector is used if it is in the cache.
        places: Where that is configured, for errors.

    Raises:
        MissingExtraError: Packages are missing.
        ConfigError: There is no suitable Java, or no Kafka connector.
    """
    if settings.remote is not None:
        # The server has its own Java and jars.
        check_connect()
        return ConnectMaker(settings)
    java = check_classic()
    if settings.jars is None and brings_connector(settings.conf):
        return ClassicMaker(settings, java)
    if settings.jars is None and not ranges:
        return ClassicMaker(settings, java, _cached_connector() if sends else ())
    # If the settings name jars, functions may use them even if no executor reads Kafka for us.
    try:
        return ClassicMaker(settings, java, tuple(map(str, connector_jars(settings.jars))))
    except ConfigError as error:
        if settings.jars is not None:
            causes = [settings.place("jars", settings.jars)]
        else:
            causes = [
                f"{place}: it needs Spark's Kafka connector"
                for place in places or ('mode = "ranges"',)
            ]
        raise ConfigError(
            *(f"{cause}: {problem}" for cause in causes for problem in error.problems)
        ) from None

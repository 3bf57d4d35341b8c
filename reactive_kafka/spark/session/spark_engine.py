"""One Spark session for the application, off the event loop: concurrent jobs, whose cancellation is
awaited.
"""

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
from reactive_kafka.spark.session.spark_job import LOOK_EVERY_S, RunningJob, to_its_end
from reactive_kafka.spark.session.supervisor import FAREWELL_S, LIMITS, SessionLimits, Supervisor
from reactive_kafka.tasks import Fails, Handle, log_failure

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")


class Turns:
    """Gives turns in the order in which they are asked for: a job that waits to be alone is not
    overtaken.
    """

    def __init__(self) -> None:
        self._running = 0
        self._one_is_alone = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold a turn for the block, with *alone* the only one. Cancelling is safe: it goes to the
        next one.
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
                # To the next ones.
                self._grant()
            else:
                # The turn and the cancellation came at the same moment.
                self._leave()
            raise

    def _leave(self) -> None:
        self._running -= 1
        self._one_is_alone = False
        self._grant()

    def _grant(self) -> None:
        while self._waiting and not self._one_is_alone:
            alone, granted = self._waiting[0]
            if alone and self._running and not granted.cancelled():
                return
            self._waiting.popleft()
            if not granted.cancelled():
                self._running += 1
                self._one_is_alone = alone
                granted.set_result(None)


class SparkEngine:
    """The application's Spark session, replaced if it ends or stays in trouble. Each job runs in
    its own thread.
    """

    def __init__(
        self,
        settings: SparkSettings,
        *,
        # Executors are to read Kafka.
        ranges: bool = False,
        limits: SessionLimits = LIMITS,
        # In place of the one that the settings ask for.
        maker: SessionMaker | None = None,
    ) -> None:
        self._settings = settings
        self._ranges = ranges
        self._limits = limits
        self._maker = maker
        self._turns = Turns()
        # What threads make beside the jobs.
        self._making: set[asyncio.Future[Any]] = set()
        self._supervisor: Supervisor | None = None
        self._supervising: Handle | None = None
        self._reason = "Spark has not been started"

    @property
    def ready(self) -> bool:
        """Whether a job would run at once."""
        return self._supervisor is not None and self._supervisor.reason is None

    @property
    def reason(self) -> str | None:
        """Why it is not ready, in one line; None if it is."""
        return self._supervisor.reason if self._supervisor else self._reason

    @property
    def driver_pid(self) -> int | None:
        """The Java process; None if there is none of ours."""
        opened = self._supervisor.current if self._supervisor else None
        return opened.session.driver_pid if opened else None

    async def start(self, fails: Fails = log_failure) -> None:
        """Start Spark in the background, and load what columns need; raises the errors of
        :func:`maker_for`.
        """
        maker = self._maker or maker_for(self._settings, ranges=self._ranges)
        self._supervisor = Supervisor(maker, self._limits)
        (await self._supervisor.control.submit(warm_up_columns)).get()
        # Where it ends by itself *fails* is told: there will be no session any more.
        self._supervising = Handle(self._supervisor.keep_up, "spark-supervisor", fails)

    async def run(
        self,
        job: Callable[[Any], T],
        *,
        # From the moment the job starts.
        timeout_s: float,
        # For Spark's own pages and for errors.
        description: str,
        # The FAIR pool that its Spark jobs share cores in.
        pool: str = "default",
        # Wait until no other job runs, and let no other start meanwhile.
        alone: bool = False,
        # How long its end may take when it is cancelled; None: the limit for all.
        cancel_limit_s: float | None = None,
        # About twice a second and at the end; in a thread.
        on_progress: Callable[[JobProgress], None] = lambda _: None,
    ) -> T:
        """Run *job*, which may block, with the session in a thread, as soon as Spark is ready;
        returns what it returns.

        A cancellation cancels the Spark job, and waits until its function has returned and its last
        task has ended, or for ``cancel_limit_s``.

        Raises:
            OffloadError: It failed, or was cancelled for its timeout; the subclass says what is to
                blame. The error that *job* raised is ``__cause__``.
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
        """What *call* returns, which starts no job, with the session that is ready; it runs in a
        thread.

        None: there is no session, it is not ready any more, or the call has raised. Cancelling
        leaves it to its end.
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
                # An answer may not come for ever, and the job that this is for waits without a
                # limit of its own.
                if self._supervisor.current is not opened or not self.ready:
                    return None
                await asyncio.wait({made}, timeout=LOOK_EVERY_S)
            if (error := made.result().error) is not None:
                logger.debug(
                    "a DataFrame is made when it is needed, and not ahead: %s", reason_of(error)
                )
            return made.result().value

    async def stop(self) -> None:
        """Stop Spark and its Java process, whatever its state is, in a bounded time; a cancellation
        waits for that.
        """
        await to_its_end(self._stop())

    async def _stop(self) -> None:
        if self._supervising is not None:
            self._supervising.cancel()
            await asyncio.wait({self._supervising.task})
        # Py4J would log what a driver's end makes of them.
        if self._making:
            await asyncio.wait(self._making, timeout=FAREWELL_S)
        if self._supervisor is not None:
            await self._supervisor.stop()
        self._supervisor = None
        self._reason = "Spark is stopped"


def maker_for(
    settings: SparkSettings, *, ranges: bool = False, places: Sequence[str] = ()
) -> SessionMaker:
    """The maker of the sessions that *settings* ask for. Nothing is imported or started.

    *ranges*: executors are to read Kafka; *places* are where that is configured, for errors. Raises
      MissingExtraError,
    or ConfigError if there is no suitable Java, or no Kafka connector.
    """
    # Java and the jars are the server's.
    if settings.remote is not None:
        check_connect()
        return ConnectMaker(settings)
    java = check_classic()
    if settings.jars is None and (not ranges or brings_connector(settings.conf)):
        return ClassicMaker(settings, java)
    # If the settings name jars, functions may use them without such channels, too.
    try:
        return ClassicMaker(settings, java, tuple(map(str, connector_jars(settings.jars))))
    except ConfigError as error:
        if settings.jars is not None:
            said = [settings.place("jars", settings.jars)]
        else:
            said = [
                f"{place}: it needs Spark's Kafka connector"
                for place in places or ('mode = "ranges"',)
            ]
        raise ConfigError(
            *(f"{one}: {problem}" for one in said for problem in error.problems)
        ) from None

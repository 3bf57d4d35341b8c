"""One Spark session for the application, away from the event loop: start, run a job, cancel it for real, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.errors import OffloadError, SessionLostError
from reactive_kafka.spark.batch import reason_of
from reactive_kafka.spark.java import Java
from reactive_kafka.spark.session import (
    DriverSession,
    Job,
    JobGroup,
    TaskCounts,
    check_spark,
    open_session,
    warm_up_columns,
)
from reactive_kafka.spark.worker import Outcome, Worker

logger = logging.getLogger("reactive_kafka.spark")

LOOK_EVERY_S = 0.5  # at a running job's tasks, and at a job that is being cancelled
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0  # waits between attempts to start Spark
LAUNCH_LIMIT_S = 20.0  # how long a stop waits for a driver that is just being launched, to end it


class SparkEngine:
    """The application's Spark session; jobs run one at a time, in a thread.

    A driver that ends is started again. Whatever its state, the event loop only ever waits.

    Args:
        settings: Master and properties of the session.
        cancel_limit_s: How long a cancelled job may take to end before it is left to itself.
        stop_limit_s: How long Spark may take to stop before its process is ended.
    """

    def __init__(self, settings: SparkSettings, *, cancel_limit_s: float = 10.0, stop_limit_s: float = 10.0) -> None:
        self._settings = settings
        self._cancel_limit_s = cancel_limit_s
        self._stop_limit_s = stop_limit_s
        self._jobs = Worker("spark-jobs")
        self._control = Worker("spark-control")  # of its own, or a cancel would queue behind the job
        self._slot = asyncio.Lock()
        self._up = asyncio.Event()
        self._session: DriverSession | None = None
        self._opening: asyncio.Future[Outcome[DriverSession]] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._reason = "Spark has not been started"

    @property
    def ready(self) -> bool:
        """Whether a job would run at once."""
        return self._up.is_set() and self._session is not None and not self._session.has_ended()

    @property
    def reason(self) -> str | None:
        """Why it is not ready, in one line; None when it is."""
        if self.ready:
            return None
        return "Spark's driver (java) has ended" if self._up.is_set() else self._reason

    @property
    def driver_pid(self) -> int | None:
        """The Java process, None where there is none of ours."""
        return self._session.driver_pid if self._session else None

    async def start(self) -> None:
        """Begin to start Spark in the background, and load what :mod:`reactive_kafka.spark.columns` needs.

        Raises:
            MissingExtraError: pyspark, pyarrow or pandas is not installed.
            ConfigError: There is no Java that fits.
        """
        java = check_spark()
        self._reason = "Spark is starting"
        (await self._control.submit(warm_up_columns)).get()
        self._supervisor = asyncio.create_task(self._keep_up(java), name="spark-supervisor")

    async def run(
        self,
        job: Job,
        *,
        timeout_s: float,
        description: str,
        on_tasks: Callable[[TaskCounts], None] = lambda _: None,
    ) -> None:
        """Run *job* with the session in a thread, once Spark is ready and no other job runs.

        Args:
            job: Blocking; gets the ``pyspark.sql.SparkSession``.
            timeout_s: Counts from the moment the job starts.
            description: For Spark's own pages and for errors.
            on_tasks: Called about twice a second, from a thread, with the tasks so far; must be quick.

        Raises:
            SessionLostError: The driver went away under the job.
            OffloadError: The job raised (its error is ``__cause__``) or was cancelled for its timeout.

        Cancellation:
            The Spark job is cancelled. This returns when its last task has ended, or after ``cancel_limit_s``.
        """
        async with self._slot:
            session = await self._ready_session()
            group = JobGroup(session, description)
            started = self._jobs.submit(partial(group.run, job))
            in_time = False
            try:
                in_time = await self._wait(started, group, timeout_s, on_tasks)
            finally:  # timeout and cancellation take one path
                if not in_time:
                    await _to_its_end(self._cancel(started, group, description))
            if not in_time:
                raise OffloadError(f"{description}: cancelled, not done after {timeout_s:g} s")
            await self._judge(started.result(), session, description)

    async def stop(self) -> None:
        """Stop Spark and leave no Java process behind, whatever state it is in. Takes a bounded time.

        Cancellation:
            Has no effect: it goes on to its end.
        """
        await _to_its_end(self._stop())

    async def _stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
        self._up.clear()
        self._reason = "Spark is stopped"
        session = await self._last_session()
        if session is not None and session.owned:
            await asyncio.wait({self._control.submit(session.stop)}, timeout=self._stop_limit_s)
        if session is not None:
            await to_thread.run_sync(session.end)
        self._session = None
        self._jobs.close()
        self._control.close()

    async def _last_session(self) -> DriverSession | None:
        """The session, also one whose start was under way when the supervisor ended."""
        if self._opening is None:
            return self._session
        await asyncio.wait({self._opening}, timeout=LAUNCH_LIMIT_S)
        return self._opening.result().value if self._opening.done() else None

    async def _keep_up(self, java: Java) -> None:
        while True:
            session = await self._open_until_it_works(java)
            self._up.set()
            logger.info("Spark is ready, driver pid %s", session.driver_pid)
            await _until(session.has_ended, look_every_s=1.0)
            self._up.clear()
            self._reason = "Spark's driver (java) has ended; starting another"
            logger.error("%s", self._reason)
            await self._control.submit(session.end)

    async def _open_until_it_works(self, java: Java) -> DriverSession:
        wait_s = FIRST_RETRY_S
        while True:
            self._opening = self._jobs.submit(partial(open_session, self._settings, java))
            await asyncio.wait({self._opening})
            opened = self._opening.result()
            self._session, error = opened.value, opened.error
            if self._session is not None:
                error = (await self._jobs.submit(self._session.warm_up)).error
                if error is None:
                    return self._session
                await self._control.submit(self._session.end)
            self._reason = f"Spark did not start: {reason_of(error) if error else 'no reason given'}"
            logger.error("%s; next attempt in %g s", self._reason, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_RETRY_S)

    async def _ready_session(self) -> DriverSession:
        while True:
            await self._up.wait()
            if self._session is not None and not self._session.has_ended():
                return self._session
            self._up.clear()  # the supervisor finds out within a second, and starts another

    async def _wait(
        self, started: asyncio.Future[Any], group: JobGroup, timeout_s: float, on_tasks: Callable[[TaskCounts], None]
    ) -> bool:
        """Wait for the job's end, and look at its tasks meanwhile and once more then; False if time ran out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        look: asyncio.Future[Any] | None = None
        while not started.done() and (left := deadline - loop.time()) > 0:
            await asyncio.wait({started}, timeout=min(LOOK_EVERY_S, left))
            if look is None or look.done():  # a driver that hangs must not make a queue
                look = self._control.submit(lambda: on_tasks(group.tasks()))
        return started.done()

    async def _cancel(self, started: asyncio.Future[Any], group: JobGroup, description: str) -> None:
        """Cancel until the function has returned and its last task has ended, or the limit is over."""
        with anyio.move_on_after(self._cancel_limit_s):
            while not started.done():  # again and again: the function may catch the error and start the next job
                await asyncio.wait({self._control.submit(group.cancel)}, timeout=LOOK_EVERY_S)
                await asyncio.wait({started}, timeout=LOOK_EVERY_S)
            await self._no_task_left(group)
            return
        logger.error("%s: cancelled, but still running after %g s", description, self._cancel_limit_s)
        if not started.done():  # a thread cannot be stopped: it keeps its place, the next job gets another
            self._jobs.close()
            self._jobs = Worker("spark-jobs")

    async def _no_task_left(self, group: JobGroup) -> None:
        """Wait until the group's last task has ended; with a driver that does not answer any more there is none."""
        while True:
            over = await self._control.submit(group.is_over)
            if over.value or over.error is not None:
                return
            await asyncio.sleep(0.05)

    async def _judge(self, outcome: Outcome[None], session: DriverSession, description: str) -> None:
        error = outcome.error
        if error is None:
            return
        if await _is_lost(session, error):
            raise SessionLostError(f"{description}: Spark's driver (java) ended under the job") from error
        raise OffloadError(f"{description}: {reason_of(error)}") from error


async def _is_lost(session: DriverSession, error: BaseException) -> bool:
    """Whether the driver is gone. Its sockets close a moment before the operating system reports its end."""
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        with anyio.move_on_after(1.0):
            await _until(session.has_ended, look_every_s=0.02)
    return session.has_ended()


async def _until(condition: Callable[[], bool], look_every_s: float) -> None:
    while not condition():  # noqa: ASYNC110 - another process's state: nobody could set an event
        await asyncio.sleep(look_every_s)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run *work* to its end whoever cancels meanwhile; then the cancellation goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # holds back anyio's cancellation, not asyncio's own
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled

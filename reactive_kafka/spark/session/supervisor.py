"""Keeps a Spark session up: opens it, checks it every second, and replaces it when it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio

from reactive_kafka.backoff import Backoff
from reactive_kafka.spark.batches.blame import reason_of
from reactive_kafka.spark.session.blocking import CallResult, CallThreads, Session, SessionMaker
from reactive_kafka.tasks import Flag

logger = logging.getLogger("reactive_kafka.spark")

DRIVER = "Spark's driver (java)"
ENDED = f"{DRIVER} has ended"
STARTING = "Spark is starting"
# How long a stop waits for a driver that is being launched, to end it.
LAUNCH_LIMIT_S = 20.0
# How long functions may take to notice that their session is over.
FAREWELL_S = 1.0
# An unchanged reason is logged again after this time.
LOGGED_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Times in seconds."""

    # Between two checks of the session.
    heartbeat_s: float = 1.0
    # A driver that has not answered for this long is not ready.
    answer_s: float = 10.0
    # A driver that has not answered for this long is killed and replaced. It is long, because a
    # full garbage collection may take half a minute, and all running jobs are lost.
    hung_s: float = 60.0
    # A session in trouble (without executors) for this long is replaced, because Spark does not
    # recover by itself when its master was restarted.
    trouble_s: float = 30.0
    # The same for a session that was never ready. A busy cluster gives executors late, and a new
    # session would have to queue again.
    first_trouble_s: float = 300.0
    # The first wait between attempts to start Spark, or to use it. It doubles each time.
    retry_s: float = 1.0
    # A cancelled job that has not ended after this time is left behind.
    cancel_s: float = 10.0
    # A session that has not stopped after this time is ended with its process.
    stop_s: float = 10.0


LIMITS = SessionLimits()


class OpenSession:
    """One session, and the results of its checks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Why no job should start, according to the last check.
        self.trouble: str | None = None
        # A time of the loop.
        self.troubled_since: float | None = None
        # Checks that found it in trouble.
        self.troubles = 0
        # Checks that were answered.
        self.checks = 0
        # Set when the next check should be made at once.
        self.hurry = Flag()
        # The driver has not answered in time.
        self.hangs = False
        # Why a job might not run. Small jobs are tried until one works.
        self.doubt: str | None = STARTING
        # Set when a doubt comes up; cleared when a small job is started because of it.
        self.doubted = Flag()
        self.doubted.set()
        # Why we end it although its driver lives.
        self.ended_for: str | None = None
        # It was ready at least once.
        self.was_ready = False
        # The jobs on it, including those that were left behind.
        self.running: set[Any] = set()
        # How often a call of `SparkEngine.make` has started or ended. Such a call may end a driver,
        # too.
        self.made = 0

    @property
    def is_over(self) -> bool:
        """True if nothing runs on it any more, or soon will not."""
        return self.ended_for is not None or self.session.has_ended()

    @property
    def is_ready(self) -> bool:
        """True if a job would run at once."""
        if self.checks == 0 or self.is_over:
            return False
        return self.trouble is None and self.doubt is None

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        if self.ended_for:
            return self.ended_for
        if self.trouble:
            return self.trouble
        if self.session.has_ended():
            return ENDED
        return self.doubt or STARTING

    async def wait_for_check(self) -> None:
        """Return when the session is over, or when a check that starts later finds no trouble."""
        # One check may be running already.
        running_check = self.checks + 1
        self.hurry.set()
        # No event is set when a process ends.
        while not self.is_over and (self.checks <= running_check or self.trouble):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def has_made(self, _: object) -> None:
        """Note that a call of `SparkEngine.make` has ended."""
        self.made += 1

    def note(self, trouble: str | None, since: float) -> None:
        """Note the result of a check."""
        self.trouble = trouble
        if trouble is None:
            self.troubled_since = None
            return
        self.troubles += 1
        if self.troubled_since is None:
            self.troubled_since = since


class FailedAttempts:
    """Counts failed attempts, and logs their reason when it is new or has lasted for long."""

    def __init__(self) -> None:
        self.count = 0
        # The reason that was logged last, and when.
        self._logged: tuple[str, float] | None = None

    def add(self, why: str, now: float) -> None:
        """Note that an attempt has failed, and that another one follows. *now* is in seconds."""
        self.count += 1
        is_new = True
        if self._logged is not None:
            logged, logged_at = self._logged
            is_new = logged != why or now - logged_at >= LOGGED_AGAIN_S
        if is_new:
            self._logged = (why, now)
        logger.log(logging.ERROR if is_new else logging.DEBUG, "%s; trying again", why)


class Supervisor:
    """Opens sessions one after the other, and watches each.

    After a fault of the cluster, no job starts until a small one has worked. Otherwise a batch
    would fail and run again without end.
    """

    def __init__(self, maker: SessionMaker, limits: SessionLimits) -> None:
        self._maker = maker
        # Threads for the functions of users, and for calls that take as long.
        self.jobs = CallThreads("spark-job")
        # Threads for questions and orders to the driver, which must not wait behind jobs.
        self.control = CallThreads("spark-control")
        self._limits = limits
        self._up = Flag()
        self._opening: asyncio.Future[CallResult[Session]] | None = None
        self._start_reason = STARTING
        self.current: OpenSession | None = None

    @property
    def reason(self) -> str | None:
        """Why no job would run at once. None: a job would."""
        if self.current is None:
            return self._start_reason
        return None if self.current.is_ready else self.current.reason

    async def ready_session(self) -> OpenSession:
        """Wait until a job would run on the session, and return it."""
        while True:
            await self._up.wait()
            if self.current is not None and self.current.is_ready:
                return self.current
            # It is not ready any more. The next check reports that.
            self._up.clear()

    async def keep_up(self) -> None:
        """Open a session, and a new one whenever it must be replaced, for ever."""
        # Sessions in a row that ended soon.
        short_sessions = 0
        clock = asyncio.get_running_loop().time
        while True:
            opened = OpenSession(await self._open_one())
            self.current = opened
            opened_at = clock()
            why = await self._watch(opened)
            if not opened.session.has_ended():
                opened.ended_for = why
            self._up.clear()
            self._start_reason = f"{why}; starting Spark again"
            logger.error("%s", self._start_reason)
            await self._end(opened)
            self.current = None
            # Wait before the next session unless this one has lasted. A session that only started
            # and ran one small job is no progress.
            if opened.was_ready and clock() - opened_at >= self._maker.longest_retry_s:
                short_sessions = 0
            else:
                await asyncio.sleep(self._backoff.draw_s(short_sessions))
                short_sessions += 1

    async def stop(self) -> None:
        """End the session, its process and the threads. Call it when :meth:`keep_up` has ended."""
        self._up.clear()
        opening = self._opening
        opened = self.current
        if opening is not None and not opening.done():
            await asyncio.wait({self.control.submit(self._maker.abort)}, timeout=LAUNCH_LIMIT_S)
            await asyncio.wait({opening}, timeout=LAUNCH_LIMIT_S)
        if opened is None and opening is not None and opening.done():
            session = opening.result().value
            if session is not None:
                # It was opened, but `keep_up` was cancelled before it could take it.
                opened = OpenSession(session)
        if opened is not None:
            await self._end(opened)
        self.current = None
        self.jobs.close()
        self.control.close()

    def put_in_doubt(self, opened: OpenSession, reason: str) -> None:
        """Start no job until a small one has worked, because a job failed for another reason."""
        opened.doubt = reason
        opened.doubted.set()
        self._report_readiness(opened)

    def kill_driver(self, opened: OpenSession) -> bool:
        """Kill a driver that does not answer; False if it is not a process of ours."""
        pid = opened.session.driver_pid
        if pid is None:
            return False
        opened.hangs = True
        # The id of a process that has ended may be that of another one by now.
        if not opened.session.has_ended():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    async def _open_one(self) -> Session:
        failed = FailedAttempts()
        while True:
            self._opening = self.jobs.submit(self._maker.open)
            await asyncio.wait({self._opening})
            result = self._opening.result()
            if result.value is not None:
                return result.value
            why = "no reason given"
            if result.error is not None:
                # The class name of our own errors says nothing.
                why = reason_of(result.error).removeprefix("OffloadError: ")
            self._start_reason = f"Spark did not start: {why}"
            await self._wait_for_next_attempt(failed, self._start_reason)

    async def _wait_for_next_attempt(self, failed: FailedAttempts, why: str) -> None:
        failed.add(why, asyncio.get_running_loop().time())
        await asyncio.sleep(self._backoff.draw_s(failed.count - 1))

    @property
    def _backoff(self) -> Backoff:
        # A new one each time, because the maker changes its longest wait.
        return Backoff(self._limits.retry_s, self._maker.longest_retry_s)

    async def _watch(self, opened: OpenSession) -> str:
        """Check the session until it must be replaced; return why."""
        prover = asyncio.create_task(self._prove(opened), name="spark-prover")
        clock = asyncio.get_running_loop().time
        check: asyncio.Future[CallResult[str | None]] | None = None
        asked_at = 0.0
        try:
            while True:
                if prover.done():
                    # This raises its error. Without the prover no doubt would ever end.
                    prover.result()
                if check is None:
                    check = self.control.submit(opened.session.trouble)
                    asked_at = clock()
                await asyncio.wait({check}, timeout=self._limits.heartbeat_s)
                if opened.session.has_ended():
                    return self._trouble_in(check) or ENDED
                if check.done():
                    # An error may mean that the driver dies of our signal, so it still hangs.
                    opened.hangs = opened.hangs and check.result().error is not None
                    opened.note(self._trouble_in(check), clock())
                    opened.checks += 1
                    check = None
                elif clock() - asked_at >= self._limits.answer_s:
                    opened.hangs = True
                    opened.note(
                        f"{DRIVER} has not answered for {clock() - asked_at:.0f} s", asked_at
                    )
                self._report_readiness(opened)
                if self._is_hopeless(opened, clock()):
                    return opened.reason
                if check is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(opened.hurry.wait(), self._limits.heartbeat_s)
                    opened.hurry.clear()
        finally:
            prover.cancel()

    @staticmethod
    def _trouble_in(check: asyncio.Future[CallResult[str | None]]) -> str | None:
        if not check.done():
            return None
        result = check.result()
        if result.error is not None:
            return f"{DRIVER} cannot be asked: {reason_of(result.error)}"
        return result.value

    def _is_hopeless(self, opened: OpenSession, now: float) -> bool:
        """True if the session has been in trouble for so long that it must be replaced."""
        if not opened.session.owned or opened.troubled_since is None:
            return False
        if opened.hangs:
            limit_s = self._limits.hung_s
        elif opened.was_ready:
            limit_s = self._limits.trouble_s
        else:
            limit_s = self._limits.first_trouble_s
        return now - opened.troubled_since >= limit_s

    async def _prove(self, opened: OpenSession) -> None:
        """Whenever the session is in doubt, try small jobs until one works."""
        failed = FailedAttempts()
        while True:
            await opened.doubted.wait()
            opened.doubted.clear()
            error = (await self.jobs.submit(opened.session.warm_up)).error
            if error is not None:
                opened.doubt = f"Spark cannot run jobs: {reason_of(error)}"
                opened.doubted.set()
                await self._wait_for_next_attempt(failed, opened.doubt)
                continue
            failed = FailedAttempts()
            # If another job has failed since this small one began, the next small one decides.
            if not opened.doubted.is_set():
                opened.doubt = None
                self._report_readiness(opened)

    def _report_readiness(self, opened: OpenSession) -> None:
        """Wake the jobs that wait for the session, or log that it is not ready any more."""
        if opened.is_ready and not self._up.is_set():
            opened.was_ready = True
            self._up.set()
            logger.info("Spark is ready, driver pid %s", opened.session.driver_pid)
        elif not opened.is_ready and self._up.is_set():
            self._up.clear()
            logger.error("Spark is not ready: %s", opened.reason)

    async def _end(self, opened: OpenSession) -> None:
        session = opened.session
        if opened.hangs:
            self.kill_driver(opened)
        elif session.owned and not session.has_ended():
            await asyncio.wait({self.control.submit(session.stop)}, timeout=self._limits.stop_s)
        # Running functions fail now, because their session has ended. Give them time for that.
        with anyio.move_on_after(FAREWELL_S):
            while opened.running:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await asyncio.wait({self.control.submit(session.end)})

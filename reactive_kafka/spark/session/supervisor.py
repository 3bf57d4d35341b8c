"""Keeps a Spark session up: opens it, checks it every second, replaces it when it is lost or stays
in trouble.
"""

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

logger = logging.getLogger("reactive_kafka.spark")

DRIVER = "Spark's driver (java)"
ENDED = f"{DRIVER} has ended"
STARTING = "Spark is starting"
# How long a stop waits for a driver that is being launched, to end it.
LAUNCH_LIMIT_S = 20.0
# How long functions may take to notice that their session is over.
FAREWELL_S = 1.0
# An unchanged reason is logged again after this time.
SAID_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Times in seconds."""

    # Between two looks at the session.
    heartbeat_s: float = 1.0
    # A driver that has not answered for this long is not ready.
    answer_s: float = 10.0
    # One that has not answered for this long is killed and replaced. Long, because a full garbage
    # collection may take half a minute, and all running jobs are lost.
    hung_s: float = 60.0
    # A session in trouble (no executors) for this long is replaced: plain Spark does not recover by
    # itself from a restart of its master.
    trouble_s: float = 30.0
    # The same for a session that was never ready: a busy cluster gives executors late, and a new
    # session would queue again from the end.
    first_trouble_s: float = 300.0
    # The first wait between attempts to start Spark, or to use it; it doubles each time.
    retry_s: float = 1.0
    # A cancelled job that has not ended after this time is left to itself.
    cancel_s: float = 10.0
    # A session that has not stopped after this time is ended with its process.
    stop_s: float = 10.0


LIMITS = SessionLimits()


class OpenSession:
    """One session and what the looks at it have found."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Why no job should start, according to the last look.
        self.trouble: str | None = None
        # On the loop's clock.
        self.troubled_since: float | None = None
        # Looks that have found it in trouble.
        self.troubles = 0
        # Looks that have been answered.
        self.looks = 0
        # Set when somebody cannot wait for the next look.
        self.hurry = asyncio.Event()
        # The driver has not answered in time.
        self.hangs = False
        # Why a job might not run: a small one is tried until it does.
        self.doubt: str | None = STARTING
        # Set while there is a doubt.
        self.doubted = asyncio.Event()
        self.doubted.set()
        # Why we end it though its driver lives.
        self.ended_for: str | None = None
        # At least once.
        self.was_ready = False
        # The jobs on it, including those left behind.
        self.running: set[Any] = set()
        # Beginnings and ends of what was made beside the jobs, which may end a driver, too.
        self.made = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing runs on it any more, or soon will not."""
        return self.ended_for is not None or self.session.has_ended()

    @property
    def is_ready(self) -> bool:
        """Whether a job would run at once."""
        return self.looks > 0 and self.trouble is None and self.doubt is None and not self.is_over

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        return (
            self.ended_for
            or self.trouble
            or (ENDED if self.session.has_ended() else self.doubt)
            or STARTING
        )

    async def looked_at(self) -> None:
        """Return when it has turned out to be over, or a look that begins from now on finds it
        well.
        """
        one_is_under_way = self.looks + 1
        self.hurry.set()
        while not self.is_over and (self.looks <= one_is_under_way or self.trouble):  # noqa: ASYNC110 - a process ends
            await asyncio.sleep(0.02)

    def has_made(self, _: object) -> None:
        """Something was made beside the jobs."""
        self.made += 1

    def note(self, trouble: str | None, since: float) -> None:
        """Keep what a look has found."""
        self.trouble = trouble
        self.troubles += trouble is not None
        if trouble is None or self.troubled_since is None:
            self.troubled_since = None if trouble is None else since


class Complaint:
    """Counts the attempts that failed. Logs their reason once, and again when it changes or has
    lasted for long.
    """

    def __init__(self) -> None:
        self.attempts = 0
        self._said: tuple[str, float] | None = None

    def tell(self, why: str, now: float) -> None:
        """An attempt has failed because of *why* at *now* (seconds); another one follows."""
        self.attempts += 1
        is_new = self._said is None or self._said[0] != why or now - self._said[1] >= SAID_AGAIN_S
        if is_new:
            self._said = (why, now)
        logger.log(logging.ERROR if is_new else logging.DEBUG, "%s; trying again", why)


class Supervisor:
    """Opens sessions one after the other, and watches each."""

    def __init__(self, maker: SessionMaker, limits: SessionLimits) -> None:
        self._maker = maker
        # For users' functions, and for what takes as long.
        self.jobs = CallThreads("spark-job")
        # A question or an order to the driver must not queue behind jobs.
        self.control = CallThreads("spark-control")
        self._limits = limits
        self._up = asyncio.Event()
        self._opening: asyncio.Future[CallResult[Session]] | None = None
        self._start_reason = STARTING
        self.current: OpenSession | None = None

    @property
    def reason(self) -> str | None:
        """Why no job would run at once; None when one would."""
        if self.current is None:
            return self._start_reason
        return None if self.current.is_ready else self.current.reason

    async def ready_session(self) -> OpenSession:
        """The session, as soon as a job would run on it."""
        while True:
            await self._up.wait()
            if self.current is not None and self.current.is_ready:
                return self.current
            # The next look finds out why.
            self._up.clear()

    async def keep_up(self) -> None:
        """Open a session, and a new one whenever it has to be replaced, for ever."""
        soon_over = 0
        clock = asyncio.get_running_loop().time
        while True:
            self.current = opened = OpenSession(await self._open_one())
            began = clock()
            why = await self._watch(opened)
            if not opened.session.has_ended():
                opened.ended_for = why
            self._up.clear()
            self._start_reason = f"{why}; starting Spark again"
            logger.error("%s", self._start_reason)
            await self._end(opened)
            self.current = None
            # That it started is no progress, nor that one small job ran on it: a session that lasts
            # is.
            if opened.was_ready and clock() - began >= self._maker.longest_retry_s:
                soon_over = 0
            else:
                await asyncio.sleep(self._backoff.draw_s(soon_over))
                soon_over += 1

    async def stop(self) -> None:
        """End the session, its process and the threads; to be called when :meth:`keep_up` has
        ended.
        """
        self._up.clear()
        opening = self._opening
        opened = self.current
        if opening is not None and not opening.done():
            await asyncio.wait({self.control.submit(self._maker.abort)}, timeout=LAUNCH_LIMIT_S)
            await asyncio.wait({opening}, timeout=LAUNCH_LIMIT_S)
        if (
            opened is None
            and opening is not None
            and opening.done()
            and opening.result().value is not None
        ):
            opened = OpenSession(opening.result().get())
        if opened is not None:
            await self._end(opened)
        self.current = None
        self.jobs.close()
        self.control.close()

    def put_in_doubt(self, opened: OpenSession, reason: str) -> None:
        """A job failed through no fault of its own: no other starts until a small one has
        worked.
        """
        opened.doubt = reason
        opened.doubted.set()
        self._tell(opened)

    def end_what_hangs(self, opened: OpenSession) -> bool:
        """Kill a driver that does not answer; False if it is not a process of ours."""
        pid = opened.session.driver_pid
        if pid is None:
            return False
        opened.hangs = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    async def _open_one(self) -> Session:
        complaint = Complaint()
        while True:
            self._opening = self.jobs.submit(self._maker.open)
            await asyncio.wait({self._opening})
            result = self._opening.result()
            if result.value is not None:
                return result.value
            # Our own errors need no name of their class.
            why = (
                "no reason given"
                if result.error is None
                else reason_of(result.error).removeprefix("OffloadError: ")
            )
            self._start_reason = f"Spark did not start: {why}"
            await self._try_later(complaint, self._start_reason)

    async def _try_later(self, complaint: Complaint, why: str) -> None:
        complaint.tell(why, asyncio.get_running_loop().time())
        await asyncio.sleep(self._backoff.draw_s(complaint.attempts - 1))

    @property
    def _backoff(self) -> Backoff:
        # The maker changes its mind.
        return Backoff(self._limits.retry_s, self._maker.longest_retry_s)

    async def _watch(self, opened: OpenSession) -> str:
        """Look at the session until it has to be replaced; returns why."""
        prover = asyncio.create_task(self._prove(opened), name="spark-prover")
        clock = asyncio.get_running_loop().time
        look: asyncio.Future[CallResult[str | None]] | None = None
        asked_at = 0.0
        try:
            while True:
                if prover.done():
                    # Raises; without the prover no doubt about the session would ever end.
                    prover.result()
                if look is None:
                    look = self.control.submit(opened.session.trouble)
                    asked_at = clock()
                await asyncio.wait({look}, timeout=self._limits.heartbeat_s)
                if opened.session.has_ended():
                    return self._trouble_in(look) or ENDED
                if look.done():
                    # It may be dying of our signal.
                    opened.hangs = opened.hangs and look.result().error is not None
                    opened.note(self._trouble_in(look), clock())
                    opened.looks += 1
                    look = None
                elif clock() - asked_at >= self._limits.answer_s:
                    opened.hangs = True
                    opened.note(
                        f"{DRIVER} has not answered for {clock() - asked_at:.0f} s", asked_at
                    )
                self._tell(opened)
                if self._is_hopeless(opened, clock()):
                    return opened.reason
                if look is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(opened.hurry.wait(), self._limits.heartbeat_s)
                    opened.hurry.clear()
        finally:
            prover.cancel()

    @staticmethod
    def _trouble_in(look: asyncio.Future[CallResult[str | None]]) -> str | None:
        result: CallResult[str | None] = look.result() if look.done() else CallResult()
        return (
            result.value
            if result.error is None
            else f"{DRIVER} cannot be asked: {reason_of(result.error)}"
        )

    def _is_hopeless(self, opened: OpenSession, now: float) -> bool:
        trouble_s = self._limits.trouble_s if opened.was_ready else self._limits.first_trouble_s
        limit_s = self._limits.hung_s if opened.hangs else trouble_s
        return (
            opened.session.owned
            and opened.troubled_since is not None
            and now - opened.troubled_since >= limit_s
        )

    async def _prove(self, opened: OpenSession) -> None:
        """Whenever the session is in doubt, try a small job until it works."""
        complaint = Complaint()
        while True:
            await opened.doubted.wait()
            error = (await self.jobs.submit(opened.session.warm_up)).error
            if error is None:
                opened.doubt = None
                complaint = Complaint()
                opened.doubted.clear()
                self._tell(opened)
            else:
                opened.doubt = f"Spark cannot run jobs: {reason_of(error)}"
                await self._try_later(complaint, opened.doubt)

    def _tell(self, opened: OpenSession) -> None:
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
            self.end_what_hangs(opened)
        elif session.owned and not session.has_ended():
            await asyncio.wait({self.control.submit(session.stop)}, timeout=self._limits.stop_s)
        # Functions fail because of what was done to their session.
        with anyio.move_on_after(FAREWELL_S):
            while opened.running:  # noqa: ASYNC110 - bounded
                await asyncio.sleep(0.02)
        await asyncio.wait({self.control.submit(session.end)})

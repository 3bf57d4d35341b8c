"""Keeps a Spark session up: opens it, asks every second how it is, replaces it when it is lost or stays in trouble."""

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
from reactive_kafka.spark.batches.batch import reason_of
from reactive_kafka.spark.session.seam import Maker, Session
from reactive_kafka.spark.session.worker import Outcome, Workers

logger = logging.getLogger("reactive_kafka.spark")

LAUNCH_LIMIT_S = 20.0  # how long a stop waits for a driver that is just being launched, to end it
FAREWELL_S = 1.0  # how long functions on a session that is over may take to notice
DRIVER = "Spark's driver (java)"
ENDED = f"{DRIVER} has ended"
SAID_AGAIN_S = 600.0  # after so long what is still wrong is logged once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds.

    Attributes:
        heartbeat_s: Between two looks at the session.
        answer_s: A driver that has not answered for so long is not ready.
        hung_s: One that has not answered for so long is ended by its pid, and replaced. Long, because a full garbage
            collection may take half a minute, and whatever runs there is lost.
        trouble_s: A session in trouble (no executors) for so long is replaced: plain Spark does not recover by
            itself from a master that was restarted.
        first_trouble_s: The same for one that has never been ready: a cluster that is busy gives executors late, and
            whoever replaces its session queues anew.
        retry_s: The first wait between attempts to start Spark, or to use it; each next one is twice as long.
    """

    heartbeat_s: float = 1.0
    answer_s: float = 10.0
    hung_s: float = 60.0
    trouble_s: float = 30.0
    first_trouble_s: float = 300.0
    retry_s: float = 1.0


class Life:
    """One session, from its opening to its end.

    Attributes:
        trouble: Why no job should start, as the last look has it.
        troubled_since: On the loop's clock; None: it is not in trouble.
        troubles: How many looks have found it in trouble.
        looks: How many have been answered.
        hurry: Somebody cannot wait for the next look.
        hangs: The driver has not answered in time.
        doubt: Why it is not certain that a job would run; a small one is tried until it works.
        ended_for: Why we end it though its driver lives; None: we do not.
        was_ready: It has been, once at least.
        running: Jobs on it, those left behind, too.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.trouble: str | None = None
        self.troubled_since: float | None = None
        self.troubles = 0
        self.looks = 0
        self.hurry = asyncio.Event()
        self.hangs = False
        self.doubt: str | None = "Spark is starting"
        self.doubted = asyncio.Event()
        self.doubted.set()
        self.ended_for: str | None = None
        self.was_ready = False
        self.running: set[Any] = set()

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
        if self.is_over:
            return self.ended_for or self.trouble or ENDED
        return self.trouble or self.doubt or "Spark is starting"

    async def looked_at(self) -> None:
        """Return when it has turned out to be over, or a look that begins from now on finds it well."""
        one_is_under_way = self.looks + 1
        self.hurry.set()
        while not self.is_over and (self.looks <= one_is_under_way or self.trouble):  # noqa: ASYNC110 - a process ends
            await asyncio.sleep(0.02)

    def note(self, trouble: str | None, since: float) -> None:
        """What a look has found."""
        self.trouble = trouble
        if trouble is None:
            self.troubled_since = None
        else:
            self.troubles += 1
            self.troubled_since = since if self.troubled_since is None else self.troubled_since


class Complaint:
    """Logs what is wrong once, and again when it is something else, or for a long time still the same."""

    def __init__(self) -> None:
        self._said: tuple[str, float] | None = None

    def tell(self, why: str, now: float) -> None:
        """*why* it is that an attempt has failed, at *now*, in seconds; another attempt follows."""
        is_new = self._said is None or self._said[0] != why or now - self._said[1] >= SAID_AGAIN_S
        if is_new:
            self._said = (why, now)
        logger.log(logging.ERROR if is_new else logging.DEBUG, "%s; trying again", why)


class Supervisor:
    """Opens sessions one after the other, and watches each.

    Args:
        maker: Opens them.
        jobs: Threads for what a user's function would do, too.
        control: Threads for looks and orders.
        limits: When a session is given up.
        stop_limit_s: How long a session may take to stop before its process is ended.
    """

    def __init__(self, maker: Maker, jobs: Workers, control: Workers, limits: Limits, stop_limit_s: float) -> None:
        self._maker = maker
        self._jobs = jobs
        self._control = control
        self._limits = limits
        self._stop_limit_s = stop_limit_s
        self._up = asyncio.Event()
        self._opening: asyncio.Future[Outcome[Session]] | None = None
        self._start_reason = "Spark is starting"
        self.life: Life | None = None

    @property
    def reason(self) -> str | None:
        """Why no job would run at once; None when one would."""
        if self.life is None:
            return self._start_reason
        return None if self.life.is_ready else self.life.reason

    async def ready_life(self) -> Life:
        """The session, as soon as a job would run on it."""
        while True:
            await self._up.wait()
            if self.life is not None and self.life.is_ready:
                return self.life
            self._up.clear()  # the next look finds out why

    async def keep_up(self) -> None:
        """Have a session, for ever."""
        while True:
            self.life = life = Life(await self._opened())
            why = await self._watch(life)
            if not life.session.has_ended():
                life.ended_for = why
            self._up.clear()
            self._start_reason = f"{why}; starting Spark again"
            logger.error("%s", self._start_reason)
            await self._end(life)
            self.life = None
            if not life.was_ready:
                await asyncio.sleep(self._limits.retry_s)

    async def stop(self) -> None:
        """Leave no session and no process behind; to be called when :meth:`keep_up` has ended."""
        self._up.clear()
        if self._opening is not None and not self._opening.done():
            await asyncio.wait({self._control.submit(self._maker.abort)}, timeout=LAUNCH_LIMIT_S)
            await asyncio.wait({self._opening}, timeout=LAUNCH_LIMIT_S)
        if self.life is None and self._opening is not None and self._opening.done():
            session = self._opening.result().value
            self.life = None if session is None else Life(session)
        if self.life is not None:
            await self._end(self.life)
        self.life = None

    def put_in_doubt(self, life: Life, reason: str) -> None:
        """A job has failed through no fault of its own: no other one starts until a small one has worked."""
        life.doubt = reason
        life.doubted.set()
        self._tell(life)

    def end_what_hangs(self, life: Life) -> bool:
        """End a driver that does not answer, by its pid; False where it is no process of ours."""
        pid = life.session.driver_pid
        if pid is None:
            return False
        life.hangs = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    async def _opened(self) -> Session:
        attempt, complaint = 0, Complaint()
        while True:
            self._opening = self._jobs.submit(self._maker.open)
            await asyncio.wait({self._opening})
            opened = self._opening.result()
            if opened.value is not None:
                return opened.value
            why = _why(opened.error)
            self._start_reason = f"Spark did not start: {why}"
            complaint.tell(self._start_reason, asyncio.get_running_loop().time())
            await asyncio.sleep(self._wait_s(attempt))
            attempt += 1

    def _wait_s(self, attempt: int) -> float:
        return Backoff(self._limits.retry_s, self._maker.longest_retry_s).draw_s(attempt)

    async def _watch(self, life: Life) -> str:
        """Look at it again and again; returns why it has to be replaced."""
        prover = asyncio.create_task(self._prove(life), name="spark-prover")
        clock = asyncio.get_running_loop().time
        look: asyncio.Future[Outcome[str | None]] | None = None
        asked_at = 0.0
        try:
            while True:
                if prover.done():
                    prover.result()  # it raises: without it nobody would ever find the session well again
                if look is None:
                    look, asked_at = self._control.submit(life.session.trouble), clock()
                await asyncio.wait({look}, timeout=self._limits.heartbeat_s)
                if life.session.has_ended():
                    return self._trouble_in(look) or ENDED
                if look.done():
                    life.hangs = life.hangs and look.result().error is not None  # it may be dying of our signal
                    life.note(self._trouble_in(look), clock())
                    life.looks += 1
                    look = None
                elif clock() - asked_at >= self._limits.answer_s:
                    life.hangs = True
                    life.note(f"{DRIVER} has not answered for {clock() - asked_at:.0f} s", asked_at)
                self._tell(life)
                if self._is_hopeless(life, clock()):
                    return life.reason
                if look is None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(life.hurry.wait(), self._limits.heartbeat_s)
                    life.hurry.clear()
        finally:
            prover.cancel()

    @staticmethod
    def _trouble_in(look: asyncio.Future[Outcome[str | None]]) -> str | None:
        if not look.done():
            return None
        error = look.result().error
        return look.result().value if error is None else f"{DRIVER} cannot be asked: {reason_of(error)}"

    def _is_hopeless(self, life: Life, now: float) -> bool:
        trouble_s = self._limits.trouble_s if life.was_ready else self._limits.first_trouble_s
        limit_s = self._limits.hung_s if life.hangs else trouble_s
        return life.session.owned and life.troubled_since is not None and now - life.troubled_since >= limit_s

    async def _prove(self, life: Life) -> None:
        """Whenever the session is in doubt, try a small job until it works."""
        attempt, complaint = 0, Complaint()
        while True:
            await life.doubted.wait()
            error = (await self._jobs.submit(life.session.warm_up)).error
            if error is None:
                life.doubted.clear()
                life.doubt, attempt, complaint = None, 0, Complaint()
                self._tell(life)
                continue
            life.doubt = f"Spark cannot run jobs: {reason_of(error)}"
            complaint.tell(life.doubt, asyncio.get_running_loop().time())
            await asyncio.sleep(self._wait_s(attempt))
            attempt += 1

    def _tell(self, life: Life) -> None:
        if life.is_ready and not self._up.is_set():
            life.was_ready = True
            self._up.set()
            logger.info("Spark is ready, driver pid %s", life.session.driver_pid)
        elif not life.is_ready and self._up.is_set():
            self._up.clear()
            logger.error("Spark is not ready: %s", life.reason)

    async def _end(self, life: Life) -> None:
        session = life.session
        if life.hangs:
            self.end_what_hangs(life)
        elif session.owned and not session.has_ended():
            await asyncio.wait({self._control.submit(session.stop)}, timeout=self._stop_limit_s)
        with anyio.move_on_after(FAREWELL_S):  # so that functions fail, or end, by what was done to the session
            while life.running:  # noqa: ASYNC110 - at most a second
                await asyncio.sleep(0.02)
        await asyncio.wait({self._control.submit(session.end)})


def _why(error: BaseException | None) -> str:
    """Why a session was not opened; ours say it in their text."""
    return "no reason given" if error is None else reason_of(error).removeprefix("OffloadError: ")

"""One run of a function on Spark: waited for, cancelled until it is over, and judged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio

from reactive_kafka.errors import (
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
)
from reactive_kafka.spark.batches.blame import blame_for, looks_lost, reason_of
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.session.blocking import CallResult
from reactive_kafka.spark.session.supervisor import DRIVER, OpenSession, Supervisor

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")

# At a running job's tasks, and at a job that is being cancelled.
LOOK_EVERY_S = 0.5
# How long it may take until the end of a driver shows.
LOSS_LIMIT_S = 2.0
# A driver that takes no orders for this long is killed, so that a cancelled job is over.
DEAF_S = 5.0


@dataclass(eq=False)
class RunningJob:
    """One run of a function; made for it, and used once. Its fields are the arguments of
    ``SparkEngine.run``.
    """

    supervisor: Supervisor
    opened: OpenSession
    description: str
    pool: str
    timeout_s: float
    cancel_limit_s: float
    on_progress: Callable[[JobProgress], None]

    def __post_init__(self) -> None:
        self._group = self.opened.session.group(self.description, self.pool)
        self._troubles_before = self.opened.troubles
        self._made_before = self.opened.made
        # Whether another job has run on the session at any time meanwhile. The one that stopped the
        # session may have returned before that shows, so the number of jobs at the end would put
        # the blame on the wrong one.
        self._had_company = False

    async def run(self, job: Callable[[Any], T]) -> T:
        """Run *job* in a thread, and return what it returns; raises the errors of
        ``SparkEngine.run``.
        """
        body = self.supervisor.jobs.submit(partial(self._group.run, job))
        running = self.opened.running
        for other in running:
            other._had_company = self._had_company = True
        running.add(self)
        in_time = is_over = False
        try:
            try:
                in_time = await self._wait(body)
            finally:
                # Timeout and cancellation take one path.
                if not in_time:
                    is_over = await to_its_end(self._cancel(body))
            if not in_time:
                raise self._too_late(is_over)
            result = body.result()
            if result.error is not None:
                raise await self._judged(result.error) from result.error
            return result.get()
        finally:
            if body.done():
                running.discard(self)
            else:
                # Left behind: it is company for as long as it runs.
                body.add_done_callback(lambda _: running.discard(self))

    async def _wait(self, body: asyncio.Future[CallResult[T]]) -> bool:
        """Wait for the function's end, and look at its tasks meanwhile and once more then; False if
        time ran out.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout_s
        look: asyncio.Future[Any] | None = None
        while not body.done() and (left := deadline - clock()) > 0:
            await asyncio.wait({body}, timeout=min(LOOK_EVERY_S, left))
            # A driver that hangs must not take a thread for each look.
            if look is None or look.done():
                look = self.supervisor.control.submit(
                    lambda: self.on_progress(self._group.progress())
                )
        return body.done()

    async def _cancel(self, body: asyncio.Future[CallResult[T]]) -> bool:
        """Cancel until the function has returned and its last task has ended; False if it has not
        in time.
        """
        control = self.supervisor.control
        clock = asyncio.get_running_loop().time
        order: asyncio.Future[Any] | None = None
        given_at = began = clock()
        with anyio.move_on_after(self.cancel_limit_s):
            # Again and again: the function may catch the error and start the next job.
            while not body.done():
                if order is None or order.done():
                    order = control.submit(self._group.cancel)
                    given_at = clock()
                await asyncio.wait({body}, timeout=LOOK_EVERY_S)
            while True:
                order = control.submit(self._group.is_over)
                given_at = clock()
                await asyncio.wait({order})
                # Nothing runs without a driver.
                if order.result().value or self.opened.session.has_ended():
                    return True
                await asyncio.sleep(0.05)
        is_deaf = (
            order is not None
            and not order.done()
            and clock() - given_at >= min(DEAF_S, (clock() - began) / 2)
        )
        if is_deaf and self.supervisor.end_what_hangs(self.opened):
            logger.error("%s: its driver takes no orders, and was ended", self.description)
            await asyncio.wait({body}, timeout=LOSS_LIMIT_S)
            return body.done()
        logger.error(
            "%s: cancelled, but still running after %g s", self.description, self.cancel_limit_s
        )
        return False

    def _too_late(self, is_over: bool) -> OffloadError:
        what = f"{self.description}: cancelled, not done after {self.timeout_s:g} s"
        if not is_over:
            return JobStuckError(f"{what}, and still running {self.cancel_limit_s:g} s later")
        if self.opened.is_over or self.opened.hangs:
            return self._lost()
        if self.opened.troubles > self._troubles_before:
            return ClusterError(
                f"{what}, in which Spark was in trouble: {self.opened.reason or 'over now'}"
            )
        return JobTimeoutError(what)

    async def _judged(self, error: BaseException) -> OffloadError:
        if not self.opened.is_over and looks_lost(error):
            # Sockets close a moment before the system reports a driver's end.
            with anyio.move_on_after(LOSS_LIMIT_S):
                await self.opened.looked_at()
        if self.opened.is_over:
            return self._lost()
        blamed = blame_for(error)
        reason = reason_of(error)
        if blamed is ClusterError:
            self.supervisor.put_in_doubt(self.opened, f"a job failed: {reason}")
        return blamed(f"{self.description}: {reason}")

    def _lost(self) -> OffloadError:
        opened = self.opened
        if opened.ended_for is not None and not opened.hangs:
            return ClusterError(f"{self.description}: Spark is started again: {opened.ended_for}")
        what = f"{DRIVER} {'did not answer any more' if opened.hangs else 'ended'} under the job"
        was_alone = not self._had_company and opened.made == self._made_before
        return SessionLostError(f"{self.description}: {what}", was_alone=was_alone)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, even if the caller is cancelled meanwhile; then the cancellation goes
    on.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    # Holds back anyio's cancellation, not asyncio's own.
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    value = task.result()
    if cancelled is not None:
        raise cancelled
    return value

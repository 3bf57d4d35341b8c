"""Runs one function on Spark: waits for it, cancels it until it is over, and judges its error."""

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

# Between two reports of a job's progress, and between two orders to cancel it.
PROGRESS_INTERVAL_S = 0.5
# How long it may take until the operating system reports the end of a driver.
LOSS_LIMIT_S = 2.0
# A driver that executes no order for this long is killed, so that a cancelled job is over.
UNRESPONSIVE_S = 5.0


@dataclass(eq=False)
class RunningJob:
    """One run of a function, used once. Its fields are the arguments of ``SparkEngine.run``."""

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
        # Another job ran on the session at some time during this one. If the session is lost, the
        # job that has ended it may have returned already. So the number of jobs at the end does not
        # say whether this one is to blame.
        self._had_company = False

    async def run(self, job: Callable[[Any], T]) -> T:
        """Run *job* in a thread, and return its result.

        Raises:
            OffloadError: As ``SparkEngine.run``.
        """
        body = self.supervisor.jobs.submit(partial(self._group.run, job))
        running = self.opened.running
        for other in running:
            other._had_company = True
            self._had_company = True
        running.add(self)
        in_time = False
        is_over = False
        try:
            try:
                in_time = await self._wait(body)
            finally:
                # A timeout and a cancellation come through here.
                if not in_time:
                    is_over = await to_its_end(self._cancel(body))
            if not in_time:
                raise self._timeout_error(is_over)
            result = body.result()
            if result.error is not None:
                raise await self._judge(result.error) from result.error
            return result.get()
        finally:
            if body.done():
                running.discard(self)
            else:
                # The function was left behind. It is company for other jobs while it runs.
                body.add_done_callback(lambda _: running.discard(self))

    async def _wait(self, body: asyncio.Future[CallResult[T]]) -> bool:
        """Wait for the function's end, and report its progress; False if time ran out."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout_s
        report: asyncio.Future[Any] | None = None
        while not body.done():
            left_s = deadline - clock()
            if left_s <= 0:
                break
            await asyncio.wait({body}, timeout=min(PROGRESS_INTERVAL_S, left_s))
            # Wait for the last report first, or a driver that hangs would take a thread for each.
            if report is None or report.done():
                report = self.supervisor.control.submit(
                    lambda: self.on_progress(self._group.progress())
                )
        return body.done()

    async def _cancel(self, body: asyncio.Future[CallResult[T]]) -> bool:
        """Cancel until the function has returned and its last task has ended; False if it has not.

        A cancelled job is over only if no task of it is active, or if its driver is gone: otherwise
        the same records could be written by two jobs at once.
        """
        control = self.supervisor.control
        clock = asyncio.get_running_loop().time
        order: asyncio.Future[Any] | None = None
        cancelled_at = clock()
        ordered_at = cancelled_at
        with anyio.move_on_after(self.cancel_limit_s):
            # Cancel repeatedly: the function may catch the error and start its next Spark job.
            while not body.done():
                if order is None or order.done():
                    order = control.submit(self._group.cancel)
                    ordered_at = clock()
                await asyncio.wait({body}, timeout=PROGRESS_INTERVAL_S)
            while True:
                order = control.submit(self._group.is_over)
                ordered_at = clock()
                await asyncio.wait({order})
                # Without a driver, no task runs either.
                if order.result().value or self.opened.session.has_ended():
                    return True
                await asyncio.sleep(0.05)
        limit_s = min(UNRESPONSIVE_S, (clock() - cancelled_at) / 2)
        is_pending = order is not None and not order.done()
        is_unresponsive = is_pending and clock() - ordered_at >= limit_s
        if is_unresponsive and self.supervisor.kill_driver(self.opened):
            logger.error("%s: its driver did not react to orders, and was killed", self.description)
            await asyncio.wait({body}, timeout=LOSS_LIMIT_S)
            return body.done()
        logger.error(
            "%s: cancelled, but still running after %g s", self.description, self.cancel_limit_s
        )
        return False

    def _timeout_error(self, is_over: bool) -> OffloadError:
        what = f"{self.description}: cancelled, not done after {self.timeout_s:g} s"
        if not is_over:
            return JobStuckError(f"{what}, and still running {self.cancel_limit_s:g} s later")
        if self.opened.is_over or self.opened.hangs:
            return self._session_lost_error()
        if self.opened.troubles > self._troubles_before:
            return ClusterError(
                f"{what}, and Spark was in trouble meanwhile: {self.opened.reason or 'over now'}"
            )
        return JobTimeoutError(what)

    async def _judge(self, error: BaseException) -> OffloadError:
        """Return the error that says what is to blame.

        The state of the session counts first: if the driver is gone or hangs, the error of the
        function is only a consequence.
        """
        if not self.opened.is_over and looks_lost(error):
            # Sockets close a moment before the operating system reports a driver's end.
            with anyio.move_on_after(LOSS_LIMIT_S):
                await self.opened.wait_for_check()
        if self.opened.is_over:
            return self._session_lost_error()
        blame = blame_for(error)
        reason = reason_of(error)
        if blame is ClusterError:
            self.supervisor.put_in_doubt(self.opened, f"a job failed: {reason}")
        return blame(f"{self.description}: {reason}")

    def _session_lost_error(self) -> OffloadError:
        opened = self.opened
        if opened.ended_for is not None and not opened.hangs:
            return ClusterError(f"{self.description}: Spark is started again: {opened.ended_for}")
        what = "did not answer any more" if opened.hangs else "ended"
        # Only a job that ran alone can be blamed for the end of its driver.
        was_alone = not self._had_company and opened.made == self._made_before
        return SessionLostError(
            f"{self.description}: {DRIVER} {what} under the job", was_alone=was_alone
        )


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, even if the caller is cancelled; raise the cancellation after that."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    # The shield holds back the cancellation of anyio; that of asyncio is caught below.
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

"""Carries out the outcome of a Spark run: its records are settled as a range, or nacked one by one."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import DataLossError, OffloadError, TransientBrokerError
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.attempts import Failed
from reactive_kafka.spark.batches.batch import Rejected
from reactive_kafka.spark.batches.columns import ColumnRecord
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.context import JobContext
from reactive_kafka.spark.channel.refetch import raw_records
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import new_message

logger = logging.getLogger("reactive_kafka.spark")

T = TypeVar("T")

READ_AGAIN_S = 1.0
"""The wait before records that could not be read for their nacks are read again."""

Reasons = Mapping[int, BaseException] | OffloadError
"""Why records are nacked, by arrival number; or one reason for all of them."""


@dataclass(frozen=True, slots=True)
class Worked:
    """The function has returned."""

    rejected: Sequence[Rejected] = ()


RunOutcome = Worked | Failed


class RunSettler:
    """Settles and nacks the records of a job's runs.

    Attributes:
        unsettled: Runs whose outcome was not carried out to the end, because of a stop or because the failure strategy
            leaves a record as it is.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._signals = context.signals
        self._stop: Future[None] = asyncio.get_running_loop().create_future()
        self.unsettled: list[tuple[RecordRun, RunOutcome]] = []

    def stop(self) -> None:
        """Wait no longer for nacks to be carried out."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def settle(self, run: RecordRun, outcome: RunOutcome) -> None:
        """Carry out the outcome of a run."""
        if isinstance(outcome, Worked):
            is_done = await self._worked(run, outcome.rejected)
        else:
            await self._nack(run, outcome.error)
            is_done = self._is_over(run)
        if not is_done and not run.tracker.is_closed:
            self.unsettled.append((run, outcome))

    async def _worked(self, run: RecordRun, rejected: Sequence[Rejected]) -> bool:
        """Settle all records but the rejected ones, which are nacked."""
        tracker = run.tracker
        if tracker.is_closed:
            return False
        mine = [one for one in rejected if one.partition == tracker.partition]
        found = ((run.index_of(one.offset), one.reason) for one in mine)
        reasons = {index: reason for index, reason in found if index is not None}
        at = run.first
        for index in sorted(reasons):
            tracker.settle_range(at, index)
            at = index + 1
        tracker.settle_range(at, run.end)
        if reasons:
            await self._nack(run, reasons)
        return self._is_over(run)

    def _is_over(self, run: RecordRun) -> bool:
        """Whether all records are settled. If so the plan is done: the committed position may pass the range."""
        tracker = run.tracker
        is_over = tracker.has_settled(run.first, run.end)
        if is_over:
            tracker.plan_done(run.planned, remember=self._context.commits)
        self._signals.settled(tracker)
        return is_over

    async def _nack(self, run: RecordRun, reasons: Reasons) -> None:
        """Nack records, a piece at a time; those that are not in the log any more are settled."""
        tracker, lost = run.tracker, reasons
        left = set(range(run.first, run.end)) if isinstance(reasons, OffloadError) else set(reasons)
        if isinstance(reasons, DataLossError):
            reasons = OffloadError(str(reasons))  # the records that can be read are not lost
        while not self._stop.done():
            try:
                async with aclosing(raw_records(run, left, self._context.fetch)) as pieces:
                    while (piece := await self._unless_stopped(anext(pieces, None))) is not None:
                        left.difference_update(index for index, _ in piece)
                        if not await self._carry_out(tracker, piece, reasons):
                            return
                break
            except TransientBrokerError as error:
                logger.warning("%s: %d records that are to be nacked cannot be read: %s", run.planned, len(left), error)
                await asyncio.wait({self._stop}, timeout=READ_AGAIN_S)
        if self._stop.done() or tracker.is_closed:
            return
        if isinstance(lost, DataLossError) and run.first in left:
            # One letter tells of all that is lost. It has the offset of the range's first record, and no content.
            left.discard(run.first)
            nothing = ColumnRecord(run.planned.start, None, None, None, ())
            if not await self._carry_out(tracker, [(run.first, nothing)], lost):
                return
        for index in left:
            tracker.settle(index)

    async def _carry_out(
        self, tracker: OffsetTracker, records: Sequence[tuple[int, RawRecord]], reasons: Reasons
    ) -> bool:
        """Nack records and wait until that is carried out; False if it was not, and no other is to be nacked."""
        waiting: set[Future[bool]] = set()
        for index, record in records:
            if tracker.is_closed or self._stop.done():
                return False
            message: Delivery = new_message(None, record, tracker, index)
            reason = reasons if isinstance(reasons, OffloadError) else reasons[index]
            verdict: Future[bool] | None = self._signals.nack(message, reason)
            if verdict is not None and verdict.done() and not tracker.has_settled(index, index + 1):
                verdict = self._signals.verdict_of(message)  # an earlier nack of it is still being carried out
                if verdict is None:
                    return False  # the strategy leaves it as it is
            if verdict is not None and not verdict.done():
                waiting.add(verdict)
        while waiting and not self._stop.done():
            either: set[Future[Any]] = {*waiting, self._stop}
            _, pending = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            waiting = {verdict for verdict in waiting if verdict in pending}
        return not waiting

    async def _unless_stopped(self, wanted: Awaitable[T | None]) -> T | None:
        """The result of *wanted*; None if the stop comes first, which cancels it."""

        async def wait() -> T | None:
            return await wanted

        task = asyncio.create_task(wait())
        try:
            either: set[Future[Any]] = {task, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

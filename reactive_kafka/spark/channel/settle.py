"""What Spark jobs share, and how a run's outcome is carried out: settled as a range, or nacked
record by record.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.workers.interface import WorkerSignals
from reactive_kafka.errors import DataLossError, OffloadError, TransientBrokerError
from reactive_kafka.observe.events import Observer
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.batch import Rejected
from reactive_kafka.spark.batches.columns import ColumnRecord
from reactive_kafka.spark.batches.failures import Failed
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.refetch import Fetch, raw_records
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import new_message

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")

# The wait before records that could not be read for their nacks are read again.
READ_AGAIN_S = 1.0

# Why records are nacked, by arrival number; or one reason for all of them.
Reasons = Mapping[int, BaseException] | OffloadError


@dataclass(frozen=True, slots=True)
class Worked:
    """The function has returned."""

    rejected: Sequence[Rejected] = ()


RunOutcome = Worked | Failed


@dataclass(frozen=True, slots=True)
class JobContext:
    """What all jobs of one channel session run with, and whom they tell."""

    settings: IncomingSettings
    runner: SparkRunner
    signals: WorkerSignals
    # For the dead letters of records that executors have read.
    fetch: Fetch
    observer: Observer

    @property
    def group_id(self) -> str:
        """The group that the ids of ranges are made with."""
        return self.settings.group_id or self.settings.name

    def id_of(self, run: RecordRun) -> str:
        """The id of the range that a run is run as."""
        return run.range_of(self.group_id).id

    @property
    def commits(self) -> bool:
        """Whether positions are committed at all."""
        settings = self.settings
        return settings.commit_strategy != "ignore" and bool(
            settings.group_id or settings.checkpoint
        )


class RunSettler:
    """Settles and nacks the records of a job's runs."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._signals = context.signals
        self._stop: Future[None] = asyncio.get_running_loop().create_future()
        # Not carried out to the end, because of a stop or because the failure strategy leaves a
        # record as it is.
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
        reasons = {
            index: one.reason for one in mine if (index := run.index_of(one.offset)) is not None
        }
        at = run.first
        for index in sorted(reasons):
            tracker.settle_range(at, index)
            at = index + 1
        tracker.settle_range(at, run.end)
        if reasons:
            await self._nack(run, reasons)
        return self._is_over(run)

    def _is_over(self, run: RecordRun) -> bool:
        """Whether all records are settled. If so the plan is done: the committed position may pass
        the range.
        """
        tracker = run.tracker
        is_over = tracker.has_settled(run.first, run.end)
        if is_over:
            tracker.plan_done(run.planned, remember=self._context.commits)
        self._signals.settled(tracker)
        return is_over

    async def _nack(self, run: RecordRun, reasons: Reasons) -> None:
        """Nack records, a piece at a time; those that are not in the log any more are settled."""
        tracker = run.tracker
        lost = reasons
        left = set(range(run.first, run.end)) if isinstance(reasons, OffloadError) else set(reasons)
        if isinstance(reasons, DataLossError):
            # The records that can be read are not lost.
            reasons = OffloadError(str(reasons))
        while not self._stop.done():
            try:
                async with aclosing(raw_records(run, left, self._context.fetch)) as pieces:
                    while (piece := await self._unless_stopped(anext(pieces, None))) is not None:
                        left.difference_update(index for index, _ in piece)
                        if not await self._carry_out(tracker, piece, reasons):
                            return
                break
            except TransientBrokerError as error:
                logger.warning(
                    "%s: %d records that are to be nacked cannot be read: %s",
                    run.planned,
                    len(left),
                    error,
                )
                await asyncio.wait({self._stop}, timeout=READ_AGAIN_S)
        if self._stop.done() or tracker.is_closed:
            return
        if isinstance(lost, DataLossError) and run.first in left:
            # One letter tells of all that is lost. It has the offset of the range's first record,
            # and no content.
            left.discard(run.first)
            nothing = ColumnRecord(run.planned.start, None, None, None, ())
            if not await self._carry_out(tracker, [(run.first, nothing)], lost):
                return
        for index in left:
            tracker.settle(index)

    async def _carry_out(
        self, tracker: OffsetTracker, records: Sequence[tuple[int, RawRecord]], reasons: Reasons
    ) -> bool:
        """Nack records and wait until that is carried out; False if it was not, and no other is to
        be nacked.
        """
        waiting: set[Future[bool]] = set()
        for index, record in records:
            if tracker.is_closed or self._stop.done():
                return False
            message: Delivery = new_message(None, record, tracker, index)
            verdict = self._signals.nack(
                message, reasons if isinstance(reasons, OffloadError) else reasons[index]
            )
            if verdict.done() and not tracker.has_settled(index, index + 1):
                # An earlier nack of it is still being carried out.
                earlier = self._signals.verdict_of(message)
                if earlier is None:
                    # The strategy leaves it as it is.
                    return False
                verdict = earlier
            waiting.add(verdict)
        while (waiting := {one for one in waiting if not one.done()}) and not self._stop.done():
            await self._one_or_the_stop(*waiting)
        return not waiting

    async def _one_or_the_stop(self, *others: Future[Any]) -> None:
        await asyncio.wait({self._stop, *others}, return_when=asyncio.FIRST_COMPLETED)

    async def _unless_stopped(self, wanted: Awaitable[T | None]) -> T | None:
        """The result of *wanted*; None if the stop comes first, which cancels it."""
        task = asyncio.ensure_future(wanted)
        try:
            await self._one_or_the_stop(task)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

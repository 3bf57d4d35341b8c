"""Carries out the outcomes of a Spark job: settles ranges of records, or nacks single records."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.workers.interface import StorePlans
from reactive_kafka.errors import DataLossError, OffloadError, TransientBrokerError
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.attempts import Failed
from reactive_kafka.spark.batches.columns import ColumnRecord
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.batches.spark_batch import Rejected
from reactive_kafka.spark.channel.refetch import Fetch, raw_records
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import new_message

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")

# The wait before reading records again that could not be read for their nacks.
READ_AGAIN_S = 1.0

# Arrival number -> why the record is nacked; or one reason for all records.
Reasons = Mapping[int, BaseException] | OffloadError


@dataclass(frozen=True, slots=True)
class Worked:
    """The outcome of a run whose function has returned."""

    rejected: Sequence[Rejected] = ()


RunOutcome = Worked | Failed


@dataclass(frozen=True, slots=True)
class JobContext:
    """What all jobs of one channel session use."""

    channel: ChannelContext
    # Takes the verdicts on the records.
    acknowledger: Acknowledger
    runner: SparkRunner
    # Called when a function asked the process to end (SystemExit, KeyboardInterrupt).
    exit: Callable[[BaseException], None]
    store_plans: StorePlans
    # Reads records that executors have read, when their content is needed for dead letters.
    fetch: Fetch

    @property
    def settings(self) -> IncomingSettings:
        """The settings of the channel."""
        return self.channel.settings

    @property
    def group_id(self) -> str:
        """The group id in the ids of ranges; for a channel without a group, the channel's name."""
        return self.settings.group_id or self.settings.name

    def id_of(self, run: RecordRun) -> str:
        """Return the id of a run's range."""
        return run.range_of(self.group_id).id

    @property
    def commits(self) -> bool:
        """True if the channel commits positions."""
        settings = self.settings
        if settings.commit_strategy == "ignore":
            return False
        return bool(settings.group_id or settings.checkpoint)


class RunSettler:
    """Settles and nacks the records of a job's runs."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._acknowledger = context.acknowledger
        self._stop: Future[None] = asyncio.get_running_loop().create_future()
        # Outcomes that are not carried out completely, because of a stop, or because the failure
        # strategy leaves a record unsettled.
        self.unsettled: list[tuple[RecordRun, RunOutcome]] = []

    def stop(self) -> None:
        """Stop waiting for nacks to be carried out."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def settle(self, run: RecordRun, outcome: RunOutcome) -> None:
        """Carry out the outcome of a run."""
        if isinstance(outcome, Worked):
            is_done = await self._settle_worked(run, outcome.rejected)
        else:
            await self._nack(run, outcome.error)
            is_done = self._finish_if_settled(run)
        if not is_done and not run.tracker.is_closed:
            self.unsettled.append((run, outcome))

    async def _settle_worked(self, run: RecordRun, rejected: Sequence[Rejected]) -> bool:
        """Settle all records except the rejected ones, which are nacked."""
        tracker = run.tracker
        if tracker.is_closed:
            return False
        reasons: dict[int, BaseException] = {}
        for rejection in rejected:
            if rejection.partition == tracker.partition:
                index = run.index_of(rejection.offset)
                if index is not None:
                    reasons[index] = rejection.reason
        start = run.first
        for index in sorted(reasons):
            tracker.settle_range(start, index)
            start = index + 1
        tracker.settle_range(start, run.end)
        if reasons:
            await self._nack(run, reasons)
        return self._finish_if_settled(run)

    def _finish_if_settled(self, run: RecordRun) -> bool:
        """If all records are settled, the plan is done: the committed position may pass the range.

        Return whether they are.
        """
        tracker = run.tracker
        is_settled = tracker.has_settled(run.first, run.end)
        if is_settled:
            tracker.plan_done(run.planned, remember=self._context.commits)
        self._acknowledger.settled(tracker)
        return is_settled

    async def _nack(self, run: RecordRun, reasons: Reasons) -> None:
        """Nack records, some at a time, and settle those that the log does not have any more.

        A range may hold no record at all, only markers or compacted offsets. When the job of such a
        range fails, the range is settled without a dead letter, unless its data was lost.
        """
        tracker = run.tracker
        data_loss = reasons if isinstance(reasons, DataLossError) else None
        left = set(range(run.first, run.end)) if isinstance(reasons, OffloadError) else set(reasons)
        if data_loss is not None:
            # The records that are read below are not lost, so they get an error without that claim.
            reasons = OffloadError(str(data_loss))
        while not self._stop.done():
            try:
                async with aclosing(raw_records(run, left, self._context.fetch)) as pieces:
                    while True:
                        piece = await self._unless_stopped(anext(pieces, None))
                        if piece is None:
                            break
                        left.difference_update(index for index, _ in piece)
                        if not await self._carry_out(tracker, piece, reasons):
                            return
                break
            except TransientBrokerError as error:
                logger.warning(
                    "%s: %d records that must be nacked cannot be read: %s",
                    run.planned,
                    len(left),
                    error,
                )
                await asyncio.wait({self._stop}, timeout=READ_AGAIN_S)
        if self._stop.done() or tracker.is_closed:
            return
        lost = None if data_loss is None else _first_lost(run, left)
        if data_loss is not None and lost is not None:
            # One dead letter reports all lost records. It has the offset of the first one, and no
            # content.
            left.discard(lost)
            offset = run.planned.start if lost == run.first else tracker.offset_of(lost)
            empty = ColumnRecord(offset, None, None, None, ())
            if not await self._carry_out(tracker, [(lost, empty)], data_loss):
                return
        for index in left:
            tracker.settle(index)

    async def _carry_out(
        self, tracker: OffsetTracker, records: Sequence[tuple[int, RawRecord]], reasons: Reasons
    ) -> bool:
        """Nack records, and wait until the failure strategy is carried out for them.

        Return False if it was not, and no other record may be nacked.
        """
        pending: set[Future[bool]] = set()
        for index, record in records:
            if tracker.is_closed or self._stop.done():
                return False
            if tracker.is_settled(index):
                # That was done before these outcomes were cut off.
                continue
            message: Delivery = new_message(None, record, tracker, index)
            # None: the record was not nacked before, or that is not being carried out.
            verdict = self._acknowledger.verdict_of(message)
            if verdict is None:
                if not tracker.is_open(index):
                    # The failure strategy leaves it unsettled.
                    return False
                reason = reasons if isinstance(reasons, OffloadError) else reasons[index]
                verdict = self._acknowledger.nacks.failed(message, reason)
                if verdict.done() and not tracker.is_settled(index):
                    return False
            pending.add(verdict)
        while True:
            pending = {verdict for verdict in pending if not verdict.done()}
            if not pending or self._stop.done():
                return not pending
            await self._first_of_these_or_stop(*pending)

    async def _first_of_these_or_stop(self, *futures: Future[Any]) -> None:
        await asyncio.wait({self._stop, *futures}, return_when=asyncio.FIRST_COMPLETED)

    async def _unless_stopped(self, awaitable: Awaitable[T | None]) -> T | None:
        """Return the result, or None if the stop comes first, which cancels the awaitable."""
        task = asyncio.ensure_future(awaitable)
        try:
            await self._first_of_these_or_stop(task)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


def _first_lost(run: RecordRun, missing: Set[int]) -> int | None:
    """Return the arrival number of the first lost record of a range whose data was lost.

    Retention deletes the beginning of a range, an unclean leader election its end. Offsets that are
    missing in between had no record, or were compacted away. None: only such are missing.

    Args:
        run: The range.
        missing: The arrival numbers of the records that the log does not have.
    """
    if run.first in missing:
        return run.first
    first = run.end
    while first - 1 in missing:
        first -= 1
    return first if first < run.end else None

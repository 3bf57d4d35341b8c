"""What becomes of the records of a Spark job that is over: settled as a range, or nacked one by one."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import DataLossError, OffloadError, TransientBrokerError
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.batch import Rejected
from reactive_kafka.spark.batches.rows import ColumnRecord
from reactive_kafka.spark.channel.runs import Fetch, Run
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.message import new_message

logger = logging.getLogger("reactive_kafka.spark")

T = TypeVar("T")

READ_AGAIN_S = 1.0
"""After which records that executors have read, and that could not be read for their nacks, are tried again."""


class Host(Protocol):
    """What verdicts need from the channel."""

    def nack(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """A record is given over to the failure strategy."""

    def verdict_of(self, message: Delivery) -> Future[bool] | None:
        """What a nack that is being carried out will come to; None if there is none."""

    def settled(self, tracker: OffsetTracker) -> None:
        """Records were settled without the channel being asked."""


class Verdicts:
    """Settles and nacks the records of runs.

    Args:
        fetch: Reads records that executors have read, for dead letters.
        commits: Whether positions are committed at all.
    """

    def __init__(self, host: Host, fetch: Fetch, *, commits: bool) -> None:
        self._host = host
        self._commits = commits
        self._fetch = fetch

    async def worked(self, run: Run, rejected: Sequence[Rejected], stop: Future[None]) -> bool:
        """The job has worked: everything is settled but what it has rejected, which is nacked record by record.

        Args:
            stop: Done when nobody waits any more for nacks to be carried out.

        Returns:
            False if not everything is settled: it was stopped, or the failure strategy leaves a record as it is.
        """
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
            await self._nack(run, reasons, stop)
        return self._is_over(run)

    async def failed(self, run: Run, error: OffloadError, stop: Future[None]) -> bool:
        """The job has failed for good: every record is nacked. Arguments and answer as with :meth:`worked`."""
        await self._nack(run, error, stop)
        return self._is_over(run)

    def _is_over(self, run: Run) -> bool:
        """Where everything in it is settled the committed position may pass the range."""
        tracker = run.tracker
        is_over = tracker.has_settled(run.first, run.end)
        if is_over:
            tracker.plan_done(run.planned, remember=self._commits)
        self._host.settled(tracker)
        return is_over

    async def _nack(self, run: Run, reasons: Reasons, stop: Future[None]) -> None:
        """Nack records, a piece at a time; an offset of which there is no record any more has nothing to be kept."""
        tracker = run.tracker
        left = set(range(run.first, run.end)) if isinstance(reasons, OffloadError) else set(reasons)
        lost = reasons
        if isinstance(reasons, DataLossError):
            reasons = OffloadError(str(reasons))  # what is there is not lost
        while not stop.done():
            try:
                async with aclosing(run.raw(left, self._fetch)) as pieces:
                    while (piece := await _unless(stop, anext(pieces, None))) is not None:
                        left.difference_update(index for index, _ in piece)
                        if not await self._carry_out(tracker, piece, reasons, stop):
                            return
                break
            except TransientBrokerError as error:
                logger.warning("%s: %d records that are to be nacked cannot be read: %s", run.planned, len(left), error)
                await asyncio.wait({stop}, timeout=READ_AGAIN_S)
        if stop.done() or tracker.is_closed:
            return
        if isinstance(lost, DataLossError) and run.first in left:
            left.discard(run.first)  # what is lost is told once, with what is known of it
            nothing = ColumnRecord(run.planned.start, None, None, None, ())
            if not await self._carry_out(tracker, [(run.first, nothing)], lost, stop):
                return
        for index in left:
            tracker.settle(index)

    async def _carry_out(
        self, tracker: OffsetTracker, records: Sequence[tuple[int, RawRecord]], reasons: Reasons, stop: Future[None]
    ) -> bool:
        """Nack these and wait until that is carried out; False if it was not, and no other is to be nacked."""
        waiting: set[Future[bool]] = set()
        for index, record in records:
            if tracker.is_closed or stop.done():
                return False
            message: Delivery = new_message(None, record, tracker, index)
            reason = reasons if isinstance(reasons, OffloadError) else reasons[index]
            verdict: Future[bool] | None = self._host.nack(message, reason)
            if verdict is not None and verdict.done() and not tracker.has_settled(index, index + 1):
                verdict = self._host.verdict_of(message)  # it was nacked before, and that is being carried out
                if verdict is None:
                    return False  # the strategy leaves it as it is
            if verdict is not None and not verdict.done():
                waiting.add(verdict)
        while waiting and not stop.done():
            either: set[Future[Any]] = {*waiting, stop}
            _, pending = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            waiting = {verdict for verdict in waiting if verdict in pending}
        return not waiting


async def _unless(stop: Future[None], wanted: Awaitable[T | None]) -> T | None:
    """What is wanted; None if the stop comes first, and then nothing is waited for any more."""

    async def wait() -> T | None:
        return await wanted

    task = asyncio.create_task(wait())
    try:
        either: set[Future[Any]] = {task, stop}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


Reasons = Mapping[int, BaseException] | OffloadError
"""Why records are nacked, by arrival number; or one reason for all of them."""

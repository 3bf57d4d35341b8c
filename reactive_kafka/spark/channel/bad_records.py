"""Finds the bad records of a failed batch: its parts are run, smaller and smaller, until bad records are alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import BadDataError, OffloadError
from reactive_kafka.observe.events import SparkBatchSplit
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.attempts import Attempts, Split
from reactive_kafka.spark.batches.bisection import Bisection, FailedRange, RangePart
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.context import JobContext
from reactive_kafka.spark.channel.execution import Execution
from reactive_kafka.spark.channel.settle import Failed, RunOutcome, Worked

NO_RETRY = RetrySettings()

Wholes = Mapping[TopicPartition, RecordRun]
"""partition -> what the failed batch had of it."""


class BadRecordSearch:
    """The search through one batch.

    Args:
        number: The number of the batch's last attempt.
        may_begin: Stores the plan of a run; False if it must not run.
        settle: Carries out outcomes; False if that was not done to the end, and the search is over.

    Attributes:
        left: Runs without an outcome, in the order in which they would be run.
    """

    def __init__(
        self,
        context: JobContext,
        execution: Execution,
        runs: Sequence[RecordRun],
        number: int,
        *,
        may_begin: Callable[[Sequence[RecordRun]], Awaitable[bool]],
        settle: Callable[[Sequence[tuple[RecordRun, RunOutcome]]], Awaitable[bool]],
    ) -> None:
        self._context = context
        self._execution = execution
        self._number = number
        self._may_begin = may_begin
        self._settle = settle
        self.left = list(runs)

    async def run(self, error: OffloadError) -> None:
        """Search until each record has its outcome, or the job is not to go on.

        Args:
            error: What the batch has failed with.
        """
        runs = self.left
        wholes = {run.tracker.partition: run for run in runs}
        if len(wholes) == len(runs):
            await self._search(wholes, error)
            return
        # Several ranges of one partition, as delayed retries have them: each is searched alone, since a bisection
        # tells the parts of its ranges apart by their partition.
        for at, run in enumerate(runs, 1):
            if not await self._search({run.tracker.partition: run}, error, runs[at:]):
                return

    async def _search(self, wholes: Wholes, error: OffloadError, later: Sequence[RecordRun] = ()) -> bool:
        """Search one range of each of some partitions; False if the job is not to go on."""
        ranges = [FailedRange(partition, run.planned, run.offsets) for partition, run in wholes.items()]
        bisection = Bisection(ranges, error)
        if bisection.first_split:
            (whole,) = wholes.values()
            self._replan(whole, bisection.first_split, error)
        while True:
            self.left = [*(_run_of(wholes, part) for part in bisection.left), *later]
            found = [(_run_of(wholes, part), _failed(reason)) for part, reason in bisection.take_found()]
            if not await self._settle(found):
                return False
            part = bisection.next()
            if part is None:
                return True
            run = _run_of(wholes, part)
            if not await self._may_begin([run]):
                return False
            outcome = await self._execution.run([run], self._attempts(wholes, part))
            if outcome is None:
                return False
            if isinstance(outcome, Worked):
                bisection.worked()
                self.left.remove(run)
                if not await self._settle([(run, outcome)]):
                    return False
            elif parts := bisection.failed(outcome.error, is_data_error=isinstance(outcome, Split)):
                self._replan(run, parts, outcome.error)

    def _attempts(self, wholes: Wholes, part: RangePart) -> Attempts:
        """One attempt, counted on from those of the whole that held the part."""
        depth = len(part.planned.failed) - len(wholes[part.partition].planned.failed)
        number = self._number + (len(wholes) > 1) + depth
        return Attempts(NO_RETRY, splits=self._context.bisects, number=number)

    def _replan(self, run: RecordRun, parts: Sequence[RangePart], error: OffloadError) -> None:
        """From here on the parts of a failed range are ranges of their own."""
        run.tracker.replan(run.planned, *(part.planned for part in parts))
        self._context.observer.on(
            SparkBatchSplit(
                channel=self._context.settings.name,
                id=self._context.id_of(run),
                records=run.records,
                parts=len(parts),
                reason=str(error),
            )
        )


def _failed(reason: BaseException) -> Failed:
    return Failed(reason if isinstance(reason, OffloadError) else BadDataError(str(reason)))


def _run_of(wholes: Wholes, part: RangePart) -> RecordRun:
    whole = wholes[part.partition]
    return whole.between(whole.first + part.first, whole.first + part.stop, part.planned)

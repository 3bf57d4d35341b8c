"""One batch on its way through Spark: planned, run, run again or split, and its records settled or nacked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from reactive_kafka.delivery.states import after
from reactive_kafka.errors import DataLossError
from reactive_kafka.spark.batches.attempts import Attempts, Split
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.bad_records import BadRecordSearch
from reactive_kafka.spark.channel.context import JobContext
from reactive_kafka.spark.channel.execution import Execution
from reactive_kafka.spark.channel.settle import Failed, RunOutcome, RunSettler
from reactive_kafka.spark.channel.states import JOB_TRANSITIONS, JobState


class SparkJob:
    """The records of one batch, from when they were taken until nothing of them runs any more.

    Args:
        attempt: The number of its first run: more than 1 if an earlier job of these records was cancelled.
        outcomes: The known outcomes of the runs, if these are all that is left to be carried out.

    Attributes:
        was_refused: The group did not take the plan, so that nothing was run.
    """

    def __init__(
        self,
        context: JobContext,
        runs: Sequence[RecordRun],
        attempt: int,
        outcomes: Sequence[RunOutcome] | None = None,
    ) -> None:
        self.runs = runs
        self.was_refused = False
        self._context = context
        self._outcomes = outcomes
        self._attempts = Attempts(context.settings.retry, splits=context.bisects, number=attempt)
        self._execution = Execution(context)
        self._settler = RunSettler(context)
        self._search: BadRecordSearch | None = None
        self._left: Sequence[RecordRun] = runs if outcomes is None else ()
        self._skipped: list[tuple[RecordRun, RunOutcome]] = []
        self._state = JobState.WORKING if outcomes is None else JobState.SETTLING
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._began = context.clock.monotonic()

    async def run(self) -> None:
        """Work on the batch until it is over, or was cut off.

        Cancellation:
            The application ends. First, the job on Spark is cancelled and awaited.
        """
        self._task = asyncio.create_task(self._work(), name=f"{asyncio.current_task()}")
        if self._state is JobState.CANCELLED:
            self._task.cancel()
        try:
            await asyncio.wait({self._task})
        except BaseException:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            was_cut_off = self._state in (JobState.CANCELLED, JobState.CUT_SHORT)
            self._change("end")
            self._over.set()
        if not self._task.cancelled() or not was_cut_off:
            self._task.result()  # a cancellation that is not ours must not pass for the end of a batch

    @property
    def attempt(self) -> int:
        """How often its records have run."""
        return self._attempts.begun

    @property
    def retries(self) -> int:
        """Attempts after the first one."""
        return self._execution.retries

    @property
    def took_s(self) -> float:
        """How long it has been worked on."""
        return self._context.clock.monotonic() - self._began

    @property
    def left(self) -> Sequence[RecordRun]:
        """Runs without an outcome: their records wait again."""
        return self._left if self._search is None else self._search.left

    @property
    def unsettled(self) -> Sequence[tuple[RecordRun, RunOutcome]]:
        """Runs whose outcome was not carried out to the end."""
        return [*self._settler.unsettled, *self._skipped]

    @property
    def only_settles(self) -> bool:
        """Whether nothing runs on Spark, since the outcomes were known."""
        return self._outcomes is not None

    @property
    def is_revoked(self) -> bool:
        """Whether one of its lanes is suspended or dropped."""
        return any(run.lane.revoked for run in self.runs)

    def stop_waiting(self) -> None:
        """End the waits between attempts; what runs goes on."""
        self._execution.stop_waiting()

    def cut_off(self) -> None:
        """Cancel what runs on Spark, and wait no longer for nacks to be carried out."""
        self._change("cut off")
        self._execution.stop_waiting()
        self._settler.stop()
        if self._task is not None and self._state is JobState.CANCELLED:
            self._task.cancel()

    async def over(self) -> None:
        """Return when nothing of it runs any more."""
        await self._over.wait()

    def _change(self, event: str) -> None:
        self._state = after(JOB_TRANSITIONS, self._state, event)

    async def _work(self) -> None:
        if self._outcomes is not None:
            await self._settle(zip(self.runs, self._outcomes, strict=True))
            return
        for run in self.runs:
            if run.planned not in run.tracker.plans:
                run.tracker.plan(run.planned)
        if not await self._may_begin(self.runs):
            return
        outcome = await self._execution.run(self.runs, self._attempts)
        if isinstance(outcome, Split) or (len(self.runs) > 1 and _has_lost_data(outcome)):
            self._search = BadRecordSearch(
                self._context, self._execution, self.runs, self._attempts.number,
                may_begin=self._may_begin, settle=self._settle_parts,
            )  # fmt: skip
            await self._search.run(outcome.error)
        elif outcome is not None:
            self._left = ()
            await self._settle((run, outcome) for run in self.runs)

    async def _may_begin(self, runs: Sequence[RecordRun]) -> bool:
        """Have the group store the plans of runs; False if they must not run."""
        trackers = list({id(run.tracker): run.tracker for run in runs}.values())
        if not await self._context.signals.store_plans(trackers):
            self.was_refused = True
            return False
        # A range that the group's position turned out to lie inside of was divided, and is not planned any more.
        return not self.is_revoked and all(run.planned in run.tracker.plans for run in runs)

    async def _settle(self, outcomes: Iterable[tuple[RecordRun, RunOutcome]]) -> None:
        self._change("settle")
        for run, outcome in outcomes:
            await self._settler.settle(run, outcome)

    async def _settle_parts(self, outcomes: Sequence[tuple[RecordRun, RunOutcome]]) -> bool:
        """Carry out the outcomes of parts of the batch; False if no other part is to run."""
        for at, one in enumerate(outcomes, 1):
            await self._settle([one])
            if self._state is JobState.CUT_SHORT or self._settler.unsettled:
                self._skipped += outcomes[at:]
                return False
            self._change("go on")
        return True


def _has_lost_data(outcome: RunOutcome | None) -> TypeGuard[Failed]:
    """Whether executors did not find all records: they may be missing in one range only, and the others work."""
    return isinstance(outcome, Failed) and isinstance(outcome.error, DataLossError)

"""One batch on its way through Spark: planned, run, run again or split, and its records settled or
nacked.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import DataLossError, OffloadError
from reactive_kafka.observe.events import SparkBatchSplit
from reactive_kafka.spark.batches.batch import spark_range
from reactive_kafka.spark.batches.failures import Again, Attempts, Failed, Leave, Split
from reactive_kafka.spark.batches.runs import Bisection, RecordRun, plan, trackers_of
from reactive_kafka.spark.channel.ahead import Ahead
from reactive_kafka.spark.channel.settle import JobContext, RunOutcome, RunSettler, Worked
from reactive_kafka.state_table import next_state


class JobState(StrEnum):
    """What a job does at the moment.

    ``working``: it stores plans, runs on Spark, or waits for another attempt; ``settling``:
    outcomes are carried out; ``cancelled``: it was cut off, and what it runs on Spark is being
    ended; ``cut short``: it was cut off while it settled, and waits for no nack; ``over``: nothing
    of it runs.
    """

    WORKING = "working"
    SETTLING = "settling"
    CANCELLED = "cancelled"
    CUT_SHORT = "cut short"
    OVER = "over"


JOB_TRANSITIONS: dict[JobState, dict[str, JobState]] = {
    JobState.WORKING: {
        "settle": JobState.SETTLING,
        "cut off": JobState.CANCELLED,
        "end": JobState.OVER,
    },
    JobState.SETTLING: {
        "settle": JobState.SETTLING,
        "go on": JobState.WORKING,
        "cut off": JobState.CUT_SHORT,
        "end": JobState.OVER,
    },
    JobState.CANCELLED: {
        "settle": JobState.CUT_SHORT,
        "cut off": JobState.CANCELLED,
        "end": JobState.OVER,
    },
    JobState.CUT_SHORT: {
        "settle": JobState.CUT_SHORT,
        "cut off": JobState.CUT_SHORT,
        "end": JobState.OVER,
    },
    JobState.OVER: {"cut off": JobState.OVER},
}
"""state -> event -> next state.

``settle``: the outcome of runs is known; ``go on``: other parts of the batch are to run; ``cut
off``: the partition is going or gone, or the channel stops; ``end``: its task has ended."""


class SparkJob:
    """The records of one batch, from when they were taken until nothing of them runs any more."""

    def __init__(
        self,
        context: JobContext,
        runs: Sequence[RecordRun],
        attempt: int,
        calls: Callable[[], None],
        starts: Callable[[], None],
        outcomes: Sequence[RunOutcome] | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self.runs = runs
        # The function, or it never will.
        self.has_called = outcomes is not None
        # Told that the first call is next.
        self._calls = calls
        # Told of each call.
        self._starts = starts
        # Without an outcome, in their order.
        self.left: Sequence[RecordRun] = runs if outcomes is None else ()
        # Attempts after the first one.
        self.retries = 0
        # The group did not take the plan, so that nothing was run.
        self.was_refused = False
        # Nothing runs on Spark.
        self.only_settles = outcomes is not None
        self._context = context
        # Of the runs, if they are known, and all that is left is to carry them out.
        self._outcomes = outcomes or ()
        # The DataFrame of the first attempt, if it is being made already.
        self._ahead = ahead
        # Bad records of a failed batch are searched for.
        self._bisects = context.settings.spark.on_failure == "bisect"
        # The number of the first attempt is more than 1 if an earlier job of these records was
        # cancelled.
        self.attempts = Attempts(
            context.settings.retry,
            context.settings.routes_after_retries,
            splits=self._bisects,
            number=attempt,
        )
        self._settler = RunSettler(context)
        # Runs whose outcome was not carried out to the end.
        self.unsettled = self._settler.unsettled
        self._state = JobState.SETTLING if self.only_settles else JobState.WORKING
        self._no_waits: Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        # Set when nothing of it runs any more.
        self.over = asyncio.Event()

    async def run(self) -> None:
        """Work on the batch until it is over, or was cut off; if it is cancelled, its job on Spark
        ends first.
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
            self.over.set()
        if not self._task.cancelled() or not was_cut_off:
            # A cancellation that is not ours must not pass for the end of a batch.
            self._task.result()

    @property
    def is_revoked(self) -> bool:
        """Whether one of its lanes is suspended or dropped."""
        return any(run.lane.revoked for run in self.runs)

    def stop_waiting(self) -> None:
        """End the waits between attempts; what runs goes on."""
        if not self._no_waits.done():
            self._no_waits.set_result(None)

    def cut_off(self) -> None:
        """Cancel what runs on Spark, and wait no longer for nacks to be carried out."""
        self._change("cut off")
        self.stop_waiting()
        self._settler.stop()
        if self._task is not None and self._state is JobState.CANCELLED:
            self._task.cancel()

    def _change(self, event: str) -> None:
        self._state = next_state(JOB_TRANSITIONS, self._state, event)

    async def _work(self) -> None:
        if self.only_settles:
            await self._settle(zip(self.runs, self._outcomes, strict=True))
            return
        plan(self.runs)
        ahead = self._ahead or Ahead(self._context, self.runs)
        try:
            if not await self._may_begin(self.runs):
                return
            self.has_called = True
            self._calls()
            outcome = await self._execute(self.runs, self.attempts, ahead)
        finally:
            ahead.drop()
        # Where executors did not find all records, they may be missing in one range only, and the
        # others work.
        is_partly = (
            len(self.runs) > 1
            and isinstance(outcome, Failed)
            and isinstance(outcome.error, DataLossError)
        )
        if isinstance(outcome, Split | Failed) and (is_partly or isinstance(outcome, Split)):
            await self._find_bad_records(outcome.error)
        elif outcome is not None:
            self.left = ()
            await self._settle((run, outcome) for run in self.runs)

    async def _may_begin(self, runs: Sequence[RecordRun]) -> bool:
        """Have the group store the plans of runs; False if they must not run."""
        if not await self._context.signals.store_plans(trackers_of(runs)):
            self.was_refused = True
            return False
        # A range that the group's position turned out to lie inside of was divided, and is not
        # planned any more.
        return not self.is_revoked and all(run.planned in run.tracker.plans for run in runs)

    async def _execute(
        self, runs: Sequence[RecordRun], attempts: Attempts, ahead: Ahead | None = None
    ) -> RunOutcome | Split | None:
        """Run records until their outcome is known; None if there is none: waits have ended, or the
        channel stops.
        """
        context = self._context
        group_id = self._context.group_id
        parts = [run.part(group_id) for run in runs]
        supersedes = tuple(
            spark_range(group_id, run.tracker.partition, start, until).id
            for run in runs
            for start, until in run.planned.failed
        )
        while True:
            try:
                number = attempts.begin()
                frame = None if ahead is None else ahead.frame
                ahead = None
                rejected = await context.runner.run_batch(
                    parts,
                    number,
                    alone=attempts.alone,
                    supersedes=supersedes,
                    no_waits=self._no_waits,
                    frame=frame,
                    on_call=self._starts,
                )
                return None if rejected is None else Worked(rejected)
            except OffloadError as error:
                if isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
                    context.signals.exit(error.__cause__)
                    return None
                follows = attempts.after(error, drawn_chance())
            if isinstance(follows, Leave):
                context.signals.fail(follows.error)
                return None
            if not isinstance(follows, Again):
                return follows
            self.retries += 1
            if follows.after_s:
                await asyncio.wait({self._no_waits}, timeout=follows.after_s)
                if self._no_waits.done():
                    return None

    async def _settle(self, outcomes: Iterable[tuple[RecordRun, RunOutcome]]) -> None:
        self._change("settle")
        for run, outcome in outcomes:
            await self._settler.settle(run, outcome)

    async def _settle_parts(self, outcomes: Sequence[tuple[RecordRun, RunOutcome]]) -> bool:
        """Carry out the outcomes of parts of the batch; False if no other part is to run."""
        for at, one in enumerate(outcomes, 1):
            await self._settle([one])
            if self._state is JobState.CUT_SHORT or self.unsettled:
                self.unsettled += outcomes[at:]
                return False
            self._change("go on")
        return True

    async def _find_bad_records(self, error: OffloadError) -> None:
        """Run parts of the batch, smaller and smaller, until each record has its outcome or the job
        ends.
        """
        if len({run.tracker.partition for run in self.runs}) == len(self.runs):
            await self._search(self.runs, error)
            return
        # Several ranges of one partition, as delayed retries have them: each is searched alone,
        # since a bisection tells the parts of its ranges apart by their partition.
        for at, run in enumerate(self.runs, 1):
            if not await self._search([run], error, self.runs[at:]):
                return

    async def _search(
        self, wholes: Sequence[RecordRun], error: OffloadError, later: Sequence[RecordRun] = ()
    ) -> bool:
        """Search one range of each of some partitions; False if the job is not to go on."""
        # A part has one attempt, counted on from those of the whole that held it.
        number = self.attempts.begun + (len(wholes) > 1)
        depths = {whole.tracker.partition: len(whole.planned.failed) for whole in wholes}
        bisection = Bisection(wholes, error)
        if bisection.first_split:
            self._replan(wholes[0], bisection.first_split, error)
        while True:
            self.left = [*bisection.left, *later]
            if not await self._settle_parts(
                [(run, Failed(reason)) for run, reason in bisection.take_found()]
            ):
                return False
            run = bisection.next()
            if run is None:
                return True
            if not await self._may_begin([run]):
                return False
            depth = len(run.planned.failed) - depths[run.tracker.partition]
            once = Attempts(RetrySettings(), {}, splits=self._bisects, number=number + depth)
            outcome = await self._execute([run], once)
            if outcome is None:
                return False
            if isinstance(outcome, Worked):
                bisection.worked()
                self.left = self.left[1:]
                if not await self._settle_parts([(run, outcome)]):
                    return False
            elif parts := bisection.failed(outcome.error, is_data_error=isinstance(outcome, Split)):
                self._replan(run, parts, outcome.error)

    def _replan(self, run: RecordRun, parts: Sequence[RecordRun], error: OffloadError) -> None:
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

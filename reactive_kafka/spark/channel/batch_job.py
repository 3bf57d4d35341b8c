"""One batch, from its plan until its records are settled or nacked: run, run again, or split."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import DataLossError, OffloadError
from reactive_kafka.observe.events import SparkBatchSplit
from reactive_kafka.spark.batches.attempts import Again, Attempts, Failed, Leave, Split
from reactive_kafka.spark.batches.bisection import Bisection
from reactive_kafka.spark.batches.runs import RecordRun, plan, trackers_of
from reactive_kafka.spark.batches.spark_batch import spark_range
from reactive_kafka.spark.channel.frame_ahead import FrameAhead
from reactive_kafka.spark.channel.settle import JobContext, RunOutcome, RunSettler, Worked
from reactive_kafka.state_table import next_state
from reactive_kafka.tasks import Flag


class JobState(StrEnum):
    """What a job does at the moment.

    - ``working``: it stores plans, runs on Spark, or waits before another attempt.
    - ``settling``: it carries out outcomes.
    - ``cancelled``: it was cut off while working, and ends its work on Spark.
    - ``cut short``: it was cut off while settling, and waits for no more nacks.
    - ``over``: nothing of it runs.
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

- ``settle``: the outcome of runs is known.
- ``go on``: other parts of the batch will run.
- ``cut off``: the partition is being revoked or is gone, or the channel stops.
- ``end``: its task has ended.
"""


class SparkJob:
    """Runs the records of one batch, and carries out their outcomes.

    Args:
        context: What all jobs of the channel use.
        runs: The records of the batch: one run for each planned range.
        attempt: The number of the first attempt. It is more than 1 if an earlier job of these
            records was cancelled.
        on_first_call: Called just before the function is called for the first time.
        on_call: Called each time the function is called.
        outcomes: The outcomes of the runs, if an earlier job knew them and was cut off before it
            could carry them out. The function is not called then.
        frame: The DataFrame of the first attempt, if it is being made already.
    """

    def __init__(
        self,
        context: JobContext,
        runs: Sequence[RecordRun],
        attempt: int,
        on_first_call: Callable[[], None],
        on_call: Callable[[], None],
        outcomes: Sequence[RunOutcome] | None = None,
        frame: FrameAhead | None = None,
    ) -> None:
        self.runs = runs
        # The function was called, or never will be.
        self.has_called = outcomes is not None
        self._on_first_call = on_first_call
        self._on_call = on_call
        # The runs that have no outcome yet, in their order.
        self.left: Sequence[RecordRun] = runs if outcomes is None else ()
        # Number of attempts after the first one.
        self.retries = 0
        # The group refused the plan, so nothing was run.
        self.was_refused = False
        # Nothing runs on Spark, outcomes are carried out.
        self.only_settles = outcomes is not None
        self._context = context
        self._outcomes = outcomes or ()
        self._frame = frame
        # A failed batch is split, to find its bad records.
        self._bisects = context.settings.spark.on_failure == "bisect"
        self.attempts = Attempts(
            context.settings.retry,
            context.settings.routes_after_retries,
            splits=self._bisects,
            number=attempt,
        )
        self._settler = RunSettler(context)
        # The runs whose outcomes were not carried out completely.
        self.unsettled = self._settler.unsettled
        self._state = JobState.SETTLING if self.only_settles else JobState.WORKING
        # Done when the job must not wait any more, neither for another attempt nor for schemas.
        self._no_waits: Future[None] = asyncio.get_running_loop().create_future()
        # Done when the job is to look again whether it is paused. None: it does not wait for that.
        self._resumed: Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        # Set when nothing of the job runs any more.
        self.over = Flag()

    async def run(self) -> None:
        """Work on the batch until it is over, or was cut off.

        Cancellation: Ends the job on Spark first.
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
        """True if one of its lanes is suspended or dropped."""
        return any(run.lane.revoked for run in self.runs)

    def stop_waiting(self) -> None:
        """End the waits between attempts. A running attempt continues."""
        if not self._no_waits.done():
            self._no_waits.set_result(None)

    def resumed(self) -> None:
        """Make the attempt that waits for the end of a pause, if that is over."""
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    def cut_off(self) -> None:
        """Cancel the work on Spark, and stop waiting for nacks to be carried out."""
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
        frame = self._frame or FrameAhead(self._context, self.runs)
        try:
            if not await self._may_begin(self.runs):
                return
            self.has_called = True
            self._on_first_call()
            outcome = await self._execute(self.runs, self.attempts, frame)
        finally:
            frame.drop()
        if outcome is None:
            return
        if isinstance(outcome, Split) or (isinstance(outcome, Failed) and self._may_work(outcome)):
            await self._find_bad_records(outcome.error)
        else:
            self.left = ()
            await self._settle((run, outcome) for run in self.runs)

    def _may_work(self, outcome: Failed) -> bool:
        """True if some ranges of the failed batch may work alone.

        If executors did not find all records, these may be missing in one of the ranges only.
        """
        return len(self.runs) > 1 and isinstance(outcome.error, DataLossError)

    async def _may_begin(self, runs: Sequence[RecordRun]) -> bool:
        """Let the group store the plans of runs, and return whether they may run."""
        if not await self._context.store_plans(trackers_of(runs)):
            self.was_refused = True
            return False
        # The group's position may turn out to be inside of a range. Then the range was divided, and
        # is not in the plans any more.
        return not self.is_revoked and all(run.planned in run.tracker.plans for run in runs)

    async def _execute(
        self, runs: Sequence[RecordRun], attempts: Attempts, frame: FrameAhead | None = None
    ) -> RunOutcome | Split | None:
        """Run records until their outcome is known.

        Return None if there is no outcome, because waits have ended or the channel stops.
        """
        context = self._context
        group_id = context.group_id
        parts = [run.part(group_id) for run in runs]
        supersedes = tuple(
            spark_range(group_id, run.tracker.partition, start, until).id
            for run in runs
            for start, until in run.planned.failed
        )
        while True:
            if not await self._until_resumed():
                return None
            try:
                number = attempts.begin()
                made = None if frame is None else frame.frame
                # Only the first attempt uses it.
                frame = None
                rejected = await context.runner.run_batch(
                    parts,
                    number,
                    alone=attempts.alone,
                    supersedes=supersedes,
                    no_waits=self._no_waits,
                    frame=made,
                    on_call=self._on_call,
                )
                return None if rejected is None else Worked(rejected)
            except OffloadError as error:
                if isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
                    context.exit(error.__cause__)
                    return None
                decision = attempts.after(error, drawn_chance())
            if isinstance(decision, Leave):
                context.channel.fail(decision.error)
                return None
            if not isinstance(decision, Again):
                return decision
            self.retries += 1
            if decision.after_s:
                await asyncio.wait({self._no_waits}, timeout=decision.after_s)
                if self._no_waits.done():
                    return None

    async def _until_resumed(self) -> bool:
        """Wait for the end of a pause; False if the job must not wait any more."""
        while any(run.lane.is_paused for run in self.runs):
            if self._no_waits.done():
                return False
            self._resumed = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._no_waits, self._resumed}, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def _settle(self, outcomes: Iterable[tuple[RecordRun, RunOutcome]]) -> None:
        self._change("settle")
        for run, outcome in outcomes:
            await self._settler.settle(run, outcome)

    async def _settle_parts(self, outcomes: Sequence[tuple[RecordRun, RunOutcome]]) -> bool:
        """Carry out the outcomes of parts of the batch; False if no other part may run."""
        for done, outcome in enumerate(outcomes, 1):
            await self._settle([outcome])
            if self._state is JobState.CUT_SHORT or self.unsettled:
                self.unsettled += outcomes[done:]
                return False
            self._change("go on")
        return True

    async def _find_bad_records(self, error: OffloadError) -> None:
        """Run smaller and smaller parts of the batch, until each record has its outcome."""
        if len({run.tracker.partition for run in self.runs}) == len(self.runs):
            await self._search(self.runs, error)
            return
        # A bisection identifies the parts of its ranges by their partition. Delayed retries have
        # several ranges of one partition, so each of these is searched alone.
        for done, run in enumerate(self.runs, 1):
            if not await self._search([run], error, self.runs[done:]):
                return

    async def _search(
        self, wholes: Sequence[RecordRun], error: OffloadError, later: Sequence[RecordRun] = ()
    ) -> bool:
        """Find the bad records in ranges of different partitions; False if the job must stop.

        Args:
            wholes: One range of each partition.
            error: The error of the whole batch.
            later: Runs of the batch that are searched after these.
        """
        # A part has one attempt. Its number follows those of the whole that contained it.
        number = self.attempts.begun
        if len(wholes) > 1:
            number += 1
        depths = {whole.tracker.partition: len(whole.planned.failed) for whole in wholes}
        bisection = Bisection(wholes, error)
        if bisection.first_split:
            self._replan(wholes[0], bisection.first_split, error)
        while True:
            self.left = [*bisection.left, *later]
            found = [(run, Failed(reason)) for run, reason in bisection.take_found()]
            if not await self._settle_parts(found):
                return False
            run = bisection.next()
            if run is None:
                return True
            if not await self._may_begin([run]):
                return False
            depth = len(run.planned.failed) - depths[run.tracker.partition]
            one_attempt = Attempts(RetrySettings(), {}, splits=self._bisects, number=number + depth)
            outcome = await self._execute([run], one_attempt)
            if outcome is None:
                return False
            if isinstance(outcome, Worked):
                bisection.worked()
                self.left = self.left[1:]
                if not await self._settle_parts([(run, outcome)]):
                    return False
                continue
            parts = bisection.failed(outcome.error, is_data_error=isinstance(outcome, Split))
            if parts:
                self._replan(run, parts, outcome.error)

    def _replan(self, run: RecordRun, parts: Sequence[RecordRun], error: OffloadError) -> None:
        """Plan the parts of a failed range as ranges of their own, and report the split."""
        run.tracker.replan(run.planned, *(part.planned for part in parts))
        self._context.channel.observer.on(
            SparkBatchSplit(
                channel=self._context.settings.name,
                id=self._context.id_of(run),
                records=run.records,
                parts=len(parts),
                reason=str(error),
            )
        )

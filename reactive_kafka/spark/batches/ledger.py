"""Keeps account of a channel's batches: progress, outcomes, counts. Callers pass the time."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, astuple, dataclass
from operator import add
from typing import Any, Literal

from reactive_kafka.observe.facts import DurationHistogram, SparkBatchFacts, SparkFacts
from reactive_kafka.spark.batches.spark_batch import SparkRange, batch_id

BatchOutcome = Literal["ok", "failed", "cancelled", "lost"]
KEPT_BATCHES = 20


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Stages and tasks of all Spark jobs that one run of a function has started so far."""

    # The stages that Spark knows. Skipped ones do not count once their job has ended.
    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_active: int = 0
    # Includes tasks that ran again afterwards.
    tasks_failed: int = 0

    def __add__(self, other: JobProgress) -> JobProgress:
        return JobProgress(*map(add, astuple(self), astuple(other)))


@dataclass(slots=True, eq=False)
class BatchRun:
    """One run of a batch. :meth:`Ledger.end` sets its outcome."""

    ranges: tuple[SparkRange, ...]
    records: int
    attempt: int
    timeout_s: float
    # When its function was called. None: it waits for its turn, or for Spark.
    started: float | None = None
    # The last report of its tasks, which may arrive a moment after its end.
    progress: JobProgress = JobProgress()
    # The share of its work that is done, from 0 to 1, for progress bars. It never falls.
    share: float = 0.0
    outcome: BatchOutcome | None = None
    # Why it was not ok.
    reason: str | None = None
    rejected: int = 0
    # How long it ran, set when it has ended.
    took_s: float = 0.0
    # Seconds since the epoch.
    ended_at: float | None = None
    # The same on the clock of `started`.
    ended: float | None = None

    @property
    def id(self) -> str:
        """The id of the batch."""
        return batch_id(self.ranges)

    def look(self, progress: JobProgress) -> None:
        """Note the progress of its Spark jobs."""
        self.progress = progress
        self.share = share_after(self.share, progress)

    def facts(self, now: float) -> SparkBatchFacts:
        """Return the run as it is *now*, or as it ended."""
        tasks: dict[str, Any] = asdict(self.progress)
        share = self.share
        since_s = 0.0 if self.started is None else now - self.started
        if self.outcome is not None:
            since_s = self.took_s
            tasks["tasks_active"] = 0
        if self.outcome == "ok":
            # Spark reports the end of tasks up to a second late, so the last report may lack some.
            tasks["tasks_done"] = tasks["tasks"]
            tasks["stages_done"] = tasks["stages"]
            share = 1.0
        return SparkBatchFacts(
            id=self.id,
            ranges=tuple(map(str, self.ranges)),
            records=self.records,
            attempt=self.attempt,
            since_s=since_s,
            timeout_s=self.timeout_s,
            **tasks,
            share=share,
            rejected=self.rejected,
            outcome=self.outcome,
            reason=self.reason,
            ended_at=self.ended_at,
            ended_ago_s=None if self.ended is None else now - self.ended,
        )


def share_after(share: float, progress: JobProgress) -> float:
    """Return the share of a run's work that is done, from 0 to 1, after another report.

    It never falls, although a report may show less than the one before: the function starts its
    Spark jobs one after the other, so tasks are added; a failed stage starts again; and Spark
    forgets stages that ended long ago.

    Args:
        share: The share after the reports before; 0.0 before the first one.
        progress: The new report.
    """
    # The function counts as one more task. Otherwise the bar would be full after the first job, and
    # stay full during the next ones.
    done = min(progress.tasks_done, progress.tasks) / (progress.tasks + 1)
    return max(share, done)


class Ledger:
    """The batches of one channel. Its mode is ``records`` or ``ranges``.

    Attributes:
        durations: How long the runs took.
    """

    def __init__(self, channel: str, mode: str) -> None:
        self._channel = channel
        self._mode = mode
        self._running: list[BatchRun] = []
        self._last: deque[BatchRun] = deque(maxlen=KEPT_BATCHES)
        self._outcomes: dict[str, int] = {"ok": 0, "failed": 0, "cancelled": 0, "lost": 0}
        self.durations = DurationHistogram()
        self._batch_records = 0
        self._rejected = 0
        self._bisection_jobs = 0

    def begin(self, run: BatchRun, *, is_part: bool) -> None:
        """Add a run that waits for its turn. *is_part*: it is a part of a failed batch."""
        self._running.append(run)
        self._batch_records = run.records
        if is_part:
            self._bisection_jobs += 1

    def end(
        self, run: BatchRun, outcome: BatchOutcome, now: float, wall: float
    ) -> SparkBatchFacts | None:
        """End a run. Return None if it was cancelled while it waited, since it does not count."""
        self._running.remove(run)
        if run.started is None and outcome == "cancelled":
            return None
        run.took_s = 0.0 if run.started is None else now - run.started
        run.outcome = outcome
        run.ended_at = wall
        run.ended = now
        self._last.append(run)
        self._outcomes[outcome] += 1
        self.durations.observe(run.took_s)
        self._rejected += run.rejected
        return run.facts(now)

    def facts(self, now: float, *, ready: bool, reason: str | None) -> SparkFacts:
        """Return the facts; *ready* and *reason* are the state of the session."""
        tasks = sum((run.progress for run in self._running), JobProgress())
        return SparkFacts(
            channel=self._channel,
            ready=ready,
            reason=reason,
            mode=self._mode,
            jobs=dict(self._outcomes),
            job_durations=self.durations,
            batch_records=self._batch_records,
            tasks={
                "active": tasks.tasks_active,
                "completed": tasks.tasks_done,
                "failed": tasks.tasks_failed,
            },
            running=tuple(run.facts(now) for run in self._running),
            last=tuple(run.facts(now) for run in self._last),
            rejected=self._rejected,
            bisection_jobs=self._bisection_jobs,
        )

"""One channel's batches: those that run, the last ones, and counts. The time is passed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal

from reactive_kafka.observe.facts import DurationHistogram, SparkBatchFacts, SparkFacts
from reactive_kafka.spark.batches.batch import SparkRange, batch_id
from reactive_kafka.spark.batches.progress import JobProgress

BatchOutcome = Literal["ok", "failed", "cancelled", "lost"]
KEPT_BATCHES = 20


@dataclass(slots=True, eq=False)
class BatchRun:
    """One run of a batch.

    Attributes:
        timeout_s: How long it may run.
        started: When its function was called; None: it waits for its turn, or for Spark.
    """

    ranges: tuple[SparkRange, ...]
    records: int
    attempt: int
    timeout_s: float
    started: float | None = None
    progress: JobProgress = field(default_factory=JobProgress)

    @property
    def id(self) -> str:
        """The id of the batch."""
        return batch_id(self.ranges)

    def facts(
        self,
        now: float,
        *,
        outcome: BatchOutcome | None = None,
        reason: str | None = None,
        rejected: int = 0,
        ended_at: float | None = None,
    ) -> SparkBatchFacts:
        """The run as it is *now*, or as it ended; *ended_at* is in seconds since the epoch."""
        progress = self.progress
        return SparkBatchFacts(
            id=self.id,
            ranges=tuple(map(str, self.ranges)),
            records=self.records,
            attempt=self.attempt,
            since_s=0.0 if self.started is None else now - self.started,
            timeout_s=self.timeout_s,
            **asdict(progress if outcome is None else replace(progress, tasks_active=0)),
            rejected=rejected,
            outcome=outcome,
            reason=reason,
            ended_at=ended_at,
        )


class Ledger:
    """One channel's batches.

    Args:
        channel: Its name.
        mode: ``records`` or ``ranges``.
    """

    def __init__(self, channel: str, mode: str) -> None:
        self._channel = channel
        self._mode = mode
        self._running: list[BatchRun] = []
        # Functions, not values: the engine's last look at a batch's tasks may come a moment after its end.
        self._last: deque[Callable[[], SparkBatchFacts]] = deque(maxlen=KEPT_BATCHES)
        self._outcomes: dict[str, int] = {"ok": 0, "failed": 0, "cancelled": 0, "lost": 0}
        self._durations = DurationHistogram()
        self._batch_records = self._rejected = self._bisection_jobs = 0

    def begin(self, run: BatchRun, *, is_part: bool) -> None:
        """*run* waits for its turn; *is_part*: it is a part of a failed batch."""
        self._running.append(run)
        self._batch_records = run.records
        self._bisection_jobs += is_part

    def end(
        self,
        run: BatchRun,
        outcome: BatchOutcome,
        now: float,
        wall: float,
        *,
        reason: str | None = None,
        rejected: int = 0,
    ) -> SparkBatchFacts | None:
        """*run* is over. None if it was cancelled while it waited: it does not count."""
        self._running.remove(run)
        if run.started is None and outcome == "cancelled":
            return None
        ended = partial(run.facts, now, outcome=outcome, reason=reason, rejected=rejected, ended_at=wall)
        self._last.append(ended)
        facts = ended()
        self._outcomes[outcome] += 1
        self._durations.observe(facts.since_s)
        self._rejected += rejected
        return facts

    def facts(self, now: float, *, ready: bool, reason: str | None) -> SparkFacts:
        """The facts, with the state of the session."""
        running = [run.progress for run in self._running]
        return SparkFacts(
            channel=self._channel,
            ready=ready,
            reason=reason,
            jobs=dict(self._outcomes),
            job_durations=self._durations,
            batch_records=self._batch_records,
            tasks={
                "active": sum(progress.tasks_active for progress in running),
                "completed": sum(progress.tasks_done for progress in running),
                "failed": sum(progress.tasks_failed for progress in running),
            },
            mode=self._mode,
            running=tuple(run.facts(now) for run in self._running),
            last=tuple(ended() for ended in self._last),
            rejected=self._rejected,
            bisection_jobs=self._bisection_jobs,
        )

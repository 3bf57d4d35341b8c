"""The Spark jobs of one run of a function in a classic session: run, cancelled, counted. Everything blocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")

_PROPERTIES_OF_A_JOB = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)


class ClassicJobGroup:
    """A :class:`~reactive_kafka.spark.session.seam.JobGroup` of a classic session."""

    def __init__(self, spark: Any, description: str, pool: str) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._description = description
        self._pool = pool
        self._id = f"reactive-kafka-{uuid4().hex}"  # unique: a cancelled group stays cancelled
        self._ended_jobs: dict[int, dict[int, JobProgress]] = {}  # job -> stage -> its part, none active

    def run(self, job: Callable[[Any], T]) -> T:
        try:
            self._context.setJobGroup(self._id, self._description, interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
            return job(self._spark)
        finally:
            with suppress(Exception):  # with the driver the properties are gone, too; the job's error must be seen
                self._clear_thread()

    def _clear_thread(self) -> None:
        for name in _PROPERTIES_OF_A_JOB:
            self._context.setLocalProperty(name, None)
        self._context.clearJobTags()

    def cancel(self) -> None:
        self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._id)

    def progress(self) -> JobProgress:
        """The stages and tasks so far; only jobs that have not ended are asked for."""
        tracker = self._context.statusTracker()
        stages: dict[int, JobProgress] = {}  # a stage may be shared by several jobs
        for job in tracker.getJobIdsForGroup(self._id):
            stages.update(self._ended_jobs.get(job) or self._stages_of(tracker, job))
        return sum(stages.values(), JobProgress())

    def _stages_of(self, tracker: Any, job: int) -> dict[int, JobProgress]:
        info = tracker.getJobInfo(job)
        if info is None:  # forgotten by Spark: long over
            return {}
        stages = {stage: _progress_of(tracker.getStageInfo(stage)) for stage in info.stageIds}
        if info.status != "RUNNING" and not any(stage.tasks_active for stage in stages.values()):
            begun = {number: stage for number, stage in stages.items() if stage.tasks_done or stage.tasks_failed}
            stages = self._ended_jobs[job] = begun  # the others were skipped
        return stages

    def is_over(self) -> bool:
        with suppress(Exception):  # a private name; without it the answer may be some milliseconds old
            self._context._jsc.sc().listenerBus().waitUntilEmpty(1_000)
        active = self.progress().tasks_active
        return active == 0 and set(self._context.statusTracker().getJobIdsForGroup(self._id)) <= set(self._ended_jobs)


def _progress_of(stage: Any) -> JobProgress:
    if stage is None:  # forgotten by Spark
        return JobProgress()
    return JobProgress(
        stages=1,
        stages_done=int(stage.numCompletedTasks == stage.numTasks),
        tasks=stage.numTasks,
        tasks_done=stage.numCompletedTasks,
        tasks_active=stage.numActiveTasks,
        tasks_failed=stage.numFailedTasks,
    )

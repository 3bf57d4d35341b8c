"""How far the Spark jobs of one batch have come. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Stages and tasks of all Spark jobs that one run of a function has started so far.

    Stages that Spark skips, because their result is there already, are not counted once their job has ended.

    Attributes:
        stages: Those that Spark knows of so far; a function may start more.
        tasks_failed: Those that failed and ran again count, too.
    """

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_active: int = 0
    tasks_failed: int = 0

    def __add__(self, other: JobProgress) -> JobProgress:
        return JobProgress(
            self.stages + other.stages,
            self.stages_done + other.stages_done,
            self.tasks + other.tasks,
            self.tasks_done + other.tasks_done,
            self.tasks_active + other.tasks_active,
            self.tasks_failed + other.tasks_failed,
        )

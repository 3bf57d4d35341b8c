"""The progress of the Spark jobs of one batch. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Stages and tasks of all Spark jobs that one run of a function has started so far.

    Stages that Spark skips, because it has their result, are not counted once their job has ended.

    Attributes:
        stages: Those that Spark knows so far; a function may start more.
        tasks_failed: Includes those that ran again.
    """

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_active: int = 0
    tasks_failed: int = 0

    def __add__(self, other: JobProgress) -> JobProgress:
        return JobProgress(*map(add, astuple(self), astuple(other)))

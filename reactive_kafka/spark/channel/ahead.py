"""The DataFrame of a batch, made before its call: while the job before it runs, or while its plan
is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.runner import Made
from reactive_kafka.spark.channel.settle import JobContext


class Ahead:
    """A DataFrame on its way. Made in vain it costs no more than its making: nothing is read or
    written for it.
    """

    def __init__(self, context: JobContext, runs: Sequence[RecordRun]) -> None:
        self._planned = _planned(runs)
        parts = [run.part(context.group_id) for run in runs]
        self.frame: asyncio.Task[Made | None] = asyncio.create_task(
            context.runner.make(parts), name="Spark DataFrame"
        )

    def only_for(self, runs: Sequence[RecordRun]) -> Ahead | None:
        """It, if these are the records; otherwise it is dropped."""
        if self._planned == _planned(runs):
            return self
        self.drop()
        return None

    def has(self, lane: Lane) -> bool:
        """Whether some of the records are of this lane."""
        return any(of is lane for of, _ in self._planned)

    def drop(self) -> None:
        """It is not needed."""
        self.frame.cancel()


def _planned(runs: Sequence[RecordRun]) -> set[tuple[Lane, PlannedRange]]:
    return {(run.lane, run.planned) for run in runs}

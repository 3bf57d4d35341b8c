"""The DataFrame of a batch, made while the job before it runs, or while its plan is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.runner import BatchFrame
from reactive_kafka.spark.channel.settle import JobContext
from reactive_kafka.tracking.plans import PlannedRange


class FrameAhead:
    """A task that makes the DataFrame of a batch. Nothing is read or written for it yet."""

    def __init__(self, context: JobContext, runs: Sequence[RecordRun]) -> None:
        self._ranges = _ranges(runs)
        parts = [run.part(context.group_id) for run in runs]
        self.frame: asyncio.Task[BatchFrame | None] = asyncio.create_task(
            context.runner.make(parts), name="Spark DataFrame"
        )

    def only_for(self, runs: Sequence[RecordRun]) -> FrameAhead | None:
        """Return itself if it was made for these runs; otherwise drop it and return None."""
        if self._ranges == _ranges(runs):
            return self
        self.drop()
        return None

    def has(self, lane: Lane) -> bool:
        """True if some of its records are of this lane."""
        return any(range_lane is lane for range_lane, _ in self._ranges)

    def drop(self) -> None:
        """Stop making it, because nothing needs it."""
        self.frame.cancel()


def _ranges(runs: Sequence[RecordRun]) -> set[tuple[Lane, PlannedRange]]:
    return {(run.lane, run.planned) for run in runs}

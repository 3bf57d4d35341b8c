"""Runs records on Spark, once or several times, until their outcome is known."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.attempts import Again, Attempts, Leave, Split
from reactive_kafka.spark.batches.batch import spark_range
from reactive_kafka.spark.batches.runs import RecordRun
from reactive_kafka.spark.channel.context import JobContext
from reactive_kafka.spark.channel.settle import Failed, RunOutcome, Worked


class Execution:
    """The attempts of one job.

    Attributes:
        retries: Attempts after the first one.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._no_waits: Future[None] = asyncio.get_running_loop().create_future()
        self.retries = 0

    def stop_waiting(self) -> None:
        """End the waits between attempts; what runs goes on."""
        if not self._no_waits.done():
            self._no_waits.set_result(None)

    async def run(self, runs: Sequence[RecordRun], attempts: Attempts) -> RunOutcome | Split | None:
        """Run records until their outcome is known.

        Returns:
            None if there is none: waits have ended, or the channel stops.
        """
        context = self._context
        while True:
            try:
                return Worked(
                    await context.runner.run_batch(
                        [run.part(context.group_id) for run in runs],
                        attempts.begin(),
                        alone=attempts.alone,
                        supersedes=self._supersedes(runs),
                    )
                )
            except OffloadError as error:
                if isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
                    context.signals.exit(error.__cause__)
                    return None
                follows = attempts.after(error)
            if isinstance(follows, Again):
                self.retries += 1
                if follows.after_s and await self._stopped_within(follows.after_s):
                    return None
            elif isinstance(follows, Split):
                return follows
            elif isinstance(follows, Leave):
                context.signals.fail(follows.error)
                return None
            else:
                return Failed(follows.error)

    def _supersedes(self, runs: Sequence[RecordRun]) -> tuple[str, ...]:
        """The ids of the failed ranges that held these runs."""
        return tuple(
            spark_range(self._context.group_id, run.tracker.partition, start, until).id
            for run in runs
            for start, until in run.planned.failed
        )

    async def _stopped_within(self, wait_s: float) -> bool:
        await asyncio.wait({self._no_waits}, timeout=wait_s)
        return self._no_waits.done()

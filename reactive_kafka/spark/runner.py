"""A channel's batches on Spark: pieces of columns in, the user's function run over them, outcomes counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.schema import SparkChannelSettings
from reactive_kafka.errors import SessionLostError
from reactive_kafka.observe.facts import DurationHistogram, SparkFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batch import SparkBatch, SparkRange, batch_id, spark_range
from reactive_kafka.spark.columns import offsets
from reactive_kafka.spark.engine import SparkEngine
from reactive_kafka.spark.session import TaskCounts

if TYPE_CHECKING:
    import pyarrow as pa

Pieces = Sequence[tuple[TopicPartition, "pa.RecordBatch"]]


class SparkRunner:
    """Runs one channel's Spark function over batches, and counts.

    Args:
        engine: The application's session.
        function: The user's, checked by :func:`~reactive_kafka.spark.batch.check_spark_function`.
        channel: The channel's name, for errors and facts.
        settings: The channel's ``spark`` table.
        group_id: The channel's consumer group: part of every range's id.
        clock: Measures durations.
    """

    def __init__(
        self,
        engine: SparkEngine,
        function: Callable[[Any, SparkBatch], object],
        channel: str,
        settings: SparkChannelSettings,
        *,
        group_id: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._engine = engine
        self._function = function
        self._channel = channel
        self._settings = settings
        self._group_id = group_id
        self._clock = clock
        self._outcomes = {"ok": 0, "failed": 0, "cancelled": 0, "lost": 0}
        self._durations = DurationHistogram()
        self._batch_records = 0
        self._tasks = TaskCounts()

    async def run_batch(self, pieces: Pieces, attempt: int) -> None:
        """Run the function over *pieces*. When it returns, the records are done; nothing is kept of them here.

        Args:
            pieces: Rows of :func:`~reactive_kafka.spark.columns.schema` with their partitions, not empty,
                in the order of their offsets within each partition.
            attempt: 1 for the first run of these records.

        Raises:
            OffloadError: The records are to be nacked; one line for people, the user's error is ``__cause__``.

        Cancellation:
            The job is cancelled and over (see :meth:`SparkEngine.run`); the records are neither done nor failed.
        """
        ranges = ranges_of(self._group_id, pieces)
        self._batch_records = sum(piece.num_rows for _, piece in pieces)
        self._tasks = TaskCounts()
        started: float | None = None

        def job(spark: Any) -> None:
            nonlocal started
            started = self._clock.monotonic()
            self._function(data_frame(spark, pieces), SparkBatch(batch_id(ranges), ranges, spark, attempt))

        outcome = "failed"
        try:
            await self._engine.run(
                job,
                timeout_s=self._settings.timeout_s,
                description=self._description(ranges, attempt),
                on_tasks=self._note_tasks,
            )
            outcome = "ok"
        except SessionLostError:
            outcome = "lost"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            if started is not None:  # one that was cancelled while it waited was no job
                self._outcomes[outcome] += 1
                self._durations.observe(self._clock.monotonic() - started)

    def facts(self) -> SparkFacts:
        """The session's state and this channel's counts."""
        return SparkFacts(
            channel=self._channel,
            ready=self._engine.ready,
            reason=self._engine.reason,
            jobs=dict(self._outcomes),
            job_durations=self._durations,
            batch_records=self._batch_records,
            tasks={
                "active": self._tasks.active,
                "completed": self._tasks.completed,
                "failed": self._tasks.failed,
            },
        )

    def _note_tasks(self, tasks: TaskCounts) -> None:
        self._tasks = tasks

    def _description(self, ranges: Sequence[SparkRange], attempt: int) -> str:
        where = ", ".join(map(str, ranges[:3])) + (", ..." if len(ranges) > 3 else "")
        again = f", attempt {attempt}" if attempt > 1 else ""
        return f"channel {self._channel!r}: Spark batch of {self._batch_records} records ({where}){again}"


def ranges_of(group_id: str, pieces: Pieces) -> tuple[SparkRange, ...]:
    """The ranges that *pieces* cover, by topic and partition: from the first record to the last."""
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for partition, piece in pieces:
        first, last = offsets(piece)
        start, until = ends.get(partition, (first, last + 1))
        ends[partition] = min(start, first), max(until, last + 1)
    return tuple(spark_range(group_id, partition, *ends[partition]) for partition in sorted(ends))


def data_frame(spark: Any, pieces: Pieces) -> Any:
    """A DataFrame of all rows; what is behind it was copied to the driver.

    The pieces become one first: Spark makes a partition of each, and 28 of them took twice as long as 5.
    """
    import pyarrow as pa

    table = pa.Table.from_batches([piece for _, piece in pieces])
    return spark.createDataFrame(table.combine_chunks())

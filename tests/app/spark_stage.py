"""A Spark that tests lead by the hand: jobs run on the loop, in virtual time, and come to what a
test wants.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka import App, SparkBatch
from reactive_kafka.errors import BadDataError, ClusterError, OffloadError
from reactive_kafka.events import Observer
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.testing import MemoryBroker
from reactive_kafka.tracking.metadata.codec import decode
from tests.app.helpers import Recorder, tp

LETTERS = "dead-letter-topic-orders"
DEAD: dict[str, Any] = {"failure_strategy": "dead-letter-queue"}

Outcome = BaseException | None


@dataclass
class Job:
    """One run of the function."""

    batch: SparkBatch
    rows: list[dict[str, Any]]
    alone: bool
    ended: asyncio.Future[Outcome] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    is_over: bool = False
    was_cancelled: bool = False
    # Tells the application of its stages and tasks.
    look: Callable[[JobProgress], None] = lambda _: None

    @property
    def values(self) -> list[Any]:
        return [json.loads(row["value"]) for row in self.rows]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in self.rows]

    def progress(self, *, tasks: int, done: int) -> None:
        """Tell the application how many tasks of the job there are, and are done."""
        self.look(JobProgress(tasks=tasks, tasks_done=done))

    def end(self, outcome: Outcome = None) -> None:
        """Let it come to its end."""
        self.ended.set_result(outcome)


class Frame:
    """The rows of a batch: as much of a DataFrame as the functions here look at."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def union(self, other: Frame) -> Frame:
        return Frame(self.rows + other.rows)


class Reader:
    """``spark.read``, on the logs of the in-memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._options: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        assert name == "kafka"
        return self

    def options(self, **options: str) -> Reader:
        self._options = options
        return self

    def load(self) -> Frame:
        starts, ends = (
            json.loads(self._options["startingOffsets"]),
            json.loads(self._options["endingOffsets"]),
        )
        rows = []
        for topic, partitions in sorted(starts.items()):
            for partition, start in sorted(partitions.items()):
                for record in self._broker.log(tp(int(partition), topic)):
                    if start <= record.offset < ends[topic][partition]:
                        at = {"topic": topic, "partition": int(partition), "offset": record.offset}
                        rows.append({**at, "value": record.value, "key": record.key})
        return Frame(rows)


class Spark:
    """A session."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.read = Reader(broker)

    def createDataFrame(self, table: Any) -> Frame:
        return Frame(table.to_pylist())


class Engine:
    """Has the face of a SparkEngine. By itself every job works at once.

    Attributes:
        jobs: Every run of the function so far.
        judge: What a job comes to at once; ``WAITS``: what the test says, later.
        inside: What the function does.
        late_s: How long a job goes on after it was cancelled.
        is_open: Whether a channel has asked for Spark.
    """

    driver_pid = None

    def __init__(self, broker: MemoryBroker) -> None:
        self.spark = Spark(broker)
        self.jobs: list[Job] = []
        self.judge: Callable[[Job], Outcome | str] = lambda job: None
        self.inside: Callable[[SparkBatch], None] = lambda batch: None
        self.late_s = 0.0
        self.is_open = False
        self.reason: str | None = None
        self._up = asyncio.Event()
        self._up.set()

    @property
    def ready(self) -> bool:
        return self.reason is None

    def go_away(self, error: ClusterError) -> None:
        """Jobs that run fail with *error*, and those to come wait until it is back: as the engine's
        own.
        """
        self.reason = str(error)
        self._up.clear()
        for job in self.running:
            job.end(error)

    def come_back(self) -> None:
        """Jobs can run again."""
        self.reason = None
        self._up.set()

    @property
    def running(self) -> list[Job]:
        return [job for job in self.jobs if not job.is_over]

    async def start(self, fails: object = None) -> None:
        self.open()

    def prepare(self, fails: object = None) -> None: ...

    def open(self) -> None:
        self.is_open = True

    async def stop(self) -> None: ...

    async def run(
        self,
        job: Callable[[Any], Any],
        *,
        timeout_s: float,
        description: str,
        pool: str = "default",
        alone: bool = False,
        cancel_limit_s: float | None = None,
        on_progress: Callable[[JobProgress], None] = lambda _: None,
    ) -> Any:
        await self._up.wait()
        self._now = (alone, on_progress)
        mine: Job | None = None
        try:
            try:
                result = job(self.spark)
            except Exception as error:
                mine = self.jobs[-1]
                raise OffloadError(f"{description}: {error}") from error
            mine = self.jobs[-1]
            outcome = self.judge(mine)
            if outcome == WAITS:
                outcome = await self._end_of(mine)
            if isinstance(outcome, BaseException):
                raise outcome
            return result
        finally:
            if mine is not None:
                mine.is_over = True

    async def make(self, call: Callable[[Any], Any]) -> Any:
        return call(self.spark)

    async def _end_of(self, job: Job) -> Outcome:
        try:
            return await job.ended
        except asyncio.CancelledError:
            job.was_cancelled = True
            if self.late_s:
                late = asyncio.ensure_future(asyncio.sleep(self.late_s))
                while not late.done():
                    try:
                        await asyncio.wait({late})
                    except asyncio.CancelledError:
                        continue
            raise

    def began(self, rows: list[dict[str, Any]], batch: SparkBatch) -> Job:
        """The function was called."""
        alone, look = self._now
        job = Job(batch, rows, alone, look=look)
        self.jobs.append(job)
        self.inside(batch)
        return job


WAITS = "waits"


def spark_app(
    broker: MemoryBroker,
    recorder: Observer | None = None,
    outgoing: Mapping[str, Any] | None = None,
    **clicks: Any,
) -> tuple[App, Engine]:
    """An application whose channel orders is a Spark channel, and its Spark."""
    spark = {"batch_max_wait": 0.1, "batch_max_records": 100, **clicks.pop("spark", {})}
    settings = {"group_id": "billing", "auto_offset_reset": "earliest", "spark": spark, **clicks}
    app = App(
        {
            "incoming": {"orders": settings},
            "outgoing": outgoing or {},
            "spark": {"jars": "jars"},
        },
        observer=recorder or Recorder(),
    )
    engine = Engine(broker)
    app._spark_engine = engine

    @app.spark("orders")
    def function(df: Any, batch: SparkBatch) -> None:
        engine.began(df.rows, batch)

    return app, engine


def bad_if(*bad: Any) -> Callable[[Job], Outcome | str]:
    """Jobs fail over their data where one of these values is among it."""
    return lambda job: BadDataError("bad data") if set(bad) & set(job.values) else None


def ranges(jobs: Sequence[Job]) -> list[list[str]]:
    """Of each job the ranges, for people."""
    return [[str(one) for one in job.batch.ranges] for job in jobs]


def beside(job: Job, *engines: Engine) -> list[Job]:
    """The jobs that run at this moment, on any of these, and share a record with a job that
    begins.
    """
    running = [other for engine in engines for other in engine.running if other is not job]
    return [other for other in running if set(other.offsets) & set(job.offsets)]


def stored(broker: MemoryBroker, partition: int = 0) -> tuple[int | None, list[str]]:
    """What the group has of a partition: the position, and the ranges that are planned from
    there.
    """
    kept = broker.committed("billing").get(tp(partition))
    if kept is None:
        return None, []
    return kept.offset, [str(plan) for plan in decode(kept.metadata, kept.offset).plans]


def letters(broker: MemoryBroker, partitions: int = 1) -> list[bytes | None]:
    """The dead letters of orders."""
    return [
        record.value for number in range(partitions) for record in broker.log(tp(number, LETTERS))
    ]

"""A Spark without Java: an engine in virtual time that fails, hangs, dies and answers late, as its
scripts say.

The user's function runs at once, on the loop, and leaves a :class:`Script` of what its job does
over time. What the job does to the outside (its *effects*) happens while the script is played.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
    WorkerLostError,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.ledger import JobProgress

Ending = Literal["ok", "bad", "code", "worker", "kills", "hangs"]
"""How a script ends: its function returns, raises over its data or its code, loses a Python worker,
ends its own driver, or never ends by itself."""

CANCEL_LIMIT_S = 10.0
_ERRORS: dict[str, type[OffloadError]] = {
    "bad": BadDataError,
    "code": OffloadError,
    "worker": WorkerLostError,
}


class ScriptedError(Exception):
    """What a function raises where its script says so."""


class Row(NamedTuple):
    """A row of a data frame: as much of it as the functions here look at."""

    tp: tuple[str, int]
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Script:
    """What a job does.

    Attributes:
        steps: Seconds after the step before, and what happens then.
        ending: What comes after the last step.
        late_s: How long it goes on after it was cancelled; infinite: it does not end.
        over: Called once, with the outcome, when the job does nothing any more, or was given up
            (``stuck``).
    """

    steps: Sequence[tuple[float, Callable[[], None]]]
    ending: Ending
    late_s: float
    over: Callable[[str], None]


class Job:
    """One run of a function."""

    def __init__(self) -> None:
        self.script: Script | None = None
        self.player: asyncio.Future[str] | None = None
        # What it ran on has ended.
        self.gone = asyncio.Event()
        self._is_over = False

    def end(self, outcome: str) -> None:
        """Something else than its script ends it."""
        self.gone.set()
        if self.player is not None and not self.player.done():
            self.player.set_result(outcome)

    def over(self, outcome: str) -> None:
        """Tell what became of it, the first time."""
        if self.script is not None and not self._is_over:
            self._is_over = True
            self.script.over(outcome)


class FakeEngine:
    """Has the face of :class:`reactive_kafka.spark.session.spark_engine.SparkEngine`.

    Args:
        broker: Whose logs its executors read.
        starts_in_s: How long Spark takes to come up, at the start and after its driver's end.
    """

    driver_pid: int | None = 4711

    def __init__(self, broker: MemoryBroker, starts_in_s: float) -> None:
        self.broker = broker
        self.starts_in_s = starts_in_s
        self._is_opened = False
        self._is_up = False
        self._is_away = False
        self._is_dead = False
        self._jobs: list[Job] = []
        self._alone: Job | None = None
        self._queue: deque[Job] = deque()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    # -- the engine's face

    @property
    def ready(self) -> bool:
        return self._is_up and not self._is_away

    @property
    def reason(self) -> str | None:
        return None if self.ready else "no executors" if self._is_up else "Spark is starting"

    @property
    def is_open(self) -> bool:
        return self._is_opened

    async def start(self, fails: object = None) -> None:
        self.open()

    def prepare(self, fails: object = None) -> None: ...

    def open(self) -> None:
        if not self._is_opened:
            self._is_opened = True
            self._come_up()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._is_up = False
        for job in self._jobs:
            job.end("cancelled")

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
        mine = Job()
        await self._turn(mine, alone)
        try:
            on_progress(JobProgress(stages=1, tasks=1, tasks_active=1))
            limit_s = CANCEL_LIMIT_S if cancel_limit_s is None else cancel_limit_s
            return await self._run(mine, job, timeout_s, limit_s, description)
        finally:
            self._jobs.remove(mine)
            self._alone = None if self._alone is mine else self._alone
            self._change()

    async def make(self, call: Callable[[Any], Any]) -> Any:
        # The frames of this session are bound to their job.
        return None

    # -- faults

    def lose_driver(self) -> None:
        """The driver ends, and every job with it; another one comes up."""
        self._is_up = False
        outcome = "lost alone" if len(self._jobs) == 1 else "lost beside"
        for job in self._jobs:
            job.end(outcome)
        self._come_up()

    def away(self, is_away: bool, *, raises: bool) -> None:
        """The executors go, or come back; jobs hang meanwhile, or those that run fail at once."""
        self._is_away = is_away
        for job in self._jobs if raises else ():
            job.end("cluster")
        self._change()

    def kill(self) -> None:
        """The process is killed, and its driver with it: nothing that runs has effects any more,
        nothing returns.
        """
        self._is_dead = True
        for job in self._jobs:
            job.script = None
            job.gone.set()

    # -- how it works

    def _come_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self.starts_in_s, self._is_there)

    def _is_there(self) -> None:
        self._is_up = True
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _turn(self, job: Job, alone: bool) -> None:
        """Wait until Spark is ready and it is this job's turn."""
        self._queue.append(job)
        try:
            while not self._may_start(job, alone):
                await self._changed.wait()
        finally:
            self._queue.remove(job)
            self._change()
        self._jobs.append(job)
        self._alone = job if alone else None

    def _may_start(self, job: Job, alone: bool) -> bool:
        if self._is_dead or not self.ready or self._queue[0] is not job:
            return False
        return self._alone is None and not (alone and self._jobs)

    async def _run(
        self, mine: Job, job: Callable[[Any], Any], timeout_s: float, limit_s: float, what: str
    ) -> Any:
        error: Exception | None = None
        result = None
        try:
            result = job(FakeSession(self, mine))
        except ScriptedError as raised:
            error = raised
        # Its function was not reached: the data frame could not be made.
        if mine.script is None:
            raise OffloadError(f"{what}: {error}") from error
        outcome = await self._outcome(mine, timeout_s, limit_s, what)
        mine.over(outcome)
        if outcome == "ok":
            return result
        if outcome in _ERRORS:
            raise _ERRORS[outcome](f"{what}: {error}") from error
        if outcome.startswith("lost"):
            raise SessionLostError(f"{what}: the driver is gone", was_alone=outcome == "lost alone")
        if outcome == "cluster":
            raise ClusterError(f"{what}: no executors")
        if outcome == "stuck":
            raise JobStuckError(f"{what}: it does not end")
        raise JobTimeoutError(f"{what}: cancelled after {timeout_s:g} s")

    async def _outcome(self, mine: Job, timeout_s: float, limit_s: float, what: str) -> str:
        """Play the script until it ends, fails, is cut off by a fault, or by the timeout."""
        assert mine.script is not None
        mine.player = asyncio.get_running_loop().create_future()
        steps = asyncio.create_task(self._play(mine, mine.script, mine.player), name="spark job")
        try:
            await asyncio.wait({mine.player}, timeout=timeout_s)
        except asyncio.CancelledError:
            await self._cancel(mine, steps, limit_s)
            mine.over("cancelled")
            raise
        if mine.player.done():
            steps.cancel()
            return mine.player.result()
        was_away = self._is_away
        if not await self._cancel(mine, steps, limit_s):
            return "stuck"
        return "cluster" if was_away else "timeout"

    async def _play(self, mine: Job, script: Script, player: asyncio.Future[str]) -> None:
        for after_s, step in script.steps:
            await asyncio.sleep(after_s)
            while self._is_away:
                await self._changed.wait()
            if mine.script is None:
                # The process was killed.
                break
            step()
        if mine.script is None or script.ending == "hangs":
            return
        if script.ending == "kills":
            self.lose_driver()
        elif not player.done():
            player.set_result(script.ending)

    async def _cancel(self, mine: Job, steps: asyncio.Task[None], limit_s: float) -> bool:
        """Wait until the job has ended, or the limit is over; nothing interrupts this. Whether it
        has ended.
        """
        script = mine.script
        late_s = script.late_s if script is not None else 0.0
        await _through(_within(mine.gone.wait(), min(late_s, limit_s)))
        steps.cancel()
        if late_s <= limit_s or mine.gone.is_set():
            return True
        mine.over("stuck")
        return False


async def _within(work: Any, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


async def _through(work: Any) -> None:
    """Await something to its end; a cancellation meanwhile is that of who waits already."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue


class FakeSession:
    """As much of a ``SparkSession`` as runner and functions ask for."""

    def __init__(self, engine: FakeEngine, job: Job) -> None:
        self._engine = engine
        self._job = job

    def play(self, script: Script) -> None:
        """What the job of this run does."""
        self._job.script = script

    def createDataFrame(self, table: Any) -> FakeFrame:
        columns = table.select(["topic", "partition", "offset", "value"]).to_pylist()
        return FakeFrame(
            [Row((one["topic"], one["partition"]), one["offset"], one["value"]) for one in columns]
        )

    @property
    def read(self) -> FakeReader:
        return FakeReader(self._engine.broker)


class FakeReader:
    """Reads ranges of the memory broker's logs as Spark's Kafka source does."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._options: dict[str, str] = {}

    def format(self, name: str) -> FakeReader:
        assert name == "kafka"
        return self

    def option(self, name: str, value: Any) -> FakeReader:
        self._options[name.lower()] = str(value)
        return self

    def options(self, **options: Any) -> FakeReader:
        for name, value in options.items():
            self.option(name, value)
        return self

    def load(self) -> FakeFrame:
        """The rows that are still there.

        Raises:
            ScriptedError: An offset is no more, or not yet, in the log.
        """
        starts, ends = (
            json.loads(self._options["startingoffsets"]),
            json.loads(self._options["endingoffsets"]),
        )
        assert {topic: set(numbers) for topic, numbers in starts.items()} == {
            topic: set(numbers) for topic, numbers in ends.items()
        }
        rows: list[Row] = []
        for topic, numbers in starts.items():
            for number, start in numbers.items():
                rows += self._rows(TopicPartition(topic, int(number)), start, ends[topic][number])
        return FakeFrame(rows)

    def _rows(self, tp: TopicPartition, start: int, until: int) -> list[Row]:
        if self._broker.end(tp) < until or self._broker._log(tp).start > start:
            raise ScriptedError(f"some data of {tp} [{start}, {until}) is lost")
        return [
            Row((tp.topic, tp.partition), one.offset, one.value or b"")
            for one in self._broker.log(tp)
            if start <= one.offset < until
        ]


class FakeFrame:
    """Rows; what is done to columns changes none of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = sorted(rows)

    def union(self, other: FakeFrame) -> FakeFrame:
        return FakeFrame([*self.rows, *other.rows])

    unionByName = union

    def select(self, *_: Any) -> FakeFrame:
        return self

    selectExpr = withColumn = withColumns = select

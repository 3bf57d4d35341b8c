"""The worker of a Spark channel: collects columns instead of records, and runs a job a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from math import inf
from typing import Any, Protocol

from reactive_kafka.delivery import cuts
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.workers import Workers, WorkerSetup
from reactive_kafka.observe.events import Observer
from reactive_kafka.partitions.budget import MAX_WINDOW_RECORDS
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import PIECE_RECORDS, record_batch
from reactive_kafka.spark.channel.job import Host as JobHost
from reactive_kafka.spark.channel.job import Outcome, Runner, SparkJob
from reactive_kafka.spark.channel.runs import Fetch, Run, runs_of, weigh

MOST_RESERVE_S = 10.0
"""How much of a stop's time is kept for ending jobs, at most; half of it where that is less."""

NOT_OURS_S = 0.5
"""How long nothing is tried after the group has refused a plan: the rebalance that explains it is on its way."""

READY_EVERY_S = 0.2
"""How often is asked whether Spark is there by now."""

WAITING_BATCHES = 2
"""With so many times ``batch_max_bytes`` waiting nothing more is fetched."""


class Host(JobHost, Protocol):
    """What the dispatcher needs from its channel."""

    def progress(self, lane: Lane) -> None:
        """Records of a lane were taken, or a job has let go of it: there may be room, or a drain may be over."""


class SparkDispatcher(Workers):
    """Runs Spark jobs on what waits in the lanes, ``max_concurrent_jobs`` of them at once.

    The pieces in the lanes are Arrow record batches, made from the client's records as they arrive, or Python ranges
    of offsets that executors will read; ``len`` and slicing are all that the lanes need of them. The poison clock
    of a record does not run while its job does.

    Args:
        fetch: Reads records by their offsets, for the dead letters of what executors have read.
    """

    takes_batches = True
    works_elsewhere = True

    def __init__(
        self,
        setup: WorkerSetup,
        runner: Runner,
        host: Host,
        observer: Observer,
        fetch: Fetch,
    ) -> None:
        super().__init__()
        settings = self._settings = setup.settings
        spark = settings.spark
        is_even = spark.max_concurrent_jobs == 1 or setup.lanes.shared
        self._limits = cuts.Limits(spark.batch_max_records, spark.batch_max_bytes, spark.batch_max_wait_s, is_even)
        self._lanes = setup.lanes
        self._runner = runner
        self._host = host
        self._clock = setup.clock
        self._observer = observer
        self._spawn = setup.spawn
        self._totals = setup.totals
        self._fetch = fetch
        self._jobs: dict[SparkJob, None] = {}
        self._unsettled: list[tuple[Run, Outcome]] = []  # their verdicts were cut off, and go on when they come back
        self._weights: dict[TopicPartition, tuple[int, int]] = {}  # records that wait, and their bytes
        self._attempts: dict[tuple[TopicPartition, int, int], int] = {}  # of ranges that are to run again
        self._retry_topics = frozenset(settings.delayed_retry.topics if settings.delayed_retry else ())
        self._names = count(1)
        self._not_before = -inf  # no batch is taken, and no verdict goes on, any sooner
        self._is_running = False
        self._is_closed = False
        self._changed = asyncio.Event()

    # -- what comes in

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        """The columns of the records, which are let go; offsets that executors read stay what they are."""
        return records if isinstance(records, range) else record_batch(partition, records)

    def wants(self, lane: Lane, records: int) -> int:
        """How many records one poll should bring: small pieces, whole planned ranges, and no more than memory holds."""
        if not lane.waiting and self._is_free(lane):
            cuts.forget_empty_plans(lane)
        partition = lane.tracker.partition
        is_shipped = self._settings.spark.mode == "records" or partition.topic in self._retry_topics
        most = PIECE_RECORDS if is_shipped else MAX_WINDOW_RECORDS
        to_come = cuts.still_to_come(lane)
        if to_come:
            return min(to_come, most)
        self._weight(lane)
        is_full = sum(weight for _, weight in self._weights.values()) >= WAITING_BATCHES * self._limits.max_bytes
        if is_full and lane.waiting:  # one in which nothing waits has a piece all the same: none starves another
            return 0
        return min(records, most)

    def work_is_there(self) -> None:
        """Records were put into the lanes, or lanes came back."""
        self._changed.set()
        if not self._is_running:
            self._is_running = True
            self._spawn(self._work, f"spark batches of {self._settings.name}")

    async def _work(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            self._go_on_settling()
            wait = self._wait_s(self._clock.monotonic())
            if wait is None or wait > 0:
                await self._rest(wait)
            elif not self._runner.ready:  # what waits may be let go at once; what was taken waits for its grace
                await self._rest(READY_EVERY_S)
            else:
                self._start_job()

    def _wait_s(self, now: float) -> float | None:
        """How long until there is something to do; None: nobody knows, 0 or less: a batch may be taken."""
        due = self._batch_due()
        if self._unsettled and self._not_before > now:
            due = self._not_before if due is None else min(due, self._not_before)
        return None if due is None else due - now

    def _batch_due(self) -> float | None:
        if len(self._jobs) >= self._settings.spark.max_concurrent_jobs:
            return None
        due = cuts.batch_due(self._free_lanes(), self._limits, self._weight)
        return None if due is None else max(due, self._not_before)

    def _weight(self, lane: Lane) -> int:
        """The bytes that wait in a lane; counted when something has come or was taken."""
        partition, waiting = lane.tracker.partition, lane.waiting
        counted, weight = self._weights.get(partition, (0, 0))
        if counted != waiting:
            weight = sum(weigh(piece) for _, piece in lane.pieces())
            self._weights[partition] = waiting, weight
        return weight

    def _free_lanes(self) -> list[Lane]:
        """Those that may be taken from."""
        free = []
        for lane in self._lanes.whole_lanes():
            if self._is_free(lane):
                cuts.forget_empty_plans(lane)
                if cuts.has_room(lane):
                    free.append(lane)
        return free

    def _is_free(self, lane: Lane) -> bool:
        """Whether nothing of a partition waits for its verdicts, and no job of before it was begun anew still runs."""
        tracker = lane.tracker
        others = [run.tracker for job in self._jobs for run in job.runs if run.tracker is not tracker]
        unsettled = [run.tracker for run, _ in self._unsettled]
        return all(one.partition != tracker.partition for one in others) and tracker not in unsettled

    async def _rest(self, after_s: float | None) -> None:
        try:
            async with asyncio.timeout(after_s):
                await self._changed.wait()
        except TimeoutError:
            pass  # the batch is due

    # -- jobs

    def _start_job(self) -> None:
        runs = runs_of(cuts.take_batch(self._free_lanes(), self._limits, weigh))
        for lane in _lanes_of(runs):
            self._lanes.hold(lane)
        self._start(runs, 1 + max(self._attempts.pop(_name(run), 0) for run in runs))

    def _go_on_settling(self) -> None:
        """Verdicts that were cut off go on where their partition has come straight back."""
        self._unsettled = [one for one in self._unsettled if not one[0].tracker.is_closed]
        back = [one for one in self._unsettled if not one[0].lane.revoked]
        if not back or self._clock.monotonic() < self._not_before:
            return
        self._unsettled = [one for one in self._unsettled if one[0].lane.revoked]
        for lane in _lanes_of([run for run, _ in back]):
            self._lanes.hold(lane)
        self._start([run for run, _ in back], 1, [outcome for _, outcome in back])

    def _start(self, runs: list[Run], attempt: int, outcomes: Sequence[Outcome] | None = None) -> None:
        lanes = _lanes_of(runs)
        job = SparkJob(
            runs, attempt, self._settings, self._runner, self._host, self._fetch, self._clock, self._observer, outcomes
        )
        self._jobs[job] = None

        async def run() -> None:
            try:
                await job.run()
            finally:
                self._ended(job, lanes)

        self._spawn(run, f"spark batch {next(self._names)} of {self._settings.name}")
        for lane in lanes:
            self._host.progress(lane)

    def _ended(self, job: SparkJob, lanes: Iterable[Lane]) -> None:
        """A job is over: what it has not settled waits again, unless it went with its partition."""
        del self._jobs[job]
        self._totals.durations.observe(job.took_s)
        self._totals.retries += job.retries
        for run in reversed(job.left):
            if not run.tracker.is_closed:
                run.give_back()
                self._attempts[_name(run)] = job.attempt
        self._unsettled += job.unsettled
        if job.was_refused or (job.unsettled and job.is_verdicts_only):
            self._not_before = self._clock.monotonic() + NOT_OURS_S
        for lane in lanes:
            self._lanes.release(lane)
            self._host.progress(lane)
        self._changed.set()

    # -- letting go

    def stop_retrying(self) -> None:
        """Waits between attempts end, and their records stay unsettled."""
        for job in self._jobs:
            job.stop_waiting()

    def suspended(self) -> None:
        """Lanes were suspended: waits for another attempt in them end, and their records wait again."""
        self._weights.clear()
        for job in self._jobs:
            if job.is_parked:
                job.stop_waiting()

    def reserve_s(self, most_s: float) -> float:
        """How much of the time that a stop gives, *most_s*, it takes to end the jobs that run."""
        return min(MOST_RESERVE_S, most_s / 2) if self._jobs else 0.0

    async def cut_off(self) -> None:
        """Cancel the jobs of lanes that were parked. Returns when what they do on Spark is over.

        Nothing is settled by it: what ran is put back, and whoever has the partition next runs it again.
        """
        jobs = [job for job in self._jobs if job.is_parked]
        for job in jobs:
            job.cut_off()
        await asyncio.gather(*(job.is_quiet() for job in jobs))

    async def over(self) -> None:
        """Returns when no job runs any more."""
        await asyncio.gather(*(job.is_quiet() for job in self._jobs))

    def abandon(self, lane: Lane) -> None:
        """A partition has gone, or is read anew: its job is cancelled, and until that has ended there is no other."""
        for job in self._jobs:
            if any(run.lane is lane for run in job.runs):
                job.cut_off()
        self._changed.set()

    def close(self) -> None:
        """No work will come any more."""
        self._is_closed = True
        for job in self._jobs:
            job.cut_off()
        self._changed.set()


def _lanes_of(runs: Collection[Run]) -> list[Lane]:
    return list({id(run.lane): run.lane for run in runs}.values())


def _name(run: Run) -> tuple[TopicPartition, int, int]:
    return run.tracker.partition, run.planned.start, run.planned.until

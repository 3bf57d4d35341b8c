"""One batch on its way through Spark: planned, run, run again or split, and its records settled or nacked."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings, RetrySettings
from reactive_kafka.errors import BadDataError, DataLossError, OffloadError
from reactive_kafka.observe.events import Observer, SparkBatchSplit
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.attempts import Again, Attempts, Leave, Split
from reactive_kafka.spark.batches.batch import Part, Rejected, spark_range
from reactive_kafka.spark.batches.bisection import Bisection, Piece, Whole
from reactive_kafka.spark.channel.outcome import Host as VerdictHost
from reactive_kafka.spark.channel.outcome import Verdicts
from reactive_kafka.spark.channel.runs import Fetch, Run

NO_RETRY = RetrySettings()

Wholes = Mapping[TopicPartition, Run]
"""partition -> what a batch that has failed had of it."""


class Runner(Protocol):
    """What runs the batches; see :class:`reactive_kafka.spark.channel.runner.SparkRunner`.

    Attributes:
        ready: Whether a batch would run at once.
    """

    @property
    def ready(self) -> bool: ...

    async def run_batch(
        self, parts: Sequence[Part], attempt: int, *, alone: bool = False, supersedes: tuple[str, ...] = ()
    ) -> Sequence[Rejected]: ...


class Host(VerdictHost, Protocol):
    """What a job needs from its channel."""

    async def store_plans(self, trackers: Iterable[OffsetTracker]) -> bool:
        """Have the group keep what is planned, which may divide it; False if a partition is not ours any more."""

    def fail(self, reason: BaseException) -> bool:
        """The channel stops."""

    def exit(self, reason: BaseException) -> None:
        """The function asked the process to end."""


@dataclass(frozen=True, slots=True)
class Worked:
    """The function has returned."""

    rejected: Sequence[Rejected] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The records are to be nacked."""

    error: OffloadError


Outcome = Worked | Failed


class SparkJob:
    """The records of one batch, from when they were taken until nothing of them runs any more.

    Args:
        attempt: The number of its first run: more than 1 where a job of before was cancelled.
        outcomes: What the runs have come to already: only their verdicts are left to be carried out.

    Attributes:
        left: Runs that nothing has become of: their records wait again.
        unsettled: Runs whose verdicts were not carried out to the end, with what they have come to.
        retries: Attempts after the first one.
        was_refused: The group did not take the plan, so that nothing was run.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        attempt: int,
        settings: IncomingSettings,
        runner: Runner,
        host: Host,
        fetch: Fetch,
        clock: Clock,
        observer: Observer,
        outcomes: Sequence[Outcome] | None = None,
    ) -> None:
        self.runs = runs
        self._attempts = Attempts(settings.retry, splits=self._splits(settings), number=attempt)
        self._has_run = False
        self.left: list[Run] = list(runs) if outcomes is None else []
        self.unsettled: list[tuple[Run, Outcome]] = []
        self.retries = 0
        self.was_refused = False
        self._outcomes = outcomes
        self._settings = settings
        self._group = settings.group_id or settings.name
        self._runner = runner
        self._host = host
        self._observer = observer
        commits = settings.commit_strategy != "ignore" and bool(settings.group_id or settings.checkpoint)
        self._verdicts = Verdicts(host, fetch, commits=commits)
        self._task: asyncio.Task[None] | None = None
        self._hurry: Future[None] = asyncio.get_running_loop().create_future()  # nobody waits for another attempt
        self._stop: Future[None] = asyncio.get_running_loop().create_future()  # nobody waits for verdicts
        self._is_settling = outcomes is not None
        self._is_cut_off = False
        self._over = asyncio.Event()
        self._clock = clock
        self._began = clock.monotonic()

    # -- from start to end

    async def run(self) -> None:
        """Work on the batch until it is over, or was cut off.

        Cancellation:
            The application ends: what runs on Spark is cancelled, and over, first.
        """
        self._task = asyncio.create_task(self._work(), name=f"{asyncio.current_task()}")
        if self._is_cut_off:
            self._task.cancel()
        try:
            await asyncio.wait({self._task})
        except BaseException:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            self._over.set()
        if not self._task.cancelled() or not self._is_cut_off:
            self._task.result()  # a cancellation that is not ours is no end of a batch

    @property
    def attempt(self) -> int:
        """How often its records have run."""
        return self._attempts.number if self._has_run else self._attempts.number - 1

    @property
    def took_s(self) -> float:
        """How long it has been worked on."""
        return self._clock.monotonic() - self._began

    @property
    def is_verdicts_only(self) -> bool:
        """Whether nothing runs on Spark, for what its runs have come to was known."""
        return self._outcomes is not None

    @property
    def is_parked(self) -> bool:
        """Whether a lane of its was parked."""
        return any(run.lane.revoked for run in self.runs)

    def stop_waiting(self) -> None:
        """Waits between attempts end; what runs goes on."""
        _set(self._hurry)

    def cut_off(self) -> None:
        """Cancel what runs on Spark; verdicts that are being carried out are not waited for."""
        self._is_cut_off = True
        _set(self._hurry)
        _set(self._stop)
        if self._task is not None and not self._is_settling:
            self._task.cancel()

    async def is_quiet(self) -> None:
        """Return when nothing of it runs any more."""
        await self._over.wait()

    # -- the way of the batch

    async def _work(self) -> None:
        if self._outcomes is not None:
            for run, known in zip(self.runs, self._outcomes, strict=True):
                await self._settle(run, known)
            return
        for run in self.runs:
            if run.planned not in run.tracker.plans:
                run.tracker.plan(run.planned)
        if not await self._host.store_plans(_trackers_of(self.runs)):
            self.was_refused = True
            return
        if self.is_parked or not _are_planned(self.runs):
            return  # a partition is being let go, or a range was divided: nothing is begun
        outcome = await self._run(self.runs, self._attempts)
        if isinstance(outcome, Split) or (len(self.runs) > 1 and _is_lost(outcome)):
            await self._bisect(outcome.error)
        elif outcome is not None:
            self.left.clear()
            self._is_settling = True
            for run in self.runs:
                await self._settle(run, outcome)

    async def _run(self, runs: Sequence[Run], attempts: Attempts) -> Outcome | Split | None:
        """Run records until something has become of them; None: they are left as they are."""
        while True:
            self._has_run = True
            try:
                return Worked(
                    await self._runner.run_batch(
                        [run.part(self._group) for run in runs],
                        attempts.number,
                        alone=attempts.alone,
                        supersedes=self._supersedes(runs),
                    )
                )
            except OffloadError as error:
                if isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
                    self._host.exit(error.__cause__)
                    return None
                follows = attempts.after(error)
            if isinstance(follows, Again):
                self.retries += 1
                if follows.after_s and await self._stopped_within(follows.after_s):
                    return None
            elif isinstance(follows, Split):
                return follows
            elif isinstance(follows, Leave):
                self._host.fail(follows.error)
                return None
            else:
                return Failed(follows.error)

    def _supersedes(self, runs: Sequence[Run]) -> tuple[str, ...]:
        """The ids of failed ranges that held these."""
        return tuple(
            spark_range(self._group, run.tracker.partition, start, until).id
            for run in runs
            for start, until in run.planned.failed
        )

    async def _stopped_within(self, wait_s: float) -> bool:
        await asyncio.wait({self._hurry}, timeout=wait_s)
        return self._hurry.done()

    # -- bad records

    async def _bisect(self, error: OffloadError) -> None:
        """Run smaller and smaller parts of the batch, until what makes it fail is alone."""
        wholes = {run.tracker.partition: run for run in self.runs}
        if len(wholes) == len(self.runs):
            await self._bisect_one(wholes, error)
            return
        behind = list(self.runs)  # several ranges of one partition, as delayed retries have: each for itself
        while behind:
            run = behind.pop(0)
            if not await self._bisect_one({run.tracker.partition: run}, error, behind):
                return

    async def _bisect_one(self, wholes: Wholes, error: OffloadError, behind: Sequence[Run] = ()) -> bool:
        """Find the bad records of one range each of some partitions; False if it was not done to the end."""
        bisection = Bisection(
            [Whole(partition, run.planned, _offsets(run)) for partition, run in wholes.items()], error
        )
        already = {partition: len(run.planned.failed) for partition, run in wholes.items()}
        if bisection.first_split:
            (whole,) = wholes.values()
            self._replan(whole, bisection.first_split, error)
        while True:
            self.left = [*(_run_of(wholes, piece) for piece in bisection.left), *behind]
            if not await self._nack_found(bisection, wholes):
                return False
            piece = bisection.next()
            if piece is None:
                return True
            run = _run_of(wholes, piece)
            if not await self._host.store_plans([run.tracker]):
                self.was_refused = True
                return False
            if self.is_parked or not _are_planned([run]):
                return False
            number = self._attempts.number + (len(wholes) > 1) + len(piece.planned.failed) - already[piece.partition]
            outcome = await self._run([run], Attempts(NO_RETRY, splits=self._splits(self._settings), number=number))
            if outcome is None:
                return False
            if isinstance(outcome, Worked):
                bisection.worked()
                self.left.remove(run)
                if not await self._settle_one(run, outcome):
                    return False
                continue
            parts = bisection.failed(outcome.error, is_data_error=isinstance(outcome, Split))
            if parts:
                self._replan(run, parts, outcome.error)

    def _replan(self, run: Run, parts: Sequence[Piece], error: OffloadError) -> None:
        """The range has failed as a whole: its parts are ranges of their own from here on."""
        run.tracker.replan(run.planned, *(part.planned for part in parts))
        self._observer.on(
            SparkBatchSplit(
                channel=self._settings.name,
                id=run.part(self._group).range.id,
                records=run.records,
                parts=len(parts),
                reason=str(error),
            )
        )

    async def _nack_found(self, bisection: Bisection, wholes: Wholes) -> bool:
        """Nack what the bisection has found, or given up; False if that was not done to the end."""
        found = [
            (_run_of(wholes, piece), Failed(reason if isinstance(reason, OffloadError) else BadDataError(str(reason))))
            for piece, reason in bisection.take_verdicts()
        ]
        for at, (run, outcome) in enumerate(found, 1):
            if not await self._settle_one(run, outcome):
                self.unsettled += found[at:]
                return False
        return True

    @staticmethod
    def _splits(settings: IncomingSettings) -> bool:
        return settings.spark.on_failure == "bisect"

    # -- verdicts

    async def _settle_one(self, run: Run, outcome: Outcome) -> bool:
        self._is_settling = True
        try:
            await self._settle(run, outcome)
        finally:
            self._is_settling = False
        return not self._is_cut_off and not self.unsettled

    async def _settle(self, run: Run, outcome: Outcome) -> None:
        """Carry out what has become of a run; what is cut off on the way is kept for later."""
        if isinstance(outcome, Worked):
            is_done = await self._verdicts.worked(run, outcome.rejected, self._stop)
        else:
            is_done = await self._verdicts.failed(run, outcome.error, self._stop)
        if not is_done and not run.tracker.is_closed:
            self.unsettled.append((run, outcome))


def _set(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_lost(outcome: Outcome | Split | None) -> TypeGuard[Failed]:
    """Whether executors did not find all of what they were to read: in one of the ranges, and the others may work."""
    return isinstance(outcome, Failed) and isinstance(outcome.error, DataLossError)


def _trackers_of(runs: Iterable[Run]) -> list[OffsetTracker]:
    return list({id(run.tracker): run.tracker for run in runs}.values())


def _are_planned(runs: Iterable[Run]) -> bool:
    """Whether all of them are planned as they were cut: one that the group's position lies inside of was divided."""
    return all(run.planned in run.tracker.plans for run in runs)


def _offsets(run: Run) -> Sequence[int]:
    offset_of = run.tracker.offset_of
    first, last = offset_of(run.first), offset_of(run.end - 1)
    if last - first + 1 == run.records:
        return range(first, last + 1)
    return [offset_of(index) for index in range(run.first, run.end)]


def _run_of(wholes: Wholes, piece: Piece) -> Run:
    whole = wholes[piece.partition]
    return whole.between(whole.first + piece.first, whole.first + piece.stop, piece.planned)

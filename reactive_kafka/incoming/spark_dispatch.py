"""The worker of a Spark channel: collects columns instead of records, and runs a job a batch."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from typing import Any, Protocol

from reactive_kafka.clock import Clock
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import OffloadError, SessionLostError
from reactive_kafka.incoming.crew import Host, Spawn
from reactive_kafka.incoming.lanes import Lane, Lanes, Slice
from reactive_kafka.incoming.message import Message
from reactive_kafka.incoming.worker import Kept
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark import rows
from reactive_kafka.spark.columns import PIECE_RECORDS, record_batch

MAX_LOST_SESSIONS = 2
"""A batch under which the driver has died this often is a bad batch."""


class Runner(Protocol):
    """What runs the batches; see :class:`reactive_kafka.spark.runner.SparkRunner`."""

    async def run_batch(self, pieces: Sequence[tuple[TopicPartition, Any]], attempt: int) -> None: ...


class SparkDispatcher:
    """Runs one Spark job at a time on what waits in the lanes.

    The pieces in the lanes are Arrow record batches, made from the client's records as they arrive; ``len`` and
    slicing are all that the lanes need of them. The poison clock of a record does not run while its job does.
    """

    retries: int = 0
    abandoned: int = 0
    most_at_once: int | None = PIECE_RECORDS
    has_room: bool = False

    def __init__(
        self, settings: IncomingSettings, lanes: Lanes, runner: Runner, host: Host, clock: Clock, spawn: Spawn
    ) -> None:
        self._settings = settings
        self._lanes = lanes
        self._runner = runner
        self._host = host
        self._clock = clock
        self._spawn = spawn
        self._is_running = False
        self._is_closed = False
        self._work_came = asyncio.Event()
        self.kept = Kept()
        self.durations = DurationHistogram()

    def keep(self, partition: TopicPartition, records: Sequence[RawRecord]) -> Any:
        """The columns of the records; the records themselves are let go."""
        return record_batch(partition, records)

    def work_is_there(self) -> None:
        """Records were put into the lanes."""
        self._work_came.set()
        if not self._is_running:
            self._is_running = True
            self._spawn(self._work, f"spark batches of {self._settings.name}")

    def stop_retrying(self) -> None:
        """A job that runs is waited for like any handler; nothing is tried again in place."""

    def revoked(self) -> None:
        """Nothing is tried again in place."""

    def abandon(self, lane: Lane) -> None:
        """A job ends by itself, or at its timeout; until then there is no other."""

    def owes(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """A batch waits for all of its nacks."""

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Message[Any]]:
        """The poison clock of a record does not run while its job does: there is nothing to cancel."""
        return []

    def close(self) -> None:
        """No work will come any more."""
        self._is_closed = True
        self._work_came.set()

    async def _work(self) -> None:
        spark = self._settings.spark
        while not self._is_closed:
            self._work_came.clear()
            due = self._lanes.batch_due(spark.batch_max_records, spark.batch_max_wait_s)
            wait = None if due is None else due - self._clock.monotonic()
            if wait is None or wait > 0:
                await self._rest(wait)
                continue
            slices = self._lanes.take_batch(spark.batch_max_records, spark.batch_max_bytes, _bytes_of)
            try:
                await self._run(slices)
            finally:
                for lane in {id(part.lane): part.lane for part in slices}.values():
                    self._lanes.release(lane)
                    self._host.progress(lane)

    async def _rest(self, after_s: float | None) -> None:
        try:
            async with asyncio.timeout(after_s):
                await self._work_came.wait()
        except TimeoutError:
            pass  # the batch is due

    async def _run(self, slices: list[Slice]) -> None:
        pieces = [(part.lane.tracker.partition, part.records) for part in slices]
        started = self._clock.monotonic()
        for attempt in range(1, MAX_LOST_SESSIONS + 1):
            try:
                await self._runner.run_batch(pieces, attempt)
            except SessionLostError as error:
                if attempt == MAX_LOST_SESSIONS:
                    await self._nack(slices, error)
            except OffloadError as error:
                await self._nack(slices, error)
                break
            else:
                for part in slices:
                    part.lane.tracker.settle_range(part.first, part.first + len(part.records))
                    self._host.settled(part.lane.tracker)
                break
        self.durations.observe(self._clock.monotonic() - started)

    async def _nack(self, slices: list[Slice], error: OffloadError) -> None:
        """Nack every record, and hold back what comes after them until that is carried out."""
        verdicts = [
            self._host.nack(Message(None, record, part.lane.tracker, part.first + at), error)
            for part in slices
            for at, record in enumerate(rows.records(part.records))
        ]
        await asyncio.wait(verdicts)


def _bytes_of(piece: Any) -> int:
    return int(piece.nbytes)

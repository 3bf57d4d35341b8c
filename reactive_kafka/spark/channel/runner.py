"""A channel's batches on Spark: calls the user's function with their rows, and reports and counts
the outcomes.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ClusterError, DecodeError
from reactive_kafka.formats import SchemaMissing, Schemas
from reactive_kafka.formats.registered.schemas import Ask
from reactive_kafka.observe.events import (
    PROGRESS_EVERY_S,
    Observer,
    SparkBatchEnded,
    SparkBatchProgress,
)
from reactive_kafka.observe.facts import SparkFacts
from reactive_kafka.observe.wording import count_of, ranges_text
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.batch import BatchPart, Rejected, Rejects, SparkBatch
from reactive_kafka.spark.batches.columns import data_frame, first_headers
from reactive_kafka.spark.batches.function import SparkFunction
from reactive_kafka.spark.batches.ledger import BatchOutcome, BatchRun, JobProgress, Ledger
from reactive_kafka.spark.session.engine import SparkEngine
from reactive_kafka.spark.session.texts import with_texts
from reactive_kafka.tracing.attributes import MOST_LINKS, LinkedRecord
from reactive_kafka.tracing.call_spans import CallSpans

# Of a schema registry, as far as a batch needs them.
Answers = dict[Ask, Any]
# Session, parts of a batch -> a DataFrame of their rows.
Source = Callable[[Any, Sequence[BatchPart]], Any]


@dataclass(frozen=True, slots=True)
class Missing:
    """A batch cannot be read before these questions have their answers; its function was not
    called.
    """

    asks: Sequence[Ask]


@dataclass(frozen=True, slots=True)
class Made:
    """A DataFrame of a batch's rows, good for the session that it was made with."""

    spark: Any
    rows: Any


@dataclass(eq=False)
class SparkRunner:
    """Runs one channel's Spark function over batches, any number at once, and counts."""

    engine: SparkEngine
    function: SparkFunction
    settings: IncomingSettings
    _: KW_ONLY
    # Is told how batches go on, and how they end.
    observer: Observer
    # Makes the DataFrame of a batch; None: its pieces are columns, shipped from here.
    source: Source | None = None
    clock: Clock = SYSTEM_CLOCK
    # Those of a registry that the channel's format needs.
    schemas: Schemas | None = None
    # Makes a span of each run.
    spans: CallSpans | None = None
    # How often the observer is told that a batch still runs.
    progress_every_s: float = PROGRESS_EVERY_S

    def __post_init__(self) -> None:
        self._channel = self.settings.name
        self._ledger = Ledger(self._channel, self.settings.spark.mode)

    def facts(self) -> SparkFacts:
        """The session's state, and this channel's batches."""
        return self._ledger.facts(
            self.clock.monotonic(), ready=self.engine.ready, reason=self.engine.reason
        )

    async def make(self, parts: Sequence[BatchPart]) -> Made | None:
        """A DataFrame of *parts*, for :meth:`run_batch`; None: its call makes one, and tells what
        is in the way.
        """
        return await self.engine.make(lambda spark: Made(spark, self._rows(spark, parts)))

    async def run_batch(
        self,
        parts: Sequence[BatchPart],
        attempt: int,
        *,
        alone: bool = False,
        supersedes: tuple[str, ...] = (),
        no_waits: Future[None] | None = None,
        frame: Future[Made | None] | None = None,
        on_call: Callable[[], None] = lambda: None,
    ) -> Sequence[Rejected] | None:
        """Run the function on *parts*, at least one; when this returns, all but the rejected
        records are done.

        These are the ones with corrupt payloads and those that the function rejected, by partition
        and offset, each once. One error may serve many. A rejected offset need not be that of a
        record. *alone*: no other job may run at the same time; *supersedes*: the ids of the failed
        ranges that these ranges were parts of; *frame*: what :meth:`make` has been asked for these
        parts; *on_call*: is told, on the event loop, that the function is called.

        Schemas that are not known here are asked for, and the batch waits for them, without a time
        of its own. None: *no_waits* was done meanwhile, or the application stops, and the records
        are neither done nor failed.

        Raises:
            OffloadError: With one line of text; the user's error is ``__cause__``.
            CancelledError: The job was cancelled and awaited; the records are neither done nor
                failed.
        """
        ranges = tuple(
            sorted(
                (part.range for part in parts),
                key=lambda one: (one.topic, one.partition, one.start),
            )
        )
        settings = self.settings.spark
        run = BatchRun(ranges, sum(part.records for part in parts), attempt, settings.timeout_s)

        loop = asyncio.get_running_loop()

        def note(progress: JobProgress) -> None:
            # Looks come from threads, and the one of an earlier call may come late: the loop takes
            # them in turn.
            loop.call_soon_threadsafe(run.look, progress)

        again = f", attempt {attempt}" if attempt > 1 else ""
        batch = f"Spark batch of {count_of(run.records)} ({ranges_text(ranges)})"
        description = f"channel {self._channel!r}: {batch}{again}"
        self._ledger.begin(run, is_part=bool(supersedes))
        outcome: BatchOutcome = "failed"
        told = partial(loop.call_soon_threadsafe, on_call)
        known: Answers = {} if self.schemas is None else self.schemas.of_records()
        try:
            with self._telling(run), self._span(parts, run):
                made = None if frame is None else await frame
                while True:
                    call = partial(self._call, parts, run, supersedes, known, made, told)
                    result = await self.engine.run(
                        call if self.spans is None else partial(copy_context().run, call),
                        timeout_s=run.timeout_s,
                        description=description,
                        pool=settings.pool or self._channel,
                        alone=alone,
                        on_progress=note,
                        cancel_limit_s=max(1.0, self.settings.drain_timeout_s),
                    )
                    if not isinstance(result, Missing):
                        break
                    run.started = None
                    if not await self._ask(result.asks, known, no_waits):
                        outcome = "cancelled"
                        run.reason = "its schemas are not there, and its records come again"
                        return None
            outcome = "ok"
            run.rejected = len(result)
            return result
        except asyncio.CancelledError:
            outcome = "cancelled"
            run.reason = "its records are not settled, and come again"
            raise
        except Exception as error:
            outcome = "lost" if isinstance(error, ClusterError) else "failed"
            run.reason = str(error).removeprefix(f"{description}: ")
            raise
        finally:
            self._end(run, outcome)

    async def _ask(
        self, asks: Sequence[Ask], known: Answers, no_waits: Future[None] | None
    ) -> bool:
        """Wait until *known* has the answers; False: they are not waited for any more."""
        schemas = self.schemas
        # Made for every channel whose records name schemas.
        assert schemas is not None  # noqa: S101
        waiters = [SchemaMissing(schemas, ask).arrives() for ask in asks]
        left: set[Future[Any]] = set(waiters)
        try:
            while left:
                ends = left if no_waits is None else {*left, no_waits}
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if no_waits in done or not all(one.result() for one in done):
                    return False
                left -= done
        finally:
            for one in waiters:
                one.cancel()
        for ask in asks:
            # It was let go again meanwhile.
            with suppress(SchemaMissing):
                try:
                    known[ask] = schemas.find(ask)
                except DecodeError as error:
                    known[ask] = error
        return True

    def _call(
        self,
        parts: Sequence[BatchPart],
        run: BatchRun,
        supersedes: tuple[str, ...],
        known: Answers,
        made: Made | None,
        told: Callable[[], object],
        spark: Any,
    ) -> list[Rejected] | Missing:
        """Call the function; runs in a thread for jobs."""
        run.started = self.clock.monotonic()
        batch = SparkBatch(run.id, run.ranges, spark, run.attempt, supersedes)
        rows = made.rows if made is not None and made.spark is spark else self._rows(spark, parts)
        with self._frame(rows, batch.rejects, known) as df:
            if isinstance(df, Missing):
                return df
            told()
            self.function.function(df, batch)
            return batch.rejects.close()

    def _rows(self, spark: Any, parts: Sequence[BatchPart]) -> Any:
        return (self.source or ship)(spark, parts)

    @contextmanager
    def _frame(self, records: Any, rejects: Rejects, known: Answers) -> Iterator[Any]:
        """The function's DataFrame; records with a corrupt payload are rejected before."""
        payload = self.function.payload
        if payload is None:
            yield records
            return
        if payload.texts is not None:
            records = with_texts(records, payload.texts, known)
        if not payload.is_looked_through:
            yield payload.fitting(payload.parsed(records))
            return
        # Kept on the executors: otherwise every job of the function would read and parse the batch
        # again.
        parsed = payload.parsed(records).persist()
        try:
            unfit = payload.unfit(parsed)
            for one in unfit.records:
                rejects.note(*one)
            yield Missing(unfit.asks) if unfit.asks else payload.fitting(parsed)
        finally:
            # With the session the data is gone, too; the job's error must be seen.
            with suppress(Exception):
                parsed.unpersist()

    def _span(self, parts: Sequence[BatchPart], run: BatchRun) -> AbstractContextManager[None]:
        """The span of a run, with links to the contexts of its records, which are here where
        columns are.
        """
        if self.spans is None:
            return nullcontext()
        pieces = (
            ((part.range, piece) for part in parts for piece in part.pieces)
            if self.source is None
            else ()
        )
        places = (
            LinkedRecord(TopicPartition(of.topic, of.partition), offset, headers)
            for of, piece in pieces
            for offset, headers in first_headers(piece, MOST_LINKS)
        )
        return self.spans.of_many(
            {one.topic for one in run.ranges}, run.records, places, run.attempt
        )

    @contextmanager
    def _telling(self, run: BatchRun) -> Iterator[None]:
        """Report the progress of the batch from time to time."""
        loop = asyncio.get_running_loop()
        timer = None

        def tell() -> None:
            nonlocal timer
            timer = loop.call_later(self.progress_every_s, tell)
            if run.started is not None:
                batch = run.facts(self.clock.monotonic())
                self.observer.on(SparkBatchProgress(channel=self._channel, id=run.id, batch=batch))

        timer = loop.call_later(self.progress_every_s, tell)
        try:
            yield
        finally:
            timer.cancel()

    def _end(self, run: BatchRun, outcome: BatchOutcome) -> None:
        facts = self._ledger.end(run, outcome, self.clock.monotonic(), self.clock.wall())
        if facts is not None:
            self.observer.on(
                SparkBatchEnded(
                    channel=self._channel,
                    id=run.id,
                    outcome=outcome,
                    records=run.records,
                    duration_s=facts.since_s,
                    ranges=facts.ranges,
                    attempt=run.attempt,
                    rejected=run.rejected,
                    reason=run.reason,
                )
            )


def ship(spark: Any, parts: Sequence[BatchPart]) -> Any:
    """A DataFrame of parts whose pieces are columns."""
    return data_frame(spark, [piece for part in parts for piece in part.pieces])

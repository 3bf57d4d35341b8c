"""Runs batches on Spark: calls the user's function with a DataFrame, and reports the outcome."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ClusterError, DecodeError
from reactive_kafka.formats import ChannelSchemas, SchemaMissing
from reactive_kafka.formats.registered.schema_questions import SchemaQuestion
from reactive_kafka.observe.events import (
    PROGRESS_EVERY_S,
    Observer,
    SparkBatchEnded,
    SparkBatchProgress,
)
from reactive_kafka.observe.facts import SparkFacts
from reactive_kafka.observe.wording import count_of, ranges_text
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import data_frame, first_headers
from reactive_kafka.spark.batches.ledger import BatchOutcome, BatchRun, JobProgress, Ledger
from reactive_kafka.spark.batches.spark_batch import (
    BatchPart,
    Rejected,
    Rejects,
    SendRows,
    SparkBatch,
    can_send,
)
from reactive_kafka.spark.batches.spark_function import SparkFunction
from reactive_kafka.spark.session.executor_texts import with_texts
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.tracing.attributes import MOST_LINKS, LinkedRecord
from reactive_kafka.tracing.channel_watch import CallWatch

# The schemas that a batch needs: question to the schema registry -> its answer.
Answers = dict[SchemaQuestion, Any]
# (session, parts of a batch) -> a DataFrame of their rows.
FrameSource = Callable[[Any, Sequence[BatchPart]], Any]


@dataclass(frozen=True, slots=True)
class MissingSchemas:
    """The function was not called, because the batch cannot be read without these schemas."""

    asks: Sequence[SchemaQuestion]


@dataclass(frozen=True, slots=True)
class BatchFrame:
    """A DataFrame of a batch's rows. It can be used only with the session that it was made with."""

    spark: Any
    rows: Any


@dataclass(eq=False)
class SparkRunner:
    """Runs the Spark function of one channel, on any number of batches at once, and counts."""

    engine: SparkEngine
    function: SparkFunction
    settings: IncomingSettings
    _: KW_ONLY
    # Receives the progress and the end of batches.
    observer: Observer
    # Makes the DataFrame of a batch. None: its pieces are columns, which are sent from here.
    source: FrameSource | None = None
    clock: Clock = SYSTEM_CLOCK
    # The schemas of the registry, if the channel's format needs them.
    schemas: ChannelSchemas | None = None
    # Writes DataFrames to outgoing channels.
    send_rows: SendRows | None = None
    # Makes the span of each run.
    watch: CallWatch | None = None
    # Seconds between two reports that a batch still runs.
    progress_every_s: float = PROGRESS_EVERY_S

    def __post_init__(self) -> None:
        self._channel = self.settings.name
        self._ledger = Ledger(self._channel, self.settings.spark.mode)

    def facts(self) -> SparkFacts:
        """Return the state of the session and the batches of this channel."""
        return self._ledger.facts(
            self.clock.monotonic(), ready=self.engine.ready, reason=self.engine.reason
        )

    async def make(self, parts: Sequence[BatchPart]) -> BatchFrame | None:
        """Make the DataFrame of *parts* for :meth:`run_batch`.

        None: it could not be made. Then `run_batch` makes one, and raises the error.
        """
        return await self.engine.make(lambda spark: BatchFrame(spark, self._rows(spark, parts)))

    async def run_batch(
        self,
        parts: Sequence[BatchPart],
        attempt: int,
        *,
        alone: bool = False,
        supersedes: tuple[str, ...] = (),
        no_waits: Future[None] | None = None,
        frame: Future[BatchFrame | None] | None = None,
        on_call: Callable[[], None] = lambda: None,
    ) -> Sequence[Rejected] | None:
        """Run the function on a batch, and return the rejected records; all others are done.

        Rejected are records with a corrupt payload, and those that the function rejects by their
        partition and offset. Each is returned once; several may have the same error. The function
        may reject offsets at which there is no record.

        If schemas are missing, they are requested, and the batch waits for them without a timeout.

        Args:
            parts: The parts of the batch, at least one.
            attempt: The number of the attempt, from 1.
            alone: No other job may run at the same time.
            supersedes: The ids of the failed ranges that these ranges were parts of.
            no_waits: Done when the batch must not wait for schemas any longer.
            frame: The DataFrame of these parts, from :meth:`make`.
            on_call: Called on the event loop when the function is called.

        Returns:
            None if the wait for schemas was ended by *no_waits*, or by the end of the application.
            Then the records are neither done nor failed.

        Raises:
            OffloadError: The function, or Spark, failed. Its text is one line, and the function's
                error is ``__cause__``.
            CancelledError: The job was cancelled and has ended. The records are neither done nor
                failed.
        """
        by_position = attrgetter("topic", "partition", "start")
        ranges = tuple(sorted((part.range for part in parts), key=by_position))
        settings = self.settings.spark
        run = BatchRun(ranges, sum(part.records for part in parts), attempt, settings.timeout_s)

        loop = asyncio.get_running_loop()

        def note(progress: JobProgress) -> None:
            # Progress comes from threads, and that of an earlier call may arrive late. The loop
            # takes each report in its turn.
            loop.call_soon_threadsafe(run.look, progress)

        description = (
            f"channel {self._channel!r}: Spark batch of {count_of(run.records)}"
            f" ({ranges_text(ranges)})"
        )
        if attempt > 1:
            description += f", attempt {attempt}"
        self._ledger.begin(run, is_part=bool(supersedes))
        outcome: BatchOutcome = "failed"
        report_call = partial(loop.call_soon_threadsafe, on_call)
        answers: Answers = {} if self.schemas is None else self.schemas.of_records()
        try:
            with self._reporting_progress(run), self._span(parts, run):
                made = None if frame is None else await frame
                while True:
                    call = partial(self._call, parts, run, supersedes, answers, made, report_call)
                    if self.watch is not None:
                        # The thread of the job gets this context, so that spans of the function
                        # belong to the span of the run.
                        call = partial(copy_context().run, call)
                    result = await self.engine.run(
                        call,
                        timeout_s=run.timeout_s,
                        description=description,
                        pool=settings.pool or self._channel,
                        alone=alone,
                        on_progress=note,
                        cancel_limit_s=max(1.0, self.settings.drain_timeout_s),
                    )
                    if not isinstance(result, MissingSchemas):
                        break
                    run.started = None
                    if not await self._ask(result.asks, answers, no_waits):
                        outcome = "cancelled"
                        run.reason = (
                            "its schemas have not arrived: its records will be delivered again"
                        )
                        return None
            outcome = "ok"
            run.rejected = len(result)
            return result
        except asyncio.CancelledError:
            outcome = "cancelled"
            run.reason = "its records are not settled: they will be delivered again"
            raise
        except Exception as error:
            outcome = "lost" if isinstance(error, ClusterError) else "failed"
            run.reason = str(error).removeprefix(f"{description}: ")
            raise
        finally:
            self._end(run, outcome)

    async def _ask(
        self, asks: Sequence[SchemaQuestion], answers: Answers, no_waits: Future[None] | None
    ) -> bool:
        """Wait for schemas and put them into *answers*; False if the wait ended without them."""
        schemas = self.schemas
        # Every channel whose records name schemas has this.
        assert schemas is not None  # noqa: S101
        arrivals = [SchemaMissing(schemas, ask).arrives() for ask in asks]
        pending: set[Future[Any]] = set(arrivals)
        try:
            while pending:
                awaited = pending if no_waits is None else {*pending, no_waits}
                done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if no_waits in done or not all(arrival.result() for arrival in done):
                    return False
                pending -= done
        finally:
            for arrival in arrivals:
                arrival.cancel()
        for ask in asks:
            # If a schema has been dropped again meanwhile, the next call reports it as missing.
            with suppress(SchemaMissing):
                try:
                    answers[ask] = schemas.find(ask)
                except DecodeError as error:
                    answers[ask] = error
        return True

    def _call(
        self,
        parts: Sequence[BatchPart],
        run: BatchRun,
        supersedes: tuple[str, ...],
        answers: Answers,
        made: BatchFrame | None,
        report_call: Callable[[], object],
        spark: Any,
    ) -> list[Rejected] | MissingSchemas:
        """Call the function. This runs in a thread for jobs."""
        run.started = self.clock.monotonic()
        batch = SparkBatch(run.id, run.ranges, spark, run.attempt, supersedes)
        can_send(batch, self.send_rows)
        # A DataFrame of another session cannot be used: that one was replaced meanwhile.
        is_usable = made is not None and made.spark is spark
        rows = made.rows if made is not None and is_usable else self._rows(spark, parts)
        with self._frame(rows, batch.rejects, answers) as df:
            if isinstance(df, MissingSchemas):
                return df
            report_call()
            self.function.function(df, batch)
            return batch.rejects.close()

    def _rows(self, spark: Any, parts: Sequence[BatchPart]) -> Any:
        return (self.source or ship)(spark, parts)

    @contextmanager
    def _frame(self, records: Any, rejects: Rejects, answers: Answers) -> Iterator[Any]:
        """Yield the function's DataFrame, after rejecting the records with a corrupt payload.

        Or yield `MissingSchemas`.
        """
        payload = self.function.payload
        if payload is None:
            yield records
            return
        if payload.texts is not None:
            records = with_texts(records, payload.texts, answers)
        if not payload.finds_unfit:
            yield payload.fitting(payload.parsed(records))
            return
        # Keep the parsed rows on the executors. Otherwise every job of the function would read and
        # parse the batch again.
        parsed = payload.parsed(records).persist()
        try:
            unfit = payload.unfit(parsed)
            for record in unfit.records:
                rejects.note(*record)
            if unfit.asks:
                yield MissingSchemas(unfit.asks)
            else:
                yield payload.fitting(parsed)
        finally:
            # If the session is gone, so is the data. An error here would hide that of the job.
            with suppress(Exception):
                parsed.unpersist()

    def _span(self, parts: Sequence[BatchPart], run: BatchRun) -> AbstractContextManager[object]:
        """Return the span of a run, with links to its records.

        Links need the headers of records, which are here only if the records are in columns.
        """
        if self.watch is None:
            return nullcontext()
        linked: Iterable[LinkedRecord] = ()
        if self.source is None:
            linked = _linked_records(parts)
        topics = {batch_range.topic for batch_range in run.ranges}

        def took_s() -> float:
            return 0.0 if run.started is None else self.clock.monotonic() - run.started

        durations = self._ledger.durations
        return self.watch.of_many(topics, run.records, linked, run.attempt, durations, took_s)

    @contextmanager
    def _reporting_progress(self, run: BatchRun) -> Iterator[None]:
        """Report the progress of the batch every `progress_every_s` within this block."""
        loop = asyncio.get_running_loop()
        timer = None

        def report() -> None:
            nonlocal timer
            timer = loop.call_later(self.progress_every_s, report)
            if run.started is not None:
                batch = run.facts(self.clock.monotonic())
                self.observer.on(SparkBatchProgress(channel=self._channel, id=run.id, batch=batch))

        timer = loop.call_later(self.progress_every_s, report)
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
    """Make a DataFrame of parts whose pieces are columns."""
    return data_frame(spark, [piece for part in parts for piece in part.pieces])


def _linked_records(parts: Sequence[BatchPart]) -> Iterator[LinkedRecord]:
    for part in parts:
        partition = TopicPartition(part.range.topic, part.range.partition)
        for piece in part.pieces:
            for offset, headers in first_headers(piece, MOST_LINKS):
                yield LinkedRecord(partition, offset, headers)

"""Calls a channel's handler with batches of records, of one or more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.invocation import Invocation, batch_call
from reactive_kafka.delivery.lanes.lane import Lane, LaneSlice
from reactive_kafka.delivery.lanes.queue import LaneQueue, lanes_in
from reactive_kafka.delivery.retry import HandlerAttempts, RetriedHandler, Retries
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.errors import DecodeError
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.batch import Batch, Piece, batch_of, settle_all, undecoded
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.delivery_hook import DeliveryHook
from reactive_kafka.verdicts.message import Message, new_message

_HEADERS = attrgetter("headers")

Refused = tuple[Message[Any], BaseException]
"""A message that does not reach the handler, and why."""

Skipped = tuple[Message[Any], Literal["filter", "age"]]
"""A message that is settled without a call, and why."""


class BatchAttempts(HandlerAttempts):
    """Calls a handler with batches.

    Args:
        returned: Keeps the messages that the handler leaves without a verdict.
    """

    def __init__(
        self,
        invocation: Invocation,
        hook: DeliveryHook,
        isolation: Isolation,
        returned: ReturnedUnsettled | None,
    ) -> None:
        self._invocation = invocation
        self._hook = hook
        self._isolation = isolation
        self._returned = returned
        self._call = batch_call(invocation)

    async def call(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Call the handler with these messages."""
        batch = messages if isinstance(messages, Batch) else Batch(messages)
        await self._isolation.apart(worker, self._call)(batch)

    async def returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Settle the messages, if the handler's return is their ack."""
        if self._invocation.ack == "post":
            if self._invocation.awaits_commits:
                await self._isolation.done(worker, [Batch(messages).ack()])
            else:
                settle_all(messages)
        elif self._returned is not None and self._invocation.ack == "manual":
            for message in messages:
                if is_open(message):
                    self._returned.add(message)

    def not_stored(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        """Return those of the messages that the checkpoint store does not have."""
        return self._hook.before_call(messages) if messages else messages


class BatchHandler(RetriedHandler):
    """A handler that takes batches."""

    def __init__(
        self,
        invocation: Invocation,
        settings: IncomingSettings,
        hook: DeliveryHook,
        isolation: Isolation,
        returned: ReturnedUnsettled | None,
    ) -> None:
        self.invocation = invocation
        self._settings = settings
        self.attempts = BatchAttempts(invocation, hook, isolation, returned)

    def has_next(self, message: Message[Any], error: BaseException) -> bool:
        """Return False: there is one handler."""
        return False

    def retry_wait_s(self, message: Message[Any], error: BaseException) -> float | None:
        """Return how long to wait for the next attempt; None: there is none."""
        settings = self._settings
        return after_attempt(
            message.attempt, error, settings.retry, settings.routes_after_retries, drawn_chance()
        )

    def final_error(self, message: Message[Any], error: BaseException) -> BaseException:
        """Return the error of the last call."""
        return error


class BatchRunner:
    """Calls a handler with batches that it takes from several lanes.

    Args:
        skipping: What is left out of batches; None: nothing.
    """

    takes_batches = True

    def __init__(
        self,
        handler: BatchHandler,
        retries: Retries,
        skipping: Skipping | None,
        channel: ChannelContext,
        acknowledger: Acknowledger,
        *,
        lanes: LaneQueue,
    ) -> None:
        settings = channel.settings
        self._attempts = handler.attempts
        self._invocation = handler.invocation
        self._retries = retries
        self._skipping = skipping
        self._most_records = settings.batch_max_records
        self._most_bytes = settings.batch_max_bytes
        self._most_wait_s = settings.batch_max_wait_s
        self._lanes = lanes
        self._clock = channel.clock
        self._acknowledger = acknowledger

    def has_work(self) -> bool:
        """Return whether a batch is due."""
        return self.rest_s() == 0.0

    def take(self, worker: Worker) -> Sequence[Lane]:
        """Take a batch that is due; nothing if none is."""
        wait_s = self.rest_s()
        if wait_s is None or wait_s > 0:
            return ()
        worker.slices = self._lanes.take_batch(self._most_records, self._most_bytes)
        return lanes_in(worker.slices)

    def rest_s(self) -> float | None:
        """Return how long it takes until a batch is due; None while no record waits."""
        due = self._lanes.batch_due(self._most_records, self._most_wait_s, self._most_bytes)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def payload_of(self, record: RawRecord) -> Any:
        """Decode a record. Raises what the decoder raises."""
        return self._invocation.read(record)

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""
        return self._retries.waits_for_outage

    def not_ready(self, now: float) -> Iterable[str]:
        """Return why records have waited long for the next call of their handler."""
        return self._retries.not_ready(now)

    def postponed(self, now: float) -> Iterable[str]:
        """Return which records wait because their handlers have asked for that."""
        return self._retries.postponed(now)

    async def run(self, worker: Worker) -> bool:
        """Call the handler with the worker's batch; return True: others are to run after each."""
        slices = worker.slices
        began = self._clock.monotonic()
        for part in slices:
            part.lane.tracker.start_range(part.first, len(part.records), began)
        refused: list[Refused] = []
        try:
            batch = await self._read_with_schemas(worker, slices, refused)
        except (SystemExit, KeyboardInterrupt) as ending:
            self._retries.leave(_undecoded(slices), ending)
            return True
        if batch is None:
            return True
        if self._invocation.settles_first:
            for part in slices:
                part.lane.tracker.settle_range(part.first, part.first + len(part.records))
                self._acknowledger.settled(part.lane.tracker)
        self._refuse(worker, refused)
        if batch:
            await self._call(worker, batch)
        await self._retries.wait_for_nacks(worker)
        return True

    def _refuse(self, worker: Worker, refused: Iterable[Refused]) -> None:
        """Report or nack the records that do not reach the handler."""
        for message, error in refused:
            if self._invocation.settles_first:
                self._acknowledger.raised_after_ack(message, error)
            else:
                worker.blocked_on.append(self._acknowledger.nacks.failed(message, error))

    async def _call(self, worker: Worker, batch: Batch[Any]) -> None:
        worker.messages = batch
        messages = self._attempts.not_stored(batch)
        worker.messages = messages
        if not messages:
            return
        failed = await self._retries.attempt(worker, messages)
        if failed is not None:
            await self._retries.fail(worker, messages, failed)

    async def _read_with_schemas(
        self, worker: Worker, slices: Sequence[LaneSlice], refused: list[Refused]
    ) -> Batch[Any] | None:
        """Return the batch of what can be decoded, once all of its schemas are here.

        Returns:
            None: the records were put back while a schema was still missing.
        """
        skipped: list[Skipped] = []
        while True:
            try:
                batch = self._read(slices, refused, skipped)
            except SchemaMissing as still_missing:
                # Nothing has been done with the batch so far.
                refused.clear()
                skipped.clear()
                missing = still_missing
            else:
                for message, why in skipped:
                    self._acknowledger.skips.skip(message, why)
                return batch if self._skipping is None else self._chosen(batch, refused)
            messages = list(_undecoded(slices))
            if not await self._retries.schema_arrives(worker, messages, missing):
                return None

    def _read(
        self, slices: Sequence[LaneSlice], refused: list[Refused], skipped: list[Skipped]
    ) -> Batch[Any]:
        """Return the batch of what can be decoded. Raises SchemaMissing."""
        pieces: list[Piece] = []
        for part in slices:
            self._decode(part, pieces, refused, skipped)
        return batch_of(pieces)

    def _decode(
        self,
        part: LaneSlice,
        pieces: list[Piece],
        refused: list[Refused],
        skipped: list[Skipped],
    ) -> None:
        """Add the pieces of a slice.

        A record that is skipped or cannot be decoded lies between two pieces.
        """
        decodes_keys = self._invocation.decodes_keys
        filters = self._skipping is not None and self._skipping.filters_undecoded
        tracker = part.lane.tracker
        if not self._has_to_decode(part):
            piece = undecoded(tracker, part.first, part.records)
            takes_none = self._invocation.refusal is None
            # The first look costs less, and is true unless there is an empty value.
            if takes_none or all(piece.payloads) or None not in piece.payloads:
                pieces.append(piece)
                return
        piece = Piece(tracker, part.first, [], [], [])
        for index, record in enumerate(part.records, part.first):
            if filters and self._is_left_out(record, tracker, index, refused, skipped):
                pieces.append(piece)
                piece = Piece(tracker, index + 1, [], [], [])
                continue
            try:
                payload = self._invocation.read_checked(record)
                if decodes_keys:
                    message = new_message(payload, record, tracker, index)
                    # The message keeps the decoded key.
                    _ = message.key
                    piece.messages.append(message)
            except DecodeError as error:
                refused.append((new_message(None, record, tracker, index), error))
                pieces.append(piece)
                piece = Piece(tracker, index + 1, [], [], [])
                continue
            piece.records.append(record)
            piece.payloads.append(payload)
        pieces.append(piece)

    def _has_to_decode(self, part: LaneSlice) -> bool:
        """Return whether these records have to be read one by one.

        They need not if nothing filters them, and the handler takes the bytes of their values.
        """
        if self._invocation.decodes_keys or self._invocation.decode is not None:
            return True
        if self._skipping is not None and self._skipping.filters_undecoded:
            return True
        return self._invocation.decode_record is not None and any(map(_HEADERS, part.records))

    def _is_left_out(
        self,
        record: RawRecord,
        tracker: OffsetTracker,
        index: int,
        refused: list[Refused],
        skipped: list[Skipped],
    ) -> bool:
        """Ask the filter about a record that is not decoded; False if it comes into the batch."""
        skipping = self._skipping
        # For the type checker.
        assert skipping is not None  # noqa: S101
        message: Message[Any] = new_message(record.value, record, tracker, index)
        try:
            why = skipping.why_undecoded(message)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # The filter is the application's code.
            refused.append((message, error))
            return True
        if why is not None:
            skipped.append((message, why))
        return why is not None

    def _chosen(self, batch: Batch[Any], refused: list[Refused]) -> Batch[Any]:
        """Return the batch without the records that are skipped."""
        skipping = self._skipping
        # For the type checker.
        assert skipping is not None  # noqa: S101
        undecoded_ones = list(refused)
        refused.clear()
        for message, error in undecoded_ones:
            if skipping.is_too_old(message):
                self._acknowledger.skips.skip(message, "age")
            else:
                refused.append((message, error))
        chosen: list[Message[Any]] = []
        for message in batch:
            try:
                why = skipping.why(message)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                # The filter is the application's code.
                refused.append((message, error))
                continue
            if why is None:
                chosen.append(message)
            else:
                self._acknowledger.skips.skip(message, why)
        return Batch(chosen)


def _undecoded(slices: Sequence[LaneSlice]) -> Batch[Any]:
    return batch_of([undecoded(part.lane.tracker, part.first, part.records) for part in slices])

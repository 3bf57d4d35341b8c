"""Calls a channel's handler record by record: in order, by key, or as workers are free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.invocation import Invocation, RecordCall, quick_call, record_call
from reactive_kafka.delivery.lanes.keyed import KeyedLane, UnknownKey
from reactive_kafka.delivery.lanes.lane import UNKEYED, Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.long_calls import LongCalls
from reactive_kafka.delivery.retry import HandlerAttempts, RetriedHandler, Retries
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.workers.interface import LaneProgress
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.places import WorkerPlaces
from reactive_kafka.delivery.workers.pool import STRETCH_S
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.delivery.workers.worker_states import RUNNING
from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.observe.facts import DURATION_BUCKETS_S, DurationHistogram
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.call_waits import CallWaits
from reactive_kafka.verdicts.delivery_hook import DeliveryHook
from reactive_kafka.verdicts.message import Message, new_message

SHORT_S = DURATION_BUCKETS_S[0]
"""Calls up to this long are of the same bucket of durations, so they are counted together."""

TURN_S = 0.05
"""How long a worker stays at least in a lane where handlers wait. To change lanes costs 2 µs."""

LOOK_S = 0.001
"""How often the workers of a lane in which handlers wait look for a lane with fewer workers.

To look after each record would cost a tenth of its way.
"""


class RecordHandler(RetriedHandler, Protocol):
    """The handler of a channel's records: one function, or a choice among several."""

    # What a worker calls first for a record. Later attempts are made by :class:`Retries`.
    first: RecordCall

    def is_skipped(self, message: Message[Any], error: BaseException) -> bool:
        """Return whether a record was skipped instead, after *error* in its first call."""

    def take_skipped(self, most: int) -> int:
        """Return how many of the calls that have returned have skipped their records instead.

        Each is returned once, at most *most* at a time.
        """


class RecordAttempts(HandlerAttempts):
    """Calls a handler with one message, as a :class:`RecordCall` says."""

    def __init__(self, call: RecordCall, isolation: Isolation) -> None:
        self._call = call
        self._isolation = isolation

    async def call(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Call the handler with one message."""
        (message,) = messages
        argument = message if self._call.wants_message else message.payload
        await self._isolation.apart(worker, self._call.call)(argument)

    async def returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Settle the message, if the handler's return is its ack."""
        if self._call.settles_on_return:
            for message in messages:
                message.tracker.settle(message.index)

    def not_stored(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        """Return all messages: the checkpoint store is asked inside of the call."""
        return messages


class SingleHandler(RecordHandler):
    """One handler, which takes every record of its channel."""

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
        again = record_call(invocation, returned, hook)
        self.first = quick_call(invocation, returned, hook) or again
        self.attempts = RecordAttempts(again, isolation)

    def is_skipped(self, message: Message[Any], error: BaseException) -> bool:
        """Return False: the handler takes every record."""
        return False

    def take_skipped(self, most: int) -> int:
        """Return 0: the handler takes every record."""
        return 0

    def has_next(self, message: Message[Any], error: BaseException) -> bool:
        """Return False: there is one handler."""
        return False

    def retry_wait_s(self, message: Message[Any], error: BaseException) -> float | None:
        """Return how long to wait for the next attempt; None: there is none."""
        # Bytes that cannot be decoded now never can.
        if isinstance(error, DecodeError):
            return None
        settings = self._settings
        return after_attempt(
            message.attempt, error, settings.retry, settings.routes_after_retries, drawn_chance()
        )

    def final_error(self, message: Message[Any], error: BaseException) -> BaseException:
        """Return the error of the last call."""
        return error


class CallDurations:
    """Counts the durations of calls made one after the other: the short ones all at once.

    Args:
        waits: What the calls have waited for us. That time is not counted.
        take_skipped: Returns how many calls have skipped their records. These are not counted.
    """

    def __init__(
        self,
        histogram: DurationHistogram,
        waits: CallWaits,
        take_skipped: Callable[[int], int],
        now: float,
    ) -> None:
        self._histogram = histogram
        self._waits = waits
        self._take_skipped = take_skipped
        self._counted_until = now
        # Waits of calls before this worker came to the lane.
        waits.take()

    def observe(self, short_calls: int, record: RawRecord, began: float, now: float) -> None:
        """Count the call for *record* from *began* to *now*, and the short calls before it."""
        if now - began > SHORT_S:
            took_s = now - began - self._waits.take_call(record, now)
            if short_calls:
                self.observe_short(short_calls, began)
            else:
                # What earlier calls have waited is no part of the time that is counted next.
                self._waits.take()
            self._histogram.observe(took_s)
            self._counted_until = now
        else:
            self.observe_short(short_calls + 1, now)

    def rest_until(self, now: float) -> None:
        """Count no time from the last call until *now*, in which the worker waited."""
        self._waits.take()
        self._counted_until = now

    def observe_short(self, calls: int, now: float) -> None:
        """Count the calls that were made since anything was last counted: each was short."""
        total_s = now - self._counted_until - self._waits.take()
        self._counted_until = now
        calls -= self._take_skipped(calls)
        if calls:
            self._histogram.observe_many_short(calls, max(0.0, total_s))


class RecordRunner:
    """Calls the handler with the records of one lane after the other."""

    takes_batches = False

    def __init__(
        self,
        handler: RecordHandler,
        retries: Retries,
        *,
        lanes: LaneQueue,
        clock: Clock,
        durations: DurationHistogram,
        progress: LaneProgress,
        isolation: Isolation,
        places: WorkerPlaces,
        long_calls: LongCalls,
    ) -> None:
        self._handler = handler
        self._invocation = handler.invocation
        self._retries = retries
        self._lanes = lanes
        self._clock = clock
        self._durations = durations
        self._progress = progress
        self._isolation = isolation
        self._places = places
        self._long_calls = long_calls

    def has_work(self) -> bool:
        """Return whether lanes are in the queue."""
        return self._lanes.ready > 0

    def take(self, worker: Worker) -> Sequence[Lane]:
        """Take the next lane with work; none if there is no work that may begin."""
        lane = self._lanes.take()
        return () if lane is None else (lane,)

    def rest_s(self) -> float | None:
        """Return None: a worker without work rests until it is woken."""
        return None

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
        """Call the handler with records of the worker's lane, one at least.

        It continues until the lane is empty, or until other tasks of the loop have to run. The
        time until then is the worker's *stretch*; its end is ``stretch_end``.

        Returns:
            Whether other tasks have to run.
        """
        # All steps of a record are in this one function, and what they need is in local variables:
        # each call less, and each attribute less, is 3 to 5 % of a record's way.
        (lane,) = worker.lanes
        tracker = lane.tracker
        first = self._handler.first
        # In which of three ways this worker takes records from the lane:
        # - alone, as they arrived. It notes only how far it is, which the tracker calls a run: all
        #   records before ``run_at`` are settled then, and that one has been open since
        #   ``run_since``. That saves a fifth of a record's way;
        # - one key at a time, while other workers run records of other keys;
        # - whichever record comes next, while other workers take others.
        is_alone = first.settles_on_return and self._claim_alone(worker, lane)
        by_key = lane if isinstance(lane, KeyedLane) and not is_alone else None
        settles_each = first.settles_on_return and not is_alone

        call = self._isolation.apart(worker, first.call)
        wants_message = first.wants_message
        sends = first.sends
        decode = self._invocation.decode
        decode_record = self._invocation.decode_record
        refusal = self._invocation.refusal
        if self._invocation.decodes_late:
            decode = None
            decode_record = None
            refusal = None
        task = worker.task
        context = worker.context
        clean_context = worker.clean_context
        monotonic = self._clock.monotonic

        entered = now = monotonic()
        durations = CallDurations(self._durations, worker.waits, self._handler.take_skipped, now)
        # Calls that ``durations`` has not counted yet. None of them was long.
        short_calls = 0
        # A stretch that ended (-inf) makes the worker leave the lane after the current record. It
        # ends early if a handler has left something behind in the task or its context, or if the
        # worker's record was taken from it (``is_spent``): both need a fresh task.
        stretch_end = -inf if self._lanes.takes_single_records else worker.stretch_end
        # Before this time no call can have been long, and the stretch is not over. So one
        # comparison does for most records.
        look_at = min(stretch_end, now + SHORT_S)
        failed: BaseException | None = None
        # The current record's first call has failed: it was looked at, and waits followed.
        has_failed = False

        while True:
            if by_key is not None:
                piece = _next_of_keys(worker, by_key)
            else:
                piece = self._next_piece(worker, lane, now, is_alone=is_alone)
            if piece is None:
                break

            for index, record in piece:
                # -- Note that this worker has the record from now on.
                worker.index = index
                worker.record = record
                if is_alone:
                    lane.taken = index
                    tracker.run_at = index
                    tracker.run_since = now
                else:
                    if by_key is None:
                        lane.taken = index
                    taken = lane.taken
                    tracker.started[index - tracker.base] = now

                given = None
                try:
                    # -- Make what the handler takes: `Invocation.read_checked`, `new_message`.
                    if by_key is not None and type(worker.key) is UnknownKey:
                        raise _no_key(worker.key.error)
                    if decode_record is not None and record.headers:
                        given = decode_record(record)
                    else:
                        given = record.value if decode is None else decode(record.value)
                    if given is None and refusal is not None:
                        raise DecodeError(refusal)
                    if wants_message:
                        message: Message[Any] = Message()
                        message.payload = given
                        message.record = record
                        message.tracker = tracker
                        message.index = index
                        given = message

                    # -- Call the handler, and see whether it has left anything behind.
                    result = await call(given)
                    try:
                        is_clean = context == clean_context and not task.cancelling()
                    except BaseException:
                        # The values of context variables are the application's, and so is how
                        # they compare.
                        is_clean = False
                    if not is_clean:
                        look_at = stretch_end = -inf
                        await self._isolation.call_returned(worker)

                    # -- Send what it returned, or settle the record. A run settles by itself.
                    if sends is not None:
                        if not sends.at_once(result, record, tracker, index):
                            await sends.answer(result, _message_of(given, record, tracker, index))
                    elif settles_each:
                        tracker.settle(index)
                except BaseException as error:
                    failed = error

                # -- Carry out a failure. That is outside of the except block: there, Python would
                # make this error the context of what a later attempt raises.
                if failed is not None:
                    message = _message_of(given, record, tracker, index)
                    failed_at = monotonic()
                    if isinstance(failed, SchemaMissing) and failed.is_read:
                        # The handler has not been called.
                        durations.observe_short(short_calls, now)
                    else:
                        durations.observe(short_calls, record, now, failed_at)
                        self._long_calls.look(failed_at - now)
                    short_calls = 0
                    has_failed = True
                    # Only a call that has not failed may skip the look below.
                    look_at = -inf
                    await self._failed(worker, message, failed, is_alone=is_alone)
                    failed = None
                    if worker.is_spent:
                        look_at = stretch_end = -inf

                # -- Time the call, and see whether the stretch is over.
                began = now
                now = monotonic()
                if now < look_at:
                    short_calls += 1
                else:
                    if has_failed:
                        # The call was counted, and so was each of its further attempts.
                        durations.rest_until(now)
                        has_failed = False
                    else:
                        durations.observe(short_calls, record, began, now)
                        short_calls = 0
                        self._long_calls.look(now - began)
                    if now >= stretch_end:
                        # If another worker has taken a record meanwhile, or one was put back, then
                        # other tasks have run while the handler waited. So a new stretch may begin.
                        others_ran = not is_alone and lane.taken != taken
                        if stretch_end == -inf or not others_ran:
                            break
                        if not self._stays(worker, lane, entered, now):
                            break
                        stretch_end = worker.stretch_end
                        call = self._isolation.apart(worker, first.call)
                    look_at = min(stretch_end, now + SHORT_S)

                # The lane was cut, or has another piece: see `Lane.cut`.
                if lane.reading is not piece:
                    break

            # -- End the piece: the last record of it is over.
            if worker.state is not RUNNING:
                # The handler may have ignored our interrupt, and taken it off its task.
                worker.handler_ended()
            if is_alone and not worker.is_abandoned:
                tracker.end_run(index + 1)
            if worker.blocked_on:
                durations.observe_short(short_calls, now)
                short_calls = 0
                await self._retries.wait_for_nacks(worker)
                now = monotonic()
                durations.rest_until(now)
            if worker.state is not RUNNING and worker.is_abandoned:
                # Its key is freed when its lane is released.
                break
            if by_key is not None:
                by_key.free(worker.key)
                worker.key = UNKEYED
            if now >= stretch_end:
                break
        durations.observe_short(short_calls, now)
        return now >= worker.stretch_end

    def _claim_alone(self, worker: Worker, lane: Lane) -> bool:
        """Take the lane for this worker alone; False if other workers may take from it, too.

        A worker that is alone takes the records in the order in which they arrived.
        """
        if isinstance(lane, KeyedLane):
            return lane.begin_alone(worker)
        return not self._lanes.shared

    def _next_piece(
        self, worker: Worker, lane: Lane, now: float, *, is_alone: bool
    ) -> Iterable[tuple[int, RawRecord]] | None:
        """Return the rest of the lane's current piece, with arrival numbers; None: it is empty."""
        if is_alone and isinstance(lane, KeyedLane) and lane.sole is not worker:
            # Another worker has looked for work here, so keys matter now.
            return None
        if not lane.advance():
            return None
        if is_alone:
            lane.tracker.begin_run(lane.taken + 1, now)
        return lane.read()

    def _stays(self, worker: Worker, lane: Lane, entered: float, now: float) -> bool:
        """Begin another stretch in a lane where handlers wait; False if the worker has to leave.

        It leaves at once if another worker needs its place, and after a while if another lane has
        too few workers.
        """
        worker.stretch_end = now + STRETCH_S
        is_wanted = self._places.returning or self._isolation.is_closed
        if now < lane.look_at and not is_wanted:
            return True
        self._progress.left(lane)
        if is_wanted:
            return False
        stays = now < entered + TURN_S or not self._lanes.wants_worker_of(lane)
        # If this worker leaves, the next one looks at once: the other lane may need it too.
        lane.look_at = now + LOOK_S if stays else now
        return stays

    async def _failed(
        self, worker: Worker, message: Message[Any], error: BaseException, *, is_alone: bool
    ) -> None:
        """Carry out what follows when the first call for a record has raised."""
        tracker = message.tracker
        if is_alone and not worker.is_abandoned:
            # ``run_since``, and not the time when the call began: the record's clock may have been
            # stopped in between.
            tracker.end_run(message.index, tracker.run_since)
        if not self._handler.is_skipped(message, error):
            await self._retry(worker, message, error)
        if is_alone and not worker.is_abandoned:
            tracker.begin_run(message.index + 1, self._clock.monotonic())

    async def _retry(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        failed = await self._retries.raised(worker, error)
        if failed is not None:
            failed = await self._call_once_schema_is_here(worker, message, failed)
        if failed is not None:
            worker.messages = (message,)
            await self._retries.fail(worker, [message], failed)
        await self._retries.wait_for_nacks(worker)
        worker.messages = ()

    async def _call_once_schema_is_here(
        self, worker: Worker, message: Message[Any], failed: BaseException
    ) -> BaseException | None:
        """Make the first call for a message again, once the schema is here that *failed* asks for.

        Returns:
            Why the first call failed, or None.
        """
        while isinstance(failed, SchemaMissing) and failed.is_read:
            if not await self._retries.schema_arrives(worker, [message], failed):
                return None
            again = self._decode(message) or await self._retries.attempt(worker, [message])
            if again is None:
                return None
            failed = again
        return failed

    def _decode(self, message: Message[Any]) -> BaseException | None:
        """Decode a message whose schema is here now; return why that is not possible, or None."""
        if self._invocation.decodes_late:
            return None
        try:
            message.payload = self._invocation.read(message.record)
        except BaseException as error:
            return error
        if message.payload is None and self._invocation.refusal is not None:
            return DecodeError(self._invocation.refusal)
        return None


def _next_of_keys(worker: Worker, lane: KeyedLane) -> Iterable[tuple[int, RawRecord]] | None:
    """Return the next record that may run, as a piece of its own; None: there is none.

    Its key is the worker's from here on, and is to be freed after it.
    """
    found = lane.next_record()
    if found is None:
        return None
    key, index, record = found
    worker.key = key
    return ((index, record),)


def _message_of(given: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> Message[Any]:
    """Return the message that a handler was given, or one of the payload that it was given."""
    return given if isinstance(given, Message) else new_message(given, record, tracker, index)


def _no_key(error: BaseException) -> BaseException:
    """Return what to raise for a record whose ordering key cannot be computed."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return error
    refused = DecodeError(f"the record's ordering key cannot be computed: {describe(error)}")
    refused.part = "ordering key"
    refused.__cause__ = error
    return refused

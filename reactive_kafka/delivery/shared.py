"""Calling a channel's handler record by record, in lanes that several workers take from at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import Any

from reactive_kafka.delivery.attempts import RetryingPool
from reactive_kafka.delivery.calls import Invocation, no_key, quick_call, record_call
from reactive_kafka.delivery.keyed import KeyedLane, Untold
from reactive_kafka.delivery.lane import UNKEYED, Lane
from reactive_kafka.delivery.pool import STRETCH_S
from reactive_kafka.delivery.states import RUNNING
from reactive_kafka.delivery.workers import Worker, WorkerSetup, WorkerSignals
from reactive_kafka.errors import DecodeError
from reactive_kafka.observe.facts import DURATION_BUCKETS_S
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import SETTLED, OffsetTracker
from reactive_kafka.verdicts.message import Message, new_message

TURN_S = 0.05
"""How long a worker stays in a lane at least, where handlers wait. To change costs it 2 µs."""

LOOK_S = 0.001
"""How often a lane in which handlers wait is looked at. To do that for each record would cost a
tenth of its way.
"""


class SharedRuns(RetryingPool):
    """Workers that run one channel's handler on single records; how they go through a lane that
    others are in, too.
    """

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, invocation, channel)
        returned = self.returned if self._keeps else None
        self._call, self._wants_message, self._acks = record_call(invocation, returned, setup.hook)
        # What the first attempt calls, and what sends its result where that is not a part of the
        # call.
        quick = quick_call(invocation, returned, setup.hook)
        self._first = self._call if quick is None else quick[0]
        self._sends = None if quick is None else quick[1]
        self._first_wants_message = (
            self._wants_message if self._sends is None else invocation.wants_message
        )

    async def _run_each(self, worker: Worker, lane: Lane, stretch_end: float) -> float:
        """The same where other workers may take from the lane while a handler waits, or where it
        acks by itself.
        """
        call = self._isolation.apart(worker, self._first)
        wants_message = self._first_wants_message
        sends = self._sends
        decode = self._invocation.decode
        refusal = self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic = self._clock.monotonic
        tracker = lane.tracker
        task = worker.task
        context = worker.context
        clean = worker.clean
        acks = self._acks
        isolation = self._isolation
        returning = self._places.returning
        durations = self._totals.durations
        bounds = durations.bounds
        counts = durations.counts
        short_limit = DURATION_BUCKETS_S[0]
        since = counted_at = now = monotonic()
        short_count = 0
        long_s = 0.0
        failed = None
        while lane.advance():
            reading = lane.read()
            for index, record in reading:
                lane.taken = index
                tracker.started[index - tracker.base] = now
                worker.index = index
                worker.record = record
                given = None
                try:
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
                    result = await call(given)
                    try:
                        is_clean = context == clean and not task.cancelling()
                    except BaseException:
                        # As above.
                        is_clean = False
                    if not is_clean:
                        stretch_end = -inf
                        await self._isolation.call_returned(worker)
                    if sends is not None and not sends.at_once(result, record, tracker, index):
                        await sends.answer(result, message_of(given, record, tracker, index))
                except BaseException as error:
                    failed = error
                else:
                    # What tracker.settle does where nobody runs alone: the call would be a tenth of
                    # a record's way.
                    if acks and (at := index - tracker.base) >= 0 and not tracker.flags[at]:
                        tracker.flags[at] = SETTLED
                if failed is not None:
                    await self._failed(worker, message_of(given, record, tracker, index), failed)
                    failed = None
                    if worker.is_spent:
                        stretch_end = -inf
                done = monotonic()
                took = done - now
                now = done
                if took > short_limit:
                    counts[bisect_left(bounds, took)] += 1
                    durations.sum_s += took
                    long_s += took
                else:
                    short_count += 1
                if now >= stretch_end:
                    if lane.taken == index or stretch_end == -inf:
                        break
                    # Another worker has taken a record: so the loop has run, and the stretch begins
                    # anew.
                    worker.stretch_end = now + STRETCH_S
                    if (
                        now >= lane.look_at or returning or isolation.is_closed
                    ) and not self._stays(lane, since, now):
                        break
                    stretch_end = worker.stretch_end
                    call = isolation.apart(worker, self._first)
                    if short_count:
                        durations.observe_many_short(short_count, now - counted_at - long_s)
                        short_count = 0
                        counted_at = now
                        long_s = 0.0
                if lane.reading is not reading:
                    break
            if worker.state is not RUNNING and worker.is_abandoned:
                break
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
            if now >= stretch_end:
                break
        durations.observe_many_short(short_count, now - counted_at - long_s)
        return now

    async def _run_key(self, worker: Worker, lane: KeyedLane, stretch_end: float) -> float:
        """The same where no two records of a key may run at once."""
        call = self._isolation.apart(worker, self._first)
        wants_message = self._first_wants_message
        sends = self._sends
        decode = self._invocation.decode
        refusal = self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic = self._clock.monotonic
        tracker = lane.tracker
        task = worker.task
        context = worker.context
        clean = worker.clean
        acks = self._acks
        isolation = self._isolation
        returning = self._places.returning
        durations = self._totals.durations
        bounds = durations.bounds
        counts = durations.counts
        short_limit = DURATION_BUCKETS_S[0]
        since = counted_at = now = monotonic()
        short_count = 0
        long_s = 0.0
        failed = None
        while (found := lane.next_record()) is not None:
            key, index, record = found
            taken = lane.taken
            tracker.started[index - tracker.base] = now
            worker.index = index
            worker.record = record
            worker.key = key
            given = None
            try:
                if type(key) is Untold:
                    raise no_key(key.error)
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
                result = await call(given)
                try:
                    is_clean = context == clean and not task.cancelling()
                except BaseException:
                    # As above.
                    is_clean = False
                if not is_clean:
                    stretch_end = -inf
                    await self._isolation.call_returned(worker)
                if sends is not None and not sends.at_once(result, record, tracker, index):
                    await sends.answer(result, message_of(given, record, tracker, index))
            except BaseException as error:
                failed = error
            else:
                if acks:
                    tracker.settle(index)
            if failed is not None:
                await self._failed(worker, message_of(given, record, tracker, index), failed)
                failed = None
                if worker.is_spent:
                    stretch_end = -inf
            if worker.blocked_on or worker.state is not RUNNING:
                # Its handler has ignored our interrupt, and taken it off the task.
                worker.handler_ended()
                await self._wait_blocked(worker)
                if worker.is_abandoned:
                    # And its key is free when its lane is.
                    break
            worker.key = UNKEYED
            lane.free(key)
            done = monotonic()
            took = done - now
            now = done
            if took > short_limit:
                counts[bisect_left(bounds, took)] += 1
                durations.sum_s += took
                long_s += took
            else:
                short_count += 1
            if now >= stretch_end:
                if lane.taken == taken or stretch_end == -inf:
                    break
                # Another worker has taken a record: so the loop has run, and the stretch begins
                # anew.
                worker.stretch_end = now + STRETCH_S
                if (now >= lane.look_at or returning or isolation.is_closed) and not self._stays(
                    lane, since, now
                ):
                    break
                stretch_end = worker.stretch_end
                call = isolation.apart(worker, self._first)
                if short_count:
                    durations.observe_many_short(short_count, now - counted_at - long_s)
                    short_count = 0
                    counted_at = now
                    long_s = 0.0
        durations.observe_many_short(short_count, now - counted_at - long_s)
        return now

    def _stays(self, lane: Lane, since: float, now: float) -> bool:
        """Whether a worker goes on in a lane that it is in *since*, and that others are in, too.

        It leaves at once where somebody needs its place, and after a while where another lane has
        too few workers.
        """
        self._channel.progress(lane)
        if self._places.returning or self._isolation.is_closed:
            return False
        stays = now < since + TURN_S or not self._lanes.calls_from(lane)
        # The next one is to go there, too, if that is still so.
        lane.look_at = now + LOOK_S if stays else now
        return stays

    async def _failed(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        """The first call for a message has raised."""
        failed = await self._raised(worker, error)
        if failed is not None:
            failed = await self._once_decoded(worker, message, failed)
        if failed is not None:
            worker.messages = (message,)
            await self._fail(worker, [message], failed)
        await self._wait_blocked(worker)
        worker.messages = ()

    async def _call_handler(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        (message,) = messages
        await self._isolation.apart(worker, self._call)(
            message if self._wants_message else message.payload
        )

    async def _returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        if self._acks:
            for message in messages:
                message.tracker.settle(message.index)


def message_of(given: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> Message[Any]:
    """The message of a record: the one that its handler was given, or one of the payload that it
    was given.
    """
    return given if isinstance(given, Message) else new_message(given, record, tracker, index)

"""Calling a channel's handler record by record, in lanes that several workers take from at once."""

from __future__ import annotations

from math import inf
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
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
from reactive_kafka.verdicts.message import Message, new_message

TURN_S = 0.05
"""How long a worker stays in a lane while others have work, where handlers wait. To change costs it 2 µs."""


class SharedRuns(RetryingPool):
    """Workers that run one channel's handler on single records; how they go through a lane that others are in, too."""

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, invocation, channel)
        returned = self.returned if self._keeps else None
        self._call, self._wants_message, self._acks = record_call(invocation, returned, setup.hook)
        # What the first attempt calls, and what sends its result where that is not a part of the call.
        quick = quick_call(invocation, returned, setup.hook)
        self._first = self._call if quick is None else quick[0]
        self._sends = None if quick is None else quick[1]
        self._first_wants_message = self._wants_message if self._sends is None else invocation.wants_message

    async def _run_each(self, worker: Worker, lane: Lane, stretch_end: float) -> float:
        """The same where other workers may take from the lane while a handler waits, or where it acks by itself."""
        call, wants_message = self._isolation.apart(worker, self._first), self._first_wants_message
        sends = self._sends
        decode, refusal = self._invocation.decode, self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic, tracker = self._clock.monotonic, lane.tracker
        task, context, clean, acks = worker.task, worker.context, worker.clean, self._acks
        short_limit, started_at, short_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0.0
        now, failed = started_at, None
        while lane.advance():
            reading = lane.read()
            for index, record in reading:
                lane.taken = index
                tracker.started[index - tracker.base] = now
                worker.index, worker.record = index, record
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
                    except BaseException:  # as above
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
                done = monotonic()
                if done - now > short_limit:
                    self._totals.durations.observe(done - now)
                    long_s += done - now
                else:
                    short_count += 1
                now = done
                if now >= stretch_end:
                    if lane.taken == index or stretch_end == -inf or not self._stays(worker, lane, started_at, now):
                        break
                    stretch_end, call = worker.stretch_end, self._isolation.apart(worker, self._first)
                if lane.reading is not reading:
                    break
            if worker.state is not RUNNING and worker.is_abandoned:
                break
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
            if now >= stretch_end:
                break
        self._totals.durations.observe_many_short(short_count, now - started_at - long_s)
        return now

    async def _run_key(self, worker: Worker, lane: KeyedLane, stretch_end: float) -> float:
        """The same where no two records of a key may run at once."""
        call, wants_message = self._isolation.apart(worker, self._first), self._first_wants_message
        sends = self._sends
        decode, refusal = self._invocation.decode, self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic, tracker = self._clock.monotonic, lane.tracker
        task, context, clean, acks = worker.task, worker.context, worker.clean, self._acks
        short_limit, started_at, short_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0.0
        now, failed = started_at, None
        while (found := lane.next_record()) is not None:
            key, index, record = found
            taken = lane.taken
            tracker.started[index - tracker.base] = now
            worker.index, worker.record, worker.key = index, record, key
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
                except BaseException:  # as above
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
                worker.handler_ended()  # its handler has ignored our interrupt, and taken it off the task
                await self._wait_blocked(worker)
                if worker.is_abandoned:
                    break  # and its key is free when its lane is
            worker.key = UNKEYED
            lane.free(key)
            done = monotonic()
            if done - now > short_limit:
                self._totals.durations.observe(done - now)
                long_s += done - now
            else:
                short_count += 1
            now = done
            if now >= stretch_end:
                if lane.taken == taken or stretch_end == -inf or not self._stays(worker, lane, started_at, now):
                    break
                stretch_end, call = worker.stretch_end, self._isolation.apart(worker, self._first)
        self._totals.durations.observe_many_short(short_count, now - started_at - long_s)
        return now

    def _stays(self, worker: Worker, lane: Lane, since: float, now: float) -> bool:
        """Whether a worker goes on in a lane that it is in *since*, and from which another one has taken a record.

        So the loop has run meanwhile, and its stretch begins anew. But after a while it is the turn of other lanes, and
        at once that of whoever needs its place.
        """
        worker.stretch_end = now + STRETCH_S
        self._channel.progress(lane)
        if self._places.is_wanted or self._isolation.is_closed:
            return False
        return now < since + TURN_S or not self._lanes.has_others(lane)

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

    async def _call_handler(self, worker: Worker, messages: list[Message[Any]]) -> None:
        (message,) = messages
        await self._isolation.apart(worker, self._call)(message if self._wants_message else message.payload)

    async def _returned(self, worker: Worker, messages: list[Message[Any]]) -> None:
        if self._acks:
            for message in messages:
                message.tracker.settle(message.index)


def message_of(given: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> Message[Any]:
    """The message of a record: the one that its handler was given, or one of the payload that it was given."""
    return given if isinstance(given, Message) else new_message(given, record, tracker, index)

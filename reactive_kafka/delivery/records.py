"""The workers that run handlers record by record: by partition, by key, or as workers are free."""

from __future__ import annotations

from math import inf
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.attempts import RetryingPool
from reactive_kafka.delivery.calls import Invocation, no_key, quick_call, record_call
from reactive_kafka.delivery.lane import KeyLane, Lane, Part
from reactive_kafka.delivery.pool import STRETCH_S
from reactive_kafka.delivery.states import OPEN, RUNNING
from reactive_kafka.delivery.workers import Worker, WorkerSetup, WorkerSignals
from reactive_kafka.errors import DecodeError
from reactive_kafka.observe.facts import DURATION_BUCKETS_S
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.message import Message, new_message


class Dispatcher(RetryingPool):
    """Runs one channel's handler on the records of its lanes."""

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, invocation, channel)
        returned = self.returned if self._keeps else None
        self._call, self._wants_message, self._acks = record_call(invocation, returned, setup.hook)
        # What the first attempt calls, and what sends its result where that is not a part of the call.
        quick = quick_call(invocation, returned, setup.hook)
        self._first = self._call if quick is None else quick[0]
        self._sends = None if quick is None else quick[1]
        self._first_wants_message = self._wants_message if self._sends is None else invocation.wants_message

    async def _work(self, worker: Worker) -> None:
        stretch_end = self._clock.monotonic() + STRETCH_S
        while not self._goes_on_in_another(worker):
            self._is_waking = False
            lane = self._lanes.take()
            if lane is None:
                if not await self._rest(worker):
                    return
                stretch_end = self._clock.monotonic() + STRETCH_S
                continue
            if self._lanes.has_work:
                self.work_is_there()
            self._hold(worker, (lane,))
            try:
                now = await self._run(worker, lane, -inf if self._lanes.is_limited else stretch_end)
            finally:
                goes_on = self._turn_away(worker)
            if not goes_on:
                return
            if now >= stretch_end:
                await self._let_others_run(worker)
                stretch_end = self._clock.monotonic() + STRETCH_S

    async def _run(self, worker: Worker, lane: Part, stretch_end: float) -> float:
        """Run handlers on a lane's records, one at least, until it is empty or the stretch is over; the time then."""
        # The loop is written three times, for each kind of lane: what the three have in common would cost a call per
        # record, a tenth of what a record costs. While a handler waits the lane may be suspended, so each goes on with
        # the piece that it reads only while that is the lane's own (see Lane.cut).
        #
        # This one has the lane to itself, and the handler's return is the ack. So it notes only where it stands, which
        # the tracker knows as a run: all before ``run_at`` are settled, and that one has been open since ``run_since``.
        if isinstance(lane, KeyLane):
            return await self._run_key(worker, lane, stretch_end)
        if self._lanes.shared or not self._acks:
            return await self._run_each(worker, lane, stretch_end)
        call, wants_message = self._isolation.apart(worker, self._call), self._wants_message
        decode, refusal = self._invocation.decode, self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic, tracker = self._clock.monotonic, lane.tracker
        task, context, clean = worker.task, worker.context, worker.clean
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now, failed = started_at, None
        while (now < stretch_end or not count) and (lane.cursor < len(lane.records) or lane.advance()):
            records, cursor, before = lane.records, lane.cursor, lane.taken
            tracker.begin_run(before + 1, now)
            worker.piece, worker.first = records, lane.first
            look_at = min(stretch_end, now + short_limit)  # a call that begins after now and ends before that was short
            for index, record in enumerate(records[cursor:] if cursor else records, before + 1):
                lane.taken = index
                tracker.run_at = index
                tracker.run_since = now
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
                    await call(given)
                    try:
                        is_clean = context == clean and not task.cancelling()
                    except BaseException:  # the values of context variables are anybody's, and so is how they compare
                        is_clean = False
                    if not is_clean:
                        look_at = stretch_end = -inf
                        await self._isolation.call_returned(worker)
                except BaseException as error:
                    failed = error
                if failed is not None:  # not in the except block: this is not to become the context of a later error
                    if not worker.is_abandoned:
                        tracker.end_run(index, now)
                    await self._failed(worker, _message_of(given, record, tracker, index), failed)
                    failed = None
                    if worker.is_spent:
                        look_at = stretch_end = -inf
                    if not worker.is_abandoned:
                        tracker.begin_run(index + 1, self._clock.monotonic())
                began, now = now, monotonic()
                if now >= look_at:
                    if now - began > short_limit:
                        self._totals.durations.observe(now - began)
                        long_count += 1
                        long_s += now - began
                    if now >= stretch_end:
                        break
                    look_at = min(stretch_end, now + short_limit)
                if lane.records is not records:
                    break
            count += index - before
            if worker.is_abandoned:
                break
            tracker.end_run(index + 1)
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _run_each(self, worker: Worker, lane: Lane, stretch_end: float) -> float:
        """The same where other workers may take from the lane while a handler waits, or where it acks by itself."""
        call, wants_message = self._isolation.apart(worker, self._first), self._first_wants_message
        sends = self._sends
        decode, refusal = self._invocation.decode, self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic, tracker = self._clock.monotonic, lane.tracker
        task, context, clean, acks = worker.task, worker.context, worker.clean, self._acks
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now, failed = started_at, None
        while (now < stretch_end or not count) and (lane.cursor < len(lane.records) or lane.advance()):
            records, cursor, before = lane.records, lane.cursor, lane.taken
            for index, record in enumerate(records[cursor:] if cursor else records, before + 1):
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
                        await sends.answer(result, _message_of(given, record, tracker, index))
                except BaseException as error:
                    failed = error
                else:
                    if acks:
                        tracker.settle(index)
                if failed is not None:
                    await self._failed(worker, _message_of(given, record, tracker, index), failed)
                    failed = None
                    if worker.is_spent:
                        stretch_end = -inf
                done = monotonic()
                if done - now > short_limit:
                    self._totals.durations.observe(done - now)
                    long_count += 1
                    long_s += done - now
                now = done
                if now >= stretch_end or lane.taken != index or lane.records is not records:
                    break
            count += index - before
            if worker.is_abandoned:
                break
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _run_key(self, worker: Worker, lane: KeyLane, stretch_end: float) -> float:
        """The same for the lane of one key, which the worker has to itself."""
        call, wants_message = self._isolation.apart(worker, self._first), self._first_wants_message
        sends = self._sends
        decode, refusal = self._invocation.decode, self._invocation.refusal
        decode_record = self._invocation.decode_record
        monotonic, tracker = self._clock.monotonic, lane.tracker
        task, context, clean = worker.task, worker.context, worker.clean
        queue, whole, acks = lane.queue, lane.partition_lane, self._acks
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now, failed = started_at, None
        while queue and (now < stretch_end or not count) and whole.state is OPEN and worker.state is RUNNING:
            record, index = queue.popleft()
            whole.in_keys -= 1
            count += 1
            tracker.started[index - tracker.base] = now
            worker.index, worker.record = index, record
            given = None
            try:
                if lane.error is not None:
                    raise no_key(lane.error)
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
                    await sends.answer(result, _message_of(given, record, tracker, index))
            except BaseException as error:
                failed = error
            else:
                if acks:
                    tracker.settle(index)
            if failed is not None:
                await self._failed(worker, _message_of(given, record, tracker, index), failed)
                failed = None
                if worker.is_spent:
                    stretch_end = -inf
            if worker.state is not RUNNING:
                worker.handler_ended()  # its handler has ignored our interrupt, and taken it off the task
            if worker.blocked_on:
                await self._wait_blocked(worker)
            done = monotonic()
            if done - now > short_limit:
                self._totals.durations.observe(done - now)
                long_count += 1
                long_s += done - now
            now = done
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

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


def _message_of(given: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> Message[Any]:
    """The message of a record: the one that its handler was given, or one of the payload that it was given."""
    return given if isinstance(given, Message) else new_message(given, record, tracker, index)

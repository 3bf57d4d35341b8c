"""The workers that run handlers record by record, by partition, by key, or as workers are free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import AckMode
from reactive_kafka.delivery.calls import Call
from reactive_kafka.delivery.lane import OPEN, KeyLane, Lane, Part
from reactive_kafka.delivery.pool import STRETCH_S, Host, WorkerPool
from reactive_kafka.delivery.worker import Worker
from reactive_kafka.delivery.workers import WorkerSetup
from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.failure.decision import after_attempt
from reactive_kafka.observe.facts import DURATION_BUCKETS_S
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.message import Message, new_message


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a handler is called.

    Attributes:
        name: What logs and errors call it.
        call: Takes the payload, the message or the batch; a blocking handler is already wrapped.
        decode: Value bytes to payload, raising DecodeError; None hands out the bytes as they are.
        refusal: Without ``decode``: what is wrong with a record that has no value; None if the handler takes None.
        wants_message: The handler takes a Message; else it takes the payload.
        ack: When a record counts as done.
        emit: Takes the returned value and the message; settles the message itself. None: nothing is sent.
        decodes_keys: The channel has a ``key_deserializer``: what does not fit it never reaches the handler.
        is_blocking: It runs in a thread, which goes on when the call is cancelled.
        awaits_commits: The next record of a lane waits until the ack's commit is confirmed (``latest``).
    """

    name: str
    call: Callable[[Any], Awaitable[Any]]
    decode: Callable[[bytes | None], Any] | None
    wants_message: bool
    ack: AckMode
    emit: Callable[[Any, Message[Any]], Awaitable[None]] | None = None
    refusal: str | None = None
    decodes_keys: bool = False
    is_blocking: bool = False
    awaits_commits: bool = False


class Dispatcher(WorkerPool):
    """Runs one channel's handler on the records of its lanes."""

    def __init__(self, setup: WorkerSetup, invocation: Invocation, host: Host) -> None:
        super().__init__(setup, host)
        settings = setup.settings
        self._invocation = invocation
        self._keeps = settings.on_poison == "dead-letter-queue"
        is_plain = (
            invocation.emit is None
            and (invocation.ack == "post" or (invocation.ack == "manual" and not self._keeps))
            and not (invocation.ack == "post" and invocation.awaits_commits)
        )
        self._call: Callable[[Any], Awaitable[Any]] = invocation.call if is_plain else self._call_around
        self._wants_message = invocation.wants_message or not is_plain
        if invocation.wants_message:
            self._call = setup.hook.around(self._call)
        if invocation.decodes_keys:
            self._call = _with_key(self._call, wants_message=self._wants_message)
            self._wants_message = True
        self._acks = is_plain and invocation.ack == "post"

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
                now = await self._run(worker, lane, stretch_end)
            finally:
                goes_on = self._turn_away(worker)
            if not goes_on:
                return
            if now >= stretch_end:
                await self._let_others_run(worker)
                stretch_end = self._clock.monotonic() + STRETCH_S

    # -- the record's hot path

    async def _run(self, worker: Worker, lane: Part, stretch_end: float) -> float:
        """Run handlers on a lane's records until it is empty or the stretch is over; the time at the end.

        While a handler waits a revocation may park the lane: the loop over the current piece goes on only where nobody
        has. A worker that has the lane to itself, and acks by returning, notes only where it stands (a run, see the
        tracker) instead of each record's start and end. The loops are written out for each kind of lane: what they have
        in common would cost a call a record.
        """
        if isinstance(lane, KeyLane):
            return await self._run_key(worker, lane, stretch_end)
        if self._lanes.shared or not self._acks:
            return await self._run_each(worker, lane, stretch_end)
        call, decode, wants_message = self._apart(worker, self._call), self._invocation.decode, self._wants_message
        monotonic, tracker, refusal = self._clock.monotonic, lane.tracker, self._invocation.refusal
        task, context, clean = worker.task, worker.context, worker.clean
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now, failed = started_at, None
        while (now < stretch_end or not count) and (lane.cursor < len(lane.records) or lane.advance()):
            records, cursor, before = lane.records, lane.cursor, lane.taken
            tracker.begin_run(before + 1)
            worker.piece, worker.first = records, lane.first
            look_at = min(stretch_end, now + short_limit)  # who begins after now and ends before that, was short
            for index, record in enumerate(records[cursor:] if cursor else records, before + 1):
                lane.taken = index
                tracker.run_at = index
                tracker.run_since = now
                given = None
                try:
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
                        await self._call_returned(worker)
                except BaseException as error:
                    failed = error
                if failed is not None:  # not in the except block: no error of later has this one as its context
                    if not worker.is_left:
                        tracker.end_run(index, now)
                    await self._failed(worker, _message_of(given, record, tracker, index), failed)
                    failed = None
                    if worker.is_spent:
                        look_at = stretch_end = -inf
                    if not worker.is_left:
                        tracker.begin_run(index + 1)
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
            if worker.is_left:
                break
            tracker.end_run(index + 1)
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _run_each(self, worker: Worker, lane: Lane, stretch_end: float) -> float:
        """The same where other workers may take from the lane while a handler waits, or where it acks by itself."""
        call, decode, wants_message = self._apart(worker, self._call), self._invocation.decode, self._wants_message
        monotonic, tracker, refusal = self._clock.monotonic, lane.tracker, self._invocation.refusal
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
                    except BaseException:  # as above
                        is_clean = False
                    if not is_clean:
                        stretch_end = -inf
                        await self._call_returned(worker)
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
            if worker.is_left:
                break
            if worker.blocked_on:
                await self._wait_blocked(worker)
                now = monotonic()
        self._totals.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _run_key(self, worker: Worker, lane: KeyLane, stretch_end: float) -> float:
        """The same for the lane of one key, which the worker has to itself."""
        call, decode, wants_message = self._apart(worker, self._call), self._invocation.decode, self._wants_message
        monotonic, tracker, refusal = self._clock.monotonic, lane.tracker, self._invocation.refusal
        task, context, clean = worker.task, worker.context, worker.clean
        queue, whole, acks = lane.queue, lane.partition_lane, self._acks
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now, failed = started_at, None
        while queue and (now < stretch_end or not count) and not (whole.state is not OPEN or worker.is_left):
            record, index = queue.popleft()
            whole.in_keys -= 1
            count += 1
            tracker.started[index - tracker.base] = now
            worker.index, worker.record = index, record
            given = None
            try:
                if lane.error is not None:
                    raise _no_key(lane.error)
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
                except BaseException:  # as above
                    is_clean = False
                if not is_clean:
                    stretch_end = -inf
                    await self._call_returned(worker)
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
            if worker.is_interrupted:
                worker.comes_to_rest()
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

    async def _call_around(self, message: Message[Any]) -> None:
        """Settle before the handler runs, or send what it returns: where the handler's call is not all there is."""
        invocation = self._invocation
        if invocation.ack in ("pre", "none"):
            message.ack()
        result = await invocation.call(message if invocation.wants_message else message.payload)
        await _deliver_cancellation()
        if invocation.emit is not None:
            await invocation.emit(result, message)
        elif invocation.ack == "post":
            await message.ack()
        if self._keeps and is_open(message):
            self.returned.add(message)

    # -- failures

    async def _failed(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        """A first attempt has failed: try again in place as often as the channel says, then nack."""
        await self._call_raised(worker, error)
        if worker.comes_to_rest():
            await self._was_interrupted(worker)
            return
        worker.messages = (message,)
        await self._fail(worker, message, error)
        worker.messages = ()

    async def _was_interrupted(self, worker: Worker) -> None:
        """The handler was cancelled for poison: its verdict has been given, and its lane waits until that is done."""
        if self._invocation.is_blocking:
            self._totals.abandoned += 1  # its thread goes on
        await self._wait_blocked(worker)

    async def _fail(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        attempt = 1
        while True:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                message.tracker.nack(message.index)  # left for the next owner: the stop need not wait for it
                self._host.exit(error)
                return
            if self._invocation.ack in ("pre", "none"):
                message.tracker.settle(message.index)  # not yet, where its bytes could not be decoded
                self._host.raised_after_ack(message, error)
                return
            again = await self._may_again(worker, (message,), error)
            if again is False:
                await self._wait_blocked(worker)
                return
            if again is None and not await self._may_retry(worker, message, error, attempt):
                return
            attempt += again is None
            if not is_open(message):
                await self._wait_blocked(worker)
                return
            message.attempt = attempt
            self._totals.retries += again is None
            failed = await self._called_again(worker, message)
            if failed is None:
                return
            if worker.comes_to_rest():
                await self._was_interrupted(worker)
                return
            error = failed

    async def _called_again(self, worker: Worker, message: Message[Any]) -> BaseException | None:
        """Call the handler once more; what it raised.

        It is called outside of any except block, or Python would make the error of the attempt before the context of
        what this one raises.
        """
        try:
            await self._apart(worker, self._call)(message if self._wants_message else message.payload)
            await self._call_returned(worker)
        except BaseException as error:
            failed = error
        else:
            if self._acks:
                message.tracker.settle(message.index)
            return None
        await self._call_raised(worker, failed)
        return failed

    async def _may_retry(self, worker: Worker, message: Message[Any], error: BaseException, attempt: int) -> bool:
        """Wait for the next attempt; False if there is none, and what becomes of the record has been seen to."""
        is_last = isinstance(error, DecodeError) or not is_open(message)
        retry = None if is_last else after_attempt(attempt, self._settings.retry)
        if retry is None:
            await self._nacked(worker, message, error)
            return False
        self._host.will_retry(message, error, attempt, retry.after_s)
        if await self._waited(worker, retry.after_s):
            return True
        self._give_back(worker, [message])
        return False

    async def _nacked(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        """Hold back what comes after the record until its failure strategy has been carried out."""
        verdict = self._host.nack(message, error)
        if not verdict.done():
            worker.blocked_on.append(verdict)
        await self._wait_blocked(worker)


def _with_key(call: Call, *, wants_message: bool) -> Call:
    """The call, once the key of its message is decoded, whether or not anybody looks at it."""

    async def called(message: Message[Any]) -> Any:
        _ = message.key  # kept by the message; raises what the handler's failure is
        return await call(message if wants_message else message.payload)

    return called


def _message_of(given: Any, record: RawRecord, tracker: OffsetTracker, index: int) -> Message[Any]:
    """The message of a record: the one that its handler was given, or one of the payload that it was given."""
    return given if isinstance(given, Message) else new_message(given, record, tracker, index)


async def _deliver_cancellation() -> None:
    """Let a cancellation that a handler has asked for, and not awaited, come before anything is done for its return."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def _no_key(error: BaseException) -> BaseException:
    """What is raised for a record whose ordering key cannot be told."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return error
    refused = DecodeError(f"the record's ordering key cannot be told: {describe(error)}")
    refused.part = "ordering key"
    refused.__cause__ = error
    return refused

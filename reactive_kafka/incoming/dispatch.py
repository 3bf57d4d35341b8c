"""The workers that run handlers record by record, by partition, by key, or as workers are free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import AckMode, IncomingSettings
from reactive_kafka.errors import DecodeError, describe
from reactive_kafka.failure.decision import after_attempt
from reactive_kafka.incoming.crew import STRETCH_S, Crew, Host
from reactive_kafka.incoming.lanes import KeyLane, Lanes, Part
from reactive_kafka.incoming.message import Message
from reactive_kafka.incoming.worker import Worker
from reactive_kafka.observe.facts import DURATION_BUCKETS_S
from reactive_kafka.records import RawRecord
from reactive_kafka.tasks import Spawn


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
    is_blocking: bool = False
    awaits_commits: bool = False


class Dispatcher(Crew):
    """Runs one channel's handler on the records of its lanes.

    Args:
        settings: Of the channel; ``concurrency`` workers are started, as they are needed.
        spawn: Starts a worker as a task with a name.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        lanes: Lanes,
        invocation: Invocation,
        host: Host,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        super().__init__(settings, lanes, host, clock, spawn)
        self._invocation = invocation
        self._keeps = settings.on_poison == "dead-letter-queue"
        is_plain = (
            invocation.emit is None
            and (invocation.ack == "post" or (invocation.ack == "manual" and not self._keeps))
            and not (invocation.ack == "post" and invocation.awaits_commits)
        )
        self._call: Callable[[Any], Awaitable[Any]] = invocation.call if is_plain else self._call_around
        self._wants_message = invocation.wants_message or not is_plain
        if settings.checkpoint is not None and invocation.wants_message:
            self._call = self._after_asking(self._call)
        self._acks = is_plain and invocation.ack == "post"

    async def _work(self, worker: Worker) -> None:
        stretch_end = self._clock.monotonic() + STRETCH_S
        while True:
            self._is_waking = False
            lane = self._lanes.take()
            if lane is None:
                if not await self._rest():
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
                await asyncio.sleep(0)
                stretch_end = self._clock.monotonic() + STRETCH_S

    # -- the record's hot path

    async def _run(self, worker: Worker, lane: Part, stretch_end: float) -> float:
        """Run handlers on a lane's records until it is empty or the stretch is over; the time at the end.

        While a handler waits, other workers may take from the lane, and a revocation may park it: the loop over
        the current piece goes on only where nobody has. A worker that has the lane to itself notes only where it
        stands (a run, see the tracker) instead of each record's start and end.
        """
        if isinstance(lane, KeyLane):
            return await self._run_key(worker, lane, stretch_end)
        call, decode, wants_message, acks = self._call, self._invocation.decode, self._wants_message, self._acks
        monotonic, tracker, refusal = self._clock.monotonic, lane.tracker, self._invocation.refusal
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now = started_at
        in_a_run = acks and not self._lanes.shared
        while (now < stretch_end or not count) and (lane.cursor < len(lane.records) or lane.advance()):
            records, cursor = lane.records, lane.cursor
            index = lane.first + cursor - 1
            if in_a_run:
                tracker.begin_run(index + 1)
                worker.piece, worker.first = records, lane.first
            for record in records[cursor:] if cursor else records:
                lane.cursor = cursor = cursor + 1
                index += 1
                count += 1
                if in_a_run:
                    tracker.run_at = index
                    tracker.run_since = now
                else:
                    tracker.started[index - tracker.base] = now
                    worker.index, worker.record = index, record
                try:
                    payload = record.value if decode is None else decode(record.value)
                    if payload is None and refusal is not None:
                        raise DecodeError(refusal)
                    await call(Message(payload, record, tracker, index) if wants_message else payload)
                except BaseException as error:
                    if not worker.is_left:
                        tracker.end_run(index, now)
                    await self._failed(worker, lane, record, index, error)
                    if in_a_run and not worker.is_left:
                        tracker.begin_run(index + 1)
                else:
                    if acks and not in_a_run:
                        tracker.settle(index)
                done = monotonic()
                if done - now > short_limit:
                    self.durations.observe(done - now)
                    long_count += 1
                    long_s += done - now
                now = done
                if now >= stretch_end or lane.cursor != cursor or lane.records is not records:
                    break
            if worker.is_left:
                break
            tracker.end_run(index + 1)
            if worker.owed:
                await self._pay(worker)
                now = monotonic()
        self.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _run_key(self, worker: Worker, lane: KeyLane, stretch_end: float) -> float:
        """The same for the lane of one key, which the worker has to itself."""
        call, decode, wants_message, acks = self._call, self._invocation.decode, self._wants_message, self._acks
        monotonic, tracker, refusal = self._clock.monotonic, lane.tracker, self._invocation.refusal
        queue, whole = lane.queue, lane.partition_lane
        short_limit, started_at, count, long_count, long_s = DURATION_BUCKETS_S[0], monotonic(), 0, 0, 0.0
        now = started_at
        while queue and (now < stretch_end or not count) and not (whole.stopped or worker.is_left):
            record, index = queue.popleft()
            whole.in_keys -= 1
            count += 1
            tracker.started[index - tracker.base] = now
            worker.index, worker.record = index, record
            try:
                if lane.error is not None:
                    why = describe(lane.error)
                    raise DecodeError(f"the record's ordering key cannot be told: {why}") from lane.error
                payload = record.value if decode is None else decode(record.value)
                if payload is None and refusal is not None:
                    raise DecodeError(refusal)
                await call(Message(payload, record, tracker, index) if wants_message else payload)
            except BaseException as error:
                await self._failed(worker, lane, record, index, error)
            else:
                if acks:
                    tracker.settle(index)
            if worker.is_interrupted:
                worker.comes_to_rest()
            if worker.owed:
                await self._pay(worker)
            done = monotonic()
            if done - now > short_limit:
                self.durations.observe(done - now)
                long_count += 1
                long_s += done - now
            now = done
        self.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    def _after_asking(self, call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The call, unless the checkpoint store has the record already."""

        async def called(message: Message[Any]) -> Any:
            return await call(message) if self._host.begin_call((message,)) else None

        return called

    async def _call_around(self, message: Message[Any]) -> None:
        """Settle before the handler runs, or send what it returns: where the handler's call is not all there is."""
        invocation = self._invocation
        if invocation.ack in ("pre", "none"):
            message.ack()
        result = await invocation.call(message if invocation.wants_message else message.payload)
        if invocation.emit is not None:
            await invocation.emit(result, message)
        elif invocation.ack == "post":
            await message.ack()
        if self._keeps and message._tracker.is_open(message._index):
            self.kept.add(message)

    # -- failures

    async def _failed(self, worker: Worker, lane: Part, record: RawRecord, index: int, error: BaseException) -> None:
        """A first attempt has failed: try again in place as often as the channel says, then nack."""
        self._reraise_if_ours(worker, error)
        message = self._message_of(record, lane.tracker, index, error)
        if worker.comes_to_rest():
            await self._was_interrupted(worker, message)
            return
        worker.messages = (message,)
        await self._fail(worker, message, error)
        worker.messages = ()

    def _message_of(self, record: RawRecord, tracker: OffsetTracker, index: int, error: BaseException) -> Message[Any]:
        decode = None if isinstance(error, DecodeError) else self._invocation.decode
        return Message(record.value if decode is None else decode(record.value), record, tracker, index)

    async def _was_interrupted(self, worker: Worker, message: Message[Any]) -> None:
        """The handler was cancelled for poison: its verdict has been given, and its lane waits until that is done."""
        if self._invocation.is_blocking:
            self.abandoned += 1  # its thread goes on
        await self._pay(worker)

    async def _fail(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        attempt = 1
        while True:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                message._tracker.nack(message._index)  # left for the next owner: the stop need not wait for it
                self._host.exit(error)
                return
            if self._invocation.ack in ("pre", "none"):
                message._tracker.settle(message._index)  # not yet, where its bytes could not be decoded
                self._host.raised_after_ack(message, error)
                return
            again = await self._may_again(worker, (message,), error)
            if again is False:
                await self._pay(worker)
                return
            if again is None and not await self._may_retry(worker, message, error, attempt):
                return
            attempt += again is None
            if not message._tracker.is_open(message._index):
                await self._pay(worker)
                return
            message.attempt = attempt
            self.retries += again is None
            try:
                await self._call(message if self._wants_message else message.payload)
            except BaseException as next_error:
                self._reraise_if_ours(worker, next_error)
                if worker.comes_to_rest():
                    await self._was_interrupted(worker, message)
                    return
                error = next_error
            else:
                if self._acks:
                    message._tracker.settle(message._index)
                return

    async def _may_retry(self, worker: Worker, message: Message[Any], error: BaseException, attempt: int) -> bool:
        """Wait for the next attempt; False if there is none, and what becomes of the record has been seen to."""
        is_last = isinstance(error, DecodeError) or not message._tracker.is_open(message._index)
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
            worker.owed.append(verdict)
        await self._pay(worker)

"""The workers that run handlers.

A fixed number of long-lived workers, each of which runs handlers one after the other, inline: no task, future
or lock is made for a record. A worker turns to the next lane, and lets the loop run, after a stretch of time and
not of records, so that heartbeats, commits and HTTP answer under a handler that never suspends.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from reactive_kafka.clock import Clock
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.config.schema import AckMode, IncomingSettings
from reactive_kafka.errors import DecodeError
from reactive_kafka.failure.decision import after_attempt
from reactive_kafka.incoming.lanes import Lane, Lanes
from reactive_kafka.incoming.message import Batch, Message
from reactive_kafka.observe.facts import DURATION_BUCKETS_S, DurationHistogram
from reactive_kafka.records import RawRecord, TopicPartition

Spawn = Callable[[Callable[[], Awaitable[None]], str], None]
"""Starts a task with a name, which ends with the application."""

STRETCH_S = 0.005
"""How long a worker goes on without letting the loop run."""


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
    """

    name: str
    call: Callable[[Any], Awaitable[Any]]
    decode: Callable[[bytes | None], Any] | None
    wants_message: bool
    ack: AckMode
    emit: Callable[[Any, Message[Any]], Awaitable[None]] | None = None
    refusal: str | None = None


class Host(Protocol):
    """What the workers need from their channel."""

    def progress(self, lane: Lane) -> None:
        """A worker turns away from a lane: there may be room for new records, or a drain may be over."""

    def nack(self, message: Message[Any], reason: BaseException) -> Future[bool]:
        """The handler of a message failed for good."""

    def will_retry(self, message: Message[Any], reason: BaseException, attempt: int, wait_s: float) -> None:
        """Call number *attempt* for a message (for a batch: its first one) failed, and another one follows."""

    def raised_after_ack(self, message: Message[Any], reason: BaseException) -> None:
        """A handler raised, and its record was settled before it ran."""

    def exit(self, reason: BaseException) -> None:
        """A handler asked the process to end (SystemExit, KeyboardInterrupt)."""


class Dispatcher:
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
        self._settings = settings
        self._lanes = lanes
        self._invocation = invocation
        is_plain = invocation.emit is None and invocation.ack in ("post", "manual")
        self._call: Callable[[Any], Awaitable[Any]] = invocation.call if is_plain else self._call_around
        self._wants_message = invocation.wants_message or not is_plain
        self._acks = is_plain and invocation.ack == "post"
        self._host = host
        self._clock = clock
        self._spawn = spawn
        self._workers = 0
        self._idle: list[Future[None]] = []
        self._is_waking = False
        self._stopping = asyncio.Event()
        self._names = count(1)
        self._busy: dict[int, tuple[Lane, ...]] = {}  # worker -> the lanes that it holds
        self._abandoned: set[int] = set()
        self.retries = 0
        self.durations = DurationHistogram()

    # -- waking

    def work_is_there(self) -> None:
        """Records were put into the lanes: one worker is woken, which wakes the next if there is more."""
        if self._is_waking:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():  # cancelled: the application ends
                self._is_waking = True
                waiter.set_result(None)
                return
        if self._workers < self._settings.concurrency:
            self._is_waking = True
            self._start_worker()

    def _start_worker(self) -> None:
        name = next(self._names)
        self._workers += 1
        self._spawn(lambda: self._work(name), f"worker {name} of {self._settings.name}")

    def abandon(self, lane: Lane) -> None:
        """Workers that still run records of this lane count no longer: others take their places.

        Their partition has gone for good, so nobody waits for these handlers, and one that never ends must not
        keep its place for ever. A worker that does come back ends.
        """
        for name, lanes in self._busy.items():
            if lane in lanes and name not in self._abandoned:
                self._abandoned.add(name)
                self._workers -= 1

    def _is_left(self, name: int) -> bool:
        """Whether a worker that has turned away from its lanes has been replaced."""
        del self._busy[name]
        if name not in self._abandoned:
            return False
        self._abandoned.discard(name)
        return True

    def stop_retrying(self) -> None:
        """Waits between attempts end, and their records stay unsettled."""
        self._stopping.set()

    most_at_once: int | None = None

    def keep(self, partition: TopicPartition, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """What is kept of the records while they wait: they themselves."""
        return records

    async def _work(self, name: int) -> None:
        stretch_end = self._clock.monotonic() + STRETCH_S
        while True:
            self._is_waking = False
            lane = self._lanes.take()
            if lane is None:
                await self._rest()
                stretch_end = self._clock.monotonic() + STRETCH_S
                continue
            if self._lanes.has_work:
                self.work_is_there()
            self._busy[name] = (lane,)
            try:
                now = await self._run(lane, stretch_end)
            finally:
                is_left = self._is_left(name)
                self._lanes.release(lane)
                self._host.progress(lane)
            if is_left:
                return
            if now >= stretch_end:
                await asyncio.sleep(0)
                stretch_end = self._clock.monotonic() + STRETCH_S

    async def _rest(self) -> None:
        waiter: Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._idle:
                self._idle.remove(waiter)

    # -- the record's hot path

    async def _run(self, lane: Lane, stretch_end: float) -> float:
        """Run handlers on a lane's records until it is empty or the stretch is over; the time at the end.

        While a handler waits, other workers may take from the lane, and a revocation may empty it: the loop over
        the current piece goes on only where nobody has. A worker that has the lane to itself notes only where it
        stands (a run, see the tracker) instead of each record's start and end.
        """
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
            for record in records[cursor:] if cursor else records:
                lane.cursor = cursor = cursor + 1
                index += 1
                count += 1
                if in_a_run:
                    tracker.run_at = index
                    tracker.run_since = now
                else:
                    tracker.started[index - tracker.base] = now
                try:
                    payload = record.value if decode is None else decode(record.value)
                    if payload is None and refusal is not None:
                        raise DecodeError(refusal)
                    await call(Message(payload, record, tracker, index) if wants_message else payload)
                except BaseException as error:
                    tracker.end_run(index, now)
                    await self._failed(self._message_of(record, tracker, index, error), error)
                    if in_a_run:
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
            tracker.end_run(index + 1)
        self.durations.observe_many_short(count - long_count, now - started_at - long_s)
        return now

    async def _call_around(self, message: Message[Any]) -> None:
        """Settle before the handler runs, or send what it returns: where the handler's call is not all there is."""
        invocation = self._invocation
        if invocation.ack in ("pre", "none"):
            message._tracker.settle(message._index)
        result = await invocation.call(message if invocation.wants_message else message.payload)
        if invocation.emit is not None:
            await invocation.emit(result, message)

    def _message_of(self, record: RawRecord, tracker: OffsetTracker, index: int, error: BaseException) -> Message[Any]:
        decode = None if isinstance(error, DecodeError) else self._invocation.decode
        return Message(record.value if decode is None else decode(record.value), record, tracker, index)

    # -- failures

    async def _failed(self, message: Message[Any], error: BaseException) -> None:
        """A first attempt has failed: try again in place as often as the channel says, then nack."""
        attempt = 1
        while True:
            self._reraise_if_ours(error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._leave([message])
                self._host.exit(error)
                return
            if self._invocation.ack in ("pre", "none"):
                message._tracker.settle(message._index)  # not yet, where its bytes could not be decoded
                self._host.raised_after_ack(message, error)
                return
            retry = None if isinstance(error, DecodeError) else after_attempt(attempt, self._settings.retry)
            if retry is None:
                self._host.nack(message, error)
                return
            self._host.will_retry(message, error, attempt, retry.after_s)
            attempt += 1
            if not await self._waited(retry.after_s):
                self._leave([message])
                return
            if not message._tracker.is_open(message._index):
                return
            message.attempt = attempt
            self.retries += 1
            try:
                await self._call(message if self._wants_message else message.payload)
            except BaseException as again:
                error = again
            else:
                if self._acks:
                    message._tracker.settle(message._index)
                return

    async def _waited(self, after_s: float) -> bool:
        """Wait for the next attempt; False if the channel stops meanwhile."""
        try:
            async with asyncio.timeout(after_s):
                await self._stopping.wait()
        except TimeoutError:
            return True
        return False

    def _leave(self, messages: Sequence[Message[Any]]) -> None:
        """The channel ends and nobody will settle these: the stop need not wait, and the next owner gets them."""
        for message in messages:
            message._tracker.nack(message._index)

    def _reraise_if_ours(self, error: BaseException) -> None:
        """Let our own cancellation through; a handler that raises CancelledError by itself has failed."""
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error


class BatchDispatcher(Dispatcher):
    """Runs one channel's handler on batches of what waits in its lanes."""

    def work_is_there(self) -> None:
        """Records were put into the lanes: every worker looks whether a batch is due."""
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        if self._workers < self._settings.concurrency:
            self._start_worker()

    async def _work(self, name: int) -> None:
        while True:
            due = self._lanes.batch_due(self._settings.batch_max_records, self._settings.batch_max_wait_s)
            if due is None or (wait := due - self._clock.monotonic()) > 0:
                await self._rest_until(None if due is None else wait)
                continue
            slices = self._lanes.take_batch(self._settings.batch_max_records)
            lanes = tuple({id(part.lane): part.lane for part in slices}.values())
            self._busy[name] = lanes
            try:
                await self._run_batch([(part.lane.tracker, part.first, part.records) for part in slices])
            finally:
                is_left = self._is_left(name)
                for lane in lanes:
                    self._lanes.release(lane)
                    self._host.progress(lane)
            if is_left:
                return
            self.work_is_there()
            await asyncio.sleep(0)

    async def _rest_until(self, after_s: float | None) -> None:
        try:
            async with asyncio.timeout(after_s):
                await self._rest()
        except TimeoutError:
            pass  # the batch is due

    async def _run_batch(self, parts: list[tuple[OffsetTracker, int, Any]]) -> None:
        now = self._clock.monotonic()
        messages: list[Message[Any]] = []
        for tracker, first, records in parts:
            tracker.start_range(first, len(records), now)
            if self._invocation.ack in ("pre", "none"):
                tracker.settle_range(first, first + len(records))
            messages += self._decoded(tracker, first, records)
        if messages:
            await self._call_with(messages)
            self.durations.observe(self._clock.monotonic() - now)

    def _decoded(self, tracker: OffsetTracker, first: int, records: list[RawRecord]) -> list[Message[Any]]:
        """The messages of a part; a record that cannot be decoded is nacked alone and is not among them."""
        decode, refusal = self._invocation.decode, self._invocation.refusal
        messages = []
        for index, record in enumerate(records, first):
            try:
                payload = record.value if decode is None else decode(record.value)
                if payload is None and refusal is not None:
                    raise DecodeError(refusal)
            except DecodeError as error:
                self._refuse(Message(None, record, tracker, index), error)
                continue
            messages.append(Message(payload, record, tracker, index))
        return messages

    def _refuse(self, message: Message[Any], error: BaseException) -> None:
        if self._invocation.ack in ("pre", "none"):
            self._host.raised_after_ack(message, error)
        else:
            self._host.nack(message, error)

    async def _call_with(self, messages: list[Message[Any]]) -> None:
        attempt = 1
        while True:
            try:
                await self._invocation.call(Batch(messages))
            except BaseException as error:
                self._reraise_if_ours(error)
                if isinstance(error, SystemExit | KeyboardInterrupt):
                    self._leave(messages)
                    self._host.exit(error)
                    return
                retry = (
                    None if self._invocation.ack in ("pre", "none") else after_attempt(attempt, self._settings.retry)
                )
                if retry is None:
                    for message in messages:
                        self._refuse(message, error)
                    return
                self._host.will_retry(messages[0], error, attempt, retry.after_s)
                if not await self._waited(retry.after_s):
                    self._leave(messages)
                    return
                attempt += 1
                self.retries += 1
                messages = [message for message in messages if message._tracker.is_open(message._index)]
                for message in messages:
                    message.attempt = attempt
                if not messages:
                    return
            else:
                if self._invocation.ack == "post":
                    for message in messages:
                        message._tracker.settle(message._index)
                return

"""What a call that failed becomes: another attempt in place, or nacks; and the workers that take
whole batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from reactive_kafka.backoff import Backoff, Waits, drawn_chance
from reactive_kafka.delivery.calls import Invocation, batch_call
from reactive_kafka.delivery.lane import Slice
from reactive_kafka.delivery.pool import WorkerPool
from reactive_kafka.delivery.workers import Worker, WorkerSetup, WorkerSignals
from reactive_kafka.errors import (
    BrokerError,
    DecodeError,
    ReplyTimeoutError,
    TransientBrokerError,
    describe,
)
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.batch import Batch, Piece, batch_of, settle_all, undecoded
from reactive_kafka.verdicts.delivery import Delivery, is_open
from reactive_kafka.verdicts.delivery_hook import CallAgain
from reactive_kafka.verdicts.message import Message, new_message

_HEADERS = attrgetter("headers")
Refused = tuple[Message[Any], BaseException]
AGAIN = Backoff(0.25, 5.0)
"""How soon a handler is called again that failed because a broker, a store or a registry was
away.
"""
TOLD_AFTER_S = 1.0
"""An outage that makes a handler fail is told by readiness when it has lasted for so long."""
LONG_RETRIES_S = 60.0
"""Records that are tried again for longer are a reason not to be ready, where no record can become
poison.
"""


@dataclass(slots=True)
class Trouble:
    """A call that has failed, and whose handler is to be called again."""

    # For a batch its first message.
    message: Delivery
    # When it failed first, by the monotonic clock.
    since: float
    reason: BaseException | None = None
    # The number of the next attempt.
    attempt: int = 1
    # Whether a broker, a store or a registry is away, and the handler has no part in it.
    is_outage: bool = False
    waits: Waits = field(default_factory=lambda: Waits(AGAIN))

    def text(self, now: float) -> str:
        """The trouble in words, for readiness."""
        place = f"{self.message.topic_partition} offset {self.message.offset}"
        why = describe(self.reason) if self.reason is not None else ""
        if self.is_outage:
            return f"{place}: its handler is called again when this is over: {why}"
        return f"{place} has failed for {now - self.since:.0f} s, attempt {self.attempt} follows: {why}"


def is_outage(error: BaseException) -> bool:
    """Whether a handler failed because a broker, a store or a registry that it used through us was
    away.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_outage(one) for one in error.exceptions)
    return isinstance(error, TransientBrokerError) or (
        isinstance(error, ReplyTimeoutError) and error.by_outage
    )


class RetryingPool(WorkerPool):
    """Workers that call a handler with one message, or with the messages of a batch, and again
    where that fails.
    """

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, channel)
        self._invocation = invocation
        self._keeps = setup.settings.on_poison == "dead-letter-queue"
        self._settles_first = invocation.ack in ("pre", "none")
        self._may_keep = invocation.ack == "manual"
        self._troubles: dict[Worker, Trouble] = {}
        if invocation.is_blocking:
            # A thread may outlive its call.
            self.tell_calls()

    async def _call_handler(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        raise NotImplementedError

    async def _returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """The handler has returned from a call with these messages."""
        raise NotImplementedError

    def _not_stored(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        """Of messages that the handler is about to be called with, those that the checkpoint store
        does not have.
        """
        return messages

    async def _attempt(
        self, worker: Worker, messages: Sequence[Message[Any]]
    ) -> BaseException | None:
        """Call the handler; what it raised, or None if that is nothing, or its verdict has been
        given.
        """
        # Nothing is called inside of an except block, or Python would make the error of one attempt
        # the context of what the next one raises.
        try:
            await self._call_handler(worker, messages)
            await self._isolation.call_returned(worker)
        except BaseException as error:
            failed = error
        else:
            await self._returned(worker, messages)
            return None
        return await self._raised(worker, failed)

    async def _raised(self, worker: Worker, error: BaseException) -> BaseException | None:
        """A call has raised; None if it was interrupted for poison: its verdict has been given, and
        is waited for.
        """
        if not await self._isolation.call_raised(worker, error):
            return error
        if self._invocation.leaves_threads:
            # Its thread goes on.
            self._totals.abandoned += 1
        await self._wait_blocked(worker)
        return None

    async def _schema_comes(
        self, worker: Worker, messages: list[Message[Any]], missing: SchemaMissing
    ) -> bool:
        """Wait until the registry has answered; the records have not begun, and do not age. False:
        they are put back.

        The registry answers for this, so it is no attempt.
        """
        worker.messages = messages
        with self._standing(messages):
            return await self._wait_until(worker, messages, missing.arrives())

    async def _once_decoded(
        self, worker: Worker, message: Message[Any], failed: BaseException
    ) -> BaseException | None:
        """Why the first call for a message has failed; where its schema was still to come, it is
        only made now.
        """
        while isinstance(failed, SchemaMissing) and failed.is_read:
            if not await self._schema_comes(worker, [message], failed):
                return None
            again = self._decoded(message) or await self._attempt(worker, [message])
            if again is None:
                return None
            failed = again
        return failed

    def payload_of(self, record: RawRecord) -> Any:
        decode = self._invocation.decode
        if self._invocation.decode_record is not None and record.headers:
            return self._invocation.decode_record(record)
        return record.value if decode is None else decode(record.value)

    def _decoded(self, message: Message[Any]) -> BaseException | None:
        """Decode a message whose schema was still to come; why that is not possible."""
        refusal = self._invocation.refusal
        try:
            message.payload = self.payload_of(message.record)
        except BaseException as error:
            return error
        return DecodeError(refusal) if message.payload is None and refusal is not None else None

    async def _fail(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException
    ) -> None:
        """A first call has failed: try again in place as often as the channel says, then nack."""
        self._troubles[worker] = Trouble(messages[0], self._clock.monotonic())
        try:
            await self._call_until_settled(worker, messages, error)
        finally:
            del self._troubles[worker]

    async def _call_until_settled(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException
    ) -> None:
        attempt = 1
        failed = error
        while True:
            if isinstance(failed, SystemExit | KeyboardInterrupt):
                self._leave(messages, failed)
                return
            if self._settles_first:
                for message in messages:
                    # Not yet, where its bytes could not be decoded.
                    message.tracker.settle(message.index)
                    self._channel.raised_after_ack(message, failed)
                return
            following = await self._next_attempt(worker, messages, failed, attempt)
            if following is None:
                return
            attempt = following
            messages = self._not_stored([message for message in messages if is_open(message)])
            for message in messages:
                message.attempt = attempt
            worker.messages = messages
            raised = await self._attempt(worker, messages) if messages else None
            if raised is None:
                return
            failed = raised

    def _leave(self, messages: Sequence[Message[Any]], ending: BaseException) -> None:
        """The process is asked to end: the records are the next owner's, and a stop need not wait
        for them.
        """
        for message in messages:
            message.tracker.nack(message.index)
        self._channel.exit(ending)

    async def _next_attempt(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException, attempt: int
    ) -> int | None:
        """Wait for the next call, and return its number; None if there is none: all is nacked,
        settled or put back.
        """
        still = [message for message in messages if is_open(message)]
        trouble = self._troubles[worker]
        trouble.reason = error
        trouble.is_outage = False
        again = self._calls_again(error)
        if again is None or (again.if_settled and len(still) == len(messages)):
            is_last = not still or (isinstance(error, DecodeError) and not self.takes_batches)
            wait_s = None if is_last else self._after(messages[0], attempt, error)
            if wait_s is None:
                # Where every message has its verdict the error is told of one of them, if that is
                # still ours.
                told = (
                    still or [message for message in messages if not message.tracker.is_closed][:1]
                )
                worker.blocked_on += [self._channel.nack(message, error) for message in told]
                return None
            trouble.attempt = attempt + 1
            self._channel.will_retry(messages[0], error, attempt, wait_s)
            if not await self._wait_without_ageing(worker, still, wait_s):
                return None
            self._totals.retries += 1
            return attempt + 1
        # A broker, a store or a registry answers for the error: the handler is called again, and
        # that is no attempt.
        if not still:
            return None
        trouble.is_outage = not again.ages
        wait_s = trouble.waits.next_s()
        if self._hook.may_call_again(error) is None:
            # What the hook answers for it tells by itself.
            self._channel.will_retry(still[0], error, attempt, wait_s)
        wait = self._wait_for_attempt if again.ages else self._wait_without_ageing
        return attempt if await wait(worker, still, wait_s) else None

    def _calls_again(self, error: BaseException) -> CallAgain | None:
        """Whether the handler failed for what it has no part in; None: the failure is its own."""
        again = self._hook.may_call_again(error)
        if again is None and is_outage(error) and not self._is_routed(error):
            return CallAgain(if_settled=False, ages=False)
        return again

    def _is_routed(self, error: BaseException) -> bool:
        """Whether the configuration says by name what an outage becomes."""
        names = {
            kind.__name__
            for kind in type(error).__mro__
            if issubclass(kind, BrokerError | ReplyTimeoutError)
        }
        return any(route.rpartition(".")[2] in names for route in self._settings.failure_routes)

    @property
    def waits_for_outage(self) -> bool:
        return any(one.is_outage for one in self._troubles.values())

    def not_ready(self, now: float) -> Iterator[str]:
        patience_s = self._settings.unprocessed_record_max_age_s or LONG_RETRIES_S
        told = [
            one
            for one in self._troubles.values()
            if now - one.since >= (TOLD_AFTER_S if one.is_outage else patience_s)
        ]
        if told:
            oldest = min(told, key=attrgetter("since"))
            more = f" ({len(told) - 1} more like it)" if len(told) > 1 else ""
            yield oldest.text(now) + more

    async def _wait_without_ageing(
        self, worker: Worker, messages: Sequence[Message[Any]], wait_s: float
    ) -> bool:
        """Wait for the next attempt; the time until then is not the handler's. Returns as
        :meth:`_wait_for_attempt`.
        """
        with self._standing(messages):
            return await self._wait_for_attempt(worker, messages, wait_s)

    @contextmanager
    def _standing(self, messages: Sequence[Message[Any]]) -> Iterator[None]:
        """These records do not age meanwhile: no handler has them."""
        since = self._clock.monotonic()
        for message in messages:
            message.tracker.stop_clock((message.index,), since)
        try:
            yield
        finally:
            now = self._clock.monotonic()
            for message in messages:
                message.tracker.start_clock((message.index,), now)

    def _after(self, message: Message[Any], attempt: int, error: BaseException) -> float | None:
        settings = self._settings
        return after_attempt(
            attempt, error, settings.retry, settings.routes_after_retries, drawn_chance()
        )


class BatchDispatcher(RetryingPool):
    """Runs one channel's handler on batches of records from its lanes."""

    takes_batches = True

    def __init__(self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals) -> None:
        super().__init__(setup, invocation, channel)
        self._call = batch_call(invocation)

    def work_is_there(self) -> None:
        """Records were put into the lanes: every worker looks whether a batch is due."""
        self._places.wake_all()

    async def _work(self, context: Context) -> None:
        worker = self._new_worker(context)
        while not self._goes_on_in_another(worker):
            due = self._lanes.batch_due(
                self._settings.batch_max_records, self._settings.batch_max_wait_s
            )
            if due is None or (wait := due - self._clock.monotonic()) > 0:
                if not await self._rest(worker, None if due is None else wait):
                    return
                continue
            slices = self._lanes.take_batch(self._settings.batch_max_records)
            self._hold(worker, tuple({id(part.lane): part.lane for part in slices}.values()))
            if self._lanes.ready:
                # Where the window is full nothing comes that would wake another.
                self._places.wake()
            try:
                await self._run_batch(worker, slices)
            finally:
                goes_on = self._turn_away(worker)
            if not goes_on:
                return
            self.work_is_there()
            await self._let_others_run(worker)

    async def _run_batch(self, worker: Worker, slices: list[Slice]) -> None:
        now = self._clock.monotonic()
        refused = list[Refused]()
        for part in slices:
            part.lane.tracker.start_range(part.first, len(part.records), now)
        try:
            while isinstance(batch := self._read(slices, refused), SchemaMissing):
                if not await self._schema_comes(worker, list(_undecoded(slices)), batch):
                    return
        except (SystemExit, KeyboardInterrupt) as ending:
            self._leave(_undecoded(slices), ending)
            return
        for part in slices if self._settles_first else ():
            part.lane.tracker.settle_range(part.first, part.first + len(part.records))
            self._channel.settled(part.lane.tracker)
        for message, error in refused:
            if self._settles_first:
                self._channel.raised_after_ack(message, error)
            else:
                worker.blocked_on.append(self._channel.nack(message, error))
        if batch:
            worker.messages = batch
            messages = worker.messages = self._not_stored(batch)
            failed = await self._attempt(worker, messages) if messages else None
            if failed is not None:
                await self._fail(worker, messages, failed)
            self._totals.durations.observe(self._clock.monotonic() - now)
        await self._wait_blocked(worker)

    def _read(self, slices: list[Slice], refused: list[Refused]) -> Batch[Any] | SchemaMissing:
        """The batch of what can be decoded; or a schema that is still to come, and then nothing
        else was done.
        """
        pieces: list[Piece] = []
        try:
            for part in slices:
                self._decode(part, pieces, refused)
        except SchemaMissing as missing:
            refused.clear()
            return missing
        return batch_of(pieces)

    def _decode(self, part: Slice, pieces: list[Piece], refused: list[Refused]) -> None:
        """Add the pieces of a slice; a record that cannot be decoded is refused alone, and lies
        between two of them.
        """
        refusal = self._invocation.refusal
        decodes_keys = self._invocation.decodes_keys
        tracker = part.lane.tracker
        by_headers = self._invocation.decode_record is not None and any(map(_HEADERS, part.records))
        if not (decodes_keys or by_headers or self._invocation.decode):
            piece = undecoded(tracker, part.first, part.records)
            if refusal is None or all(piece.payloads) or None not in piece.payloads:
                pieces.append(piece)
                return
        piece = Piece(tracker, part.first, [], [], [])
        for index, record in enumerate(part.records, part.first):
            try:
                payload = self.payload_of(record)
                if payload is None and refusal is not None:
                    raise DecodeError(refusal)
                if decodes_keys:
                    message = new_message(payload, record, tracker, index)
                    # Kept by the message.
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

    def _not_stored(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        return self._hook.before_call(messages) if messages else messages

    async def _call_handler(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        await self._isolation.apart(worker, self._call)(
            messages if isinstance(messages, Batch) else Batch(messages)
        )

    async def _returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        if self._invocation.ack == "post":
            if self._invocation.awaits_commits:
                await self._isolation.done(worker, [Batch(messages).ack()])
            else:
                settle_all(messages)
        elif self._keeps and self._invocation.ack == "manual":
            for message in messages:
                if is_open(message):
                    self.returned.add(message)


def _undecoded(slices: list[Slice]) -> Batch[Any]:
    return batch_of([undecoded(part.lane.tracker, part.first, part.records) for part in slices])

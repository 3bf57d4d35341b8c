"""The workers of a channel whose records are chosen: by a filter, or among several handlers.

Which handler a record is for is asked before each call. So these workers' own call takes the
message, and settles it. A channel with one handler that takes every record has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.delivery.attempts import BatchDispatcher, Refused
from reactive_kafka.delivery.calls import Invocation, deliver_cancellation, record_call, with_key
from reactive_kafka.delivery.lane import Slice
from reactive_kafka.delivery.records import Dispatcher
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers import Worker, WorkerSetup, WorkerSignals
from reactive_kafka.errors import DecodeError, UnmatchedRecordError
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import is_open
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message, new_message

T = TypeVar("T")
Place = tuple[OffsetTracker, int]
"""A record, by its partition's tracker and its arrival number."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One handler of a channel, and which records it takes: of *kinds*, if there are any, where
    *when* is true.
    """

    invocation: Invocation
    retry: RetrySettings
    when: Callable[[Message[Any]], object] | None = None
    kinds: tuple[type, ...] = ()
    # Its own payload; None: it takes that of the channel.
    read: Callable[[RawRecord], Any] | None = None

    def takes(self, message: Message[Any]) -> bool:
        """Whether the record is for this handler. Raises what *when* raises."""
        if self.kinds and not isinstance(message.payload, self.kinds):
            return False
        return self.when is None or bool(self.when(message))

    def own(self, message: Message[Any]) -> Message[Any]:
        """The message as this handler is to have it. DecodeError: the record does not fit its
        type.
        """
        if self.read is None:
            return message
        own = new_message(self.read(message.record), message.record, message.tracker, message.index)
        own.attempt = message.attempt
        return own


class Kept(dict[Place, T]):
    """What is kept of records that have failed, while they are open: some meet their end
    elsewhere.
    """

    def __init__(self) -> None:
        self._sweep_at = 64

    def keep(self, message: Message[Any], value: T) -> None:
        """Keep *value* for a record."""
        self[message.tracker, message.index] = value
        if len(self) >= self._sweep_at:
            for tracker, index in [place for place in self if not place[0].is_open(place[1])]:
                del self[tracker, index]
            self._sweep_at = max(64, 2 * len(self))


class ChoosingDispatcher(Dispatcher):
    """Calls the first of several handlers that takes a record."""

    def __init__(
        self,
        setup: WorkerSetup,
        branches: Sequence[Branch],
        channel: WorkerSignals,
        skipping: Skipping,
    ) -> None:
        # What concerns the channel is alike in all of them.
        super().__init__(setup, branches[0].invocation, channel)
        handle = (
            with_key(self._handle, wants_message=True)
            if self._invocation.decodes_keys
            else self._handle
        )
        self._call = self._first = handle
        self._wants_message = self._first_wants_message = True
        self._acks = False
        self._sends = None
        self._skipping = skipping
        self._branches = branches
        self._calls = [self._call_of(branch) for branch in branches]
        # Whose call, or whose ``when``, has failed.
        self._failing: Kept[Branch | None] = Kept()

    def _call_of(self, branch: Branch) -> Call:
        """What calls one handler with its message, and settles that as the ack mode says."""
        call, wants_message, acks = record_call(
            branch.invocation, self.returned if self._keeps else None, self._hook
        )

        async def called(message: Message[Any]) -> None:
            message = branch.own(message)
            await call(message if wants_message else message.payload)
            if acks:
                await deliver_cancellation()
                message.tracker.settle(message.index)

        return called

    async def _handle(self, message: Message[Any]) -> None:
        branch = None
        try:
            if why := self._skipping.why(message):
                self._channel.skip(message, why)
                return
            for branch, call in zip(self._branches, self._calls, strict=True):
                if branch.takes(message):
                    await call(message)
                    return
            branch = None
            self._unmatched(message)
        except BaseException:
            self._failing.keep(message, branch)
            raise

    def _unmatched(self, message: Message[Any]) -> None:
        if self._settings.unmatched == "nack":
            # A payload itself is nothing for logs.
            kind = type(message.payload).__name__
            raise UnmatchedRecordError(
                f"channel {self._settings.name!r}: none of its handlers takes this {kind}"
            )
        self._channel.skip(message, "unmatched")

    def _after(self, message: Message[Any], attempt: int, error: BaseException) -> float | None:
        branch = self._failing.pop((message.tracker, message.index), None)
        return self._after_call(branch, attempt, error)

    def _after_call(
        self, branch: Branch | None, attempt: int, error: BaseException
    ) -> float | None:
        """As :meth:`_after`; without a branch as the channel says."""
        if isinstance(error, UnmatchedRecordError | DecodeError):
            return None
        retry = self._settings.retry if branch is None else branch.retry
        return after_attempt(
            attempt, error, retry, self._settings.routes_after_retries, drawn_chance()
        )

    async def _failed(self, worker: Worker, message: Message[Any], error: BaseException) -> None:
        # An old record is skipped, whether or not it can be decoded. One that was decoded has been
        # looked at.
        is_undecoded = isinstance(error, DecodeError | SchemaMissing) and not self._has_begun(
            message
        )
        if is_undecoded and self._skipping.is_too_old(message):
            self._channel.skip(message, "age")
            return
        await super()._failed(worker, message, error)

    def _has_begun(self, message: Message[Any]) -> bool:
        """Whether the failure is that of a handler, or of what chooses it."""
        return (message.tracker, message.index) in self._failing


@dataclass(slots=True)
class Progress:
    """How far a record has come that goes to several handlers, once a call has failed."""

    # The handler whose call failed, or, where that was for good, the next one.
    at: int
    # By a handler so far.
    is_taken: bool
    # The first that was for good.
    error: BaseException | None = None


class BroadcastDispatcher(ChoosingDispatcher):
    """Calls each handler that takes a record, one after the other, and settles the record when all
    are done.

    Each has its own attempts. One that has failed for good does not keep the record from those
    behind it.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        branches: Sequence[Branch],
        channel: WorkerSignals,
        skipping: Skipping,
    ) -> None:
        super().__init__(setup, branches, channel, skipping)
        self._progress: Kept[Progress] = Kept()

    def _call_of(self, branch: Branch) -> Call:
        invocation = branch.invocation

        async def called(message: Message[Any]) -> None:
            result = await invocation.call(message if invocation.wants_message else message.payload)
            await deliver_cancellation()
            if invocation.emit is not None:
                await invocation.emit.write(result, message.record)

        call = called if invocation.around is None else invocation.around(called)
        return lambda message: call(branch.own(message))

    async def _handle(self, message: Message[Any]) -> None:
        place = message.tracker, message.index
        progress = self._progress.get(place)
        if progress is None:
            if why := self._skipping.why(message):
                self._channel.skip(message, why)
                return
            progress = Progress(0, is_taken=False)
        while self._goes_on(progress):
            try:
                if self._branches[progress.at].takes(message):
                    await self._calls[progress.at](message)
                    progress.is_taken = True
            except BaseException:
                self._progress.keep(message, progress)
                raise
            progress.at += 1
            message.attempt = 1
            # Poison, or the partition has gone.
            if not is_open(message):
                return
        if progress.error is not None:
            raise progress.error
        self._progress.pop(place, None)
        if not progress.is_taken:
            self._unmatched(message)
        elif self._invocation.awaits_commits:
            await verdicts_of(message.tracker).settle(message.index)
        else:
            message.tracker.settle(message.index)

    async def _next_attempt(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException, attempt: int
    ) -> int | None:
        """As ever for one handler; behind its last attempt the first of the next one."""
        (message,) = messages
        progress = self._progress.get((message.tracker, message.index))
        if progress is None or not is_open(message) or self._calls_again(error) is not None:
            return await super()._next_attempt(worker, messages, error, attempt)
        if self._goes_on(progress) and self._after(message, message.attempt, error) is None:
            progress.at += 1
            if progress.error is None:
                progress.error = error
            else:
                self._channel.also_failed(message, error)
            if self._goes_on(progress):
                return 1
        last = error if self._goes_on(progress) else progress.error or error
        return await super()._next_attempt(worker, messages, last, message.attempt)

    def _after(self, message: Message[Any], attempt: int, error: BaseException) -> float | None:
        progress = self._progress.get((message.tracker, message.index))
        if progress is None:
            return self._after_call(None, attempt, error)
        return (
            self._after_call(self._branches[progress.at], attempt, error)
            if self._goes_on(progress)
            else None
        )

    def _goes_on(self, progress: Progress) -> bool:
        return progress.at < len(self._branches)

    def _has_begun(self, message: Message[Any]) -> bool:
        return (message.tracker, message.index) in self._progress


class FilteringBatches(BatchDispatcher):
    """Leaves what is skipped out of batches; a batch of nothing is not called."""

    def __init__(
        self, setup: WorkerSetup, invocation: Invocation, channel: WorkerSignals, skipping: Skipping
    ) -> None:
        super().__init__(setup, invocation, channel)
        self._skipping = skipping

    def _read(self, slices: list[Slice], refused: list[Refused]) -> Batch[Any] | SchemaMissing:
        chosen: list[Message[Any]] = []
        undecoded: list[Refused] = []
        batch = super()._read(slices, undecoded)
        if isinstance(batch, SchemaMissing):
            return batch
        for message, error in undecoded:
            if self._skipping.is_too_old(message):
                self._channel.skip(message, "age")
            else:
                refused.append((message, error))
        for message in batch:
            try:
                why = self._skipping.why(message)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                # The filter is the user's code.
                refused.append((message, error))
                continue
            if why is None:
                chosen.append(message)
            else:
                self._channel.skip(message, why)
        return Batch(chosen)

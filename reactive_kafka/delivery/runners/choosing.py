"""Handlers of a channel whose records are chosen: by a filter, or among several handlers.

Which handler a record is for is found out in the call itself, which therefore takes the message and
settles it. A channel with one handler that takes every record has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from reactive_kafka.backoff import drawn_chance
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.delivery.current import RecordPlace
from reactive_kafka.delivery.invocation import (
    Invocation,
    RecordCall,
    deliver_cancellation,
    record_call,
    with_key,
)
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.runners.record_runner import RecordAttempts, RecordHandler
from reactive_kafka.delivery.skipping import Skipping, undecoded_message
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.errors import DecodeError, UnmatchedRecordError
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.observe.events import AlsoFailed
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import (
    failure_of,
    is_called_again,
    is_open,
    keep_trace,
    trace_of,
)
from reactive_kafka.verdicts.delivery_hook import Call, DeliveryHook
from reactive_kafka.verdicts.message import Message, ack_returned, new_message

T = TypeVar("T")

FIRST_SWEEP_AT = 64
"""What is kept of settled records is first removed when so much is kept."""


class LateMessage:
    """The message of a record that is decoded only when something needs its payload.

    Attributes:
        message: The message that handlers get.
        undecoded: A message whose payload is the value of the record: bytes, or None.
    """

    def __init__(self, message: Message[Any], invocation: Invocation) -> None:
        self.message = message
        self._invocation = invocation
        self._is_decoded = False
        self.undecoded = undecoded_message(message)

    def decoded(self) -> Message[Any]:
        """Return the message with its payload.

        Raises:
            DecodeError: The value or the key cannot be decoded.
            SchemaMissing: The schema of the value has to be asked for first.
        """
        if not self._is_decoded:
            self.message.payload = self._invocation.read_checked(self.message.record)
            self._check_key()
            self._is_decoded = True
        return self.message

    def message_for(self, branch: Branch) -> Message[Any]:
        """Return the message for a handler, decoded unless the handler reads its own payload.

        Raises:
            DecodeError: As :meth:`decoded`.
            SchemaMissing: As :meth:`decoded`.
        """
        if branch.read is None:
            return self.decoded()
        self._check_key()
        return self.message

    def _check_key(self) -> None:
        if self._invocation.decodes_keys:
            # The message keeps the decoded key.
            _ = self.message.key


@dataclass(frozen=True, slots=True)
class Branch:
    """One handler of a channel, and which records it takes.

    It takes records of *kinds*, if there are any, for which *when* is true. With *sees_undecoded*,
    *when* takes messages whose payload is the bytes of the record.
    """

    invocation: Invocation
    retry: RetrySettings
    when: Callable[[Message[Any]], object] | None = None
    kinds: tuple[type, ...] = ()
    # Decodes the handler's own payload; None: it takes that of the channel.
    read: Callable[[RawRecord], Any] | None = None
    sees_undecoded: bool = False

    def takes(self, message: Message[Any]) -> bool:
        """Return whether the record is for this handler. Raises what *when* raises."""
        if self.kinds and not isinstance(message.payload, self.kinds):
            return False
        return self.when is None or bool(self.when(message))

    def takes_late(self, record: LateMessage) -> bool:
        """Return the same of a record that is decoded only if that is needed for the answer."""
        if not self.sees_undecoded:
            return self.takes(record.decoded()) if self.kinds or self.when else True
        if self.when is not None and not self.when(record.undecoded):
            return False
        return not self.kinds or isinstance(record.decoded().payload, self.kinds)

    def own(self, message: Message[Any]) -> Message[Any]:
        """Return the message as this handler is to have it.

        Raises:
            DecodeError: The record does not fit the handler's type.
        """
        if self.read is None:
            return message
        own = new_message(self.read(message.record), message.record, message.tracker, message.index)
        if is_called_again(message):
            own.attempt = message.attempt
        return own


class KeptOfRecords(dict[RecordPlace, T]):
    """What is kept of records that have failed, until they are settled.

    Records are found by their arrival number and not by their message: a rebalance makes another
    message of the same record. Some records are settled elsewhere, so a sweep removes them.
    """

    def __init__(self) -> None:
        self._sweep_at = FIRST_SWEEP_AT

    def keep(self, message: Message[Any], value: T) -> None:
        """Keep *value* for a record."""
        self[message.tracker, message.index] = value
        if len(self) >= self._sweep_at:
            settled = [(tracker, index) for tracker, index in self if not tracker.is_open(index)]
            for place in settled:
                del self[place]
            self._sweep_at = max(FIRST_SWEEP_AT, 2 * len(self))


class RecordChoice:
    """What the choosing handlers of a channel have in common: skips, no match, and waits."""

    def __init__(
        self, settings: IncomingSettings, acknowledger: Acknowledger, skipping: Skipping
    ) -> None:
        self._settings = settings
        # Settles records without a call.
        self._skips = acknowledger.skips
        self._skipping = skipping
        # Calls that have skipped their records, and are not left out of the durations yet.
        self._skipped_calls = 0

    def take_skipped(self, most: int) -> int:
        """Return how many calls have skipped their records. As ``RecordHandler.take_skipped``."""
        taken = min(most, self._skipped_calls)
        self._skipped_calls -= taken
        return taken

    def _skip(self, message: Message[Any], why: Literal["filter", "age", "unmatched"]) -> None:
        self._skips.skip(message, why)
        self._skipped_calls += 1

    def skips(self, message: Message[Any]) -> bool:
        """Settle a record without a call, if it is filtered or too old. Raises as the filter."""
        why = self._skipping.why(message)
        if why is not None:
            self._skip(message, why)
        return why is not None

    def skips_late(self, record: LateMessage) -> bool:
        """Do the same with a record that is decoded only if the filter asks for that."""
        why = self._skipping.why_undecoded(record.undecoded)
        if why is None and self._skipping.filters_decoded:
            why = self._skipping.why(record.decoded())
        if why is not None:
            self._skip(record.message, why)
        return why is not None

    def skips_undecoded(self, message: Message[Any], error: BaseException) -> bool:
        """Settle a record that cannot be decoded, if it is too old or filtered anyway.

        A record that was decoded has been looked at before.
        """
        if not isinstance(error, DecodeError | SchemaMissing):
            return False
        try:
            why = self._skipping.why_undecoded(undecoded_message(message))
        except Exception:
            # The filter is the application's code. The record already has an error of its own.
            return False
        if why is not None:
            self._skip(message, why)
        return why is not None

    def unmatched(self, message: Message[Any]) -> None:
        """Settle a record that no handler takes.

        Raises:
            UnmatchedRecordError: The channel has ``unmatched = "nack"``.
        """
        if self._settings.unmatched == "nack":
            # The payload itself must not get into logs.
            kind = type(message.payload).__name__
            raise UnmatchedRecordError(
                f"channel {self._settings.name!r}: none of its handlers takes this {kind}"
            )
        self._skip(message, "unmatched")

    def retry_wait_s(
        self, message: Message[Any], error: BaseException, branch: Branch | None
    ) -> float | None:
        """Return how long to wait for the next attempt; None: there is none.

        Args:
            branch: Whose call failed; None: what chooses has failed, and the channel's own retry
                settings apply.
        """
        if isinstance(error, UnmatchedRecordError | DecodeError):
            return None
        retry = self._settings.retry if branch is None else branch.retry
        return after_attempt(
            message.attempt, error, retry, self._settings.routes_after_retries, drawn_chance()
        )


def _choosing_call(call: Call, branches: Sequence[Branch]) -> RecordCall:
    """Return the call that chooses. It takes the message, settles it, and sends by itself."""
    # Whether keys are decoded is the channel's, so it is the same for all of its handlers.
    if branches[0].invocation.decodes_keys and not branches[0].invocation.decodes_late:
        call = with_key(call, wants_message=True)
    return RecordCall(call, wants_message=True)


class FirstMatch(RecordHandler):
    """Calls the first of several handlers that takes a record."""

    def __init__(
        self,
        branches: Sequence[Branch],
        choice: RecordChoice,
        hook: DeliveryHook,
        isolation: Isolation,
        returned: ReturnedUnsettled | None,
    ) -> None:
        self.invocation = branches[0].invocation
        self._branches = branches
        self._choice = choice
        self._calls = [_settling_call(branch, hook, returned) for branch in branches]
        handle = self._handle_late if self.invocation.decodes_late else self._handle
        self.first = _choosing_call(handle, branches)
        self.attempts = RecordAttempts(self.first, isolation)
        # The branch whose call or ``when`` has failed; None: the filter, or no branch took it.
        self._failing: KeptOfRecords[Branch | None] = KeptOfRecords()

    async def _handle(self, message: Message[Any]) -> None:
        branch: Branch | None = None
        try:
            if self._choice.skips(message):
                return
            for branch, call in zip(self._branches, self._calls, strict=True):
                if branch.takes(message):
                    await call(message)
                    return
            branch = None
            self._choice.unmatched(message)
        except BaseException:
            self._failing.keep(message, branch)
            raise

    async def _handle_late(self, message: Message[Any]) -> None:
        """Do the same, and decode the record only when its payload is needed."""
        branch: Branch | None = None
        record = LateMessage(message, self.invocation)
        try:
            if self._choice.skips_late(record):
                return
            for branch, call in zip(self._branches, self._calls, strict=True):
                if branch.takes_late(record):
                    await call(record.message_for(branch))
                    return
            branch = None
            self._choice.unmatched(message)
        except BaseException:
            # Whatever was raised, retries and nacks need to know which handler it came from.
            self._failing.keep(message, branch)
            raise

    def is_skipped(self, message: Message[Any], error: BaseException) -> bool:
        """Skip a record that is too old and cannot be decoded; return whether it was skipped."""
        # Where a handler has failed, or what chooses it, the error is one of theirs.
        if (message.tracker, message.index) in self._failing:
            return False
        return self._choice.skips_undecoded(message, error)

    def take_skipped(self, most: int) -> int:
        """Return how many calls have skipped their records."""
        return self._choice.take_skipped(most)

    def has_next(self, message: Message[Any], error: BaseException) -> bool:
        """Return False: one handler takes the record."""
        return False

    def retry_wait_s(self, message: Message[Any], error: BaseException) -> float | None:
        """Return how long to wait for the next attempt; None: there is none."""
        branch = self._failing.pop((message.tracker, message.index), None)
        return self._choice.retry_wait_s(message, error, branch)

    def final_error(self, message: Message[Any], error: BaseException) -> BaseException:
        """Return the error of the last call."""
        return error


def _settling_call(branch: Branch, hook: DeliveryHook, returned: ReturnedUnsettled | None) -> Call:
    """Return what calls one handler with its message, and settles that as the ack mode says."""
    own_call = record_call(branch.invocation, returned, hook)

    async def called(message: Message[Any]) -> None:
        own = branch.own(message)
        try:
            await own_call.call(own if own_call.wants_message else own.payload)
        finally:
            if own is not message:
                # The nack of the message belongs to this call, too.
                keep_trace(message, trace_of(own))
        if own_call.settles_on_return:
            await deliver_cancellation()
            message.tracker.settle(message.index)

    return called


@dataclass(slots=True)
class BroadcastProgress:
    """How far a record has come that goes to several handlers, once a call has failed."""

    # The branch whose call failed or, if that was final, the one after it.
    position: int
    # A handler has taken the record.
    is_taken: bool
    # The first error that was final.
    error: BaseException | None = None


class Broadcast(RecordHandler):
    """Calls each handler that takes a record, one after the other, and then settles the record.

    Each handler has its own attempts. One that has failed for good does not keep the record from
    those after it.
    """

    def __init__(
        self,
        branches: Sequence[Branch],
        choice: RecordChoice,
        channel: ChannelContext,
        isolation: Isolation,
    ) -> None:
        self.invocation = branches[0].invocation
        self._branches = branches
        self._choice = choice
        self._channel = channel
        self._calls = [_sending_call(branch) for branch in branches]
        self.first = _choosing_call(self._handle, branches)
        self.attempts = RecordAttempts(self.first, isolation)
        self._progress: KeptOfRecords[BroadcastProgress] = KeptOfRecords()

    async def _handle(self, message: Message[Any]) -> None:
        place = message.tracker, message.index
        progress = self._progress.get(place)
        late = LateMessage(message, self.invocation) if self.invocation.decodes_late else None
        if progress is None:
            if self._skips(message, late):
                return
            progress = BroadcastProgress(0, is_taken=False)
        while self._has_branch(progress):
            try:
                branch = self._branches[progress.position]
                is_taking = branch.takes(message) if late is None else branch.takes_late(late)
                if is_taking:
                    if late is not None:
                        late.message_for(branch)
                    await self._calls[progress.position](message)
                    progress.is_taken = True
            except BaseException:
                self._progress.keep(message, progress)
                raise
            progress.position += 1
            if is_taking or is_called_again(message):
                # The next handler begins with its own first attempt.
                message.attempt = 1
            # The record may have become poison, or its partition may have gone.
            if not is_open(message):
                return
        if progress.error is not None:
            raise progress.error
        self._progress.pop(place, None)
        if not progress.is_taken:
            self._choice.unmatched(message)
        elif self.invocation.awaits_commits:
            await ack_returned(message)
        elif self.invocation.acks_by_message:
            ack_returned(message)
        else:
            message.tracker.settle(message.index)

    def _skips(self, message: Message[Any], late: LateMessage | None) -> bool:
        return self._choice.skips(message) if late is None else self._choice.skips_late(late)

    def _has_branch(self, progress: BroadcastProgress) -> bool:
        return progress.position < len(self._branches)

    def is_skipped(self, message: Message[Any], error: BaseException) -> bool:
        """Skip a record that is too old and cannot be decoded; return whether it was skipped."""
        if (message.tracker, message.index) in self._progress:
            return False
        return self._choice.skips_undecoded(message, error)

    def take_skipped(self, most: int) -> int:
        """Return how many calls have skipped their records."""
        return self._choice.take_skipped(most)

    def has_next(self, message: Message[Any], error: BaseException) -> bool:
        """Go to the next handler if *error* was final; return whether there is one."""
        progress = self._progress.get((message.tracker, message.index))
        if progress is None or not self._has_branch(progress):
            return False
        if self.retry_wait_s(message, error) is not None:
            return False
        progress.position += 1
        if progress.error is None:
            progress.error = error
        else:
            # The record will be nacked with the first error.
            about = failure_of(self._channel.settings.name, message, error)
            self._channel.observer.on(AlsoFailed(**about))
        return self._has_branch(progress)

    def retry_wait_s(self, message: Message[Any], error: BaseException) -> float | None:
        """Return how long to wait for the next attempt; None: there is none."""
        progress = self._progress.get((message.tracker, message.index))
        if progress is None:
            return self._choice.retry_wait_s(message, error, None)
        if not self._has_branch(progress):
            return None
        return self._choice.retry_wait_s(message, error, self._branches[progress.position])

    def final_error(self, message: Message[Any], error: BaseException) -> BaseException:
        """Return the first error that was final, once all handlers are done."""
        progress = self._progress.get((message.tracker, message.index))
        if progress is None or self._has_branch(progress) or progress.error is None:
            return error
        return progress.error


def _sending_call(branch: Branch) -> Call:
    """Return what calls one handler with its message, and sends its result; it settles nothing."""
    invocation = branch.invocation

    async def called(message: Message[Any]) -> None:
        result = await invocation.call(message if invocation.wants_message else message.payload)
        await deliver_cancellation()
        if invocation.emit is not None:
            await invocation.emit.write(result, message)

    call = called if invocation.around is None else invocation.around(called)
    if branch.read is None:
        return call

    async def call_with_own(message: Message[Any]) -> None:
        own = branch.own(message)
        try:
            await call(own)
        finally:
            # The ack and the nack of the message belong to its last call.
            keep_trace(message, trace_of(own))

    return call_with_own

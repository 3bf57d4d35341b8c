"""What becomes of a call that raised: it is made again in place, or its messages are nacked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.long_calls import LongCalls
from reactive_kafka.delivery.workers.interface import HandlerTotals
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.waits import WorkerWaits
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.errors import (
    BrokerError,
    ReplyTimeoutError,
    TransientBrokerError,
    describe,
)
from reactive_kafka.formats import SchemaMissing
from reactive_kafka.observe.events import HandlerRetried, RecordPostponed
from reactive_kafka.observe.wording import and_more
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.ageing import clock_stopped
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, failure_of, is_open
from reactive_kafka.verdicts.delivery_hook import CallAgain
from reactive_kafka.verdicts.later import Later, later_of
from reactive_kafka.verdicts.message import Message

OUTAGE_BACKOFF = Backoff(0.25, 5.0)
"""How soon a handler is called again that failed because a service is away."""

OUTAGE_SHOWN_AFTER_S = 1.0
"""Readiness names an outage that makes a handler fail when it has lasted for so long."""

LONG_RETRIES_S = 60.0
"""A channel is not ready if a record has been retried for longer, where none becomes poison."""

MOST_POSTPONED = 3
"""So many postponed records are named, those first whose call comes next."""

WHAT_WAITS = {
    "record": "",
    "partition": "; no record of its partition starts before that",
    "channel": "; no record of the channel starts before that",
}
"""Scope of a ``Later`` -> what health says of it."""


class HandlerAttempts(Protocol):
    """Makes the calls of a handler."""

    async def call(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Call the handler with these messages."""

    async def returned(self, worker: Worker, messages: Sequence[Message[Any]]) -> None:
        """Settle the messages of a call that has returned, if that is the handler's ack."""

    def not_stored(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        """Return those of the messages that the checkpoint store does not have."""


class RetriedHandler(Protocol):
    """A handler whose failed calls are made again."""

    # How it is called. Of several handlers this is the first one's: only what concerns the channel
    # is used of it, which is the same for all of them.
    invocation: Invocation
    # Makes its calls.
    attempts: HandlerAttempts

    def has_next(self, message: Message[Any], error: BaseException) -> bool:
        """Return whether another handler is to be called at once with a message.

        That is so for a broadcast if *error* was final for one handler, and others follow.
        """

    def retry_wait_s(self, message: Message[Any], error: BaseException) -> float | None:
        """Return how long to wait for the next attempt; None: there is none."""

    def final_error(self, message: Message[Any], error: BaseException) -> BaseException:
        """Return the error that a message is nacked with, after *error* in its last call."""


@dataclass(slots=True)
class Trouble:
    """A call that has raised, and that is to be made again."""

    # The message of the call; for a batch its first one.
    message: Delivery
    # When it first failed, by the monotonic clock.
    since: float
    reason: BaseException | None = None
    # The number of the next attempt.
    attempt: int = 1
    # A broker, a store or a registry is away, and the handler has no part in it.
    is_outage: bool = False
    # What its handler has asked for, and when that time is over; None: the call has failed.
    later: Later | None = None
    due: float = 0.0
    waits: Waits = field(default_factory=lambda: Waits(OUTAGE_BACKOFF))

    def text(self, now: float) -> str:
        """Describe the trouble for readiness."""
        place = f"{self.message.topic_partition} offset {self.message.offset}"
        why = describe(self.reason) if self.reason is not None else ""
        if self.is_outage:
            return f"{place}: its handler is called again when a service is back: {why}"
        if self.later is not None:
            left_s = max(0.0, self.due - now)
            rest = WHAT_WAITS[self.later.scope]
            return f"{place} is handled again in {left_s:.0f} s, as its handler asked{rest}"
        failed_s = now - self.since
        return f"{place} has failed for {failed_s:.0f} s, attempt {self.attempt} follows: {why}"


def is_outage(error: BaseException) -> bool:
    """Return whether a handler failed because a service that it used through us was away.

    Such a service is a broker, a store or a registry.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_outage(part) for part in error.exceptions)
    if isinstance(error, TransientBrokerError):
        return True
    return isinstance(error, ReplyTimeoutError) and error.by_outage


class Retries:
    """Makes the calls of one channel's handler, and decides what follows when one fails.

    While a call waits for its next attempt its records do not age: no handler has them.

    Args:
        exit: Called when a handler asked the process to end.
        hold: Stops new records of the given partitions from starting, with None those of the whole
            channel. Returns the function that ends this.
    """

    def __init__(
        self,
        handler: RetriedHandler,
        channel: ChannelContext,
        acknowledger: Acknowledger,
        *,
        exit: Callable[[BaseException], None],
        totals: HandlerTotals,
        isolation: Isolation,
        waits: WorkerWaits,
        hold: Callable[[Iterable[TopicPartition] | None], Callable[[], None]],
        long_calls: LongCalls,
    ) -> None:
        settings = channel.settings
        self._handler = handler
        self._attempts = handler.attempts
        self._settles_first = handler.invocation.settles_first
        self._leaves_threads = handler.invocation.leaves_threads
        self._failure_routes = settings.failure_routes
        self._patience_s = settings.unprocessed_record_max_age_s or LONG_RETRIES_S
        self._channel = channel
        self._clock = channel.clock
        self._acknowledger = acknowledger
        self._hook = acknowledger.hook
        self._exit = exit
        self._totals = totals
        self._isolation = isolation
        self._waits = waits
        self._hold = hold
        self._long_calls = long_calls
        self._troubles: dict[Worker, Trouble] = {}

    async def attempt(
        self, worker: Worker, messages: Sequence[Message[Any]]
    ) -> BaseException | None:
        """Call the handler, and count how long that takes; return what it raised.

        Returns:
            None if it raised nothing, or if its verdict has been given: see :meth:`raised`.
        """
        # What follows a failure is called outside of the except block. Otherwise Python would make
        # the error of one attempt the context of what the next one raises.
        worker.waits.next_call()
        began = self._clock.monotonic()
        try:
            try:
                await self._attempts.call(worker, messages)
            finally:
                now = self._clock.monotonic()
                waited_s = worker.waits.take_call(worker.record, now)
                self._totals.durations.observe(now - began - waited_s)
                # A revocation waits for the whole of it.
                self._long_calls.look(now - began)
            await self._isolation.call_returned(worker)
        except BaseException as error:
            failed = error
        else:
            await self._attempts.returned(worker, messages)
            return None
        return await self.raised(worker, failed)

    async def raised(self, worker: Worker, error: BaseException) -> BaseException | None:
        """Look at a call that has raised; return its error, if that is not our own interrupt.

        If the call was interrupted for poison its verdict has been given. That is waited for.
        """
        if not await self._isolation.call_raised(worker, error):
            return error
        if self._leaves_threads:
            # The thread continues without its call.
            self._totals.abandoned += 1
        await self.wait_for_nacks(worker)
        return None

    async def wait_for_nacks(self, worker: Worker) -> None:
        """Wait until the nacks of a worker's records are carried out."""
        await self._waits.for_nacks(worker)

    async def schema_arrives(
        self, worker: Worker, messages: Sequence[Message[Any]], missing: SchemaMissing
    ) -> bool:
        """Wait until the registry has answered about a schema.

        The registry is responsible for this wait, so it counts as no attempt. No handler has got
        the records: they do not age, and an ack of all records up to a later one is not for them.

        Returns:
            False if there is nothing to decode: the records were put back, or have their verdicts.
        """
        worker.messages = messages
        for message in messages:
            message.tracker.unstart(message.index)
        with clock_stopped(messages, self._clock.monotonic):
            is_here = await self._waits.until(worker, messages, missing.arrives())
            is_here = is_here and await self._until_resumed(worker, messages)
        if is_here:
            now = self._clock.monotonic()
            for message in messages:
                message.tracker.start_range(message.index, 1, now)
        return is_here

    async def fail(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException
    ) -> None:
        """Call again after a first call has failed, as often as the channel says; then nack."""
        self._troubles[worker] = Trouble(messages[0], self._clock.monotonic())
        try:
            await self._call_until_settled(worker, messages, error)
        finally:
            del self._troubles[worker]

    async def _call_until_settled(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException
    ) -> None:
        failed: BaseException | None = error
        while failed is not None:
            if isinstance(failed, SystemExit | KeyboardInterrupt):
                self.leave(messages, failed)
                return
            if self._settles_first:
                for message in messages:
                    # A message whose bytes could not be decoded has not been settled before.
                    message.tracker.settle(message.index)
                    self._acknowledger.raised_after_ack(message, failed)
                return
            attempt = await self._next_attempt(worker, messages, failed)
            if attempt is None:
                return
            messages = self._attempts.not_stored(
                [message for message in messages if is_open(message)]
            )
            for message in messages:
                message.attempt = attempt
            worker.messages = messages
            failed = await self.attempt(worker, messages) if messages else None

    def leave(self, messages: Sequence[Message[Any]], ending: BaseException) -> None:
        """Leave records to the next owner, because a handler asked the process to end.

        A stop need not wait for them.
        """
        for message in messages:
            message.tracker.nack(message.index)
        self._exit(ending)

    async def _next_attempt(
        self, worker: Worker, messages: Sequence[Message[Any]], error: BaseException
    ) -> int | None:
        """Wait for the next call.

        Returns:
            The number of the call. None if there is none: all messages were nacked, settled or put
            back.
        """
        first = messages[0]
        open_messages = [message for message in messages if is_open(message)]
        trouble = self._troubles[worker]
        trouble.reason = error
        trouble.is_outage = False
        later = later_of(error)
        if later is not None and open_messages:
            is_due = await self._until_later(worker, open_messages, later)
            return first.attempt if is_due else None
        again = self._call_again_rule(error)
        if again is not None:
            settled_some = len(open_messages) < len(messages)
            if settled_some or not again.if_settled:
                return await self._wait_for_service(worker, open_messages, error, again, first)
        elif open_messages and self._handler.has_next(first, error):
            # The next handler begins with its own first attempt.
            return 1 if await self._until_resumed(worker, open_messages) else None
        wait_s = self._handler.retry_wait_s(first, error) if open_messages else None
        if wait_s is None:
            final = self._handler.final_error(first, error)
            self._nack(worker, messages, open_messages, final)
            return None
        attempt = first.attempt
        trouble.attempt = attempt + 1
        self._report_retry(first, error, attempt, wait_s)
        if not await self._until_due(worker, open_messages, wait_s):
            return None
        self._totals.retries += 1
        return attempt + 1

    def _nack(
        self,
        worker: Worker,
        messages: Sequence[Message[Any]],
        open_messages: Sequence[Message[Any]],
        error: BaseException,
    ) -> None:
        nacked = open_messages
        if not nacked:
            # Every message has its verdict. Then the error is reported for one of those whose
            # partition is still ours.
            nacked = [message for message in messages if not message.tracker.is_closed][:1]
        nacks = self._acknowledger.nacks
        worker.blocked_on += [nacks.failed(message, error) for message in nacked]

    def _report_retry(
        self, message: Message[Any], reason: BaseException, attempt: int, wait_s: float
    ) -> None:
        """Report that call number *attempt* failed, and that another one follows.

        Args:
            message: That of the call; for a batch its first message.
        """
        about = failure_of(self._channel.settings.name, message, reason)
        self._channel.observer.on(HandlerRetried(**about, attempt=attempt, wait_s=wait_s))

    async def _wait_for_service(
        self,
        worker: Worker,
        open_messages: Sequence[Message[Any]],
        error: BaseException,
        again: CallAgain,
        first: Message[Any],
    ) -> int | None:
        """Wait before a call that failed for no fault of the handler; it keeps its number."""
        if not open_messages:
            return None
        trouble = self._troubles[worker]
        trouble.is_outage = not again.ages
        wait_s = trouble.waits.next_s()
        if self._hook.may_call_again(error) is None:
            # The store itself reports the errors that it answers for.
            self._report_retry(open_messages[0], error, first.attempt, wait_s)
        is_due = await self._until_due(worker, open_messages, wait_s, ages=again.ages)
        return first.attempt if is_due else None

    async def _until_later(
        self, worker: Worker, messages: Sequence[Message[Any]], later: Later
    ) -> bool:
        """Wait as long as the handler asked for. Returns False if no call follows."""
        trouble = self._troubles[worker]
        trouble.later = later
        trouble.due = self._clock.monotonic() + later.delay_s
        first = messages[0]
        self._channel.observer.on(
            RecordPostponed(
                channel=self._channel.settings.name,
                partition=first.topic_partition,
                offset=first.offset,
                wait_s=later.delay_s,
                scope=later.scope,
            )
        )
        end_hold: Callable[[], None] | None = None
        if later.scope == "partition":
            end_hold = self._hold({message.topic_partition for message in messages})
        elif later.scope == "channel":
            end_hold = self._hold(None)
        try:
            with clock_stopped(messages, self._clock.monotonic):
                is_due = await self._waits.until_due(worker, messages, later.delay_s)
        finally:
            if end_hold is not None:
                end_hold()
        is_due = is_due and await self._until_resumed(worker, messages)
        trouble.later = None
        # The time until now does not count as trouble.
        trouble.since = self._clock.monotonic()
        return is_due

    async def _until_due(
        self,
        worker: Worker,
        messages: Sequence[Message[Any]],
        wait_s: float,
        *,
        ages: bool = False,
    ) -> bool:
        """Wait *wait_s* seconds, and until a pause ends. Returns False if no attempt follows.

        Args:
            ages: The records age for *wait_s* seconds. They never age for a pause.
        """
        if ages:
            is_due = await self._waits.until_due(worker, messages, wait_s)
        else:
            with clock_stopped(messages, self._clock.monotonic):
                is_due = await self._waits.until_due(worker, messages, wait_s)
        return is_due and await self._until_resumed(worker, messages)

    async def _until_resumed(self, worker: Worker, messages: Sequence[Message[Any]]) -> bool:
        """Wait until no pause holds the next attempt. Returns False if no attempt follows.

        Then the records were given back, or all of them have their verdicts.
        """
        with clock_stopped(messages, self._clock.monotonic):
            return await self._waits.until_resumed(worker, messages)

    def _call_again_rule(self, error: BaseException) -> CallAgain | None:
        """Return how to call again after an error for which a service is responsible; else None."""
        again = self._hook.may_call_again(error)
        if again is None and is_outage(error) and not self._is_routed(error):
            return CallAgain(if_settled=False, ages=False)
        return again

    def _is_routed(self, error: BaseException) -> bool:
        """Return whether ``failure_routes`` says by name what becomes of an outage."""
        names = {
            kind.__name__
            for kind in type(error).__mro__
            if issubclass(kind, BrokerError | ReplyTimeoutError)
        }
        return any(route.rpartition(".")[2] in names for route in self._failure_routes)

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""
        return any(trouble.is_outage for trouble in self._troubles.values())

    def not_ready(self, now: float) -> Iterator[str]:
        """Yield why the oldest record that has waited long for its next call waits."""
        long = [
            trouble
            for trouble in self._troubles.values()
            if trouble.later is None
            and now - trouble.since
            >= (OUTAGE_SHOWN_AFTER_S if trouble.is_outage else self._patience_s)
        ]
        if long:
            oldest = min(long, key=attrgetter("since"))
            yield and_more(oldest.text(now), len(long) - 1)

    def postponed(self, now: float) -> Iterator[str]:
        """Yield which records wait because their handlers have asked for that."""
        found = [trouble for trouble in self._troubles.values() if trouble.later is not None]
        found.sort(key=attrgetter("due"))
        for trouble in found[:MOST_POSTPONED]:
            yield trouble.text(now)
        if len(found) > MOST_POSTPONED:
            yield f"{len(found) - MOST_POSTPONED} more records like these"

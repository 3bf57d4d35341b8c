"""Memory channels as senders see them: room for values, and the outcome of each value."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import MemorySettings
from reactive_kafka.errors import (
    ConfigError,
    EncodeError,
    RejectedRecordError,
    describe,
)
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.observe.events import ChannelFailed, Observer, Unwritten
from reactive_kafka.observe.facts import DurationHistogram, OutgoingFacts
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, Receipt
from reactive_kafka.outgoing.queue.record import QueuedRecord
from reactive_kafka.outgoing.target import LeftError
from reactive_kafka.records import HeaderPairs, RawRecord, Record, TopicPartition, epoch_ms
from reactive_kafka.tasks import Flag
from reactive_kafka.verdicts.ageing import HOLDER
from reactive_kafka.verdicts.value_origins import (
    ValueOrigin,
    ValueWatcher,
    origins_of,
    value_settled,
)
from reactive_kafka.wire import fields_problem


class MemoryRecord:
    """A value in a memory channel, in the form of a record; its number is its offset."""

    __slots__ = (
        "headers",
        "is_kept",
        "key",
        "offset",
        "origins",
        "receipt",
        "since",
        "timestamp",
        "value",
    )

    def __init__(self, value: Any, key: bytes | None, headers: HeaderPairs, timestamp: int) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.timestamp: int | None = timestamp
        self.offset = -1
        self.since = 0.0
        # The Kafka records that it was made of.
        self.origins: list[ValueOrigin] = []
        # Its handler has returned, and the application settles it later.
        self.is_kept = False
        self.receipt: Receipt | QueuedRecord


class MemoryHandling(ValueWatcher, Protocol):
    """The receiving end of a memory channel, as its sending end sees it."""

    def take(self, value: MemoryRecord) -> None:
        """Have a value handled."""

    def stop_taking(self) -> None:
        """Handle no more values."""

    def not_ready(self) -> Iterable[str]:
        """Return why values have waited long for the next call of their handler."""

    def postponed(self) -> Iterable[str]:
        """Return which values wait because their handlers have asked for that."""


class MemoryTarget:
    """The sending end of a memory channel. It is also its ``writer``: senders expect to find one.

    At most ``max_in_flight`` values are unsettled; further senders wait.

    Args:
        traced: Adds the trace of the sender to headers, so that the call that handles the value
            belongs to it. Sending makes no span. None: values are not traced.
    """

    def __init__(
        self,
        settings: MemorySettings,
        clock: Clock,
        observer: Observer,
        traced: Callable[[HeaderPairs], HeaderPairs] | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self._clock = clock
        self._observer = observer
        self._traced = traced
        self._handling: MemoryHandling
        self._next = 0
        # Offset -> value.
        self._unsettled: dict[int, MemoryRecord] = {}
        # Senders that wait for room, first come, first served.
        self._callers: OrderedDict[Future[None], None] = OrderedDict()
        # Places that are promised to senders that were let in and have not continued yet.
        self._granted = 0
        # Set when values have left.
        self._left = Flag()
        # Set when nothing is handled any more.
        self._why_left: LeftError | None = None
        # The offsets of the values that were not settled then.
        self._left_unsettled: frozenset[int] = frozenset()
        self._failure: str | None = None
        self._sent = {"ok": 0, "failed": 0}
        self._durations = DurationHistogram()

    def handled_by(self, handling: MemoryHandling) -> None:
        """Connect the receiving end, which calls :meth:`settled` with the outcome of each value."""
        self._handling = handling

    def start(self) -> None:
        """Do nothing: there is nothing to connect to."""

    @property
    def writer(self) -> MemoryTarget:
        """Itself: it accepts values."""
        return self

    def prepare(self, value: Any, source: RawRecord | None = None) -> Any:
        """Return the value, or :class:`Record`, as the handler will get it.

        The partition and the topic of a Record mean nothing here.

        Raises:
            EncodeError, RejectedRecordError: For its key, headers or timestamp.
            ConfigError: It names another channel.
        """
        now_ms = int(self._clock.wall() * 1000)
        if not isinstance(value, Record):
            return MemoryRecord(value, None, (), now_ms)
        if value.channel is not None and value.channel != self.name:
            raise ConfigError(
                f"Record(channel={value.channel!r}) is sent to the channel {self.name!r}"
            )
        key = value.key
        headers = tuple(value.headers)
        at = value.timestamp
        if at is not None and at.tzinfo is None:
            raise EncodeError(
                f"channel {self.name!r}: the record's timestamp {at} has no time zone"
            )
        if key is not None and not isinstance(key, bytes):
            key = write_by_value(key)
        if problem := fields_problem(None, key, headers, None, None):
            raise RejectedRecordError(f"channel {self.name!r}: {problem}")
        return MemoryRecord(value.value, key, headers, now_ms if at is None else epoch_ms(at))

    @property
    def _is_full(self) -> bool:
        return len(self._unsettled) + self._granted >= self.settings.max_in_flight

    @property
    def has_room(self) -> bool:
        """Whether a value is accepted at once."""
        # No sender waits while there is room: _let_in has let it in.
        return self._why_left is not None or not self._is_full

    @property
    def why_full(self) -> str | None:
        """The error text for a sender that does not wait for room. None: there is room."""
        if self.has_room:
            return None
        unsettled = f"{self.settings.max_in_flight} values are not settled (max_in_flight)"
        return f"memory channel {self.name!r}: {unsettled}"

    async def put(self, value: Any, receipt: CallbackReceipt) -> None:
        """Hand over a prepared value when there is room for it; its outcome goes to *receipt*."""
        if not self.has_room:
            await self._room()
            # put_now takes the promised place.
            self._granted -= 1
        receipt.expect()
        self.put_now(value, receipt)

    async def _room(self) -> None:
        turn: Future[None] = asyncio.get_running_loop().create_future()
        self._callers[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            # It is gone already if a value has left between the cancellation and now.
            self._callers.pop(turn, None)
            if turn.done() and not turn.cancelled():
                # It was our turn already: now it is the next sender's.
                self._granted -= 1
                self._let_in()
            raise

    def put_now(self, value: Any, receipt: Receipt | QueuedRecord) -> None:
        """Hand over a prepared value, even if there is no room."""
        if self._why_left is not None:
            # Not raised: that would be a failure of the handler that sends.
            receipt.fail(self._why_left)
            return
        if self._traced is not None:
            value.headers = self._traced(value.headers)
        value.offset = self._next
        value.receipt = receipt
        value.since = self._clock.monotonic()
        holder = HOLDER.get()
        if holder is not None:
            value.origins = origins_of(holder.held(briefly=True))
            for origin in value.origins:
                origin.values += 1
                origin.watchers.add(self._handling)
        self._next += 1
        self._unsettled[value.offset] = value
        self._handling.take(value)

    def kept(self) -> list[MemoryRecord]:
        """Return the values that the application has without a verdict, whose handlers returned."""
        return [value for value in self._unsettled.values() if value.is_kept]

    def settled(self, offset: int, error: BaseException | None = None) -> None:
        """Note that a value is acked, or nacked with *error*."""
        value = self._unsettled.pop(offset, None)
        if value is None:
            return
        self._sent["ok" if error is None else "failed"] += 1
        self._durations.observe(self._clock.monotonic() - value.since)
        self._report(value, error)
        self._let_in()

    def _report(self, value: MemoryRecord, error: BaseException | None) -> None:
        for origin in value.origins:
            if value.is_kept:
                origin.end(self._clock.monotonic())
            value_settled(origin)
        try:
            if error is None:
                value.receipt.written(TopicPartition(self.name, 0), value.offset)
            else:
                value.receipt.fail(error)
        except Exception as failed:
            # It is the sender's bug, and not for the handler that has settled the value.
            self.fail(failed)

    def _let_in(self) -> None:
        """Values have left: let in senders that wait for room."""
        while self._callers and (self._why_left is not None or not self._is_full):
            turn, _ = self._callers.popitem(last=False)
            if not turn.done():
                self._granted += 1
                turn.set_result(None)
        self._left.set()

    async def flush(self) -> None:
        """Wait until every value that was handed over before is settled.

        Raises:
            ChannelClosedError: The channel stops before that.
        """
        before = set(self._unsettled)
        while before:
            await _next(self._left)
            if self._why_left is not None and not before.isdisjoint(self._left_unsettled):
                raise self._why_left
            before.intersection_update(self._unsettled)

    async def drain(self, deadline: float) -> None:
        """Wait until values are settled; :meth:`leave` the rest at *deadline* (monotonic)."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                while self._unsettled or self._callers or self._granted:
                    await _next(self._left)
        except TimeoutError:
            self.leave()

    async def stop(self, deadline: float) -> None:
        """Drain until *deadline* (monotonic), and handle nothing afterwards."""
        await self.drain(deadline)
        self.leave()

    def leave(self, ending: BaseException | None = None) -> None:
        """Handle nothing any more, and fail what is left with :class:`LeftError`.

        Args:
            ending: What asked the process to end, if that is the reason.
        """
        if self._why_left is not None:
            return
        self._why_left = LeftError(self.name, ending)
        self._handling.stop_taking()
        left = self._unsettled
        self._unsettled = {}
        self._left_unsettled = frozenset(left)
        if left:
            if ending is None:
                why = "the handler had not settled them in time"
            else:
                why = f"{ending!r} ends the application"
            self._observer.on(Unwritten(channel=self.name, records=len(left), reason=why))
        for value in left.values():
            self._sent["failed"] += 1
            self._report(value, self._why_left)
        self._let_in()

    def fail(self, error: BaseException) -> None:
        """Report that a task of the channel, or of its source, has ended with a bug."""
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    def facts(self) -> OutgoingFacts:
        """What health and metrics show of this channel."""
        return OutgoingFacts(
            channel=self.name,
            direction="memory",
            broker_error=None,
            in_flight=len(self._unsettled),
            sent=dict(self._sent),
            send_durations=self._durations,
            failure=self._failure,
            not_ready=tuple(self._handling.not_ready()),
            postponed=tuple(self._handling.postponed()),
        )


async def _next(flag: Flag) -> None:
    """Wait until *flag* is set again."""
    flag.clear()
    await flag.wait()

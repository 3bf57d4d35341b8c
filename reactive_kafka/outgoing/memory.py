"""Memory channels as senders see them: room for values, and what became of each once its handler
has settled it.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import MemorySettings
from reactive_kafka.errors import (
    ChannelClosedError,
    ConfigError,
    EncodeError,
    RejectedRecordError,
    describe,
)
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.observe.events import ChannelFailed, Observer, Unwritten
from reactive_kafka.observe.facts import DurationHistogram, OutgoingFacts
from reactive_kafka.outgoing.channel import OutgoingChannel
from reactive_kafka.outgoing.outbox import Gathering, Receipt
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.records import HeaderPairs, RawRecord, Record, TopicPartition
from reactive_kafka.verdicts.ageing import HOLDER
from reactive_kafka.verdicts.value_origins import ValueOrigin, origins_of, value_settled
from reactive_kafka.wire import fields_problem


class LeftError(ChannelClosedError):
    """The application ends, and nobody settles a value any more. What it was made of is left to the
    next owner.
    """

    def __init__(self, channel: str, ending: BaseException | None = None) -> None:
        super().__init__(f"memory channel {channel!r} has stopped")
        self._ending = ending

    async def leave(self) -> None:
        """Leave the call of a handler that waits for the value, as if it were its own: a failure
        would be a nack.

        Raises what has asked the process to end. Else nobody waits for the call, and it ends with
        the application.
        """
        if self._ending is not None:
            raise self._ending
        await asyncio.get_running_loop().create_future()


class MemoryRecord:
    """A value on its way, in the form of a record; its number in the channel is its offset."""

    __slots__ = ("headers", "key", "offset", "origins", "receipt", "since", "timestamp", "value")

    def __init__(self, value: Any, key: bytes | None, headers: HeaderPairs, timestamp: int) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.timestamp: int | None = timestamp
        self.offset = -1
        self.since = 0.0
        # The records of Kafka that it was made of.
        self.origins: list[ValueOrigin] = []
        self.receipt: Receipt | Waiting


class MemoryTarget:
    """The end of a memory channel that values go into; its own ``writer``, as outgoing channels
    have one.

    At most ``max_in_flight`` values wait for the handler or are not settled: at that number senders
    wait.
    """

    def __init__(self, settings: MemorySettings, clock: Clock, observer: Observer) -> None:
        self.name = settings.name
        self.settings = settings
        self._clock = clock
        self._observer = observer
        self._take: Callable[[MemoryRecord], None]
        self._stop_taking: Callable[[], None]
        self._next = 0
        # By offset.
        self._unsettled: dict[int, MemoryRecord] = {}
        # For room, in the order in which they came.
        self._waiting: deque[Future[None]] = deque()
        # Places of those whose turn has come, and who have not gone on yet.
        self._granted = 0
        # Set when values have left.
        self._left = asyncio.Event()
        # there: nothing is handled any more.
        self._why_left: LeftError | None = None
        self._failure: str | None = None
        self._sent = {"ok": 0, "failed": 0}
        self._durations = DurationHistogram()

    def handled_by(
        self, take: Callable[[MemoryRecord], None], stop_taking: Callable[[], None]
    ) -> None:
        """The other end: *take* gets each value, and :meth:`settled` hears of it, until
        *stop_taking* is called.
        """
        self._take = take
        self._stop_taking = stop_taking

    def start(self) -> None:
        """There is nothing to connect to."""

    @property
    def writer(self) -> MemoryTarget:
        """What accepts values."""
        return self

    def prepare(self, value: Any, source: RawRecord | None = None) -> Any:
        """A value or a :class:`Record` as it will be handed over; its partition and topic mean
        nothing here.

        EncodeError, RejectedRecordError: as of an outgoing channel, of the key, the headers and the
        timestamp. ConfigError: it names another channel.
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
        return MemoryRecord(
            value.value, key, headers, now_ms if at is None else int(at.timestamp() * 1000)
        )

    @property
    def _is_full(self) -> bool:
        return len(self._unsettled) + self._granted >= self.settings.max_in_flight

    @property
    def has_room(self) -> bool:
        """Whether a value is accepted at once."""
        # Who waits is let in as soon as there is room.
        return self._why_left is not None or not self._is_full

    @property
    def why_full(self) -> str:
        """What to say where there is no room."""
        return f"memory channel {self.name!r}: {self.settings.max_in_flight} values are not settled (max_in_flight)"

    async def put(self, value: Any, receipt: Gathering) -> None:
        """Hand over what was prepared when there is room for it; *receipt* is told what becomes of
        it.
        """
        if not self.has_room:
            await self._room()
            # put_now takes the place.
            self._granted -= 1
        receipt.expect()
        self.put_now(value, receipt)

    async def _room(self) -> None:
        here: Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(here)
        try:
            await here
        except asyncio.CancelledError:
            # It was our turn already, and is the next one's now.
            if here.done() and not here.cancelled():
                self._granted -= 1
                self._released()
            else:
                self._waiting.remove(here)
            raise

    def put_now(self, value: Any, receipt: Receipt | Waiting) -> None:
        """Hand over what was prepared, whether or not there is room."""
        if self._why_left is not None:
            # Told, not raised: raised it would be a failure of the handler that sends.
            receipt.fail(self._why_left)
            return
        value.offset = self._next
        value.receipt = receipt
        value.since = self._clock.monotonic()
        holder = HOLDER.get()
        if holder is not None:
            value.origins = origins_of(holder.held(briefly=True))
            for origin in value.origins:
                origin.values += 1
        self._next += 1
        self._unsettled[value.offset] = value
        self._take(value)

    def settled(self, offset: int, error: BaseException | None = None) -> None:
        """A value is acked, or nacked with *error*."""
        value = self._unsettled.pop(offset, None)
        if value is None:
            return
        self._sent["ok" if error is None else "failed"] += 1
        self._durations.observe(self._clock.monotonic() - value.since)
        self._tell(value, error)
        self._released()

    def _tell(self, value: MemoryRecord, error: BaseException | None) -> None:
        for origin in value.origins:
            value_settled(origin)
        try:
            if error is None:
                value.receipt.written(TopicPartition(self.name, 0), value.offset)
            else:
                value.receipt.fail(error)
        except Exception as failed:
            # Of whoever is told: whoever has settled the value has no part in it.
            self.fail(failed)

    def _released(self) -> None:
        """Values have left: there may be room for others."""
        while self._waiting and (self._why_left is not None or not self._is_full):
            here = self._waiting.popleft()
            if not here.done():
                self._granted += 1
                here.set_result(None)
        self._left.set()

    async def flush(self) -> None:
        """Wait until all that was handed over before is settled. ChannelClosedError: the channel
        stops before that.
        """
        before = set(self._unsettled)
        while before := before.intersection(self._unsettled):
            await _next(self._left)
            if self._why_left is not None:
                raise self._why_left

    async def drain(self, deadline: float) -> None:
        """Wait until every value is settled; at *deadline* (monotonic) :meth:`leave` what is
        not.
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                while self._unsettled or self._waiting:
                    await _next(self._left)
        except TimeoutError:
            self.leave()

    async def stop(self, deadline: float) -> None:
        """The same, and nothing is handled afterwards."""
        await self.drain(deadline)
        self.leave()

    def leave(self, ending: BaseException | None = None) -> None:
        """Handle nothing any more, and tell senders that the rest is left; *ending* has asked the
        process to end.
        """
        if self._why_left is not None:
            return
        self._why_left = LeftError(self.name, ending)
        self._stop_taking()
        left = self._unsettled
        self._unsettled = {}
        if left:
            why = (
                "the handler had not settled them in time"
                if ending is None
                else f"{ending!r} ends the application"
            )
            self._observer.on(Unwritten(channel=self.name, records=len(left), reason=why))
        for value in left.values():
            self._sent["failed"] += 1
            self._tell(value, self._why_left)
        self._released()

    def fail(self, error: BaseException) -> None:
        """A task of the channel, or of a source that feeds it, has ended with a bug: only a restart
        helps.
        """
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    def facts(self) -> OutgoingFacts:
        """What is known about the channel now."""
        return OutgoingFacts(
            channel=self.name,
            direction="memory",
            broker_error=None,
            in_flight=len(self._unsettled),
            sent=dict(self._sent),
            send_durations=self._durations,
            failure=self._failure,
        )


async def _next(event: asyncio.Event) -> None:
    """Wait until it is set again."""
    event.clear()
    await event.wait()


Target = OutgoingChannel | MemoryTarget
"""Where handlers, sources and emitters send to."""

"""Outgoing channels: what handlers return is serialised, sent, and confirmed; then the incoming message is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Producer
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import OutgoingSettings
from reactive_kafka.errors import BrokerError, ConfigError, EncodeError, RejectedRecordError, describe
from reactive_kafka.formats import Encoder
from reactive_kafka.observe.events import ChannelFailed, Observer, SendFailed
from reactive_kafka.observe.facts import DurationHistogram, OutgoingFacts
from reactive_kafka.records import HeaderPairs, Record
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.partition import verdicts_of
from reactive_kafka.wire import topic_problem

BACKOFF = Backoff(0.25, 10.0)


@dataclass(frozen=True, slots=True)
class Outbound:
    """A record in bytes, ready to be sent."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: HeaderPairs
    partition: int | None
    timestamp_ms: int | None


class OutgoingChannel:
    """One outgoing channel. At most ``max_in_flight`` of its records wait for the broker at a time.

    *encode* and *encode_key*, for keys that are not bytes or None, raise EncodeError.
    """

    def __init__(
        self,
        settings: OutgoingSettings,
        connector: Connector,
        clock: Clock,
        observer: Observer,
        spawn: Spawn,
        *,
        encode: Encoder,
        encode_key: Encoder,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self._clock = clock
        self._observer = observer
        self._spawn = spawn
        self._encode = encode
        self._encode_key = encode_key
        properties = {**settings.client, "send_timeout_s": settings.send_timeout_s}
        self._producer: Producer = connector.producer(name=settings.name, properties=properties)
        self._room = asyncio.Semaphore(settings.max_in_flight)
        self._in_flight = 0
        self._broker_error: str | None = "connecting"
        self._failure: str | None = None
        self._sent = {"ok": 0, "failed": 0}
        self._durations = DurationHistogram()

    def start(self) -> None:
        """Connect in the background, and go on trying where no broker answers."""
        self._spawn(self._connect, f"outgoing {self.name}")

    async def _connect(self) -> None:
        waits = Waits(BACKOFF)
        while True:
            try:
                await self._producer.start()
            except BrokerError as error:
                self._broker_error = str(error)
                await asyncio.sleep(waits.next_s())
            else:
                self._broker_error = None
                return

    def fail(self, error: BaseException) -> None:
        """What connects has ended with what is no answer of the broker's: a bug, and only a restart helps."""
        self._failure = describe(error)
        self._observer.on(ChannelFailed(channel=self.name, reason=self._failure, error=error))

    async def stop(self) -> None:
        """Flush what was sent, and close."""
        await self._producer.stop()

    async def write(self, outbound: Outbound) -> None:
        """Send a prepared record; returns when the broker has it. RejectedRecordError: it refuses this record.

        A broker that is away, or a topic that is missing, is tried again for as long as it takes.
        Cancellation: The record may be written all the same.
        """
        waits = Waits(BACKOFF)
        async with self._room:
            self._in_flight += 1
            try:
                while True:
                    if await self._is_written(outbound):
                        return
                    await asyncio.sleep(waits.next_s())
            finally:
                self._in_flight -= 1

    async def _is_written(self, outbound: Outbound) -> bool:
        started = self._clock.monotonic()
        try:
            confirmation = await self._producer.send(
                outbound.topic,
                outbound.value,
                key=outbound.key,
                headers=outbound.headers,
                partition=outbound.partition,
                timestamp_ms=outbound.timestamp_ms,
            )
            await confirmation
        except BrokerError as error:
            is_refused = isinstance(error, RejectedRecordError)
            if not is_refused:
                self._broker_error = str(error)
            self._sent["failed"] += 1
            self._observer.on(SendFailed(channel=self.name, topic=outbound.topic, reason=str(error)))
            if is_refused:
                raise
            return False
        self._broker_error = None
        self._sent["ok"] += 1
        self._durations.observe(self._clock.monotonic() - started)
        return True

    def prepare(self, value: Any) -> Outbound:
        """A value or a :class:`Record` in bytes; EncodeError: no serializer fits, or its topic can never be."""
        record = value if isinstance(value, Record) else Record(value)
        topic = record.topic or self.settings.topic
        if problem := topic_problem(topic):
            raise EncodeError(f"channel {self.name!r}: the record's {problem}")
        timestamp = record.timestamp
        if timestamp is not None and timestamp.tzinfo is None:
            raise EncodeError(f"channel {self.name!r}: the record's timestamp {timestamp} has no time zone")
        return Outbound(
            topic=topic,
            value=self._encode(record.value),
            key=record.key if record.key is None or isinstance(record.key, bytes) else self._encode_key(record.key),
            headers=tuple(record.headers),
            partition=record.partition,
            timestamp_ms=None if timestamp is None else int(timestamp.timestamp() * 1000),
        )

    def facts(self) -> OutgoingFacts:
        """What is known about the channel now."""
        return OutgoingFacts(
            channel=self.name,
            broker_error=self._broker_error,
            in_flight=self._in_flight,
            sent=dict(self._sent),
            send_durations=self._durations,
            failure=self._failure,
        )


class Emitter:
    """Sends the values that one handler returns to each of *channels*; a :class:`Record` that names one, only there.

    With *settles* (``ack = "post"``) the incoming message is acked by the confirmation.
    """

    def __init__(self, channels: Sequence[OutgoingChannel], spawn: Spawn, *, settles: bool) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._spawn = spawn
        self._settles = settles
        self._waits = all(channel.settings.wait_for_write for channel in channels)
        self._room = asyncio.Semaphore(min(channel.settings.max_in_flight for channel in channels))

    async def __call__(self, value: Any, message: Message[Any]) -> None:
        """Send *value* (None sends nothing), and ack the message once it is written.

        With ``wait_for_write = false`` this returns when there is room for the record; the ack follows. EncodeError,
        RejectedRecordError: the value cannot be sent, which is a failure of the handler.
        """
        # One that does not fit a channel is found before another channel has sent it.
        writes = [(channel, channel.prepare(value)) for channel in self._targets(value)]
        if self._waits or not writes:
            await _write_all(writes)
            if self._settles:
                await message.ack()
            return
        await self._room.acquire()

        async def follow() -> None:
            try:
                await _write_all(writes)
            except Exception as error:  # whatever the client says to what the handler returned is the handler's failure
                if self._settles:
                    verdicts_of(message.tracker).channel.failed(message, error)
            else:
                if self._settles:
                    message.ack()
            finally:
                self._room.release()

        self._spawn(follow, f"write to {', '.join(self._channels)}")

    def _targets(self, value: Any) -> list[OutgoingChannel]:
        if value is None:
            return []
        if isinstance(value, Record) and value.channel is not None:
            if value.channel not in self._channels:
                known = ", ".join(map(repr, self._channels))
                raise ConfigError(f"Record(channel={value.channel!r}): the handler sends to {known} only")
            return [self._channels[value.channel]]
        return list(self._channels.values())


async def _write_all(writes: list[tuple[OutgoingChannel, Outbound]]) -> None:
    """Write to each channel, at once; raises the first failure."""
    if len(writes) == 1:
        channel, outbound = writes[0]
        await channel.write(outbound)
        return
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.write(outbound), name=f"write to {one.name}") for one, outbound in writes]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    for task in tasks:
        task.result()  # raises where one was cancelled: for a group that is no failure, and nothing was written

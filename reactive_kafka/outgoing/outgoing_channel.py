"""Outgoing channels: they serialise what an application sends, and hand it to their writer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.errors import ConfigError, EncodeError, RejectedRecordError
from reactive_kafka.formats import (
    Encoder,
    EventDefaults,
    EventRecord,
    EventWriter,
    SchemaSource,
    is_event_type,
)
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.formats.registered.wire_format import VALUE_HEADER
from reactive_kafka.observe.events import Observer
from reactive_kafka.observe.facts import OutgoingFacts
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.send_queue import Partitioner
from reactive_kafka.outgoing.queue.writer import Writer
from reactive_kafka.outgoing.reply_headers import CORRELATION_ID, reply_to
from reactive_kafka.outgoing.requests import Requests
from reactive_kafka.outgoing.send_watch import SendWatch
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.outgoing.transactions.transaction import Sender
from reactive_kafka.outgoing.transactions.transactional_writer import TransactionalWriter
from reactive_kafka.records import HeaderPairs, RawRecord, Record, RecordBytes, epoch_ms
from reactive_kafka.tasks import Spawn, all_ended
from reactive_kafka.verdicts.outbox import EVENT_ID, OutboxEvent
from reactive_kafka.wire import batch_bytes, fields_problem, topic_problem

MAX_REQUEST_BYTES = 1_048_576
"""``max_request_size`` of a producer, if that is not set."""

T = TypeVar("T")
_created = tuple.__new__


class AroundSend(Protocol):
    """The send middleware of the application."""

    def __call__(
        self, channel: str, value: Any, then: Callable[[Any], Awaitable[T]]
    ) -> Coroutine[Any, Any, T]:
        """Send a value, or a Record, to a channel.

        Args:
            then: Sends the Record that the value has become.

        Returns:
            What *then* returns.

        Raises:
            BaseException: What *then* or the middleware raises.
        """


def producer_properties(settings: OutgoingSettings) -> dict[str, Any]:
    """Return the properties of the channel's Kafka producers."""
    return {**settings.client, "send_timeout_s": settings.send_timeout_s}


def _event_writer(settings: OutgoingSettings, encode: Encoder) -> EventWriter | None:
    """Return what writes CloudEvents; None if the channel may not send any."""
    events = settings.cloud_events
    if events is None:
        return None
    given = {each.name: getattr(events, each.name) for each in fields(EventDefaults)}
    return EventWriter(settings.name, EventDefaults(**given), encode, settings.value_serializer)


class OutgoingChannel:
    """One outgoing channel.

    Args:
        encode: Value -> bytes; raises EncodeError.
        encode_key: The same for keys that are neither bytes nor None.
        partitioner: How keys choose partitions; None: as the producer's client does.
        producers: Of a transactional channel.
        registered: Where the schemas of its formats come from; None: they have none.
        watch: Sees each record that is sent; None: nothing does.
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
        partitioner: KeyHash | Partitioner | None = None,
        producers: TransactionalProducers | None = None,
        registered: SchemaSource | None = None,
        watch: SendWatch | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.topic = settings.topic
        self.encode = encode
        self._clock = clock
        self._event_writer = _event_writer(settings, encode)
        # Every value is written as a CloudEvent.
        self.makes_events = settings.cloud_events is not None and settings.cloud_events.every
        self.encode_key = encode_key
        self.registered = registered
        self.writer: Writer | TransactionalWriter
        if producers is not None:
            self.writer = TransactionalWriter(
                settings.name, producers, clock, observer, spawn, partitioner
            )
            partitions = producers.partitions
        else:
            producer = connector.producer(
                name=settings.name, properties=producer_properties(settings)
            )
            self.writer = Writer(
                settings.name,
                producer,
                clock,
                observer,
                spawn,
                max_in_flight=settings.max_in_flight,
                linger_s=settings.linger_s,
                partitioner=partitioner,
                # The span of an event belongs to the call that makes it, and not to its relay.
                watch=None if settings.outbox else watch,
            )
            partitions = producer.partitions
        self.requests = Requests(
            settings, connector, self.writer, clock, observer, spawn, partitions=partitions
        )
        # Bytes are written as they are.
        self.is_raw = settings.value_serializer in (None, "bytes") and not self.makes_events
        # Values are encoded at once, without a wait for a registry. A writer with a watch refuses
        # the shortcut after a record was encoded, so it would be encoded twice.
        self.is_quick = not self.makes_events and registered is None and watch is None
        # Of a channel whose records become part of a transaction, of Kafka or of a database.
        is_in_transaction = producers is not None or settings.outbox
        self._watch_in_transactions = watch if is_in_transaction else None
        # Values begin with the id of their schema. A header with the schema of the incoming record,
        # if it were passed on, would be read instead.
        self._names_schemas = settings.value_serializer in REGISTERED_FORMATS
        own = (VALUE_HEADER,) if self._names_schemas else ()
        self._headers = frozenset(settings.propagate_headers or ()).difference(own)
        # Bytes that a handler returns for a record without headers need no preparation at all.
        self.is_plain = self.is_raw and not self._headers and not settings.propagate_key

    def start(self) -> None:
        """Connect in the background."""
        self.writer.start(self.settings.topic)

    async def stop(self, deadline: float | None = None) -> None:
        """Fail requests that wait for replies, write what was accepted, and close.

        Args:
            deadline: When to give up the writes; monotonic, in seconds.
        """
        await all_ended(self.requests.close(), self.writer.stop(deadline))

    def facts(self) -> OutgoingFacts:
        """What health and metrics show of this channel, with the schemas that it waits for."""
        facts = self.writer.facts()
        if self.registered is None:
            return facts
        return replace(facts, not_ready=tuple(self.registered.schemas.not_ready()))

    def prepare(self, value: Any, source: RawRecord | None = None) -> OutgoingRecord:
        """Return a value or a :class:`Record` in bytes.

        Args:
            source: The incoming record that it was made of.

        Raises:
            SchemaMissing: The registry has not answered yet how to write it.
            EncodeError: No serializer fits, or the topic that it names, or that a request asks for,
                cannot exist.
            RejectedRecordError: Kafka takes no such record.
            ConfigError: It names another channel.
        """
        if not isinstance(value, Record):
            # Bytes are not passed to a serializer, and named tuples are created by tuple.__new__:
            # each would be a tenth of the time that a record takes in all.
            data: bytes | None
            if self.is_raw and type(value) is bytes:
                data = value
            elif self.makes_events or is_event_type(type(value)):
                return self.prepare(Record(value), source)
            else:
                data = self.encode(value)
            outgoing = _created(
                OutgoingRecord,
                (self.topic, _created(RecordBytes, (data, None, (), None)), None),
            )
            if source is not None:
                outgoing = self._propagated(source, outgoing, replies=True)
            if self._watch_in_transactions is not None:
                outgoing = self._watch_in_transactions.in_transaction(outgoing)
            return outgoing
        if value.channel is not None and value.channel != self.name:
            raise ConfigError(
                f"Record(channel={value.channel!r}) is sent to the channel {self.name!r}"
            )
        topic = self.topic if value.topic is None else value.topic
        if topic != self.topic and (problem := topic_problem(topic)):
            raise EncodeError(f"channel {self.name!r}: the record's {problem}")
        timestamp_ms = self._timestamp_ms(value)
        content = value.value
        key = value.key
        partition = value.partition
        headers: HeaderPairs = tuple(value.headers)
        if self.makes_events or (type(content) is not bytes and is_event_type(type(content))):
            data, headers, partition_key = self._as_event(content, headers)
            key = partition_key if key is None else key
        else:
            data = self.encode(content)
        if key is not None and not isinstance(key, bytes):
            key = self.encode_key(key)
        # A value and a key in bytes, and nothing else, can always be written. To ask would cost as
        # much as the rest of this function.
        needs_no_check = (
            type(data) is bytes
            and type(key) is bytes
            and not headers
            and partition is None
            and timestamp_ms is None
        )
        if not needs_no_check:
            problem = fields_problem(data, key, headers, partition, timestamp_ms)
            if problem:
                raise RejectedRecordError(f"{topic}: {problem}")
        if headers and self._names_schemas:
            headers = tuple(header for header in headers if header[0] != VALUE_HEADER)
        outgoing = _created(
            OutgoingRecord,
            (topic, _created(RecordBytes, (data, key, headers, timestamp_ms)), partition),
        )
        if source is not None:
            outgoing = self._propagated(source, outgoing, replies=value.topic is None)
        if self._watch_in_transactions is not None:
            outgoing = self._watch_in_transactions.in_transaction(outgoing)
        return outgoing

    def event(self, event_id: str, outgoing: OutgoingRecord) -> OutboxEvent:
        """Return a prepared record as an event of the outbox, which has its id as a header.

        Raises:
            RejectedRecordError: The producer would refuse it: it is larger than
                ``max_request_size``.
        """
        topic, record, partition = outgoing
        headers = [header for header in record.headers if header[0] != EVENT_ID]
        headers.append((EVENT_ID, event_id.encode()))
        timestamp_ms = record.timestamp_ms
        if timestamp_ms is None:
            # The time of the event, and not that of its relay.
            timestamp_ms = int(self._clock.wall() * 1000)
        record = RecordBytes(record.value, record.key, tuple(headers), timestamp_ms)
        limit = self.settings.client.get("max_request_size", MAX_REQUEST_BYTES)
        size = batch_bytes(record.value, record.key, record.headers)
        if size > limit:
            raise RejectedRecordError(
                f"{topic}: the record has {size} bytes, which is more than "
                f"max_request_size = {limit}"
            )
        return OutboxEvent(event_id, self.name, topic, partition, record)

    @property
    def why_full(self) -> str | None:
        """The error text for a sender that does not wait for room. None: there is room."""
        writer = self.writer
        # A transactional writer never has room: its put_now says why it refuses.
        if isinstance(writer, TransactionalWriter) or writer.has_room:
            return None
        return writer.why_full

    def put_now(self, prepared: OutgoingRecord, queued: QueuedRecord) -> None:
        """Hand a prepared record to the writer, even if there is no room.

        Args:
            queued: Gets the bytes of the record, and has its outcome.

        Raises:
            ChannelClosedError: The channel stops.
            ConfigError: The channel is transactional.
        """
        record = prepared.record
        queued.value = record.value
        queued.key = record.key
        queued.headers = record.headers
        queued.timestamp_ms = record.timestamp_ms
        self.writer.put_now(queued, prepared.topic, prepared.partition)

    def _timestamp_ms(self, record: Record) -> int | None:
        timestamp = record.timestamp
        if timestamp is None:
            return None
        if timestamp.tzinfo is None:
            raise EncodeError(
                f"channel {self.name!r}: the record's timestamp {timestamp} has no time zone"
            )
        return epoch_ms(timestamp)

    def _as_event(self, value: Any, headers: HeaderPairs) -> EventRecord:
        if self._event_writer is None:
            kind = type(value).__name__
            raise EncodeError(
                f"channel {self.name!r} writes no CloudEvents (cloud_events = false), "
                f"and this is a {kind}"
            )
        if (problem := fields_problem(None, None, headers, None, None)) is not None:
            # The event writer expects headers that Kafka takes.
            raise RejectedRecordError(f"{self.topic}: {problem}")
        return self._event_writer.write(value, headers, self._clock.wall())

    def _propagated(
        self, source: RawRecord, outgoing: OutgoingRecord, *, replies: bool
    ) -> OutgoingRecord:
        """Add the key and the headers that the channel propagates from the incoming record.

        Args:
            replies: If the incoming record is a request, send the record where that asks for it.
        """
        if not source.headers and not self.settings.propagate_key:
            return outgoing
        topic, record, partition = outgoing
        if record.key is None and self.settings.propagate_key:
            record = record._replace(key=source.key)
        if self._headers:
            record = record._replace(
                headers=(*self._propagated_headers(record.headers, source.headers), *record.headers)
            )
        if replies and source.headers and (to := reply_to(source.headers)) is not None:
            if all(name != CORRELATION_ID for name, _ in record.headers):
                record = record._replace(
                    headers=(*record.headers, (CORRELATION_ID, to.correlation_id))
                )
            topic = to.topic
            partition = partition if to.partition is None else to.partition
        return OutgoingRecord(topic, record, partition)

    def _propagated_headers(self, own: HeaderPairs, of_source: HeaderPairs) -> HeaderPairs:
        wanted = self._headers.difference(name for name, _ in own)
        return [header for header in of_source if header[0] in wanted]


def sender_of(channel: object) -> Sender:
    """Return the sender of a transactional channel, for the records of a transaction."""
    writer = getattr(channel, "writer", None)
    # Start-up refuses transactions of other channels.
    assert isinstance(writer, TransactionalWriter)  # noqa: S101
    return writer

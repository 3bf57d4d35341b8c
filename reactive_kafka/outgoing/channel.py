"""Outgoing channels: what an application sends is serialised here, and written by the channel's
writer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

from reactive_kafka.broker.client import Connector
from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import OutgoingSettings
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
from reactive_kafka.outgoing.outbox import Outbound, Partitioner
from reactive_kafka.outgoing.replies import CORRELATION_ID, reply_to
from reactive_kafka.outgoing.requests import Requests
from reactive_kafka.outgoing.transactional import TransactionalWriter
from reactive_kafka.outgoing.transactions import Sender, TransactionalProducers
from reactive_kafka.outgoing.writer import Writer
from reactive_kafka.records import HeaderPairs, RawRecord, Record, RecordBytes
from reactive_kafka.tasks import Spawn, each
from reactive_kafka.wire import fields_problem, topic_problem

T = TypeVar("T")
_made = tuple.__new__


class AroundSend(Protocol):
    """What the application has around its sends."""

    def __call__(
        self, channel: str, value: Any, then: Callable[[Any], Awaitable[T]]
    ) -> Coroutine[Any, Any, T]:
        """Send a value, or a Record, to a channel: *then* sends the Record that it has become.
        Returns what that does.

        Raises what *then* raises, or what the application does.
        """


def producer_properties(settings: OutgoingSettings) -> dict[str, Any]:
    """What a producer of the channel is made from."""
    return {**settings.client, "send_timeout_s": settings.send_timeout_s}


def _event_writer(settings: OutgoingSettings, encode: Encoder) -> EventWriter | None:
    """What makes records of events; None: nothing may."""
    events = settings.cloud_events
    if events is None:
        return None
    given = {each.name: getattr(events, each.name) for each in fields(EventDefaults)}
    return EventWriter(settings.name, EventDefaults(**given), encode, settings.value_serializer)


class OutgoingChannel:
    """One outgoing channel.

    *encode* and *encode_key*, for keys that are not bytes or None, raise EncodeError. With
    *producers* it is transactional.
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
        partitioner: Partitioner | None = None,
        producers: TransactionalProducers | None = None,
        registered: SchemaSource | None = None,
        make_writer: Callable[..., Writer] = Writer,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.topic = settings.topic
        self.encode = encode
        self._clock = clock
        self._event_writer = _event_writer(settings, encode)
        # Of every value.
        self.makes_events = settings.cloud_events is not None and settings.cloud_events.every
        self.encode_key = encode_key
        # Where the schemas of its formats come from; None: they have none.
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
            self.writer = make_writer(
                settings.name,
                producer,
                clock,
                observer,
                spawn,
                max_in_flight=settings.max_in_flight,
                linger_s=settings.linger_s,
                partitioner=partitioner,
            )
            partitions = producer.partitions
        self.requests = Requests(
            settings, connector, self.writer, clock, observer, spawn, partitions=partitions
        )
        # bytes are written as they are
        self.is_raw = settings.value_serializer in (None, "bytes") and not self.makes_events
        # most values of it become bytes as they are, at once
        self.is_quick = not self.makes_events and registered is None
        # values stand behind their schema's id, and a header with that of what they were made of
        # would go first
        self._names_schemas = settings.value_serializer in REGISTERED_FORMATS
        own = (VALUE_HEADER,) if self._names_schemas else ()
        self._headers = frozenset(settings.propagate_headers or ()).difference(own)
        # bytes that a handler returns for a record without headers are a record as they are
        self.is_plain = self.is_raw and not self._headers and not settings.propagate_key

    def start(self) -> None:
        """Connect in the background."""
        self.writer.start(self.settings.topic)

    async def stop(self, deadline: float | None = None) -> None:
        """Fail what waits for replies, write what was accepted until *deadline* (monotonic), and
        close.
        """
        await each(self.requests.close(), self.writer.stop(deadline))

    def facts(self) -> OutgoingFacts:
        """What is known about the writing now, and which schemas it waits for."""
        facts = self.writer.facts()
        return (
            facts
            if self.registered is None
            else replace(facts, not_ready=tuple(self.registered.schemas.not_ready()))
        )

    def prepare(self, value: Any, source: RawRecord | None = None) -> Outbound:
        """A value or a :class:`Record` in bytes; *source*: the incoming record that it was made of.

        SchemaMissing: the registry has not told yet how to write it.
        EncodeError: no serializer fits, or its topic can never be, which may be one that a request
        asks for. RejectedRecordError: Kafka takes none like it.
        ConfigError: it names another channel.
        """
        if not isinstance(value, Record):
            # a call for what bytes become, which is themselves, would be a tenth of a record's
            # whole way; and so would be the way in which a named tuple is made from its arguments
            data: bytes | None
            if self.is_raw and type(value) is bytes:
                data = value
            elif self.makes_events or is_event_type(type(value)):
                return OutgoingChannel.prepare(self, Record(value), source)
            else:
                data = self.encode(value)
            outbound = _made(
                Outbound, (self.topic, _made(RecordBytes, (data, None, (), None)), None)
            )
            return outbound if source is None else self._made_of(source, outbound, replies=True)
        if value.channel is not None and value.channel != self.name:
            raise ConfigError(
                f"Record(channel={value.channel!r}) is sent to the channel {self.name!r}"
            )
        topic = value.topic or self.topic
        if topic != self.topic and (problem := topic_problem(topic)):
            raise EncodeError(f"channel {self.name!r}: the record's {problem}")
        timestamp = value.timestamp
        timestamp_ms = None
        if timestamp is not None:
            if timestamp.tzinfo is None:
                raise EncodeError(
                    f"channel {self.name!r}: the record's timestamp {timestamp} has no time zone"
                )
            timestamp_ms = int(timestamp.timestamp() * 1000)
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
        # A value and a key in bytes can be written: to ask that would cost as much as all that is
        # done here.
        is_plain = type(data) is bytes and type(key) is bytes and not headers and partition is None
        if not (is_plain and timestamp_ms is None) and (
            problem := fields_problem(data, key, headers, partition, timestamp_ms)
        ):
            raise RejectedRecordError(f"{topic}: {problem}")
        if headers and self._names_schemas:
            headers = tuple(header for header in headers if header[0] != VALUE_HEADER)
        outbound = _made(
            Outbound, (topic, _made(RecordBytes, (data, key, headers, timestamp_ms)), partition)
        )
        return (
            outbound
            if source is None
            else self._made_of(source, outbound, replies=value.topic is None)
        )

    def _as_event(self, value: Any, headers: HeaderPairs) -> EventRecord:
        if self._event_writer is None:
            kind = type(value).__name__
            raise EncodeError(
                f"channel {self.name!r} writes no CloudEvents (cloud_events = false), and this is a {kind}"
            )
        if (problem := fields_problem(None, None, headers, None, None)) is not None:
            # Before anybody looks at them.
            raise RejectedRecordError(f"{self.topic}: {problem}")
        return self._event_writer.write(value, headers, self._clock.wall())

    def _made_of(self, source: RawRecord, outbound: Outbound, *, replies: bool) -> Outbound:
        """The record with what the channel passes on from the one that it was made of, and where a
        request wants it.
        """
        if not source.headers and not self.settings.propagate_key:
            return outbound
        topic, record, partition = outbound
        if record.key is None and self.settings.propagate_key:
            record = record._replace(key=source.key)
        if self._headers:
            record = record._replace(
                headers=(*self._passed_on(record.headers, source.headers), *record.headers)
            )
        if replies and source.headers and (to := reply_to(source.headers)) is not None:
            if all(name != CORRELATION_ID for name, _ in record.headers):
                record = record._replace(
                    headers=(*record.headers, (CORRELATION_ID, to.correlation_id))
                )
            topic = to.topic
            partition = partition if to.partition is None else to.partition
        return Outbound(topic, record, partition)

    def _passed_on(self, own: HeaderPairs, of_source: HeaderPairs) -> HeaderPairs:
        wanted = self._headers.difference(name for name, _ in own)
        return [header for header in of_source if header[0] in wanted]


def sender_of(channel: object) -> Sender:
    """For whom records of a transaction are written, of a channel that is transactional."""
    writer = getattr(channel, "writer", None)
    # Start-up has seen to it.
    assert isinstance(writer, TransactionalWriter)  # noqa: S101
    return writer

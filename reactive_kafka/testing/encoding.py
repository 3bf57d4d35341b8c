"""Encodes the values that tests send, in the formats of their channels."""

from __future__ import annotations

from typing import Any

from reactive_kafka.app import App
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.formats import (
    ChannelSchemas,
    Encoder,
    EventDefaults,
    EventRecord,
    EventWriter,
    SchemaMissing,
    SchemaSource,
    checker_for,
    encoder_for,
    is_event_type,
)
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.outgoing.schema_wait import once_known
from reactive_kafka.records import HeaderPairs


async def encode_for_channel(
    app: App, channel: str, topic: str, value: Any, headers: HeaderPairs, now_s: float
) -> EventRecord:
    """Return the record of a value, in the format that the incoming *channel* reads.

    If there is no such channel, the value is written as text or JSON. The schema is that of the
    channel's ``schema`` table, else that of the value's type; for a dict, that of the handler.
    """
    settings = app.settings.incoming.get(channel)
    encode = _encoder(app, settings, topic)
    format = None if settings is None else settings.value_deserializer
    events = EventWriter(channel, EventDefaults(), encode, format)

    def make_record() -> EventRecord:
        if is_event_type(type(value)):
            return events.write(value, headers, now_s)
        return EventRecord(encode(value), headers)

    try:
        return make_record()
    except SchemaMissing as missing:
        return await once_known(make_record, missing)


def _encoder(app: App, settings: IncomingSettings | None, topic: str) -> Encoder:
    """Return the encoder for a channel's format. Bytes and None are written as they are."""
    format = None if settings is None else settings.value_deserializer
    if settings is None or format not in REGISTERED_FORMATS:
        # "module:function" names a user's decoder. It has no encoder, so the value's type decides.
        is_built_in = format is not None and ":" not in format
        plain = encoder_for(format) if is_built_in else write_by_value
        return lambda value: value if isinstance(value, bytes) else plain(value)
    return _encoder_with_schema(app, settings, format, topic)


def _encoder_with_schema(
    app: App, settings: IncomingSettings, format: str | None, topic: str
) -> Encoder:
    """Return the encoder for a format that takes its schemas from a registry."""
    schemas = ChannelSchemas(settings.name)
    schema = settings.schema
    channel = app.plan.incoming[settings.name]
    reading = channel.reading
    schemas.connect(None if reading.schemas is None else reading.schemas.requester)
    source = SchemaSource(schemas, topic, "value", schema.file, schema.subject, schema.register)
    encode = encoder_for(format, source)
    check = None
    if schema.file is None and channel.handlers:
        check = checker_for(reading.payload_type)

    def encode_as_handler_type(value: object) -> bytes | None:
        if isinstance(value, bytes):
            return value
        if check is not None and isinstance(value, dict):
            # A checker has the type of a decoder, but takes any value.
            return encode(check(value))  # type: ignore[arg-type]
        return encode(value)

    return encode_as_handler_type

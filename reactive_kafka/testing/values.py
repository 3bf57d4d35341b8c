"""What tests send, in the formats of their channels."""

from __future__ import annotations

from typing import Any

from reactive_kafka.app import App
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.formats import (
    Encoder,
    EventDefaults,
    EventRecord,
    EventWriter,
    Registered,
    SchemaMissing,
    Schemas,
    checker_for,
    encoder_for,
    is_event_type,
)
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.formats.names import REGISTERED_FORMATS
from reactive_kafka.outgoing.schemas import once_known
from reactive_kafka.records import HeaderPairs


async def written(
    app: App, channel: str, topic: str, value: Any, headers: HeaderPairs, now_s: float
) -> EventRecord:
    """The record of a value as the incoming *channel* reads it; as JSON, or text, if there is no
    such channel.

    A schema is that of the channel's ``schema`` table, or of the value's own type; a dict has its
    handler's.
    """
    settings = app.settings.incoming.get(channel)
    encode = _encoder(app, settings, topic)
    events = EventWriter(
        channel, EventDefaults(), encode, None if settings is None else settings.value_deserializer
    )

    def make() -> EventRecord:
        if is_event_type(type(value)):
            return events.write(value, headers, now_s)
        return EventRecord(encode(value), headers)

    try:
        return make()
    except SchemaMissing as missing:
        return await once_known(make, missing)


def _encoder(app: App, settings: IncomingSettings | None, topic: str) -> Encoder:
    """The way back of a channel's decoder; bytes and None are what they are."""
    format = None if settings is None else settings.value_deserializer
    if settings is None or format not in REGISTERED_FORMATS:
        # A user's function has no way back.
        is_named = format is not None and ":" not in format
        plain = encoder_for(format) if is_named else write_by_value
        return lambda value: value if isinstance(value, bytes) else plain(value)
    schemas = Schemas(settings.name)
    schema = settings.schema
    channel = app.plan.incoming[settings.name]
    reading = channel.reading
    schemas.connect(None if reading.schemas is None else reading.schemas.asker)
    source = Registered(schemas, topic, "value", schema.file, schema.subject, schema.register)
    encode = encoder_for(format, source)
    check = None
    if schema.file is None and channel.handlers:
        check = checker_for(reading.payload_type)

    def of_handler(value: object) -> bytes | None:
        if isinstance(value, bytes):
            return value
        # It takes any object.
        return encode(check(value) if check is not None and isinstance(value, dict) else value)  # type: ignore[arg-type]

    return of_handler

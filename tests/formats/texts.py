"""Formats with schemas as the other rooms get them, and bytes that such formats read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reactive_kafka.formats import ChannelSchemas, SchemaSource
from reactive_kafka.formats.cloudevents_read import ValueAndHeaders
from reactive_kafka.formats.decoders import decoder_for, record_decoder_for
from reactive_kafka.formats.json_text import TextSource, text_source
from reactive_kafka.formats.registered.schema_questions import ById, Schema
from reactive_kafka.formats.registered.wire_format import prefix_of
from reactive_kafka.records import HeaderPairs


def channel_schemas(known: Mapping[int, str] | None = None) -> ChannelSchemas:
    """The schemas of the channel clicks, which knows these Avro schemas by their ids."""
    schemas = ChannelSchemas("clicks")
    for schema_id, text in (known or {}).items():
        schemas.answered(ById(schema_id), Schema("AVRO", text))
    return schemas


def texts_of(
    format: str, schemas: ChannelSchemas | None = None, file: str | None = None
) -> TextSource:
    """Makes JSON of the values of the channel clicks, which are written in a format."""
    source = SchemaSource(schemas or channel_schemas(), "clicks", file=file)
    return text_source(format, source, True)


def texts_that_load(format: str, loaded: Any) -> TextSource:
    """The same where executors get *loaded* for the format."""
    return TextSource(format, loaded=loaded)


def decoder_of_values(model: Any) -> Callable[[bytes], Any]:
    """What a handler with this annotation gets for a value, without a format in its settings."""
    decode = decoder_for(model, None)
    assert decode is not None
    return decode


def decoder_of_events(model: Any, headers: HeaderPairs) -> Callable[[bytes], Any]:
    """The same for the data of CloudEvents, whose attributes are in these headers."""
    read = record_decoder_for(model, "cloudevents")
    return lambda value: read(ValueAndHeaders(value, headers))


def framed(schema_id: int, data: bytes = b"") -> bytes:
    """A value with the id of its schema, as Confluent's serialisers write it."""
    return prefix_of(schema_id) + data

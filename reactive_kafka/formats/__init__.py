"""Bytes <-> value: what a deserializer, a serializer and a handler's annotation mean."""

from reactive_kafka.formats.cloudevents import CloudEvent, is_event_type
from reactive_kafka.formats.cloudevents_read import RecordDecoder, event_of
from reactive_kafka.formats.cloudevents_write import EventDefaults, EventRecord, EventWriter
from reactive_kafka.formats.decoders import (
    decoder_for,
    framed_decoder,
    record_decoder_for,
    refused_tombstone,
)
from reactive_kafka.formats.encoders import Encoder, encoder_for
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.object_checker import checker_for
from reactive_kafka.formats.registered.channel_schemas import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
)

__all__ = [
    "ChannelSchemas",
    "CloudEvent",
    "Decoder",
    "Encoder",
    "EventDefaults",
    "EventRecord",
    "EventWriter",
    "FormatError",
    "RecordDecoder",
    "SchemaMissing",
    "SchemaSource",
    "checker_for",
    "decoder_for",
    "encoder_for",
    "event_of",
    "framed_decoder",
    "is_event_type",
    "record_decoder_for",
    "refused_tombstone",
]

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
from reactive_kafka.formats.guarding import Decoder
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.objects import checker_for
from reactive_kafka.formats.registered.schemas import Registered, SchemaMissing, Schemas

__all__ = [
    "CloudEvent",
    "Decoder",
    "Encoder",
    "EventDefaults",
    "EventRecord",
    "EventWriter",
    "FormatError",
    "RecordDecoder",
    "Registered",
    "SchemaMissing",
    "Schemas",
    "checker_for",
    "decoder_for",
    "encoder_for",
    "event_of",
    "framed_decoder",
    "is_event_type",
    "record_decoder_for",
    "refused_tombstone",
]

"""Bytes <-> value: what a deserializer, a serializer and a handler's annotation mean."""

from reactive_kafka.formats.decoders import Decoder, accepts_tombstone, decoder_for, refused_tombstone
from reactive_kafka.formats.encoders import Encoder, encoder_for
from reactive_kafka.formats.names import BUILT_FORMATS, FormatError

__all__ = [
    "BUILT_FORMATS",
    "Decoder",
    "Encoder",
    "FormatError",
    "accepts_tombstone",
    "decoder_for",
    "encoder_for",
    "refused_tombstone",
]

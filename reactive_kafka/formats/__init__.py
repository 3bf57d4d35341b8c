"""Bytes <-> value: what a deserializer, a serializer and a handler's annotation mean."""

from reactive_kafka.formats.decoders import decoder_for, refused_tombstone
from reactive_kafka.formats.encoders import Encoder, encoder_for
from reactive_kafka.formats.models import Decoder
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.objects import checker_for

__all__ = ["Decoder", "Encoder", "FormatError", "checker_for", "decoder_for", "encoder_for", "refused_tombstone"]

"""Finds the codec of a format whose schemas are in a registry. It imports only that format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.payload_type import PayloadType
from reactive_kafka.formats.registered.channel_schemas import SchemaSource


def load_file(name: str, file: str) -> Any:
    """Read a schema file, for :attr:`SchemaSource.loaded`. The result can be pickled.

    Raises:
        FormatError: The file is not a schema.
    """
    load: Any
    if name == "avro":
        from reactive_kafka.formats.registered.avro import loaded as load
    elif name == "json-schema":
        from reactive_kafka.formats.registered.json_documents import loaded as load
    else:
        from reactive_kafka.formats.registered.protobuf import loaded as load
    return load(file)


def registered_decoder(name: str, payload_type: PayloadType, source: SchemaSource) -> Decoder:
    """Return the decoder of a format. It raises SchemaMissing if a schema is not known yet."""
    decoder: Any
    if name == "avro":
        from reactive_kafka.formats.registered.avro import avro_decoder as decoder
    elif name == "json-schema":
        from reactive_kafka.formats.registered.json_schema import json_schema_decoder as decoder
    else:
        from reactive_kafka.formats.registered.protobuf import protobuf_decoder as decoder
    made: Decoder = decoder(payload_type, source)
    return made


def registered_encoder(name: str, source: SchemaSource) -> Callable[[object], bytes | None]:
    """Return the encoder of a format. It raises EncodeError and SchemaMissing."""
    encoder: Any
    if name == "avro":
        from reactive_kafka.formats.registered.avro import avro_encoder as encoder
    elif name == "json-schema":
        from reactive_kafka.formats.registered.json_schema import json_schema_encoder as encoder
    else:
        from reactive_kafka.formats.registered.protobuf import protobuf_encoder as encoder
    made: Callable[[object], bytes | None] = encoder(source)
    return made


def check_written(name: str, kind: Any) -> None:
    """Raise FormatError if values of a type need a schema file to be written.

    Only Avro has types that do.
    """
    if name == "avro":
        from reactive_kafka.formats.registered.avro import check_written as check

        check(kind)

"""The formats whose schemas are in a registry. Each of them loads its library when a channel has
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.payload_type import PayloadType
from reactive_kafka.formats.registered.channel_schemas import SchemaSource


def load_file(name: str, file: str) -> Any:
    """The schema of a file, as :attr:`Registered.loaded` has it; it can be pickled. FormatError: it
    is none.
    """
    load: Any
    if name == "avro":
        from reactive_kafka.formats.registered.avro import loaded as load
    elif name == "json-schema":
        from reactive_kafka.formats.registered.json_documents import loaded as load
    else:
        from reactive_kafka.formats.registered.protobuf import loaded as load
    return load(file)


def registered_decoder(name: str, asked: PayloadType, source: SchemaSource) -> Decoder:
    """Bytes -> value; besides what every decoder does it raises SchemaMissing where a schema is
    still to come.
    """
    decoder: Any
    if name == "avro":
        from reactive_kafka.formats.registered.avro import avro_decoder as decoder
    elif name == "json-schema":
        from reactive_kafka.formats.registered.json_schema import json_schema_decoder as decoder
    else:
        from reactive_kafka.formats.registered.protobuf import protobuf_decoder as decoder
    made: Decoder = decoder(asked, source)
    return made


def registered_encoder(name: str, source: SchemaSource) -> Callable[[object], bytes | None]:
    """Value -> bytes; it raises EncodeError, and SchemaMissing."""
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
    """Check that values of a type can be written without a schema file. FormatError: they cannot.

    Only Avro's schemas of types have limits.
    """
    if name == "avro":
        from reactive_kafka.formats.registered.avro import check_written as check

        check(kind)

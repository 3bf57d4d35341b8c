"""What tests of Avro share: schemas in a registry of one's own, Apache's and fastavro's view of the
same bytes.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import pytest

from reactive_kafka.formats import (
    ChannelSchemas,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.schema_questions import ById, IdOf, Reference, Schema

HEAD = b"\0\0\0\0\1"


def apache(schema: Any) -> Any:
    """The schema as Apache's own package parses it."""
    return avro.schema.parse(json.dumps(schema))


def bytes_of(schema: Any, value: Any) -> bytes:
    """What Apache's package writes of a value, without a schema's id."""
    data = BytesIO()
    avro.io.DatumWriter(apache(schema)).write(value, avro.io.BinaryEncoder(data))
    return data.getvalue()


def record_of(data: bytes) -> bytes:
    """A record whose schema has the id 1."""
    return HEAD + data


def read(
    annotation: Any,
    schema: Any,
    data: bytes,
    *,
    reader: Any = None,
    references: tuple[Reference, ...] = (),
) -> Any:
    """Data of a schema as a handler with this annotation gets it; *reader* is the JSON of
    ``schema.file``.
    """
    schemas = ChannelSchemas("orders")
    schemas.answered(ById(1), Schema("AVRO", json.dumps(schema), references))
    source = SchemaSource(
        schemas, "orders", file=None if reader is None else "reader.avsc", loaded=reader
    )
    decode = decoder_for(annotation, "avro", source)
    assert decode is not None
    return decode(record_of(data))


def write(value: Any, folder: Path | None = None, schema: Any = None) -> tuple[bytes, Any]:
    """What is written of a value, by its own schema or that of a file, and the JSON of that
    schema.
    """
    file = None
    if schema is not None:
        assert folder is not None
        file = folder / "schema.avsc"
        file.write_text(json.dumps(schema))
    source = SchemaSource(
        ChannelSchemas("orders"), "orders", file=None if file is None else str(file)
    )
    encode = encoder_for("avro", source)
    with pytest.raises(SchemaMissing) as missing:
        encode(value)
    ask = missing.value.ask
    assert isinstance(ask, IdOf)
    source.schemas.answered(ask, 1)
    data = encode(value)
    assert data is not None
    return data[len(HEAD) :], json.loads(ask.schema.text)

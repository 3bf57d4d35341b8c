"""A handler that asks for several types gets the one that the schema of a record is called
after.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import (
    ChannelSchemas,
    Decoder,
    FormatError,
    SchemaMissing,
    SchemaSource,
    decoder_for,
    encoder_for,
)
from reactive_kafka.formats.registered.schema_questions import ById, IdOf, Schema
from reactive_kafka.testing import TestApp
from tests.schemas import protos
from tests.schemas.helpers import make_app

pb = protos.generated()


@dataclasses.dataclass
class Placed:
    id: int


@dataclasses.dataclass
class Cancelled:
    id: int


class Paid(BaseModel):
    id: int
    by: str = "card"


PROTO = """syntax = "proto3"; package shop;
message Placed { int64 id = 1; } message Cancelled { int64 id = 1; } message Paid { int64 id = 1; string by = 2; }"""


def decoder(annotation: Any, format: str, source: SchemaSource) -> Decoder:
    made = decoder_for(annotation, format, source)
    assert made is not None
    return made


def written(value: Any, format: str, source: SchemaSource) -> bytes:
    """The value with a schema of its own; the ids count up."""
    encode = encoder_for(format, source)
    try:
        data = encode(value)
    except SchemaMissing as missing:
        ask = missing.ask
        assert isinstance(ask, IdOf)
        id = 1 + len({Cancelled: "c", Paid: "pp"}.get(type(value), ""))
        source.schemas.answered(ask, id)
        source.schemas.answered(ById(id), ask.schema)
        data = encode(value)
    assert data is not None
    return data


@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
@pytest.mark.parametrize(
    "value", [Placed(1), Cancelled(2), Paid(id=3, by="cash")], ids=lambda one: type(one).__name__
)
def test_the_name_in_the_schema_says_which_type_of_a_union_a_record_is(
    tmp_path: Path, format: str, value: Any
) -> None:
    file = tmp_path / "events.proto"
    file.write_text(PROTO)
    source = SchemaSource(ChannelSchemas("orders"), "orders", subject="topic-record")
    data = written(
        value, format, dataclasses.replace(source, file=str(file) if format == "protobuf" else None)
    )
    for annotation in (Placed | Cancelled | Paid, Cancelled | Placed | Paid | None):
        decode = decoder(annotation, format, source)
        for _ in range(2):
            assert decode(data) == value
            assert type(decode(data)) is type(value)


def test_what_no_member_is_called_after_is_told_apart_by_its_fields() -> None:
    source = SchemaSource(ChannelSchemas("orders"), "orders")
    text = json.dumps(
        {"type": "record", "name": "shop.Other", "fields": [{"name": "id", "type": "long"}]}
    )
    source.schemas.answered(ById(1), Schema("AVRO", text))
    data = b"\0\0\0\0\1\2"
    assert decoder(Placed | Cancelled, "avro", source)(data) == Placed(1)
    assert decoder(Placed | dict[str, Any], "avro", source)(data) == Placed(1)


def test_a_record_of_one_name_does_not_become_what_fits_it_by_chance() -> None:
    source = SchemaSource(ChannelSchemas("orders"), "orders")
    text = json.dumps(
        {"type": "record", "name": "shop.Cancelled", "fields": [{"name": "why", "type": "string"}]}
    )
    source.schemas.answered(ById(1), Schema("AVRO", text))
    with pytest.raises(DecodeError, match=r"does not fit .*id: Field required"):
        decoder(Placed | Cancelled | dict[str, Any], "avro", source)(b"\0\0\0\0\1\2a")


async def test_a_handler_may_ask_for_several_generated_classes() -> None:
    app = make_app("protobuf", {"failure_strategy": "dead-letter-queue"})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: pb.Order | pb.Envelope) -> None:
        seen.append(order)

    async with TestApp(app) as test:
        await test.send("orders", pb.Envelope(what="x"))
        await test.send("orders", pb.Order(id=7))
        await test.send("orders", pb.Order.Total(cents=5))
        await test.settled()
        assert len(test.records("dead-letter-topic-orders")) == 1
    assert sorted(seen, key=str) == [pb.Order(id=7), pb.Envelope(what="x")]


def test_a_generated_class_beside_a_model_is_refused_at_the_start() -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        decoder_for(pb.Order | Placed, "protobuf", SchemaSource(ChannelSchemas("orders"), "orders"))

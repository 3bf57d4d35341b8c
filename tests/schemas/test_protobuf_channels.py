"""What only Protobuf channels have, beside Confluent's own serialisers: files, and fields by number.

``test_channels.py`` has what every format has.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from reactive_kafka import EncodeError
from tests.schemas import protos
from tests.schemas.channel_formats import PROTO_OLD as OLD
from tests.schemas.channel_formats import PROTO_PLAIN as PLAIN
from tests.schemas.channel_formats import known_to_the_model, pb, proto_deserializer
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.protos import Order, OrderData
from tests.schemas.server import RegistryServer


@pytest.mark.parametrize(
    "value", [PLAIN, Order(id=2**40, raw=b"\1"), OrderData(7, "PAID")], ids=lambda one: type(one)
)
async def test_a_proto_file_is_the_schema_of_models_and_dicts(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path, value: Any
) -> None:
    schema = {"file": str(protos.write(tmp_path)), "subject": "record"}
    app = make_app("protobuf", outgoing={"schema": schema})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        if isinstance(value, dict):
            with pytest.raises(EncodeError, match="it has a key that is no field of"):
                # The first message of the file is another one.
                await emitter.send(value)
            value = known_to_the_model(value)
        elif isinstance(value, OrderData):
            value = dataclasses.make_dataclass("Order", [("id", int), ("state", str)])(7, "PAID")
        await emitter.send(value)
        (record,) = test.records("out")
    read = proto_deserializer(confluent, pb.Order)
    assert (await serialized(read, record.value)).id == value.id
    assert "shop.Order" in registry.subjects


async def test_fields_are_known_by_number_whatever_the_other_side_calls_them(
    registry: RegistryServer, tmp_path: Path
) -> None:
    # As text: not every registry has it serialized.
    registry.add("orders-value", OLD, "PROTOBUF")
    file = tmp_path / "new.proto"
    file.write_text(
        'syntax = "proto3"; package shop; message Order { int64 id = 1; optional string note = 3; bool added = 4; }'
    )
    seen: list[Any] = []
    for settings in ({}, {"schema": {"file": str(file)}}):
        app = make_app("protobuf", settings)

        @app.incoming("orders")
        async def handle(order: dict[str, Any]) -> None:
            seen.append(order)

        async with running(app, registry) as test:
            await test.send("orders", b"\0\0\0\0\1\0\x08\x05\x1a\3tea\x4a\1x")
            await test.settled()
    app = make_app("protobuf")

    @app.incoming("orders")
    async def handle_generated(order: pb.Order) -> None:
        seen.append((order.id, order.note))

    async with running(app, registry) as test:
        await test.send("orders", b"\0\0\0\0\1\0\x08\x05\x1a\3tea\x4a\1x")
        await test.settled()
    assert seen == [
        {"id": 5, "gone": "x", "text": "tea"},
        {"id": 5, "note": "tea", "added": False},
        (5, "tea"),
    ]

"""Channels of JSON with a schema beside Confluent's own serialisers, on one registry, in both
directions.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from pydantic import BaseModel

from reactive_kafka import EncodeError
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer


class Order(BaseModel):
    id: int
    lines: list[str] = []
    note: str | None = None


@dataclasses.dataclass
class OrderData:
    id: int
    note: str | None = None


class OrderStruct(msgspec.Struct):
    id: int
    note: str | None = None


ORDER = {"id": 7, "lines": ["tea"], "note": "gift"}
DOCUMENT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
    },
    "required": ["id"],
}
SCHEMA = json.dumps(DOCUMENT)


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (dict, ORDER),
        (Any, ORDER),
        (Order, Order(**ORDER)),
        (OrderData, OrderData(7, "gift")),
        (OrderStruct, OrderStruct(7, "gift")),
    ],
)
async def test_what_confluents_serialiser_writes_is_read(
    registry: RegistryServer, confluent: SchemaRegistryClient, annotation: Any, payload: object
) -> None:
    app = make_app("json-schema")
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(JSONSerializer(SCHEMA, confluent), ORDER)
        for _ in range(2):
            await test.send("orders", written)
        await test.settled()
    assert seen == [payload] * 2
    assert registry.requests.count("GET /schemas/ids/1") == 1


@pytest.mark.parametrize(
    "value",
    [Order(**ORDER), OrderData(7, "gift"), OrderStruct(7, "gift")],
    ids=lambda one: type(one).__name__,
)
async def test_confluents_deserialiser_reads_what_is_written(
    registry: RegistryServer, confluent: SchemaRegistryClient, value: Any
) -> None:
    app = make_app("json-schema")
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(value)
        await emitter.send(value)
        (record, _) = test.records("out")
    read = await serialized(JSONDeserializer(None, schema_registry_client=confluent), record.value)
    assert {name: read[name] for name in ("id", "note")} == {"id": 7, "note": "gift"}
    assert registry.schemas[1]["schemaType"] == "JSON"
    assert json.loads(registry.schemas[1]["schema"])["title"].startswith("Order")


async def test_a_file_and_what_it_refers_to_are_registered_and_what_does_not_fit_is_not_sent(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path
) -> None:
    line = {"type": "string", "minLength": 2}
    order = {
        **DOCUMENT,
        "properties": {**DOCUMENT["properties"], "lines": {"items": {"$ref": "line.json"}}},
    }  # type: ignore[dict-item]
    (tmp_path / "line.json").write_text(json.dumps(line))
    (tmp_path / "order.json").write_text(json.dumps(order))
    app = make_app(
        "json-schema",
        outgoing={"schema": {"file": str(tmp_path / "order.json"), "subject": "record"}},
    )
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(ORDER)
        with pytest.raises(
            EncodeError, match=r"does not fit the JSON Schema: properties/lines/items/.*minLength"
        ):
            await emitter.send({**ORDER, "lines": ["x"]})
        (record,) = test.records("out")
    assert registry.subjects.keys() == {"line.json", "Order"}
    reference = {"name": "line.json", "subject": "line.json", "version": 1}
    assert registry.schemas[2]["references"] == [reference]
    assert (
        await serialized(JSONDeserializer(None, schema_registry_client=confluent), record.value)
        == ORDER
    )


async def test_references_of_a_writers_schema_are_fetched(registry: RegistryServer) -> None:
    registry.add("line.json", '{"type": "string"}', "JSON")
    order = {"type": "object", "properties": {"line": {"$ref": "line.json"}}}
    registry.add(
        "orders-value",
        json.dumps(order),
        "JSON",
        [{"name": "line.json", "subject": "line.json", "version": 1}],
    )
    app = make_app("json-schema", {"failure_strategy": "dead-letter-queue"})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", b'\0\0\0\0\2{"line":"tea"}')
        await test.send("orders", b'\0\0\0\0\2{"line":7}')
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
    assert seen == [{"line": "tea"}]
    told = dict(letter.headers)["dead-letter-reason"] or b""
    assert (letter.value, b"properties/line/type" in told) == (b'\0\0\0\0\2{"line":7}', True)


async def test_a_file_is_what_is_read_has_to_fit(
    registry: RegistryServer, confluent: SchemaRegistryClient, tmp_path: Path
) -> None:
    file = tmp_path / "reader.json"
    file.write_text(json.dumps({"type": "object", "properties": {"id": {"maximum": 10}}}))
    app = make_app(
        "json-schema", {"failure_strategy": "dead-letter-queue", "schema": {"file": str(file)}}
    )
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(order: OrderData) -> None:
        seen.append(order.id)

    async with running(app, registry) as test:
        for id in (7, 11, 8):
            await test.send(
                "orders", await serialized(JSONSerializer(SCHEMA, confluent), {"id": id})
            )
        await test.settled()
        assert len(test.records("dead-letter-topic-orders")) == 1
    assert seen == [7, 8]


@pytest.mark.parametrize(
    ("version", "document"),
    [
        ("older", {"id": 1}),
        ("newer", {"id": 1, "note": "x", "added": True}),
        ("optional", {"id": 1, "note": None}),
    ],
)
async def test_a_model_reads_records_of_other_versions(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    version: str,
    document: dict[str, Any],
) -> None:
    properties = {name: {} for name in document}
    schema = json.dumps(
        {"title": "Order", "type": "object", "properties": properties, "description": version}
    )
    app = make_app("json-schema")
    seen: list[OrderData] = []

    @app.incoming("orders")
    async def handle(order: OrderData) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", await serialized(JSONSerializer(schema, confluent), document))
        await test.settled()
    assert seen == [OrderData(1, document.get("note"))]


async def test_a_record_that_is_none_is_dead_lettered_with_its_bytes(
    registry: RegistryServer,
) -> None:
    """Row F13 of the faults."""
    registry.add("orders-value", SCHEMA, "JSON")
    registry.add("other", '"string"')
    app = make_app("json-schema", {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        raise AssertionError("not a record of its own")

    bad = [
        b"",
        b'{"id": 1}',
        b"\0\0\0\0\1",
        b"\0\0\0\0\1{",
        b'\0\0\0\0\1{"id":"x"}',
        b'\0\0\0\0\2{"id":1}',
    ]
    async with running(app, registry) as test:
        for value in bad:
            await test.send("orders", value)
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert [letter.value for letter in letters] == bad


GREEK = r"^\p{Script=Greek}+$"


def not_checked(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if "is not checked" in record.getMessage()
    ]


async def test_a_pattern_that_cannot_be_checked_is_reported_at_the_start_and_refuses_nothing(
    registry: RegistryServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "order.json"
    file.write_text(
        json.dumps(
            {**DOCUMENT, "properties": {"note": {"pattern": GREEK}, "id": {"type": "integer"}}}
        )
    )
    app = make_app("json-schema", {"schema": {"file": str(file)}}, {"schema": {"file": str(file)}})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    emitter = app.emitter("out")
    async with running(app, registry) as test:
        why = f"{file}: the pattern '{GREEK}' at properties/note/pattern is not checked: "
        why += r"\p{Script=Greek} is no general category"
        assert sorted(not_checked(caplog)) == [f"orders: {why}", f"out: {why}"]
        await emitter.send({"id": 1, "note": "tea"})
        with pytest.raises(EncodeError, match="properties/id/type"):
            await emitter.send({"id": "1", "note": "tea"})
        (written,) = test.records("out")
        await test.send("orders", written.value)
        await test.settled()
    assert seen == [{"id": 1, "note": "tea"}]


async def test_a_pattern_of_a_writers_schema_that_cannot_be_checked_is_reported_once(
    registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add("orders-value", json.dumps({"properties": {"note": {"pattern": GREEK}}}), "JSON")
    app = make_app("json-schema", {"failure_strategy": "dead-letter-queue"})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        for _ in range(3):
            await test.send("orders", b'\0\0\0\0\1{"note":"tea"}')
        await test.settled()
    assert seen == [{"note": "tea"}] * 3
    (told,) = not_checked(caplog)
    assert told.startswith(
        f"orders: schema 1 of the registry: the pattern '{GREEK}' at properties/note/pattern"
    )

"""What only channels of JSON with a schema have, beside Confluent's own serialisers: what has to fit,
and patterns that cannot be checked.

``test_channels.py`` has what every format has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

from reactive_kafka import EncodeError
from tests.schemas.channel_formats import JSON_DOCUMENT as DOCUMENT
from tests.schemas.channel_formats import JSON_ORDER as ORDER
from tests.schemas.channel_formats import JSON_SCHEMA as SCHEMA
from tests.schemas.channel_formats import OrderData
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer


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

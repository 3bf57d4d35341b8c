"""Channels of every format with a schema beside Confluent's own serialisers, on one registry, in
both directions.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from reactive_kafka.testing import TestApp
from tests.schemas.channel_formats import FORMATS, ChannelFormat
from tests.schemas.helpers import make_app, running, serialized
from tests.schemas.server import RegistryServer

each_format = pytest.mark.parametrize("format", FORMATS, ids=str)


def name_of(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))


@pytest.mark.parametrize(
    ("format", "annotation", "payload"),
    [
        pytest.param(format, annotation, payload, id=f"{format}-{name_of(annotation)}")
        for format in FORMATS
        for annotation, payload in format.read
    ],
)
async def test_what_confluents_serialiser_writes_is_read(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    format: ChannelFormat,
    annotation: Any,
    payload: object,
) -> None:
    app = make_app(format.name)
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(format.serializer(confluent), format.order)
        for _ in range(3):
            await test.send("orders", written)
        await test.settled()
    assert seen == [payload] * 3
    asked = [request for request in registry.requests if request.startswith("GET /schemas/ids/")]
    assert 0 < len(asked) == len(set(asked)), "each schema is asked for once"


@pytest.mark.parametrize(
    ("format", "value"),
    [
        pytest.param(format, value, id=f"{format}-{type(value).__name__}")
        for format in FORMATS
        for value in format.written
    ],
)
async def test_confluents_deserialiser_reads_what_is_written(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: ChannelFormat, value: Any
) -> None:
    app = make_app(format.name)
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(value)
        await emitter.send(value)
        (record, _) = test.records("out")
    read = await serialized(format.deserializer(confluent, value), record.value)
    format.check_written(registry, value, read)


@pytest.mark.parametrize(
    ("format", "schema", "document", "annotation", "payload"),
    [
        pytest.param(format, *version, id=f"{format}-{number}")
        for format in FORMATS
        for number, version in enumerate(format.versions)
    ],
)
async def test_a_model_takes_what_it_knows_of_records_of_other_versions(
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    format: ChannelFormat,
    schema: str,
    document: Any,
    annotation: Any,
    payload: object,
) -> None:
    app = make_app(format.name)
    seen: list[object] = []

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        seen.append(order)

    async with running(app, registry) as test:
        written = await serialized(format.serializer_of(confluent, schema), document)
        await test.send("orders", written)
        await test.settled()
    assert seen == [payload]


@each_format
async def test_what_a_writers_schema_refers_to_is_fetched_with_it(
    registry: RegistryServer, format: ChannelFormat
) -> None:
    case = format.referring
    for schema in case.schemas:
        registry.add(*schema)
    app = make_app(format.name, {"failure_strategy": "dead-letter-queue"})
    seen: list[Any] = []

    @app.incoming("orders")
    async def handle(order: dict[str, Any]) -> None:
        seen.append(order)

    async with running(app, registry) as test:
        await test.send("orders", case.record)
        if case.refused is not None:
            await test.send("orders", case.refused[0])
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert seen == [case.payload]
    expected = [] if case.refused is None else [case.refused]
    assert [letter.value for letter in letters] == [record for record, _ in expected]
    for letter, (_, reason) in zip(letters, expected, strict=True):
        assert reason in (dict(letter.headers)["dead-letter-reason"] or b"")


@each_format
async def test_without_registering_plain_data_is_written_as_the_latest_schema_says(
    registry: RegistryServer, confluent: SchemaRegistryClient, format: ChannelFormat
) -> None:
    case = format.latest
    registry.add(*case.schema)
    app = make_app(format.name, outgoing={"schema": {"register": False}})
    emitter = app.emitter("out")
    async with running(app, registry) as test:
        await emitter.send(case.value)
        (record,) = test.records("out")
    if case.written is None:
        reader = format.deserializer(confluent, case.value)
        assert await serialized(reader, record.value) == case.value
    else:
        assert record.value == case.written
    assert list(registry.schemas) == [1]


@each_format
async def test_a_record_that_is_none_of_the_format_is_dead_lettered_with_its_bytes(
    registry: RegistryServer, format: ChannelFormat
) -> None:
    """Row F13 of the faults."""
    case = format.refused
    for schema in case.schemas:
        registry.add(*schema)
    annotation = case.annotation
    app = make_app(format.name, {"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    async def handle(order: annotation) -> None:  # type: ignore[valid-type]
        raise AssertionError("not a record of its own")

    async with running(app, registry) as test:
        for value in case.records:
            await test.send("orders", value)
        await test.settled()
        letters = test.records("dead-letter-topic-orders")
    assert [letter.value for letter in letters] == list(case.records)
    reasons = {letter.value: dict(letter.headers)["dead-letter-reason"] for letter in letters}
    if case.reason is not None:
        record, reason = case.reason
        assert reason in (reasons[record] or b"")
    assert b"not a record of its own" not in b"".join(reason or b"" for reason in reasons.values())


@each_format
async def test_a_test_without_a_server_sends_values_in_the_handlers_own_type(
    format: ChannelFormat,
) -> None:
    case = format.without_server
    annotation, result = case.annotation, type(case.result)
    app = make_app(format.name)
    seen: list[Any] = []

    @app.incoming("orders")
    @app.outgoing("out")
    async def handle(order: annotation) -> result:  # type: ignore[valid-type]
        seen.append(order)
        return case.result

    async with TestApp(app) as test:
        for value in case.sent:
            await test.send("orders", value)
        await test.settled()
        assert len(test.records("out")) == len(case.sent)
    assert seen == [case.payload] * len(case.sent)

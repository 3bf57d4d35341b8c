"""Spark's columns of CloudEvents, and of records with schemas in a registry, as Confluent's
serialisers write them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pytest
import pytest_asyncio
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from pydantic import BaseModel, Field

from reactive_kafka.errors import OffloadError, RejectedByJobError
from reactive_kafka.records import HeaderPairs
from reactive_kafka.spark.batches.blame import UnfitExecutorsError
from reactive_kafka.spark.batches.payload_schema import KAFKA_COLUMNS, payload_schema
from reactive_kafka.spark.batches.spark_batch import Rejected
from reactive_kafka.spark.batches.spark_function import Payload
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.app.helpers import until
from tests.formats.texts import framed, texts_of, texts_that_load
from tests.schemas import protos
from tests.schemas.helpers import schemas_of, serialized
from tests.schemas.server import RegistryServer

from .records import CLICKS_0, Raw, on_spark, part_of, runner_of


@pytest_asyncio.fixture(loop_scope="session")
async def schemas(registry: RegistryServer) -> AsyncIterator[Any]:
    """What a channel knows of that registry."""
    async with schemas_of(registry) as found:
        yield found


class Outcome(NamedTuple):
    """What a batch came to."""

    rows: list[dict[str, Any]]
    rejected: Sequence[Rejected] | None

    @property
    def reasons(self) -> dict[int, str]:
        assert all(isinstance(one.reason, RejectedByJobError) for one in self.rejected or ())
        return {one.offset: str(one.reason) for one in self.rejected or ()}


def payload_of(
    model: Any, name: str, *, file: str | None = None, show_corrupt: bool = False
) -> Payload:
    texts = texts_of(name, file=file)
    schema = payload_schema(model, "@app.spark('clicks')", base64=texts.is_binary)
    return Payload(schema, show_corrupt, texts=texts)


Value = bytes | None | tuple[bytes | None, HeaderPairs]


def part(values: Sequence[Value]) -> Any:
    pairs = [value if isinstance(value, tuple) else (value, ()) for value in values]
    return part_of(
        CLICKS_0,
        [Raw(at, value=value, headers=headers) for at, (value, headers) in enumerate(pairs)],
    )


def collecting(
    engine: SparkEngine, payload: Payload, schemas: Any, **more: Any
) -> tuple[SparkRunner, list[Any]]:
    rows: list[Any] = []
    function = lambda df, batch: rows.extend(df.orderBy("offset").collect())  # noqa: E731
    return runner_of(engine, function, payload=payload, schemas=schemas, **more), rows


async def run(
    engine: SparkEngine, payload: Payload, schemas: Any, values: Sequence[Value]
) -> Outcome:
    runner, rows = collecting(engine, payload, schemas)
    rejected = await runner.run_batch([part(values)], attempt=1)
    return Outcome([row.asDict(recursive=True) for row in rows], rejected)


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: int
    at: datetime
    day: date
    price: Decimal = Field(max_digits=10, decimal_places=2)
    raw: bytes
    rate: float
    lines: list[Line]
    note: str | None = None
    wire: str = Field("w", alias="onWire")


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "raw", "type": "bytes"},
        {"name": "rate", "type": "double"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
        {"name": "onWire", "type": "string"},
        {"name": "unknown", "type": "null"},
    ],
}
AT = datetime(2026, 11, 25, 8, 0, 0, 123_456, tzinfo=UTC)
VALUE = {
    "id": 2**62,
    "at": AT,
    "day": date(2026, 11, 25),
    "price": Decimal("-12.50"),
    "raw": b"\x00\xff\xfe",
    "rate": 0.1,
    "lines": [{"sku": "ü", "count": 2}],
    "onWire": "x",
    "unknown": None,
}


@on_spark
async def test_an_avro_record_has_the_models_columns(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    data = await serialized(AvroSerializer(confluent, json.dumps(ORDER)), VALUE)
    found = await run(engine, payload_of(Order, "avro"), schemas, [data])
    assert found.reasons == {}
    (row,) = found.rows
    assert list(row) == [*KAFKA_COLUMNS, *Order.model_fields]
    assert (row["value"], row["topic"], row["key"]) == (data, "clicks", b"key")
    assert row["at"].astimezone(UTC) == AT
    assert {name: row[name] for name in Order.model_fields if name != "at"} == {
        "id": 2**62,
        "day": date(2026, 11, 25),
        "price": Decimal("-12.50"),
        "raw": b"\x00\xff\xfe",
        "rate": 0.1,
        "lines": [{"sku": "ü", "count": 2}],
        "note": None,
        "wire": "x",
    }


class Odd(BaseModel):
    rate: float
    at: datetime
    price: Decimal
    kind: Literal["A", "B"] | None


@on_spark
async def test_numbers_times_and_symbols_come_as_they_were_written_or_do_not_fit(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    fields = [
        {"name": "rate", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 18},
        },
        {
            "name": "kind",
            "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}],
        },
    ]
    serializer = AvroSerializer(
        confluent, json.dumps({"type": "record", "name": "Odd", "fields": fields})
    )
    early = datetime(1900, 1, 1, tzinfo=UTC)
    good: dict[str, Any] = {
        "rate": -0.0,
        "at": AT.replace(microsecond=0),
        "price": Decimal(0),
        "kind": None,
    }
    wide, many = Decimal("9" * 20 + "." + "9" * 18), Decimal("1" * 21)
    changes: list[dict[str, Any]] = [
        {},
        {"rate": math.nan},
        {"rate": math.inf},
        {"rate": -math.inf},
        {"rate": 5e-324},
        {"at": early},
        {"price": wide},
        {"kind": "B"},
        {"kind": "C"},
        {"price": many},
    ]
    values = [await serialized(serializer, {**good, **change}) for change in changes]
    found = await run(engine, payload_of(Odd, "avro"), schemas, values)
    rates = [row["rate"] for row in found.rows]
    assert math.copysign(1, rates[0]) == -1
    assert math.isnan(rates[1])
    assert rates[2:5] == [math.inf, -math.inf, 5e-324]
    assert found.rows[0]["at"].astimezone(UTC) == good["at"]
    assert found.rows[5]["at"].astimezone(UTC) == early
    assert [row["price"] for row in found.rows[5:7]] == [0, wide]
    assert found.rows[7]["kind"] == "B"
    assert found.reasons == {
        8: "does not fit Odd: kind is none of 'A', 'B'",
        9: "does not fit Odd: price is no decimal number with at most 20 digits before the point and 18 after it",
    }


@dataclass
class Click:
    user: int
    page: str | None = None


def click(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "Click",
            "fields": [{"name": name, "type": kind} for name, kind in fields],
        }
    )


ONE, TWO, BARE = (
    click(("user", "int")),
    click(("page", "string"), ("user", "long")),
    click(("page", "string")),
)


@on_spark
async def test_each_record_of_a_batch_has_its_own_writers_schema_and_those_that_cannot_be_decoded_are_told(
    engine: SparkEngine,
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    schemas: Any,
) -> None:
    one, two, bare = (AvroSerializer(confluent, text) for text in (ONE, TWO, BARE))
    first, second = (
        await serialized(one, {"user": 1}),
        await serialized(two, {"user": 2, "page": "/"}),
    )
    foreign = registry.add("json", '{"type": "object"}', "JSON")
    values = [
        first,
        second,
        None,
        b'{"user": 1}',
        first[:-1],
        framed(99, b"\2"),
        framed(foreign, b"{}"),
        await serialized(bare, {"page": "/"}),
        first,
    ]
    found = await run(engine, payload_of(Click, "avro"), schemas, values)
    assert [(row["offset"], row["user"], row["page"]) for row in found.rows] == [
        (0, 1, None),
        (1, 2, "/"),
        (8, 1, None),
    ]
    no_schema = "it names no schema: a zero and four bytes of an id are to come first"
    assert found.reasons == {
        2: "does not fit Click: the record has no value (a tombstone)",
        3: f"does not fit Click: {no_schema}",
        4: f"does not fit Click: not data of schema {first[4]}: EOFError while reading it",
        5: f"does not fit Click: schema registry {registry.url}: schema 99: 404: Schema not found",
        6: f"does not fit Click: schema {foreign} is no Avro schema, but one of JSON",
        7: "does not fit Click: user is missing or null",
    }
    asked = [one for one in registry.requests if one.startswith("GET")]
    assert sorted(asked) == sorted([f"GET /schemas/ids/{id}" for id in (1, 2, 3, 4, 99, 99, 99)])
    registry.requests.clear()
    again = await run(engine, payload_of(Click, "avro"), schemas, values)
    assert (again.reasons, registry.requests) == (found.reasons, [])


@on_spark
async def test_with_show_the_function_gets_what_cannot_be_decoded_and_waits_for_schemas_all_the_same(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    good = await serialized(AvroSerializer(confluent, ONE), {"user": 1})
    payload = payload_of(Click, "avro", show_corrupt=True)
    found = await run(engine, payload, schemas, [good, b"x", framed(9)])
    assert found.reasons == {}
    assert [(row["user"], row["_corrupt"]) for row in found.rows] == [
        (1, None),
        (None, "x"),
        (None, "\0\0\0\0\t"),
    ]


@on_spark
async def test_a_protobuf_message_has_the_models_columns(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    class Total(BaseModel):
        cents: int
        currency: str

    class Bill(BaseModel):
        id: int
        lines: list[Line]
        note: str | None
        state: str
        at: datetime
        counts: dict[str, int]
        raw: bytes
        total: Total | None

    made = protos.generated().Order
    message = made(
        id=2**60, lines=[{"sku": "a", "count": 3}], state="PAID", counts={"x": 1}, raw=b"\xff"
    )
    message.at.FromDatetime(AT.replace(tzinfo=None))
    message.total.cents = 5
    values = [
        await serialized(ProtobufSerializer(made, confluent), one) for one in (message, made())
    ]
    broken = values[0][:-1] + b"\xff"
    found = await run(
        engine, payload_of(Bill, "protobuf"), schemas, [*values, broken, values[0][:5]]
    )
    (first,) = found.rows
    assert first["at"].astimezone(UTC) == AT
    assert {name: first[name] for name in Bill.model_fields if name != "at"} == {
        "id": 2**60,
        "lines": [{"sku": "a", "count": 3}],
        "note": None,
        "state": "PAID",
        "counts": {"x": 1},
        "raw": b"\xff",
        "total": {"cents": 5, "currency": ""},
    }
    assert found.reasons == {
        1: "does not fit Bill: at is missing or null",
        2: f"does not fit Bill: not a message shop.Order of schema {values[0][4]}",
        3: "does not fit Bill: it names no message: its place in the schema is to follow the id",
    }


@on_spark
async def test_json_with_a_schema_has_the_models_columns(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    text = json.dumps(
        {"title": "Click", "type": "object", "properties": {"user": {"type": "integer"}}}
    )
    serializer = JSONSerializer(text, confluent)
    values = [
        await serialized(serializer, {"user": 7, "page": "/ü"}),
        await serialized(serializer, {"page": "/"}),
    ]
    found = await run(
        engine, payload_of(Click, "json-schema"), schemas, [*values, values[0][:-1], b'{"user": 1}']
    )
    assert [(row["user"], row["page"]) for row in found.rows] == [(7, "/ü")]
    assert found.reasons == {
        1: "does not fit Click: user is missing or null",
        2: "does not fit Click: no JSON object, or a field of another type",
        3: "does not fit Click: it names no schema: a zero and four bytes of an id are to come first",
    }


EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
BINARY = tuple((f"ce_{name}", text.encode()) for name, text in EVENT.items())
STRUCTURED = (("content-type", b"application/cloudevents+json"),)


@on_spark
async def test_the_data_of_cloud_events_has_the_models_columns_in_both_modes(
    engine: SparkEngine, confluent: SchemaRegistryClient, schemas: Any
) -> None:
    envelope = json.dumps({**EVENT, "data": {"user": 1}}).encode()
    values: list[Value] = [
        (envelope, STRUCTURED),
        (b'{"user": 2}', BINARY),
        envelope,
        b'{"user": 3}',
        (b'{"user": 4}', BINARY[:1]),
        (json.dumps(EVENT).encode(), STRUCTURED),
        None,
    ]
    found = await run(engine, payload_of(Click, "cloudevents"), schemas, values)
    assert [row["user"] for row in found.rows] == [1, 2, 1]
    assert found.reasons == {
        3: "does not fit Click: not a valid CloudEvent: it has no specversion",
        4: "does not fit Click: not a valid CloudEvent: it has no id",
        5: "does not fit Click: the event has no data",
        6: "does not fit Click: the record has no value (a tombstone)",
    }
    optional = await run(engine, payload_of(Click | None, "cloudevents"), schemas, values[5:])
    assert ([row["user"] for row in optional.rows], optional.reasons) == ([None, None], {})
    data = await serialized(AvroSerializer(confluent, ONE), {"user": 5})
    encoded = json.dumps({**EVENT, "data_base64": base64.b64encode(data).decode()}).encode()
    avro = await run(
        engine, payload_of(Click, "avro"), schemas, [(encoded, STRUCTURED), (data, BINARY), data]
    )
    assert ([row["user"] for row in avro.rows], avro.reasons) == ([5, 5, 5], {})


@on_spark
async def test_a_batch_waits_for_a_registry_that_is_away_and_no_time_of_its_own_runs(
    engine: SparkEngine,
    registry: RegistryServer,
    confluent: SchemaRegistryClient,
    schemas: Any,
) -> None:
    good = await serialized(AvroSerializer(confluent, ONE), {"user": 1})
    registry.fault = 401
    runner, rows = collecting(engine, payload_of(Click, "avro"), schemas, timeout_s=60.0)
    work = asyncio.ensure_future(runner.run_batch([part([good])], attempt=1))
    await until(lambda: len(registry.requests) >= 5)
    assert not work.done()
    (batch,) = runner.facts().running
    assert batch.records == 1
    registry.fault = None
    assert await work == []
    assert [row["user"] for row in rows] == [1]
    assert runner.facts().jobs == {"ok": 1, "failed": 0, "cancelled": 0, "lost": 0}


@on_spark
@pytest.mark.parametrize("ends", ["cancelled", "no waits"])
async def test_a_batch_that_waits_for_a_schema_is_given_up_at_once(
    engine: SparkEngine, registry: RegistryServer, schemas: Any, ends: str
) -> None:
    registry.fault = 500
    runner, rows = collecting(engine, payload_of(Click, "avro"), schemas)
    no_waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(
        runner.run_batch([part([framed(7)])], attempt=1, no_waits=no_waits)
    )
    await until(lambda: bool(registry.requests))
    if ends == "cancelled":
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        assert work.cancelled()
    else:
        no_waits.set_result(None)
        assert await work is None
    assert rows == []
    # The function was not called.
    assert runner.facts().jobs == {"ok": 0, "failed": 0, "cancelled": 0, "lost": 0}
    assert runner.facts().running == ()
    assert not schemas.of_records()


@on_spark
async def test_executors_that_lack_a_package_end_the_channel_and_no_record_is_to_blame(
    engine: SparkEngine, schemas: Any
) -> None:
    payload = payload_of(Click, "avro")
    # What comes to executors of another version: a name that their package does not have.
    strange = Payload(payload.schema, texts=texts_that_load("avro", _Strange()))
    with pytest.raises(OffloadError) as raised:
        await run(engine, strange, schemas, [b"x"])
    assert isinstance(raised.value, UnfitExecutorsError)
    assert "executors cannot read the format 'avro'" in str(raised.value)
    assert "no_such_package" in str(raised.value)


class _Strange:
    """Unpacks with a package that is not installed."""

    def __reduce__(self) -> Any:
        return _import, ("no_such_package",)


def _import(name: str) -> Any:
    return __import__(name)

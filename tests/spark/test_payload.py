import base64
import contextlib
import dataclasses
import enum
import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from reactive_kafka.errors import OffloadError, RejectedByJobError
from reactive_kafka.spark.batches.payload_schema import KAFKA_COLUMNS, payload_schema
from reactive_kafka.spark.batches.spark_function import Payload
from reactive_kafka.spark.session.spark_engine import SparkEngine

from .records import CLICKS_0, CLICKS_1, Raw, on_spark, part_of, runner_of, values_of


def payload_of(model: Any, *, show_corrupt: bool = False) -> Payload:
    return Payload(payload_schema(model, "@app.spark('clicks')"), show_corrupt)


async def run(
    engine: SparkEngine, payload: Payload, values: Sequence[bytes | None]
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Rows that the function got, by offset, and offset -> why it was rejected."""
    rows: list[Any] = []
    runner = runner_of(
        engine, lambda df, batch: rows.extend(df.orderBy("offset").collect()), payload=payload
    )
    rejected = await runner.run_batch([values_of(CLICKS_0, values)], attempt=1)
    assert all(
        one.partition == CLICKS_0 and isinstance(one.reason, RejectedByJobError) for one in rejected
    )
    return [row.asDict(recursive=True) for row in rows], {
        one.offset: str(one.reason) for one in rejected
    }


class Kind(enum.StrEnum):
    VIEW = "view"
    BUY = "it's bought"


class Place(BaseModel):
    lat: float
    name: str | None = None


class Everything(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    user_id: int
    page: str
    is_new: bool
    raw: bytes
    at: datetime
    day: date
    price: Annotated[Decimal, Field(max_digits=10, decimal_places=2)]
    kind: Kind
    home_place: Place
    places: list[Place]
    by_name: dict[str, Place]
    path: tuple[int, ...]
    maybe: int | None
    note: str = "none"


GOOD = {
    "userId": 7,
    "page": "/ü",
    "isNew": True,
    "raw": "text",
    "at": "2026-11-21T10:00:00.123456+02:00",
    "day": "2026-11-21",
    "price": 12.5,
    "kind": "it's bought",
    "homePlace": {"lat": 1.5, "name": "Bern", "unknown": 1},
    "places": [{"lat": 2.5}],
    "byName": {"x": {"lat": 3.5}},
    "path": [1, 2],
    "maybe": None,
    "unknown": [1],
}


@on_spark
async def test_a_payload_becomes_the_models_columns(engine: SparkEngine) -> None:
    (row,), rejected = await run(engine, payload_of(Everything), [json.dumps(GOOD).encode()])
    assert rejected == {}
    assert list(row) == [*KAFKA_COLUMNS, *Everything.model_fields]
    assert (row["value"], row["offset"], row["topic"]) == (json.dumps(GOOD).encode(), 0, "clicks")
    assert row.pop("at").astimezone(UTC) == datetime(2026, 11, 21, 8, 0, 0, 123_456, tzinfo=UTC)
    assert {name: row[name] for name in Everything.model_fields if name != "at"} == {
        "user_id": 7,
        "page": "/ü",
        "is_new": True,
        "raw": b"text",
        "day": date(2026, 11, 21),
        "price": Decimal("12.50"),
        "kind": "it's bought",
        "home_place": {"lat": 1.5, "name": "Bern"},
        "places": [{"lat": 2.5, "name": None}],
        "by_name": {"x": {"lat": 3.5, "name": None}},
        "path": [1, 2],
        "maybe": None,
        # No default is filled in.
        "note": None,
    }


@dataclasses.dataclass
class Click:
    user: int
    kind: Kind | None = None
    places: list[Place] = dataclasses.field(default_factory=list)


NO_JSON = "does not fit Click: no JSON object, or a field of another type"
CLICKS: list[tuple[bytes | None, str | None]] = [
    (b'{"user": 1}', None),
    (b' {"user": 1, "kind": null, "places": []}\n', None),
    (None, "does not fit Click: the record has no value (a tombstone)"),
    (b"", NO_JSON),
    (b"null", NO_JSON),
    (b"5", NO_JSON),
    (b'[{"user": 1}]', NO_JSON),
    (b'{"user": 1', NO_JSON),
    (b'{"user": 1} and more', NO_JSON),
    (b"{'user': 1}", NO_JSON),
    (b'{"user": 1, "x": "\xff"}', NO_JSON),
    (b'{"user": "x"}', NO_JSON),
    (b'{"user": 1.5}', NO_JSON),
    (b'{"user": 99999999999999999999}', NO_JSON),
    (b'{"user": 1, "places": {}}', NO_JSON),
    (b'{"user": 1, "places": [{"lat": "x"}]}', NO_JSON),
    (b"{}", "does not fit Click: user is missing or null"),
    (b'{"user": null}', "does not fit Click: user is missing or null"),
    (b'{"User": 1}', "does not fit Click: user is missing or null"),
    (b'{"user": 1, "kind": "view"}', None),
    (b'{"user": 1, "kind": "sell"}', "does not fit Click: kind is none of 'view', \"it's bought\""),
    (
        b'{"user": 1, "places": [{"lat": 1}, null]}',
        "does not fit Click: places[] is missing or null",
    ),
    (
        b'{"user": 1, "places": [{"lat": 1}, {}]}',
        "does not fit Click: places[].lat is missing or null",
    ),
]


@on_spark
async def test_what_does_not_fit_never_reaches_the_function_and_is_rejected_with_the_reason(
    engine: SparkEngine,
) -> None:
    rows, rejected = await run(engine, payload_of(Click), [value for value, _ in CLICKS])
    assert rejected == {
        offset: reason for offset, (_, reason) in enumerate(CLICKS) if reason is not None
    }
    assert [row["offset"] for row in rows] == [
        offset for offset, (_, reason) in enumerate(CLICKS) if reason is None
    ]
    assert "_corrupt" not in rows[0]


@on_spark
async def test_with_show_the_function_gets_them_with_their_text(engine: SparkEngine) -> None:
    rows, rejected = await run(
        engine, payload_of(Click, show_corrupt=True), [value for value, _ in CLICKS]
    )
    assert rejected == {}
    assert list(rows[0]) == [*KAFKA_COLUMNS, "user", "kind", "places", "_corrupt"]
    assert [row["_corrupt"] for row in rows] == [
        None if reason is None else (value or b"").decode(errors="replace")
        for value, reason in CLICKS
    ]


@on_spark
async def test_an_optional_model_takes_records_without_a_value(engine: SparkEngine) -> None:
    rows, rejected = await run(engine, payload_of(Click | None), [None, b'{"user": 1}', b"null"])
    assert [(row["offset"], row["user"]) for row in rows] == [(0, None), (1, 1)]
    assert rejected == {2: NO_JSON}


@on_spark
async def test_a_structs_bytes_are_read_as_base64(engine: SparkEngine) -> None:
    class Blob(msgspec.Struct, rename={"data": "`x.' $1"}):
        data: bytes

    rows, rejected = await run(
        engine,
        payload_of(Blob),
        [json.dumps({"`x.' $1": base64.b64encode(b"\x00\xff").decode()}).encode()],
    )
    assert ([row["data"] for row in rows], rejected) == ([b"\x00\xff"], {})


class Order(BaseModel):
    number: int
    rate: float
    is_new: bool
    kind: Kind
    place: Place
    maybe: Place | None = None
    lines: list[Place] = []
    by_name: dict[str, int] = {}


def some_orders(count: int, seed: int) -> list[Any]:
    """Documents that fit, or nearly; nothing in which Spark is known to take more than pydantic
    does.
    """
    pick = random.Random(seed)

    def place() -> Any:
        return pick.choice(
            [
                {"lat": 1.5},
                {"lat": 2, "name": None},
                {"lat": 2, "name": "x"},
                {},
                {"lat": None},
                [1.5],
                5,
            ]
        )

    choices: dict[str, Any] = {
        "number": lambda: pick.choice([1, -5, 2**63 - 1, 2**63, 1.5, True, None, [], {}]),
        "rate": lambda: pick.choice([1, 1.5, -2e10, None, [1.5], True]),
        "is_new": lambda: pick.choice([True, False, 3, None, []]),
        "kind": lambda: pick.choice(["view", "it's bought", "sell", "", None]),
        "place": place,
        "maybe": lambda: pick.choice([None, place()]),
        "lines": lambda: [place() for _ in range(pick.randrange(3))],
        "by_name": lambda: pick.choice([{}, {"a": 1}, {"a": None}, {"a": "x"}, [1]]),
    }
    good = {"number": 1, "rate": 1.5, "is_new": True, "kind": "view", "place": {"lat": 1}}
    orders = []
    for _ in range(count):
        changed = {
            name: choices[name]() for name in pick.sample(sorted(choices), pick.randrange(4))
        }
        orders.append(
            {name: value for name, value in (good | changed).items() if pick.random() > 0.03}
        )
    return orders


def fits(model: Any, document: Any) -> bool:
    try:
        TypeAdapter(model).validate_json(json.dumps(document), strict=True)
    except ValidationError:
        return False
    return not isinstance(document.get("number"), int) or abs(document["number"]) < 2**63


@on_spark
async def test_spark_and_pydantic_agree_on_what_fits(engine: SparkEngine) -> None:
    orders = some_orders(600, seed=5)
    _, rejected = await run(
        engine, payload_of(Order), [json.dumps(order).encode() for order in orders]
    )
    expected = {offset for offset, order in enumerate(orders) if not fits(Order, order)}
    assert 100 < len(expected) < 500
    assert [orders[offset] for offset in sorted(expected ^ set(rejected))] == []


@on_spark
async def test_each_text_is_parsed_once_however_many_fields_are_checked_and_asked_for(
    engine: SparkEngine,
) -> None:
    payload, plan = payload_of(Everything), io.StringIO()

    def explain(df: Any, batch: Any) -> None:
        parsed = payload.fitting(payload.parsed(df)).groupBy("page", "kind").agg({"user_id": "max"})
        with contextlib.redirect_stdout(plan):
            parsed.explain(mode="extended")

    await runner_of(engine, explain).run_batch([values_of(CLICKS_0, [b""])], attempt=1)
    optimized = (
        plan.getvalue()
        .partition("== Optimized Logical Plan ==")[2]
        .partition("== Physical Plan ==")[0]
    )
    assert optimized.count("from_json(") == 1


@on_spark
async def test_corrupt_records_of_several_partitions_are_named_with_theirs(
    engine: SparkEngine,
) -> None:
    parts = [
        part_of(CLICKS_1, [Raw(7, value=b"x"), Raw(9, value=b'{"user": 1}')]),
        values_of(CLICKS_0, [b"", b"y"]),
    ]
    counts: list[int] = []
    runner = runner_of(
        engine, lambda df, batch: counts.append(df.count()), payload=payload_of(Click)
    )
    rejected = await runner.run_batch(parts, attempt=1)
    assert [(one.partition, one.offset) for one in rejected] == [
        (CLICKS_0, 0),
        (CLICKS_0, 1),
        (CLICKS_1, 7),
    ]
    assert counts == [1]


@on_spark
async def test_a_function_may_reject_more_and_of_corrupt_records_their_own_reason_counts(
    engine: SparkEngine,
) -> None:
    def function(df: Any, batch: Any) -> None:
        batch.reject(df.where("user = 2"), "no such user")
        batch.reject([("clicks", 0, 0)], "bad anyhow")

    runner = runner_of(engine, function, payload=payload_of(Click))
    values = [b"x", b'{"user": 1}', b'{"user": 2}']
    rejected = await runner.run_batch([values_of(CLICKS_0, values)], attempt=1)
    assert [(one.offset, str(one.reason)) for one in rejected] == [
        (0, NO_JSON),
        (2, "no such user"),
    ]


@on_spark
@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_of_a_batch_is_kept_on_the_executors_when_it_is_over(
    engine: SparkEngine, fails: bool
) -> None:
    kept: list[int] = []

    def function(df: Any, batch: Any) -> None:
        kept.append(batch.spark.sparkContext._jsc.getPersistentRDDs().size())
        if fails:
            raise KeyError

    runner = runner_of(engine, function, payload=payload_of(Click))
    try:
        await runner.run_batch([values_of(CLICKS_0, [b'{"user": 1}'])], attempt=1)
    except OffloadError:
        assert fails
    after = await engine.run(
        lambda spark: spark.sparkContext._jsc.getPersistentRDDs().size(),
        timeout_s=60,
        description="look",
    )
    assert kept[0] > after


class Lenient(BaseModel):
    number: int | None = None


@on_spark
async def test_an_event_in_an_envelope_is_told_and_not_taken_for_its_data(
    engine: SparkEngine,
) -> None:
    envelope = (
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"number": 1}}'
    )
    structured = (
        ("trace", b"7"),
        ("Content-Type", b" Application/cloudevents+json; charset=UTF-8"),
    )
    binary = (("ce_specversion", b"1.0"), ("content-type", b"application/json"), ("ce_none", None))
    records = [
        Raw(0, value=envelope, headers=structured),
        Raw(1, value=b'{"number": 2}', headers=binary),
    ]
    rows: list[Any] = []
    found: list[Any] = []
    for finds_events in (True, False):
        payload = Payload(
            payload_schema(Lenient, "@app.spark('clicks')"), finds_events=finds_events
        )
        collect = lambda df, batch: rows.append(  # noqa: E731
            [row["number"] for row in df.orderBy("offset").collect()]
        )  # noqa: E731, RUF100
        runner = runner_of(engine, collect, payload=payload)
        found.append(await runner.run_batch([part_of(CLICKS_0, records)], attempt=1))
    assert rows == [[2], [None, 2]]
    (rejected,), nothing = found
    assert rejected.offset == 0
    assert "a CloudEvent in structured mode, whose data is in an envelope" in str(rejected.reason)
    assert not nothing

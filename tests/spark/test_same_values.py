"""A JSON value means to Spark's columns what it means to a plain handler, or its record is
rejected.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from reactive_kafka.errors import DecodeError, RejectedByJobError
from reactive_kafka.spark.batches.payload_schema import KAFKA_COLUMNS, payload_schema
from reactive_kafka.spark.batches.spark_function import Payload
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.formats.texts import channel_schemas, decoder_of_events, decoder_of_values, texts_of

from .records import CLICKS_0, Raw, on_spark, part_of, runner_of

EVENT = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type"))
REFUSED = object()


class Reader(NamedTuple):
    """A way from a record's value to the columns, and the plain handler's way."""

    payload: Callable[[Any], Payload]
    decoder: Callable[[Any], Callable[[bytes], Any]]
    headers: Any = ()


def of_values(model: Any) -> Payload:
    return Payload(payload_schema(model, "@app.spark('clicks')"))


def of_events(model: Any) -> Payload:
    return Payload(payload_schema(model, "@app.spark('clicks')"), texts=texts_of("cloudevents"))


VALUES = Reader(of_values, decoder_of_values)
EVENTS = Reader(of_events, lambda model: decoder_of_events(model, EVENT), EVENT)


async def by_spark(
    engine: SparkEngine, reader: Reader, model: Any, texts: Sequence[bytes]
) -> list[Any]:
    """For each text its row, or REFUSED."""
    rows: dict[int, Any] = {}
    function = lambda df, batch: rows.update(  # noqa: E731
        (row["offset"], row.asDict(recursive=True)) for row in df.collect()
    )  # noqa: E731, RUF100
    runner = runner_of(engine, function, payload=reader.payload(model), schemas=channel_schemas())
    records = [Raw(at, value=text, headers=reader.headers) for at, text in enumerate(texts)]
    rejected = await runner.run_batch([part_of(CLICKS_0, records)], attempt=1)
    assert all(isinstance(one.reason, RejectedByJobError) for one in rejected or ())
    assert {one.offset for one in rejected or ()} == set(range(len(texts))) - rows.keys()
    return [rows.get(at, REFUSED) for at in range(len(texts))]


def by_handler(reader: Reader, model: Any, texts: Sequence[bytes]) -> list[Any]:
    """For each text what a plain handler gets, or REFUSED."""
    decode = reader.decoder(model)
    found: list[Any] = []
    for text in texts:
        try:
            found.append(decode(text))
        except DecodeError:
            found.append(REFUSED)
    return found


def as_column(value: Any) -> Any:
    """A value of Python as it is collected from its column, but for times, which are compared in
    UTC.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {name: as_column(one) for name, one in value.items()}
    if isinstance(value, set | frozenset):
        return {as_column(one) for one in value}
    if isinstance(value, list | tuple):
        return [as_column(one) for one in value]
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel | msgspec.Struct):
        names = type(value).__annotations__
        return {name: as_column(getattr(value, name)) for name in names}
    return value


def as_collected(value: Any, like: Any) -> Any:
    """The same of what was collected: times are those of this machine's zone, and sets are lists
    without order.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict) and isinstance(like, dict):
        return {name: as_collected(one, like.get(name)) for name, one in value.items()}
    if isinstance(value, list) and isinstance(like, set):
        return set(value) if len(set(value)) == len(value) else value
    if isinstance(value, list) and isinstance(like, list):
        return [as_collected(one, its) for one, its in zip_longest(value, like)]
    return as_column(value)


async def check(
    engine: SparkEngine,
    reader: Reader,
    model: Any,
    taken: Sequence[bytes],
    rejected: Sequence[bytes],
) -> None:
    """*taken* are taken as by a plain handler; nothing of *rejected* is."""
    texts = [*taken, *rejected]
    rows = await by_spark(engine, reader, model, texts)
    plain = by_handler(reader, model, texts)
    found = [row is not REFUSED for row in rows]
    wrong = [
        text for text, is_taken in zip(texts, found, strict=True) if is_taken is not (text in taken)
    ]
    assert wrong == []
    differing = []
    for text, row, one in zip(texts, rows, plain, strict=True):
        if row is REFUSED:
            continue
        expected = REFUSED if one is REFUSED else as_column(one)
        columns = as_collected(
            {name: row[name] for name in row if name not in KAFKA_COLUMNS}, expected
        )
        if columns != expected:
            differing.append((text, columns, expected))
    assert differing == []


class Click(BaseModel):
    a: int
    b: str | None = None


# One JSON object, each of them, however odd.
DOCUMENTS = [
    b'{"a": 1}',
    b' \t\r\n{"a": 1}\r\n\t ',
    b'{"a": 1, "b": "}{"}',
    b'{"a": 1, "b": "\\\\"}',
    b'{"a": 1, "b": "\\"}]"}',
    b'{"a": 1, "more": [{"a": 2}, [], {}, null, -0.0, 1e-9, "\\u0000"]}',
    b'{"a": 1, "a": 2}',
    b'{"a": 1, "b": "x", "b": null}',
    b'{"b": "\\ud83d\\ude00", "a": 1}',
    b'{"b": "\\uD83D\\uDE00 \\\\ud800 \\\\\\\\uDC00", "a": 1}',
    b'{"b": "INF +Infinity \\" -INF", "a": 1}',
    b'{"a": 1, "more": [NaN, Infinity, -Infinity], "b": "+I"}',
    b'{"a": 1, "more": "+INF"}',
    '{"b": "\ufeffü\u2028\x7f", "a": 1}'.encode(),
    b'{"": 0, "a": 1}',
    b'{"a": 1, "more": 1' + b"0" * 400 + b"}",
    b'{"a": 1, "more": ' + b"[" * 150 + b"]" * 150 + b"}",
]
NO_DOCUMENTS = [
    b"",
    b" ",
    b"null",
    b"5",
    b'"{}"',
    b"[]",
    b'[{"a": 1}]',
    b'{"a": 1}\n{"a": 2}',
    b'{"a": 1}{"a": 2}',
    b'{"a": 1},{"a": 2}',
    b'{"a": 1},',
    b',{"a": 1}',
    b'{"a": 1}, {}',
    b'{"a": 1} garbage}',
    b'{"a": 1} "}',
    b'{"a": 1}}',
    b'{"a": 1}]',
    b'{"a": 1}]}',
    b'{"a": 1}]}{"a": 2}',
    b'{"a": 1}], "b": [{"a": 2}',
    b'{"a": 1}] {"a": 2}',
    b'{"a": 1}\x00',
    b'{"a": 1} // comment }',
    b'{"a": 1} /* comment */ {}',
    b'{"a": 1} # }',
    b'{"a": 1',
    b'{"a": 1,}',
    b'{"a": 1 "b": "x"}',
    b'{"a" 1}',
    b'{"a": [1,]}',
    b'garbage {"a": 1}',
    b'\xef\xbb\xbf{"a": 1}',
    b'\x00\x00\x00\x00\x01{"a": 1}',
    '{"a": 1}'.encode("utf-16"),
    b"{'a': 1}",
    b"{a: 1}",
    b'{"a": 1, /* one */ "b": "x"}',
    b'{"a": 01}',
    b'{"a": +1}',
    b'{"a": 1, "more": .5}',
    b'{"a": 1, "more": 5.}',
    b'{"a": 1, "more": 0x1}',
    b'{"a": 1, "more": 1_000}',
    b'{"a": 1, "more": True}',
    b'{"a": 1, "more": undefined}',
    b'{"a": 1, "more": INF}',
    b'{"a": 1, "more": +INF}',
    b'{"a": 1, "more": -INF}',
    b'{"a": 1, "more": +Infinity}',
    b'{"a": 1, "more": -NaN}',
    b'{"a": 1, "b": "\\\\\\"", "more": -INF}',
    b'{"a": 1, "b": "line\nbreak"}',
    b'{"a": 1, "more": "tab\tin it"}',
    b'{"a": 1, "b": "\\x41"}',
    b'{"a": 1, "more": "\\u12"}',
    b'{"a": 1, "b": "\\ud800"}',
    b'{"a": 1, "b": "\\udc00"}',
    b'{"a": 1, "more": "\\uD800 \\uDC00"}',
    b'{"a": 1, "b": "\\ud800\\\\\\udc00"}',
    b'{"a": 1, "b": "\\udc00\\ud800"}',
    b'{"a": 1, "\\ud800": 1}',
    b'{"a": 1, "b": "\xed\xa0\x80"}',
    b'{"a": 1, "b": "\xff"}',
    b'{"a": 1, "more": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    # Fields that are missing, null or of another type.
    b"{}",
    b'{"A": 1}',
    b'{"a": null}',
    b'{"a": 1, "a": null}',
    b'{"a": 1.5}',
    b'{"a": 1.0}',
    b'{"a": 1e3}',
    b'{"a": "1"}',
    b'{"a": ""}',
    b'{"a": true}',
    b'{"a": [1]}',
    b'{"a": {}}',
    b'{"a": 9223372036854775808}',
    b'{"a": 1, "b": 5}',
    b'{"a": 1, "b": 1.5}',
    b'{"a": 1, "b": true}',
    b'{"a": 1, "b": ["x"]}',
    b'{"a": 1, "b": {"x": 1, "x": 2}}',
    b'{"a": 1, "b": NaN}',
]


@on_spark
@pytest.mark.parametrize("reader", [VALUES, EVENTS], ids=["values", "events"])
async def test_a_value_is_one_json_object_to_spark_exactly_if_it_is_one_to_a_handler(
    engine: SparkEngine, reader: Reader
) -> None:
    await check(engine, reader, Click, DOCUMENTS, NO_DOCUMENTS)


class Kind(enum.StrEnum):
    ONE = "1"
    YES = "true"


class InBase64(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64")
    a: bytes


class InHex(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    a: bytes


class InStruct(msgspec.Struct):
    a: bytes


@dataclass
class Plain:
    a: bytes
    at: datetime | None = None


class OfPlain(msgspec.Struct):
    """What is in a struct is read by msgspec, whatever it is itself."""

    a: Plain


class OfPlainInHex(BaseModel):
    """A plain dataclass has the settings of the model around it."""

    model_config = ConfigDict(val_json_bytes="hex")
    a: Plain


class At(msgspec.Struct):
    a: datetime


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    a: datetime


class InMilliseconds(BaseModel):
    model_config = ConfigDict(val_temporal_unit="milliseconds")
    a: datetime


class Inner(BaseModel):
    at: datetime
    name: str = Field(alias="Name")


class InnerNamed(BaseModel):
    a: list[Inner | None]
    by_name: dict[str, dict[str, list[Decimal]]] | None = None


Money = Annotated[Decimal, Field(max_digits=10, decimal_places=2)]
UUID_36 = '"12345678-1234-5678-1234-56781234abcd"'
TEXT_TIMES = [
    '"2026-11-21T10:00:00Z"',
    '"2026-11-21T10:00:00"',
    '"2026-11-21 10:00:00"',
    '"2026-11-21t10:00:00z"',
    '"2026-11-21T10:00:00.5+02:00"',
    '"2026-11-21T10:00:00.123456-00:30"',
    '"2026-11-21T23:59:59.999999"',
    '"2026-11-21T10:00:00+0200"',
    '"1900-01-01T00:00:00Z"',
    '"1582-10-10T00:00:00Z"',
    '"0002-01-01T00:00:00Z"',
    '"2024-02-29T00:00:00Z"',
    '"2026-11-21T10:00:00.123456000Z"',
]
DAY_ALONE = '"2026-11-21"'
PYDANTIC_TIMES = [
    '"2026-11-21T10:00"',
    '"2026-11-21T10:00Z"',
    '"2026-11-21T10:00:00.123456789Z"',
    '"2026-11-21T10:00:00.9999999999"',
]
NUMBERS = [
    '"2026"',
    "0",
    "-1",
    "1700000000",
    "1700000000000",
    "20000000000",
    "20000000001",
    "-20000000000",
    "-20000000001",
    "-11676096001",
    "253402300799999",
    '"1700000000"',
    '"1700000000000"',
    "-62000000000000",
]
NO_TIMES = [
    '"12:00"',
    '"10:00:00Z"',
    '"T12:00"',
    '""',
    '" "',
    '"now"',
    '"2026-11"',
    '"26-11-21"',
    '"2026-1-1"',
    '"12026-11-21T10:00:00Z"',
    '"+2026-11-21T10:00:00Z"',
    '"-2026-11-21T10:00:00Z"',
    '"0000-01-01T00:00:00Z"',
    '"2026-02-29T00:00:00Z"',
    '"2026-13-01T00:00:00Z"',
    '"2026-11-21T24:00:00Z"',
    '"2026-11-21T10:00:60Z"',
    '"2026-11-21T10:60:00Z"',
    '"2026-11-21T10"',
    '"2026-11-21T10:00:00 Z"',
    '"2026-11-21T10:00:00 Europe/Zurich"',
    '"2026-11-21T10:00:00[UTC]"',
    '"2026-11-21T10:00:00 UTC"',
    '"2026-11-21T10:00:00+02"',
    '"2026-11-21T10:00:00+25:00"',
    '" 2026-11-21T10:00:00Z"',
    '"2026-11-21T10:00:00Z\\n"',
    '"2026-11-21T10:00:00.Z"',
    '"2026-11-21T10:00:00+02:60"',
    '"2026-11-21Z"',
    "253402300800000",
    "1000000000000000000",
    "9223372036854775807",
    "-9223372036854775808",
    "-62135596800001",
    "1e400",
    "true",
    "[]",
    "{}",
    '"epoch"',
    '"today"',
    '"1e9"',
]
COLUMNS: dict[str, tuple[Any, list[str], list[str]]] = {
    "int": (
        int,
        ["0", "-0", "9223372036854775807", "-9223372036854775808"],
        ["1.0", "1.5", "1e3", '"1"', "true", "9223372036854775808", "[1]", "null", '"0x1"'],
    ),
    "float": (
        float,
        [
            "0",
            "1",
            "1.5",
            "-2e10",
            "NaN",
            "Infinity",
            "-Infinity",
            "0.1",
            "5e-324",
            "1e999",
            "-1e999",
            "9007199254740993",
            "123456789012345678901234567890",
            '"NaN"',
            '"Infinity"',
            '"-Infinity"',
        ],
        ['"1.5"', "true", "[]", "null", '"1e400"', "+Infinity"],
    ),
    "bool": (bool, ["true", "false"], ["1", "0", '"true"', '"yes"', "null", "[]"]),
    "str": (
        str,
        ['""', '"1"', '"true"', '"{}"', '"null"', '"\\u00fc"', '"\\u0000"'],
        [
            "1",
            "1.5",
            "true",
            "false",
            "null",
            "[]",
            '["x"]',
            "{}",
            '{"a": 1}',
            "NaN",
            "1e999",
            "9" * 50,
        ],
    ),
    "enum": (Kind, ['"1"', '"true"'], ["1", "true", '"ONE"', '"2"', '""', "null", '["1"]']),
    "literal": (Literal["1", "{}"], ['"1"', '"{}"'], ["1", "{}", '"2"', '"1 "']),
    "uuid": (
        UUID,
        [UUID_36, UUID_36.upper()],
        [
            '"12345678123456781234567812345678"',
            '"{12345678-1234-5678-1234-567812345678}"',
            '"x"',
            '""',
            "1",
            "12345678123456781234567812345678",
            '"12345678-1234-5678-1234-56781234567g"',
            UUID_36[:-1] + '\\n"',
        ],
    ),
    "bytes": (bytes, ['"text"', '""', '"\\u00fc"', '"1"'], ["1", "true", "[]", "[1]", "{}", "1.5"]),
    "bytes in base64": (
        InBase64,
        ['"AAE="', '""', '"+/8="', '"QUJD"'],
        ['"AB=="', '"AAE=\\n"', '" AAE="', '"AA=E"', '"A"', "1234", '"text!"', '"QUJ\\nD"'],
    ),
    "bytes of a struct": (
        InStruct,
        ['"AAE="', '""', '"+/8="'],
        ['"AAE"', '"AB=="', '"-_8="', "1234", '"x"'],
    ),
    "bytes in hex": (InHex, ['"00ff"', '"00FF"', '""'], ['"0"', '"zz"', "12", '"0x00"', '" 00"']),
    "bytes in a dataclass in a struct": (
        OfPlain,
        ['{"a": "AAE="}'],
        ['{"a": "text!"}', '{"a": "AAE=", "at": 1}'],
    ),
    "bytes in a dataclass in a model": (
        OfPlainInHex,
        ['{"a": "00ff"}', '{"a": "", "at": 1}'],
        ['{"a": "text"}'],
    ),
    "datetime": (
        datetime,
        [*TEXT_TIMES, *PYDANTIC_TIMES, DAY_ALONE, *NUMBERS],
        [*NO_TIMES, "1700000000.5", "1e9", "null"],
    ),
    "datetime of a struct": (
        At,
        TEXT_TIMES,
        [*NO_TIMES, *PYDANTIC_TIMES, DAY_ALONE, *NUMBERS, '"2026-11-21T10:00:00.1234567Z"'],
    ),
    "datetime of a strict model": (
        Strict,
        [*TEXT_TIMES, *PYDANTIC_TIMES],
        [*NO_TIMES, DAY_ALONE, *NUMBERS],
    ),
    "datetime with a unit": (
        InMilliseconds,
        [*TEXT_TIMES, *PYDANTIC_TIMES],
        [*NO_TIMES, DAY_ALONE, *NUMBERS],
    ),
    "date": (
        date,
        ['"2026-11-21"', '"2024-02-29"', '"0001-01-01"', '"9999-12-31"'],
        [
            '"2026-02-29"',
            '"0000-01-01"',
            '"20000"',
            "20000",
            "86400",
            "0",
            '"2026-11-21T00:00:00Z"',
            '"today"',
            '"2026-11-21T10:00:00Z"',
            '"2026-11"',
            '"2026"',
            '"2026-1-1"',
            '"12:00"',
            '" 2026-11-21"',
            '"epoch"',
            '"2026-11-21\\n"',
            "1700000000000",
            "true",
            "null",
        ],
    ),
    "decimal": (
        Decimal,
        [
            "0",
            "1",
            "-1.5",
            "0.10",
            '"1.50"',
            '"-0.000000000000000001"',
            '"1e2"',
            '"1E-7"',
            '"0E-18"',
            '"12345678901234567890.123456789012345678"',
            "99999999999999999999",
            '"+1"',
            '".5"',
            '"1."',
            '"007"',
            '"1.10000000000000000000000"',
            '"1.5E+3"',
            '"-1.25e-16"',
        ],
        [
            "1e2",
            "1.5E3",
            '"1,234.5"',
            '"1,5"',
            '"1_000"',
            '" 1"',
            '"NaN"',
            '"Infinity"',
            '""',
            '"."',
            '"e5"',
            "true",
            "[]",
            "100000000000000000000",
            '"0.0000000000000000001"',
            '"1E-19"',
            '"1.25e-17"',
            '"1E+20"',
            "NaN",
            '"1e400"',
            "0.0000000000000000001",
            '"١"',
            "1e999",
        ],
    ),
    "decimal with limits": (
        Money,
        ["0", "12.5", "12.50", '"12.5"', '"-99999999.99"', "99999999", '"1.5e1"', '"1E-2"'],
        [
            "12.505",
            '"12.505"',
            "100000000",
            '"100000000"',
            '"1.255E-1"',
            '"1E-3"',
            '"1e8"',
            "99999999.999",
        ],
    ),
    "set": (set[str], ["[]", '["b", "a", "b"]'], ["[1]", "[null]", "{}", '"ab"', '["a", true]']),
    "set of int": (frozenset[int], ["[1, 1]"], ['["1"]', "[1.5]"]),
    "dict": (
        dict[str, int],
        ["{}", '{"a": 1, "": 2}'],
        ['{"a": 1, "a": 2}', '{"a": "1"}', '{"a": null}', "[]"],
    ),
    "list in a list": (
        list[list[str]],
        ["[]", '[[], ["1"]]'],
        ["[[1]]", "[1]", "[[null]]", "[null]"],
    ),
    "models in a list": (
        InnerNamed,
        ['[{"Name": "x", "at": 0}, null]'],
        [
            '[{"Name": 1, "at": 0}]',
            '[{"Name": "x", "at": "12:00"}]',
            '[{"name": "x", "at": 0}]',
            '[], "by_name": {"a": {"b": [0.0000000000000000001]}}',
            '[], "by_name": {"a": {"b": [1], "b": [2]}}',
        ],
    ),
}


def model_of(asked: Any) -> Any:
    if isinstance(asked, type) and (issubclass(asked, BaseModel | msgspec.Struct)):
        return asked
    return create_model("Model", a=(asked, ...))


@on_spark
@pytest.mark.parametrize("name", COLUMNS)
async def test_a_columns_value_is_the_one_that_a_handler_gets_or_the_record_is_rejected(
    engine: SparkEngine, name: str
) -> None:
    asked, taken, rejected = COLUMNS[name]
    texts = [[f'{{"a": {value}}}'.encode() for value in values] for values in (taken, rejected)]
    await check(engine, VALUES, model_of(asked), *texts)


@on_spark
async def test_values_at_any_depth_are_read_alike(engine: SparkEngine) -> None:
    inside = '{"a": [], "by_name": {"x": {"y": [%s], "z": []}, "": {}}}'
    taken = [(inside % value).encode() for value in ("1.25", '"12.5", 3', "")]
    rejected = [
        (inside % value).encode()
        for value in ("0.0000000000000000001", '"x"', "null", "1e2", "[1]")
    ]
    await check(engine, VALUES, InnerNamed, taken, rejected)


@on_spark
async def test_a_time_without_a_zone_is_utc_whatever_the_sessions_zone_is(
    engine: SparkEngine,
) -> None:
    texts = [b'{"a": "2026-11-21T10:00:00"}', b'{"a": "2026-11-21"}', b'{"a": 1700000000}']
    there: list[Any] = []

    def function(df: Any, batch: Any) -> None:
        there.extend(
            row["a"] for row in df.orderBy("offset").selectExpr("unix_micros(a) AS a").collect()
        )

    async def in_zone(zone: str) -> list[Any]:
        there.clear()

        def set_zone(spark: Any) -> None:
            spark.conf.set("spark.sql.session.timeZone", zone)

        await engine.run(set_zone, timeout_s=60, description="set the zone")
        runner = runner_of(engine, function, payload=of_values(model_of(datetime)))
        records = [Raw(at, value=text) for at, text in enumerate(texts)]
        assert not await runner.run_batch([part_of(CLICKS_0, records)], attempt=1)
        return list(there)

    try:
        found = await in_zone("Asia/Kolkata")
    finally:
        assert await in_zone("UTC") == [1795255200_000_000, 1795219200_000_000, 1700000000_000_000]
    assert found == there

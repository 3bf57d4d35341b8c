"""Avro schemas of a writer and of a reader as they meet in the wild, and values that fit no field
of their schema.

Each is right or refused by name, as dict, dataclass, pydantic model and msgspec struct.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest

from reactive_kafka.errors import DecodeError, EncodeError
from tests.schemas.cells import AT, FINE_AT, KNOWN, LOGICAL, MAKERS, ORDER, PROTO_ORDER, TEA
from tests.schemas.codecs import World, path_of, text_of

KINDS = ["dict", *MAKERS]
DEFAULTS = {
    "id": 7,
    "total": Decimal("2.56"),
    "day": date(1970, 1, 2),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "clock": time(0, 0, 1),
    "at": datetime(1970, 1, 1, tzinfo=UTC),
    "local_at": datetime(1970, 1, 1),
    "raw": b"\xff",
    "digest": b"\0\1",
    "tags": [],
    "counts": {"a": 1},
    "maybe_day": None,
    "line": {"sku": "tea", "since": date(1970, 1, 1)},
}


def of_fastavro(world: World, file: str, value: Any, schema: Any = None) -> bytes:
    """A record whose schema is registered as the file has it, with data that *schema* writes: by
    default the same.
    """
    id = world.register("orders-value", "AVRO", text_of(file))
    data = BytesIO()
    fastavro.schemaless_writer(
        data, fastavro.parse_schema(schema or json.loads(text_of(file))), value
    )
    return b"\0" + id.to_bytes(4, "big") + data.getvalue()


def kind_of(kind: str, name: str, fields: dict[str, Any]) -> Any:
    return dict if kind == "dict" else MAKERS[kind](name, **fields)


def said_in(value: Any, names: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {name: getattr(value, name) for name in names}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("color", "seen"), [("RED", "RED"), ("BLUE", "BLUE"), ("GREEN", "OTHER")])
def test_a_symbol_that_the_reader_does_not_have_is_its_default(
    kind: str, color: str, seen: str
) -> None:
    world = World()
    data = of_fastavro(world, "colors_1.avsc", {"color": color})
    wanted = kind_of(kind, "Paint", {"color": str})
    found = world.decode(wanted, "avro", data, path_of("colors_2.avsc"))
    assert said_in(found, ["color"]) == {"color": seen}


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_that_the_reader_does_not_have_is_refused_where_it_has_no_default(
    kind: str,
) -> None:
    world = World()
    data = of_fastavro(world, "colors_1.avsc", {"color": "GREEN"})
    with pytest.raises(DecodeError, match=r"does not resolve to .*colors_3\.avsc: .*Color"):
        world.decode(kind_of(kind, "Paint", {"color": str}), "avro", data, path_of("colors_3.avsc"))


@pytest.mark.parametrize("kind", KINDS)
def test_aliases_and_defaults_of_every_type_are_values(kind: str) -> None:
    world = World()
    data = of_fastavro(world, "id.avsc", {"number": 7})
    types: dict[str, Any] = {
        name: Any if value is None else type(value) for name, value in DEFAULTS.items()
    }
    wanted = kind_of(kind, "After", types)
    first, second = (
        said_in(world.decode(wanted, "avro", data, path_of("defaults.avsc")), DEFAULTS)
        for _ in range(2)
    )
    assert first == DEFAULTS
    first["tags"].append("x")
    first["line"]["sku"] = "x"
    assert second == DEFAULTS


@pytest.mark.parametrize("kind", KINDS)
def test_a_writers_schema_is_read_as_javas_library_reads_it(kind: str) -> None:
    world = World()
    plain = {
        "no_precision": b"\x01\x00",
        "of_text": "1.5",
        "unknown": 5,
        "text": "a",
        "number": 1,
        "either": None,
    }
    base = {
        "no_precision": "bytes",
        "of_text": "string",
        "unknown": "long",
        "text": "string",
        "number": "int",
        "either": ["string", "null"],
    }
    fields = [{"name": name, "type": type} for name, type in base.items()]
    data = of_fastavro(
        world, "lenient.avsc", plain, {"type": "record", "name": "Lenient", "fields": fields}
    )
    types = {
        "no_precision": bytes,
        "of_text": str,
        "unknown": int,
        "text": str,
        "number": int,
        "either": str | None,
    }
    found = world.decode(kind_of(kind, "Lenient", types), "avro", data)
    assert said_in(found, plain) == plain


UNFIT: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    # format, file, a value that fits, what is changed in it, what the refusal says
    ("avro", "logical", LOGICAL, {"at": datetime(2026, 1, 1)}, r"at has no time zone"),
    ("avro", "logical", LOGICAL, {"fine_at": datetime(2026, 1, 1)}, r"fine_at has no time zone"),
    ("avro", "logical", LOGICAL, {"local_at": AT}, r"local_at has a time zone"),
    ("avro", "logical", LOGICAL, {"clock": time(1, tzinfo=UTC)}, r"clock has a time zone"),
    ("avro", "logical", LOGICAL, {"total": Decimal("1.234")}, "total"),
    ("avro", "logical", LOGICAL, {"total": 1.5}, "total"),
    ("avro", "logical", LOGICAL, {"id": "no uuid"}, "id"),
    ("avro", "shop.Order", ORDER, {"id": "7"}, "id"),
    ("avro", "shop.Order", ORDER, {"id": 7.5}, "id"),
    ("avro", "shop.Order", ORDER, {"id": True}, "id"),
    ("avro", "shop.Order", ORDER, {"first": {"sku": "tea", "count": 2**31}}, "count|first"),
    ("avro", "shop.Order", ORDER, {"state": "GONE"}, "state"),
    ("avro", "shop.Order", ORDER, {"digest": b"1"}, "digest"),
    ("protobuf", "order", PROTO_ORDER, {"card": "a", "goods": TEA}, "card and goods"),
    ("protobuf", "order", PROTO_ORDER, {"id": 7.5}, "id"),
    ("protobuf", "order", PROTO_ORDER, {"state": "GONE"}, "state"),
    ("protobuf", "order", PROTO_ORDER, {"lines": [{"sku": "tea", "count": 2**31}]}, "count|lines"),
    ("protobuf", "known", KNOWN, {"more": {"a": 2**60 + 1}}, "more"),
    ("json-schema", "address", {"country": "NL", "code": "1234 AB"}, {"code": "12345"}, "at code"),
    (
        "json-schema",
        "tree",
        {"name": "r", "children": []},
        {"children": [{"name": 1}]},
        "at children/0",
    ),
    (
        "json-schema",
        "payment",
        {"method": {"kind": "card", "number": "1"}},
        {"method": {"kind": "card"}},
        "method",
    ),
]
SUFFIXES = {"avro": "avsc", "protobuf": "proto", "json-schema": "json"}


@pytest.mark.parametrize(
    ("format", "file", "value", "said"),
    [
        pytest.param(
            format,
            f"{file}.{SUFFIXES[format]}",
            {**fitting, **change},
            said,
            id=f"{format}-{change}",
        )
        for format, file, fitting, change, said in UNFIT
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_field(
    format: str, file: str, value: dict[str, Any], said: str
) -> None:
    with pytest.raises(EncodeError, match=rf"dict does not fit the .*: .*({said})"):
        World().encode(format, value, path_of(file))


def test_microseconds_that_a_field_of_milliseconds_has_no_place_for_are_cut() -> None:
    """As Java's Instant.toEpochMilli does."""
    world = World()
    data = world.encode("avro", {**LOGICAL, "at": FINE_AT}, path_of("logical.avsc"))
    assert world.decode(dict, "avro", data)["at"] == AT

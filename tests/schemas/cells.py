"""Shapes of schemas as they are in the wild, with a value of each: the expectations of the matrix,
as data.

A shape is read, written, and written and read again, as plain data and as an instance of a
dataclass, a pydantic model and a msgspec struct. What is not refused by name has to come out as it
is here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import GenericAlias
from typing import Any, Literal, Protocol
from uuid import UUID

import msgspec
import pydantic

Way = str
"""`read`: theirs are read by us; `written`: ours are read by them; `back`: ours are read by us."""
WAYS = ("read", "written", "back")


def list_of(kind: Any) -> Any:
    """The type of lists of a class that is made here."""
    return GenericAlias(list, (kind,))


def map_of(kind: Any) -> Any:
    """The type of dicts from names to a class that is made here."""
    return GenericAlias(dict, (str, kind))


class Make(Protocol):
    """Makes a class: its name, then its fields, each with a type or a pair of type and default."""

    def __call__(self, name: str, /, **fields: Any) -> Any: ...


def dataclass_of(name: str, /, **fields: Any) -> Any:
    return dataclasses.make_dataclass(name, _fields(fields), kw_only=True)


def pydantic_of(name: str, /, **fields: Any) -> Any:
    made: Any = {one: (kind, *(default or (...,))) for one, kind, *default in _fields(fields)}
    return pydantic.create_model(name, **made)


def struct_of(name: str, /, **fields: Any) -> Any:
    return msgspec.defstruct(name, _fields(fields), kw_only=True)


def tagged_struct_of(name: str, /, **fields: Any) -> Any:
    """msgspec takes no union of structs without tags."""
    return msgspec.defstruct(name, _fields(fields), kw_only=True, tag=True)


def _fields(fields: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (name, *(spec if isinstance(spec, tuple) else (spec,))) for name, spec in fields.items()
    ]


MAKERS: dict[str, Make] = {"dataclass": dataclass_of, "pydantic": pydantic_of, "struct": struct_of}

Built = Callable[[Make], tuple[Any, Any]]
"""The annotation of a handler, and the value that it is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """One schema with one value.

    Attributes:
        file: The schema, in the folder `shapes`.
        theirs: What Confluent's serialiser takes; for Protobuf as its JSON.
        plain: What a handler gets that asks for nothing special, and what a plain value is that is
            written.
        read_by_them: What Confluent's deserialiser makes of it; None: *plain*.
        of: The same as an instance of a class; None: there is no class for it.
        references: What it refers to, by name: a file of that name is a subject.
        is_union: A struct needs a tag.
        refused: Cells that are refused, (way, kind) -> what the error says.
    """

    format: str
    file: str
    theirs: Any
    plain: Any
    read_by_them: Any = None
    of: Built | None = None
    references: tuple[str, ...] = ()
    is_union: bool = False
    refused: Mapping[tuple[Way, str], str] = dataclasses.field(default_factory=dict)

    def cells(self) -> list[tuple[Way, str]]:
        kinds = ("plain",) if self.of is None else ("plain", *MAKERS)
        return [(way, kind) for way in WAYS for kind in kinds]

    def wanted(self, kind: str) -> tuple[Any, Any]:
        """The annotation and the value of a cell."""
        if kind == "plain" or self.of is None:
            return (dict if isinstance(self.plain, dict) else Any), self.plain
        return self.of(tagged_struct_of if self.is_union and kind == "struct" else MAKERS[kind])


class Color(Enum):
    RED = "RED"
    BLUE = "BLUE"


class State(Enum):
    NEW = "NEW"
    PAID = "PAID"


# -- classes that refer to themselves cannot be made by a function


@dataclasses.dataclass
class DataTree:
    name: str
    children: list[DataTree]


class ModelTree(pydantic.BaseModel):
    name: str
    children: list[ModelTree]


class StructTree(msgspec.Struct):
    name: str
    children: list[StructTree]


@dataclasses.dataclass
class DataChain:
    value: int
    next: DataChain | None = None


class ModelChain(pydantic.BaseModel):
    value: int
    next: ModelChain | None = None


class StructChain(msgspec.Struct):
    value: int
    next: StructChain | None = None


TREES: dict[Make, Any] = {dataclass_of: DataTree, pydantic_of: ModelTree, struct_of: StructTree}
CHAINS: dict[Make, Any] = {dataclass_of: DataChain, pydantic_of: ModelChain, struct_of: StructChain}


def tree(make: Make) -> tuple[Any, Any]:
    kind = TREES[make]
    leaf = kind(name="leaf", children=[])
    return kind, kind(name="root", children=[leaf, kind(name="branch", children=[leaf])])


TREE = {
    "name": "root",
    "children": [
        {"name": "leaf", "children": []},
        {"name": "branch", "children": [{"name": "leaf", "children": []}]},
    ],
}


def chain(make: Make) -> tuple[Any, Any]:
    kind = CHAINS[make]
    return kind, kind(value=1, next=kind(value=2, next=kind(value=3, next=None)))


def line(make: Make) -> Any:
    return make("Line", sku=str, count=int)


TEA = {"sku": "tea", "count": 2}
PEN = {"sku": "pen", "count": 1}

# -- Avro

DIGEST = b"\x00\x01\xfe\xff"
ORDER = {
    "id": 2**40,
    "state": "PAID",
    "lines": [TEA, PEN],
    "parts": {"a": PEN},
    "digest": DIGEST,
    "raw": b"\xff\x00",
    "share": 0.1,
    "note": "gift",
    "first": TEA,
}


def avro_order(make: Make) -> tuple[Any, Any]:
    one = line(make)
    kind = make(
        "Order",
        id=int,
        state=State,
        lines=list_of(one),
        parts=map_of(one),
        digest=bytes,
        raw=bytes,
        share=float,
        note=(str | None, None),
        first=(one | None, None),
    )
    tea, pen = one(**TEA), one(**PEN)
    return kind, kind(
        **{**ORDER, "state": State.PAID, "lines": [tea, pen], "parts": {"a": pen}, "first": tea}
    )


def shop_events(make: Make) -> tuple[Any, Any, Any]:
    return (
        make("Placed", id=int, by=str),
        make("Cancelled", id=int, by=str),
        make("Touched", id=int),
    )


def inline_event(make: Make) -> tuple[Any, Any]:
    placed, cancelled, touched = shop_events(make)
    return placed | cancelled | touched, cancelled(id=7, by="ann")


def touched_event(make: Make) -> tuple[Any, Any]:
    placed, cancelled, touched = shop_events(make)
    return placed | cancelled | touched, touched(id=7)


def referenced_event(make: Make) -> tuple[Any, Any]:
    placed, cancelled = make("Placed", id=int), make("Cancelled", id=int)
    return placed | cancelled, cancelled(id=7)


def letter(make: Make) -> tuple[Any, Any]:
    placed, cancelled = make("Placed", id=int), make("Cancelled", id=int)
    either = placed | cancelled
    kind = make("Letter", event=either, history=list_of(either))
    return kind, kind(event=cancelled(id=2), history=[placed(id=1), cancelled(id=2)])


LETTER = {"event": {"id": 2}, "history": [{"id": 1}, {"id": 2}]}
AT = datetime(2026, 11, 28, 12, 30, 15, 123_000, UTC)
FINE_AT = AT.replace(microsecond=123_456)
LOGICAL = {
    "total": Decimal("12.50"),
    "fixed_total": Decimal("-0.125"),
    "day": date(2026, 11, 28),
    "id": UUID("12345678-1234-5678-1234-567812345678"),
    "clock": time(12, 30, 15, 123_000),
    "fine_clock": time(12, 30, 15, 123_456),
    "at": AT,
    "fine_at": FINE_AT,
    "local_at": AT.replace(tzinfo=None),
    "fine_local_at": FINE_AT.replace(tzinfo=None),
}
MAYBE = {name: LOGICAL[name] for name in ("total", "day", "id", "at")} | {
    "local_at": LOGICAL["fine_local_at"]
}
ROW = {"id": 1, "total": Decimal("9.95"), "created_at": 1_700_000_000_000_000, "note": None}
ENVELOPE = {
    "before": None,
    "after": ROW,
    "source": {"db": "shop", "snapshot": "false", "lsn": 2**40},
    "op": "c",
    "ts_ms": 1_700_000_000_000,
}


def logical(make: Make) -> tuple[Any, Any]:
    kind = make("Logical", **{name: type(value) for name, value in LOGICAL.items()})
    return kind, kind(**LOGICAL)


def maybe(make: Make) -> tuple[Any, Any]:
    kind = make("Maybe", **{name: (type(value) | None, None) for name, value in MAYBE.items()})
    return kind, kind(**MAYBE)


def nothing(make: Make) -> tuple[Any, Any]:
    kind, _ = maybe(make)
    return kind, kind()


def envelope(make: Make) -> tuple[Any, Any]:
    row = make("Value", id=int, total=Decimal, created_at=int, note=(str | None, None))
    source = make("Source", db=str, snapshot=(str | None, "false"), lsn=(int | None, None))
    kind = make(
        "Envelope",
        before=(row | None, None),
        after=(row | None, None),
        source=source,
        op=str,
        ts_ms=(int | None, None),
    )
    return kind, kind(**{**ENVELOPE, "after": row(**ROW), "source": source(**ENVELOPE["source"])})  # type: ignore[arg-type]


def outer(make: Make) -> tuple[Any, Any]:
    left, right = make("Part", id=int), make("Part", text=str)
    kind = make("Outer", left=left, right=right, again=(right | None, None), first=left)
    return kind, kind(
        left=left(id=1), right=right(text="r"), again=right(text="a"), first=left(id=2)
    )


NAMES = {"left": {"id": 1}, "right": {"text": "r"}, "again": {"text": "a"}, "first": {"id": 2}}


def avro(file: str, plain: Any, of: Built | None = None, **more: Any) -> Shape:
    return Shape(
        format="avro",
        file=f"{file}.avsc",
        theirs=more.pop("theirs", plain),
        plain=plain,
        of=of,
        **more,
    )


def ambiguous(namespace: str) -> dict[tuple[Way, str], str]:
    """A plain dict does not say which record it is."""
    said = f"{namespace}.Placed and {namespace}.Cancelled"
    return {("written", "plain"): said, ("back", "plain"): said}


AVRO = {
    "a record with each complex type": avro("shop.Order", ORDER, avro_order),
    "a union of records with equal fields": avro(
        "inline_events",
        {"id": 7, "by": "ann"},
        inline_event,
        theirs=("shop.Cancelled", {"id": 7, "by": "ann"}),
        is_union=True,
        refused=ambiguous("shop"),
    ),
    "a union of records where others have more fields": avro(
        "inline_events", {"id": 7}, touched_event, theirs=("shop.Touched", {"id": 7}), is_union=True
    ),
    "a union of references": avro(
        "events",
        {"id": 7},
        referenced_event,
        theirs=("x.Cancelled", {"id": 7}),
        is_union=True,
        references=("x.Placed", "x.Cancelled"),
        refused=ambiguous("x"),
    ),
    "unions of records inside of a record": avro(
        "envelope_of_union",
        LETTER,
        letter,
        is_union=True,
        refused=ambiguous("shop"),
        theirs={
            "event": ("shop.Cancelled", {"id": 2}),
            "history": [("shop.Placed", {"id": 1}), ("shop.Cancelled", {"id": 2})],
        },
    ),
    "a top level that is an array": avro(
        "array", [TEA, PEN], lambda make: (list_of(one := line(make)), [one(**TEA), one(**PEN)])
    ),
    "a top level that is a map": avro(
        "map", {"a": TEA}, lambda make: (map_of(one := line(make)), {"a": one(**TEA)})
    ),
    "a top level that may be null": avro(
        "nullable", TEA, lambda make: ((one := line(make)) | None, one(**TEA))
    ),
    "a top level that is an enum": avro("enum", "BLUE"),
    "a top level that is fixed": avro("fixed", DIGEST),
    "a top level that is a string": avro("string", "tea"),
    "a top level that is bytes": avro("bytes", b"\xff\x00"),
    "a top level that is a long": avro("long", -(2**40)),
    "a top level that is a union of scalars": avro("scalars", "7"),
    "a tree": avro("tree", TREE, tree),
    "a linked list": avro(
        "chain", {"value": 1, "next": {"value": 2, "next": {"value": 3, "next": None}}}, chain
    ),
    "every logical type": avro("logical", LOGICAL, logical),
    "logical types in unions": avro("logical_unions", MAYBE, maybe),
    "logical types in unions that are null": avro("logical_unions", dict.fromkeys(MAYBE), nothing),
    "two records of one name in two namespaces": avro("names", NAMES, outer),
    "an envelope of Debezium": avro("debezium", ENVELOPE, envelope),
}

# -- JSON Schema

JSON_ORDER = {"id": 7, "state": "PAID", "lines": [TEA], "counts": {"a": 1}, "note": None}


def json_order(make: Make) -> tuple[Any, Any]:
    one = line(make)
    kind = make(
        "Order",
        id=int,
        state=State,
        lines=list_of(one),
        counts=dict[str, int],
        note=(str | None, None),
    )
    return kind, kind(id=7, state=State.PAID, lines=[one(**TEA)], counts={"a": 1})


def payment(make: Make) -> tuple[Any, Any]:
    transfer = make("Transfer", kind=str, iban=str)
    kind = make("Payment", method=transfer)
    return kind, kind(method=transfer(kind="transfer", iban="NL1"))


def address(make: Make) -> tuple[Any, Any]:
    kind = make("Address", country=str, code=str)
    return kind, kind(country="NL", code="1234 AB")


def shipment(make: Make) -> tuple[Any, Any]:
    to = make("Address", country=str, code=str)
    kind = make("Shipment", id=int, to=to)
    return kind, kind(id=1, to=to(country="NL", code="1234 AB"))


def contact(make: Make) -> tuple[Any, Any]:
    kind = make("Contact", mail=(str | None), phone=(str | None), age=(int | None))
    return kind, kind(mail="a@b", phone=None, age=None)


def discriminated(make: Make) -> tuple[Any, Any]:
    if make is tagged_struct_of:
        # msgspec tells structs apart by their tags
        placed = msgspec.defstruct("Placed", [("id", int)], tag="placed", tag_field="kind")
        cancelled = msgspec.defstruct("Cancelled", [("id", int)], tag="cancelled", tag_field="kind")
        return placed | cancelled, cancelled(id=7)
    placed = make("Placed", kind=Literal["placed"], id=int)
    cancelled = make("Cancelled", kind=Literal["cancelled"], id=int)
    return placed | cancelled, cancelled(kind="cancelled", id=7)


def pet(make: Make) -> tuple[Any, Any]:
    kind = make("Pet", name=str)
    return kind, kind(name="Rex")


def page(make: Make) -> tuple[Any, Any]:
    one = line(make)
    kind = make("Page", items=list_of(one), next=(str | None, None))
    return kind, kind(items=[one(**TEA)], next="2")


def row(make: Make) -> tuple[Any, Any]:
    kind = make("Row", id=int, name=(str | None, None))
    return kind, kind(id=1)


def json_schema(file: str, plain: Any, of: Built | None = None, **more: Any) -> Shape:
    return Shape(
        format="json-schema", file=f"{file}.json", theirs=plain, plain=plain, of=of, **more
    )


JSON_SCHEMA = {
    "a document with definitions": json_schema("order", JSON_ORDER, json_order),
    "one of two, with a discriminator": json_schema(
        "payment", {"method": {"kind": "transfer", "iban": "NL1"}}, payment
    ),
    "if, then and else": json_schema("address", {"country": "NL", "code": "1234 AB"}, address),
    "a reference to another document": json_schema(
        "shipment",
        {"id": 1, "to": {"country": "NL", "code": "1234 AB"}},
        shipment,
        references=("address.json",),
    ),
    "one of several documents": json_schema(
        "events",
        {"kind": "cancelled", "id": 7},
        discriminated,
        is_union=True,
        references=("placed.json", "cancelled.json"),
    ),
    "keywords of OpenAPI": json_schema("openapi", {"name": "Rex"}, pet),
    "a dynamic reference": json_schema("dynamic", {"items": [TEA], "next": "2"}, page),
    "three ways to say nullable": json_schema(
        "nullable", {"mail": "a@b", "phone": None, "age": None}, contact
    ),
    "a tree": json_schema("tree", TREE, tree),
    "a row of Kafka Connect": json_schema("connect", {"id": 1, "name": None}, row),
    "a top level that is an array": json_schema(
        "array", [TEA, PEN], lambda make: (list_of(one := line(make)), [one(**TEA), one(**PEN)])
    ),
}

# -- Protobuf

PROTO_ORDER = {
    "id": 2**40,
    "state": "STATE_PAID",
    "lines": [TEA, PEN],
    "parts": {"a": PEN},
    "names": {7: "seven"},
    "deltas": [-1, 2**40],
    "note": None,
    "raw": b"\xff\x00",
    "share": 0.1,
    "card": None,
    "goods": TEA,
    "first": None,
}


class ProtoState(Enum):
    UNSPECIFIED = "STATE_UNSPECIFIED"
    PAID = "STATE_PAID"


def proto_order(make: Make) -> tuple[Any, Any]:
    one = line(make)
    kind = make(
        "Order",
        id=int,
        state=ProtoState,
        lines=list_of(one),
        parts=map_of(one),
        names=dict[int, str],
        deltas=list[int],
        note=(str | None, None),
        raw=bytes,
        share=float,
        card=(str | None, None),
        goods=(one | None, None),
        first=(one | None, None),
    )
    tea, pen = one(**TEA), one(**PEN)
    given = {"state": ProtoState.PAID, "lines": [tea, pen], "parts": {"a": pen}, "goods": tea}
    return kind, kind(**{**PROTO_ORDER, **given})


KNOWN = {
    "at": AT,
    "took": timedelta(seconds=90),
    "note": "gift",
    "count": 0,
    "more": {"a": [1.0, None, "x"]},
    "never": None,
    "all": [AT],
}


def known(make: Make) -> tuple[Any, Any]:
    kind = make(
        "Known",
        at=datetime,
        took=timedelta,
        note=(str | None, None),
        count=(int | None, None),
        more=dict[str, Any],
        never=(datetime | None, None),
        all=list[datetime],
    )
    return kind, kind(**KNOWN)


OLD = {"id": 7, "note": None, "level": None, "packed": [1, 2], "kind": "SECOND"}


def old(make: Make) -> tuple[Any, Any]:
    kind = make(
        "Old", id=int, note=(str | None, None), level=(int | None, None), packed=list[int], kind=str
    )
    return kind, kind(**OLD)


EDITION = {"id": 0, "note": None, "implicit": "", "numbers": [1, 2]}


def edition(make: Make) -> tuple[Any, Any]:
    kind = make("Edition", id=int, note=(str | None, None), implicit=str, numbers=list[int])
    return kind, kind(**EDITION)


def parcel(make: Make) -> tuple[Any, Any]:
    contents = TREES[make]
    kind = make("Parcel", id=int, contents=contents)
    return kind, kind(id=1, contents=contents(name="root", children=[]))


def protobuf(file: str, theirs: Any, plain: Any, of: Built | None = None, **more: Any) -> Shape:
    return Shape(format="protobuf", file=f"{file}.proto", theirs=theirs, plain=plain, of=of, **more)


PROTOBUF = {
    "a message with each type of field": protobuf(
        "order",
        {
            "id": str(2**40),
            "state": "STATE_PAID",
            "lines": [TEA, PEN],
            "parts": {"a": PEN},
            "names": {"7": "seven"},
            "deltas": ["-1", str(2**40)],
            "raw": "/wA=",
            "share": 0.1,
            "goods": TEA,
        },
        PROTO_ORDER,
        proto_order,
    ),
    "Google's own types": protobuf(
        "known",
        {
            "at": "2026-11-28T12:30:15.123Z",
            "took": "90s",
            "note": "gift",
            "count": "0",
            "more": {"a": [1, None, "x"]},
            "all": ["2026-11-28T12:30:15.123Z"],
        },
        KNOWN,
        known,
    ),
    "proto2 with defaults": protobuf(
        "old", {"id": "7", "packed": [1, 2], "kind": "SECOND"}, OLD, old
    ),
    "an edition with explicit and implicit presence": protobuf(
        "edition", {"id": "0", "numbers": [1, 2]}, EDITION, edition
    ),
    "a tree": protobuf("node", TREE, TREE, tree),
    "a message of an imported file": protobuf(
        "parcel",
        {"id": "1", "contents": {"name": "root"}},
        {"id": 1, "contents": {"name": "root", "children": []}},
        parcel,
    ),
}

SHAPES: dict[str, Shape] = {
    f"{shape.format}: {name}": shape
    for shapes in (AVRO, JSON_SCHEMA, PROTOBUF)
    for name, shape in shapes.items()
}


DECIMAL = "Decimal has no plain Avro type: write the schema into a file"
UNKNOWN = "no schema is known for"
WITHOUT_FILE: dict[str, str] = {
    "avro: a top level that is an array": UNKNOWN,
    "avro: a top level that is a map": UNKNOWN,
    "avro: every logical type": DECIMAL,
    "avro: logical types in unions": DECIMAL,
    "avro: logical types in unions that are null": DECIMAL,
    "avro: an envelope of Debezium": DECIMAL,
    "avro: two records of one name in two namespaces": "two classes of one schema are called Part",
    "json-schema: a top level that is an array": UNKNOWN,
    **{name: UNKNOWN for name, shape in SHAPES.items() if shape.format == "protobuf"},
}
"""Why an instance is refused if no file has the schema; others are written by the schema of their
class.
"""

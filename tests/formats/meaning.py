"""What a value of each type of Python means in each format: the cells of the tables in
docs/types.md.

``tests/formats/test_one_meaning.py`` plays every cell: a value is written by our encoder, and read
by our decoder into the same type. ``python -m tests.formats.meaning docs/types.md`` writes the
tables into the page.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, Strict

BEGIN, END = "<!-- types -->", "<!-- /types -->"
READ_BEGIN, READ_END = "<!-- read -->", "<!-- /read -->"
ALL = ("pydantic", "dataclass", "msgspec")
PYDANTIC = ("pydantic",)
OTHERS = ("dataclass", "msgspec")
NO_STRUCT = ("pydantic", "dataclass")
STRUCT = ("msgspec",)
SAME: Any = object()


@dataclass(frozen=True)
class Cell:
    """What becomes of a value in one format.

    Attributes:
        form: Of JSON the text that is written, of the other formats the type of the field.
        read: What is read back; SAME: what was written.
        refused: Why it is not written, or with *is_read* not read, as an expression; None: it is.
        note: For people, behind the form.
        is_read: Whether it is refused when it is read.
    """

    form: Any
    read: Any = SAME
    refused: str | None = None
    note: str = ""
    is_read: bool = False

    def for_people(self) -> str:
        """The cell in the page."""
        shown = _short(self.form)
        if self.refused is not None and not self.is_read:
            words = self.note or "no such type"
            return f"refused: {words}" if shown == "-" else f"{shown}: refused, {words}"
        note = f", {self.note}" if self.note else ""
        return f"{shown}{note}"


def _short(form: Any) -> str:
    if form is None:
        return "-"
    if isinstance(form, list):
        return " or ".join(_short(one) for one in form)
    if isinstance(form, dict):
        inner = form.get("logicalType") or form["type"]
        of = form.get("items") or form.get("values")
        return f"`{inner}`" if of is None else f"`{inner}` of {_short(of)}"
    return f"`{form}`".replace("|", "\\|")


class Row(NamedTuple):
    """One value of a type, and its cells."""

    name: str
    annotation: Any
    value: Any
    json: Cell
    avro: Cell
    protobuf: Cell
    ways: tuple[str, ...] = ALL

    @property
    def cells(self) -> dict[str, Cell]:
        """Format -> cell. A CloudEvent's data, and what a JSON Schema is for, are JSON."""
        of_json = dict.fromkeys(
            ("json", "json-schema", "binary event", "structured event"), self.json
        )
        return {**of_json, "avro": self.avro, "protobuf": self.protobuf}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Inner(BaseModel):
    id: int


MOMENT = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
ELSEWHERE = datetime(2026, 1, 1, 14, 30, tzinfo=timezone(timedelta(hours=2)))
NAIVE = datetime(2026, 1, 1, 12, 30)
ID = UUID(int=7)
ID_TEXT = "00000000-0000-0000-0000-000000000007"
TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL_TIMESTAMP = {"type": "long", "logicalType": "local-timestamp-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "time-micros"}
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
RECORD = {"type": "record", "name": "Inner", "fields": [{"name": "id", "type": "long"}]}
LONGS = {"type": "array", "items": "long"}
PB_TIME = "google.protobuf.Timestamp"
PB_DURATION = "google.protobuf.Duration"
NO_SUCH = "does not fit the"


def no_text() -> Cell:
    return Cell("string", refused=NO_SUCH, note="write its text")


ROWS = (
    Row("`bool`", bool, True, Cell("true"), Cell("boolean"), Cell("bool")),
    Row("`int`", int, 5, Cell("5"), Cell("long"), Cell("int64")),
    Row(
        "`int` beyond 64 bits",
        int,
        2**70,
        Cell("1180591620717411303424"),
        Cell("long", refused=NO_SUCH, note="too large"),
        Cell("int64", refused=NO_SUCH, note="too large"),
    ),
    Row("`float`", float, 0.1, Cell("0.1"), Cell("double"), Cell("double")),
    Row(
        "infinity and NaN in a pydantic model",
        float,
        float("inf"),
        Cell(
            "null",
            refused="held: Input should be a valid number",
            note="not read as a `float`",
            is_read=True,
        ),
        Cell("double"),
        Cell("double"),
        PYDANTIC,
    ),
    Row(
        "infinity and NaN otherwise",
        float,
        float("inf"),
        Cell(None, refused="NaN and infinities have no JSON form", note="JSON has none"),
        Cell("double"),
        Cell("double"),
        OTHERS,
    ),
    Row(
        "`Decimal`",
        Decimal,
        Decimal("12345678901234567.80"),
        Cell('"12345678901234567.80"', note="with all digits"),
        Cell(DECIMAL, note="with all digits of its scale"),
        no_text(),
    ),
    Row("`str`", str, "grün", Cell('"grün"'), Cell("string"), Cell("string")),
    Row(
        "`bytes` that are UTF-8, in a struct",
        bytes,
        b"abc",
        Cell('"YWJj"', note="base64"),
        Cell("bytes"),
        Cell("bytes"),
        STRUCT,
    ),
    Row(
        "`bytes` that are UTF-8, otherwise",
        bytes,
        b"abc",
        Cell('"abc"', note="as text"),
        Cell("bytes"),
        Cell("bytes"),
        NO_STRUCT,
    ),
    Row(
        "`bytes` that are not UTF-8, in a struct",
        bytes,
        b"\xff\0",
        Cell('"/wA="', note="base64"),
        Cell("bytes"),
        Cell("bytes"),
        STRUCT,
    ),
    Row(
        "`bytes` that are not UTF-8, otherwise",
        bytes,
        b"\xff\0",
        Cell(None, refused="invalid utf-8", note="JSON has text only"),
        Cell("bytes"),
        Cell("bytes"),
        NO_STRUCT,
    ),
    Row(
        "`None`",
        int | None,
        None,
        Cell("null"),
        Cell(["null", "long"]),
        Cell("optional int64", note="left out"),
    ),
    Row(
        "`datetime` with a zone",
        datetime,
        MOMENT,
        Cell('"2026-01-01T12:30:00.123456Z"'),
        Cell(TIMESTAMP),
        Cell(PB_TIME),
    ),
    Row(
        "`datetime` in another zone than UTC",
        datetime,
        ELSEWHERE,
        Cell('"2026-01-01T14:30:00+02:00"'),
        Cell(TIMESTAMP, note="in UTC"),
        Cell(PB_TIME, note="in UTC"),
    ),
    Row(
        "`datetime` without a zone",
        datetime,
        NAIVE,
        Cell('"2026-01-01T12:30:00"'),
        Cell(TIMESTAMP, refused="has no time zone", note="no time zone"),
        Cell(PB_TIME, refused="held has no time zone", note="no time zone"),
    ),
    Row(
        "the same, as local time",
        datetime,
        NAIVE,
        Cell('"2026-01-01T12:30:00"'),
        Cell(LOCAL_TIMESTAMP),
        no_text(),
    ),
    Row(
        "`datetime` with a zone, as local time",
        datetime,
        MOMENT,
        Cell('"2026-01-01T12:30:00.123456Z"'),
        Cell(LOCAL_TIMESTAMP, refused="has a time zone", note="a time zone"),
        no_text(),
    ),
    Row("`date`", date, date(2026, 1, 1), Cell('"2026-01-01"'), Cell(DATE), no_text()),
    Row("`time`", time, time(12, 30, 0, 5), Cell('"12:30:00.000005"'), Cell(TIME), no_text()),
    Row(
        "`timedelta`",
        timedelta,
        timedelta(seconds=1.5),
        Cell('"PT1.5S"'),
        Cell("string", refused=NO_SUCH, note="write its text"),
        Cell(PB_DURATION),
    ),
    Row("`UUID`", UUID, ID, Cell(f'"{ID_TEXT}"'), Cell(UUID_TEXT), no_text()),
    Row(
        "`Enum` of texts",
        Colour,
        Colour.RED,
        Cell('"red"', note="its value"),
        Cell(ENUM),
        Cell("Colour"),
    ),
    Row(
        "`Enum` of integers",
        Level,
        Level.HIGH,
        Cell("2", note="its value"),
        Cell("long"),
        Cell("int64"),
    ),
    Row("`Literal`", Literal["a", "b"], "a", Cell('"a"'), Cell("string"), Cell("string")),
    Row("`list`", list[int], [1, 2], Cell("[1,2]"), Cell(LONGS), Cell("repeated int64")),
    Row("`tuple`", tuple[int, ...], (1, 2), Cell("[1,2]"), Cell(LONGS), Cell("repeated int64")),
    Row("`set`", set[int], {1, 2}, Cell("[1,2]"), Cell(LONGS), Cell("repeated int64")),
    Row(
        "`frozenset`",
        frozenset[int],
        frozenset({1}),
        Cell("[1]"),
        Cell(LONGS),
        Cell("repeated int64"),
    ),
    Row(
        "`dict` with texts as keys",
        dict[str, int],
        {"a": 1},
        Cell('{"a":1}'),
        Cell({"type": "map", "values": "long"}),
        Cell("map<string, int64>"),
    ),
    Row(
        "`dict` with integers as keys",
        dict[int, int],
        {1: 2},
        Cell('{"1":2}'),
        Cell({"type": "map", "values": "long"}, refused=NO_SUCH, note="keys are texts"),
        Cell("map<int64, int64>"),
    ),
    Row(
        "a model in a model",
        Inner,
        Inner(id=1),
        Cell('{"id":1}'),
        Cell(RECORD),
        Cell("Inner"),
        NO_STRUCT,
    ),
    Row("`int \\| str`", int | str, "a", Cell('"a"'), Cell(["long", "string"]), Cell("string")),
)


class Column(NamedTuple):
    """Spark's column of a type, and what it has of the value's JSON."""

    kind: str
    has: Any = SAME
    note: str = ""
    rejected: bool = False

    def for_people(self) -> str:
        """The cell in the page."""
        if self.rejected and self.note:
            return f"{self.kind}: rejected, {self.note}"
        return f"{self.kind}, {self.note}" if self.note else self.kind


NO_COLUMN = Column("none", rejected=True)
ARRAY = Column("array of bigint", [1, 2])

COLUMNS_OF_SPARK: dict[str, Column] = {
    "`bool`": Column("boolean"),
    "`int`": Column("bigint"),
    "`int` beyond 64 bits": Column("bigint", rejected=True, note="too large"),
    "`float`": Column("double"),
    "infinity and NaN in a pydantic model": Column("double", rejected=True, note="it is `null`"),
    "`Decimal`": Column("decimal(38, 18)"),
    "`str`": Column("string"),
    "`bytes` that are UTF-8, in a struct": Column("binary"),
    "`bytes` that are UTF-8, otherwise": Column("binary"),
    "`bytes` that are not UTF-8, in a struct": Column("binary"),
    "`None`": Column("bigint"),
    "`datetime` with a zone": Column("timestamp"),
    "`datetime` in another zone than UTC": Column("timestamp"),
    "`datetime` without a zone": Column("timestamp", NAIVE.replace(tzinfo=UTC), "as time of UTC"),
    "`date`": Column("date"),
    "`time`": NO_COLUMN,
    "`timedelta`": NO_COLUMN,
    "`UUID`": Column("string", ID_TEXT),
    "`Enum` of texts": Column("string", "red"),
    "`Enum` of integers": NO_COLUMN,
    "`Literal`": Column("string"),
    "`list`": ARRAY,
    "`tuple`": ARRAY,
    "`set`": ARRAY,
    "`frozenset`": Column("array of bigint", [1]),
    "`dict` with texts as keys": Column("map of bigint"),
    "`dict` with integers as keys": NO_COLUMN,
    "a model in a model": Column("struct", {"id": 1}),
    "`int \\| str`": NO_COLUMN,
}
"""Row -> its column. Rows that are not written as JSON have none."""


class Reading(NamedTuple):
    """Data of any writer, and what a type makes of it: in JSON, Avro and Protobuf the same."""

    name: str
    annotation: Any
    data: Any
    avro: Any
    protobuf: str
    read: Any
    ways: tuple[str, ...] = NO_STRUCT


REFUSED: Any = object()

READINGS = (
    Reading("`UUID \\| str`", UUID | str, ID_TEXT, "string", "string", ID),
    Reading("`UUID \\| str`", UUID | str, "x", "string", "string", "x"),
    Reading(
        "`datetime \\| str`",
        datetime | str,
        "2026-01-01T12:30:00Z",
        "string",
        "string",
        NAIVE.replace(tzinfo=UTC),
    ),
    Reading("`Colour \\| str`", Colour | str, "red", "string", "string", "red"),
    Reading("`datetime`", datetime, "2026-01-01T12:30:00", "string", "string", NAIVE, ALL),
    Reading("`datetime`", datetime, 1767270600, "long", "int64", NAIVE.replace(tzinfo=UTC)),
    Reading("`datetime`", datetime, 1767270600000, "long", "int64", NAIVE.replace(tzinfo=UTC)),
    Reading("`date`", date, "2026-01-01T12:30:00Z", "string", "string", REFUSED, ALL),
    Reading("`timedelta`", timedelta, "PT1.5S", "string", "string", timedelta(seconds=1.5), ALL),
    Reading(
        "`Decimal`",
        Decimal,
        "12345678901234567.80",
        "string",
        "string",
        Decimal("12345678901234567.80"),
        ALL,
    ),
    Reading("`Decimal`", Decimal, 0.1, "double", "double", Decimal("0.1"), ALL),
    Reading("`UUID`", UUID, ID_TEXT, "string", "string", ID, ALL),
    Reading("`int`", int, "5", "string", "string", 5),
    Reading("`int`", int, 5.0, "double", "double", 5),
    Reading("`int`", int, 5.5, "double", "double", REFUSED),
    Reading("`str`", str, 5, "long", "int64", REFUSED, ALL),
    Reading("strict `UUID`", Annotated[UUID, Strict()], ID_TEXT, "string", "string", ID),
    Reading(
        "strict `datetime`",
        Annotated[datetime, Strict()],
        "2026-01-01T12:30:00",
        "string",
        "string",
        NAIVE,
    ),
    Reading(
        "strict `datetime`", Annotated[datetime, Strict()], 1767270600, "long", "int64", REFUSED
    ),
    Reading("strict `Enum`", Annotated[Colour, Strict()], "red", "string", "string", Colour.RED),
    Reading("strict `Enum`", Annotated[Level, Strict()], 2, "long", "int64", Level.HIGH),
    Reading(
        "strict `Decimal`",
        Annotated[Decimal, Strict()],
        "1.50",
        "string",
        "string",
        Decimal("1.50"),
    ),
    Reading(
        "strict `tuple`",
        Annotated[tuple[int, ...], Strict()],
        [1, 2],
        LONGS,
        "repeated int64",
        (1, 2),
    ),
    Reading("strict `set`", Annotated[set[int], Strict()], [1, 2], LONGS, "repeated int64", {1, 2}),
    Reading("strict `bytes`", Annotated[bytes, Strict()], "abc", "string", "string", b"abc"),
    Reading("strict `int`", Annotated[int, Strict()], "5", "string", "string", REFUSED),
    Reading("strict `str`", Annotated[str, Strict()], 5, "long", "int64", REFUSED),
)

# Columns of the page, and the formats whose cell each of them has.
COLUMNS = (
    ("JSON, JSON Schema, data of a CloudEvent", "json"),
    ("Avro", "avro"),
    ("Protobuf", "protobuf"),
)


def table() -> str:
    """The table as it is in the page."""
    titles = ["Python", *(title for title, _ in COLUMNS), "column of Spark"]
    lines = [titles, ["---"] * len(titles)]
    # Types whose cells are the same share a row.
    names: dict[tuple[str, ...], list[str]] = {}
    for row in ROWS:
        column = COLUMNS_OF_SPARK.get(row.name)
        cells = [row.cells[format].for_people() for _, format in COLUMNS]
        cells.append("" if column is None else column.for_people())
        names.setdefault(tuple(cells), []).append(row.name)
    lines += [[", ".join(same), *cells] for cells, same in names.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def readings() -> str:
    """The second table: what types make of data that somebody else has written."""
    lines = ["| asked for | data | is read as |", "|---|---|---|"]
    # Strict types that take what JSON has for them share a row.
    as_json = [one.name for one in READINGS if _is_strict(one) and one.read is not REFUSED]
    for one in READINGS:
        if one.name in as_json and one.read is not REFUSED:
            continue
        read = "refused" if one.read is REFUSED else f"`{_code(one.read)}`"
        lines.append(f"| {one.name} | `{json.dumps(one.data, ensure_ascii=False)}` | {read} |")
    types = ", ".join(dict.fromkeys(name.removeprefix("strict ") for name in as_json))
    lines.append(f"| strict {types} | what JSON has for it | the value |")
    return "\n".join(lines)


def _is_strict(reading: Reading) -> bool:
    return reading.name.startswith("strict ")


def _code(value: Any) -> str:
    """A value as it would be written in Python, without the names of modules."""
    if isinstance(value, Enum):
        return str(value)
    return repr(value).replace("datetime.", "").replace("timezone.utc", "UTC")


def written_into(page: str) -> str:
    """A page with the tables as they are now."""
    for begin, end, made in ((BEGIN, END, table()), (READ_BEGIN, READ_END, readings())):
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{made}\n{end}{after}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written_into(path.read_text(encoding="utf-8")), encoding="utf-8")

"""How Spark reads the values of a model's fields: what ``from_json`` yields, and what the column
makes of it, as SQL.

A value means what it means to a plain handler, or it does not fit. ``from_json`` alone is too
lenient: it takes any JSON value for text, ``"12:00"`` for today's noon, and rounds decimals. So it
yields values as they are written (``VARIANT``, which keeps the JSON type), and the rules here
decide. No function of these may raise: a record that does not fit must not fail the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

ToColumn = Callable[[str], str]
"""SQL of what ``from_json`` yielded -> SQL of the column's value, null or anything if the value
does not fit.
"""

# Dates and times of RFC 3339.
_DAY = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MINUTE = "[Tt ][0-9]{2}:[0-9]{2}"
_ZONE = "([Zz]|[+-][0-9]{2}:?[0-9]{2})"
_TIME = f"{_MINUTE}(:[0-9]{{2}}([.][0-9]+)?)?{_ZONE}?"
# msgspec rounds what Spark and pydantic cut off, so digits after the sixth have to be zeros.
_MSGSPEC_TIME = f"{_MINUTE}:[0-9]{{2}}([.][0-9]{{1,6}}0*)?{_ZONE}?"
_MOST_SECONDS = 20_000_000_000
"""A larger number is one of milliseconds. Source: pydantic, "Datetime Types"."""
_YEAR_1_MS = -62_135_596_800_000
_YEAR_9999_MS = 253_402_300_799_999
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class Misfit(NamedTuple):
    """What makes a row unfit: a Spark SQL condition, and the reason for people."""

    condition: str
    reason: str


class BytesForm(Enum):
    """What bytes are in JSON."""

    TEXT = "utf8"
    BASE64 = "base64"
    HEX = "hex"


class TimeForm(Enum):
    """What a datetime may be in JSON."""

    PYDANTIC = "text with a full date, or whole number of seconds or milliseconds"
    PYDANTIC_TEXT = "text with a date and a time"
    MSGSPEC = "text with a date and a time, to the second at least and the microsecond at most"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts: ``json`` is the type that is read, ``column`` that of the column."""

    json: str
    column: str
    # None: what is read is the column's value.
    to_column: ToColumn | None = None
    # What ``to_column`` takes, for people.
    expected: str = ""
    # SQL: whether it does not fit, if that costs less than the column's value.
    is_misfit: ToColumn | None = None
    only: tuple[str, ...] = ()

    @property
    def is_read_as_it_is(self) -> bool:
        return self.to_column is None

    def value(self, at: str) -> str:
        """SQL of the column's value; *at* is SQL of what was read."""
        return at if self.to_column is None else self.to_column(at)

    def null(self, at: str) -> str:
        """SQL: whether the value is missing or null."""
        return (
            f"({at} IS NULL OR is_variant_null({at}))"
            if self.json == "VARIANT"
            else f"{at} IS NULL"
        )

    def misfits(self, at: str, name: str, made: str | None) -> Iterator[Misfit]:
        """What may be wrong with a value that is not null; *name* is its name for people.

        *made* is SQL of the column's value, if that is there already.
        """
        if self.to_column is not None:
            value = made or self.to_column(at)
            wrong = (
                f"(NOT {self.null(at)} AND {value} IS NULL)"
                if self.is_misfit is None
                else self.is_misfit(at)
            )
            yield Misfit(wrong, f"{name} is no {self.expected}")
            if self.only:
                condition = f"{value} NOT IN ({', '.join(map(literal, self.only))})"
                yield Misfit(condition, f"{name} is none of {', '.join(map(repr, self.only))}")


INTEGER = Scalar("BIGINT", "BIGINT")
FLOAT = Scalar("DOUBLE", "DOUBLE")
BOOLEAN = Scalar("BOOLEAN", "BOOLEAN")


def _text(at: str) -> str:
    return f"CAST({at} AS STRING)"


def _utf8(at: str) -> str:
    return f"CAST({_text(at)} AS BINARY)"


def _is_no_text(at: str) -> str:
    return f"schema_of_variant({at}) NOT IN ('STRING', 'VOID')"


def _base64(at: str) -> str:
    # Spark also decodes what is not quite base64: line breaks, left-over bits.
    data = f"try_to_binary({_text(at)}, 'base64')"
    return f"CASE WHEN schema_of_variant({at}) = 'STRING' AND base64({data}) = {_text(at)} THEN {data} END"


def _hex(at: str) -> str:
    # Spark also decodes an odd number of digits.
    data = f"try_to_binary({_text(at)}, 'hex')"
    return f"CASE WHEN schema_of_variant({at}) = 'STRING' AND hex({data}) = upper({_text(at)}) THEN {data} END"


def _uuid(at: str) -> str:
    return f"CASE WHEN {_is(at, _UUID)} THEN lower({at}) END"


def _date(at: str) -> str:
    return f"CASE WHEN {_is(at, _DAY)} THEN try_cast({at} AS DATE) END"


def _timestamp(form: TimeForm, at: str) -> str:
    patterns = {
        TimeForm.PYDANTIC: f"{_DAY}({_TIME})?",
        TimeForm.PYDANTIC_TEXT: f"{_DAY}{_TIME}",
        TimeForm.MSGSPEC: f"{_DAY}{_MSGSPEC_TIME}",
    }
    # Spark has to have the seconds. Without a zone it is UTC, whatever the session's zone is:
    # another session has to read the same.
    seconds = f"CASE WHEN substr({at}, 17, 1) = ':' THEN '' ELSE ':00' END"
    signs = "IN ('+', '-')"
    has_zone = f"right({at}, 1) IN ('Z', 'z') OR substr({at}, -6, 1) {signs} OR substr({at}, -5, 1) {signs}"
    zone = f"CASE WHEN {has_zone} THEN '' ELSE 'Z' END"
    whole = f"concat(upper(substr({at}, 1, 16)), {seconds}, upper(substr({at}, 17)), {zone})"
    text = f"CASE WHEN length({at}) = 10 THEN concat({at}, 'T00:00:00Z') ELSE {whole} END"
    cases = f"WHEN {_is(at, patterns[form])} THEN try_cast({text} AS TIMESTAMP_LTZ)"
    if form is TimeForm.PYDANTIC:
        number = f"try_cast({at} AS BIGINT)"
        milliseconds = (
            f"CASE WHEN abs({number}) > {_MOST_SECONDS} THEN {number} ELSE {number} * 1000 END"
        )
        is_known = f"{milliseconds} BETWEEN {_YEAR_1_MS} AND {_YEAR_9999_MS}"
        cases = f"{cases} WHEN {_is(at, '-?[0-9]{1,15}')} AND {is_known} THEN timestamp_millis({milliseconds})"
    return f"CASE {cases} END"


def _decimal(digits: int, places: int, at: str) -> str:
    text = _text(at)
    value = f"try_cast({text} AS DECIMAL({digits},{places}))"
    plain = f"[+-]?0*[0-9]{{0,{digits - places}}}([.][0-9]{{0,{places}}}0*)?"
    exponent = "[+-]?[0-9]([.][0-9]{1,37})?[eE][+-]?[0-9]{1,2}"
    # The digits after the point that are left once the exponent has moved it; casting would round
    # further ones.
    fraction = f"length(rtrim('0', regexp_extract({text}, '[.]([0-9]*)[eE]', 1)))"
    moved = f"try_cast(regexp_extract({text}, '[eE](.+)', 1) AS INT)"
    is_exact = f"({_is(text, '[+-]?0([.]0*)?[eE].*')} OR {fraction} - {moved} <= {places})"
    fits = f"{_is(text, plain)} OR {_is(text, exponent)} AND {is_exact}"
    # A number that is a DOUBLE has lost digits already.
    return f"CASE WHEN ({fits}) AND schema_of_variant({at}) <> 'DOUBLE' THEN {value} END"


def _is(at: str, pattern: str) -> str:
    """SQL: whether the whole text has that form. A ``$`` would let a line break follow."""
    whole = rf"^(?:{pattern})\z"
    return f"{at} RLIKE {literal(whole)}"


TEXT = Scalar("VARIANT", "STRING", _text, "text", _is_no_text)
UUID_TEXT = Scalar("STRING", "STRING", _uuid, "UUID of 36 characters")
DATE = Scalar("STRING", "DATE", _date, "date (YYYY-MM-DD)")
BYTES = {
    BytesForm.TEXT: Scalar("VARIANT", "BINARY", _utf8, "text", _is_no_text),
    BytesForm.BASE64: Scalar("VARIANT", "BINARY", _base64, "text in base64"),
    BytesForm.HEX: Scalar("VARIANT", "BINARY", _hex, "text in hexadecimal"),
}
TIMESTAMPS = {
    form: Scalar("STRING", "TIMESTAMP_LTZ", partial(_timestamp, form), form.value)
    for form in TimeForm
}


def texts(values: tuple[str, ...]) -> Scalar:
    """A text that is one of *values*."""
    return Scalar("VARIANT", "STRING", _text, "text", _is_no_text, values)


def decimal(digits: int, places: int) -> Scalar:
    """A decimal of that many digits, *places* of them after the point."""
    expected = f"decimal number with at most {digits - places} digits before the point and {places} after it"
    return Scalar(
        "VARIANT", f"DECIMAL({digits},{places})", partial(_decimal, digits, places), expected
    )


def literal(text: str) -> str:
    """*text* as a value in Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

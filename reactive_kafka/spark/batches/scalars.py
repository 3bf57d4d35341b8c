"""SQL for the values of a model's fields: the type that is read, and the value of the column.

A value has the same meaning as in a plain handler, or it does not fit. ``from_json`` alone is too
lenient: it takes any JSON value for text and ``"12:00"`` for today's noon, and it rounds decimals.
So it reads values as they are written (``VARIANT``, which keeps the JSON type), and the rules here
decide. None of these expressions may raise, because a record that does not fit must not fail the
job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

ToColumn = Callable[[str], str]
"""SQL of the value that ``from_json`` has read -> SQL of the column's value. If the value does not
fit, it may be null or anything else.
"""

# Dates and times as in RFC 3339.
_DAY = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MINUTE = "[Tt ][0-9]{2}:[0-9]{2}"
_ZONE = "([Zz]|[+-][0-9]{2}:?[0-9]{2})"
_TIME = f"{_MINUTE}(:[0-9]{{2}}([.][0-9]+)?)?{_ZONE}?"
# Digits after the sixth must be zeros: msgspec rounds them, Spark and pydantic cut them off.
_MSGSPEC_TIME = f"{_MINUTE}:[0-9]{{2}}([.][0-9]{{1,6}}0*)?{_ZONE}?"
_MOST_SECONDS = 20_000_000_000
"""A larger number is milliseconds. Source: pydantic, "Datetime Types"."""
_YEAR_1_MS = -62_135_596_800_000
_YEAR_9999_MS = 253_402_300_799_999
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class Misfit(NamedTuple):
    """A Spark SQL condition for rows that do not fit, and the reason for people."""

    condition: str
    reason: str


class BytesForm(Enum):
    """How JSON writes bytes."""

    TEXT = "utf8"
    BASE64 = "base64"
    HEX = "hex"


class TimeForm(Enum):
    """How JSON may write a datetime."""

    PYDANTIC = "text with a full date, or whole number of seconds or milliseconds"
    PYDANTIC_TEXT = "text with a date and a time"
    MSGSPEC = "text with a date and a time, to the second at least and the microsecond at most"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts: ``json`` is the SQL type that is read, ``column`` the column's type."""

    json: str
    column: str
    # None: the value that is read is the column's value.
    to_column: ToColumn | None = None
    # Describes the values that `to_column` takes.
    expected: str = ""
    # An SQL condition for values that do not fit, if it costs less than `to_column`.
    is_misfit: ToColumn | None = None
    # The only values that fit. Empty: all of them.
    only: tuple[str, ...] = ()

    @property
    def is_read_as_it_is(self) -> bool:
        """True if the value that is read is the column's value."""
        return self.to_column is None

    def value(self, at: str) -> str:
        """Return SQL of the column's value; *at* is SQL of the value that was read."""
        return at if self.to_column is None else self.to_column(at)

    def null(self, at: str) -> str:
        """Return an SQL condition: the value is missing or null."""
        if self.json == "VARIANT":
            return f"({at} IS NULL OR is_variant_null({at}))"
        return f"{at} IS NULL"

    def misfits(self, at: str, name: str, made: str | None) -> Iterator[Misfit]:
        """Yield what may be wrong with a value that is not null.

        Args:
            at: SQL of the value that was read.
            name: The field's name, for people.
            made: SQL of the column's value, if a column with it exists already.
        """
        if self.to_column is None:
            return
        value = made or self.to_column(at)
        if self.is_misfit is None:
            condition = f"(NOT {self.null(at)} AND {value} IS NULL)"
        else:
            condition = self.is_misfit(at)
        yield Misfit(condition, f"{name} is no {self.expected}")
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
    # Spark also decodes text with line breaks or left-over bits. So encode it again and compare.
    data = f"try_to_binary({_text(at)}, 'base64')"
    is_same = f"base64({data}) = {_text(at)}"
    return f"CASE WHEN schema_of_variant({at}) = 'STRING' AND {is_same} THEN {data} END"


def _hex(at: str) -> str:
    # Spark also decodes an odd number of digits. So encode it again and compare.
    data = f"try_to_binary({_text(at)}, 'hex')"
    is_same = f"hex({data}) = upper({_text(at)})"
    return f"CASE WHEN schema_of_variant({at}) = 'STRING' AND {is_same} THEN {data} END"


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
    # Spark requires the seconds. A time without a zone is UTC, and not in the session's zone, so
    # that every session reads the same.
    seconds = f"CASE WHEN substr({at}, 17, 1) = ':' THEN '' ELSE ':00' END"
    signs = "IN ('+', '-')"
    has_zone = (
        f"right({at}, 1) IN ('Z', 'z') OR substr({at}, -6, 1) {signs}"
        f" OR substr({at}, -5, 1) {signs}"
    )
    zone = f"CASE WHEN {has_zone} THEN '' ELSE 'Z' END"
    whole = f"concat(upper(substr({at}, 1, 16)), {seconds}, upper(substr({at}, 17)), {zone})"
    text = f"CASE WHEN length({at}) = 10 THEN concat({at}, 'T00:00:00Z') ELSE {whole} END"
    cases = f"WHEN {_is(at, patterns[form])} THEN try_cast({text} AS TIMESTAMP_LTZ)"
    if form is TimeForm.PYDANTIC:
        number = f"try_cast({at} AS BIGINT)"
        milliseconds = (
            f"CASE WHEN abs({number}) > {_MOST_SECONDS} THEN {number} ELSE {number} * 1000 END"
        )
        is_date = f"{milliseconds} BETWEEN {_YEAR_1_MS} AND {_YEAR_9999_MS}"
        is_number = f"{_is(at, '-?[0-9]{1,15}')} AND {is_date}"
        cases = f"{cases} WHEN {is_number} THEN timestamp_millis({milliseconds})"
    return f"CASE {cases} END"


def _decimal(digits: int, places: int, at: str) -> str:
    text = _text(at)
    value = f"try_cast({text} AS DECIMAL({digits},{places}))"
    plain = f"[+-]?0*[0-9]{{0,{digits - places}}}([.][0-9]{{0,{places}}}0*)?"
    exponent = "[+-]?[0-9]([.][0-9]{1,37})?[eE][+-]?[0-9]{1,2}"
    # Count the digits behind the point after the exponent has moved it. Casting would round more.
    fraction = f"length(rtrim('0', regexp_extract({text}, '[.]([0-9]*)[eE]', 1)))"
    moved = f"try_cast(regexp_extract({text}, '[eE](.+)', 1) AS INT)"
    is_exact = f"({_is(text, '[+-]?0([.]0*)?[eE].*')} OR {fraction} - {moved} <= {places})"
    fits = f"{_is(text, plain)} OR {_is(text, exponent)} AND {is_exact}"
    # A DOUBLE has lost digits already.
    return f"CASE WHEN ({fits}) AND schema_of_variant({at}) <> 'DOUBLE' THEN {value} END"


def _is(at: str, pattern: str) -> str:
    """Return an SQL condition: the whole text matches the pattern."""
    # `$` would allow a line break at the end, `\z` does not.
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
    """Return the type of texts that are one of *values*."""
    return Scalar("VARIANT", "STRING", _text, "text", _is_no_text, values)


def decimal(digits: int, places: int) -> Scalar:
    """Return the type of decimals with that many digits, *places* of them after the point."""
    expected = (
        f"decimal number with at most {digits - places} digits before the point"
        f" and {places} after it"
    )
    return Scalar(
        "VARIANT", f"DECIMAL({digits},{places})", partial(_decimal, digits, places), expected
    )


def literal(text: str) -> str:
    """Quote *text* as a string in Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

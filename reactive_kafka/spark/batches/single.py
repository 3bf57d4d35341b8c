"""Texts that are one JSON object and nothing more, read by Spark: as SQL. Pure.

``from_json`` stops at the end of the first object, whatever follows. So it reads a list of two, the
text and an end that this process alone knows::

    {"<end>": [<text>, {"<end>": true}]}

The end is the second of two exactly if the text is one value. With a bracket or an object too many
the list ends early, has more elements, or is no JSON.
"""

from __future__ import annotations

import secrets

from reactive_kafka.spark.batches.payload_schema import CORRUPT, Struct, identifier
from reactive_kafka.spark.batches.scalars import literal

# Without single quotes: neither pydantic nor msgspec reads them as JSON.
OPTIONS = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}', 'allowSingleQuotes', 'false')"


class SingleObject:
    """Reads texts; each instance has an end of its own."""

    def __init__(self) -> None:
        # Who writes records must not be able to write it.
        self._end = secrets.token_hex(16)

    def parsed(self, text: str, struct: Struct) -> str:
        """SQL of what the two methods below are to be given, as a column; *text* is SQL."""
        end = identifier(self._end)
        schema = f"STRUCT<{end}: ARRAY<{struct.json[:-1]}, {end}: BOOLEAN>>, {CORRUPT}: STRING>"
        first = f'{{"{self._end}":['
        last = f',{{"{self._end}":true}}]}}'
        return f"from_json(concat({literal(first)}, {text}, {literal(last)}), {literal(schema)}, {OPTIONS})"

    def value(self, parsed: str) -> str:
        """SQL of the object, a struct."""
        return f"get({parsed}.{identifier(self._end)}, 0)"

    def misfit(self, parsed: str, text: str) -> str:
        """SQL: whether *text* is not one JSON object, or has parts of other types than the
        struct's.
        """
        end = identifier(self._end)
        return (
            f"{parsed} IS NULL OR {parsed}.{CORRUPT} IS NOT NULL "
            f"OR coalesce(size({parsed}.{end}), 0) <> 2 OR {self.value(parsed)} IS NULL "
            f"OR get({parsed}.{end}, 1).{end} IS NULL "
            f"OR NOT is_valid_utf8({text}) OR {_has_half_a_character(text)} OR {_has_foreign_number(text)}"
        )


def _has_half_a_character(text: str) -> str:
    """SQL: whether there is one surrogate without the other one, of which Spark makes a question
    mark.
    """
    without_escapes = f"replace({text}, {_TWO_BACKSLASHES}, ' ')"
    without_pairs = f"regexp_replace({without_escapes}, {_SURROGATES}, ' ')"
    # Few texts have any, and only in these is it looked for.
    return (
        f"((contains({text}, {_LOWER_ESCAPE}) OR contains({text}, {_UPPER_ESCAPE})) "
        f"AND {without_pairs} RLIKE {_ONE_SURROGATE})"
    )


def _has_foreign_number(text: str) -> str:
    """SQL: whether there is +INF, -INF or +Infinity, which Spark takes for numbers. NaN and
    Infinity are read.
    """
    without_escapes = f"replace(replace({text}, {_TWO_BACKSLASHES}, ''), {_ESCAPED_QUOTE}, '')"
    without_strings = f"regexp_replace({without_escapes}, {_STRING}, ' ')"
    return f"((contains({text}, 'INF') OR contains({text}, '+I')) AND {without_strings} RLIKE '[+]I|INF')"


# An escaped one: a "u" or a quote after it is not escaped.
_TWO_BACKSLASHES = literal("\\\\")
_ESCAPED_QUOTE = literal('\\"')
_STRING = literal('"[^"]*+"')
_LOWER_ESCAPE = literal(r"\ud")
_UPPER_ESCAPE = literal(r"\uD")
_SURROGATES = literal(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ONE_SURROGATE = literal(r"\\u[dD][89a-fA-F]")

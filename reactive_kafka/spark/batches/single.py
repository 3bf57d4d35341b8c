"""SQL that reads texts which must be one JSON object and nothing more. Pure.

``from_json`` stops at the end of the first object and ignores what follows. So it reads a list of
two elements, the text and an end marker that only this process knows::

    {"<end>": [<text>, {"<end>": true}]}

The marker is the second of two elements only if the text is one value. With a bracket or an object
too many, the list ends early, has more elements, or is no JSON.
"""

from __future__ import annotations

import secrets

from reactive_kafka.spark.batches.payload_schema import CORRUPT, Struct, identifier
from reactive_kafka.spark.batches.scalars import literal

# Single quotes are no JSON to pydantic and msgspec.
OPTIONS = (
    f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}',"
    " 'allowSingleQuotes', 'false')"
)


class SingleObject:
    """Makes SQL expressions that read one JSON object. Each instance has its own end marker."""

    def __init__(self) -> None:
        # Random, so that no record can contain it.
        self._end = secrets.token_hex(16)

    def parsed(self, text: str, struct: Struct) -> str:
        """Return SQL that parses *text*, which is SQL. The methods below take its value."""
        end = identifier(self._end)
        schema = f"STRUCT<{end}: ARRAY<{struct.json[:-1]}, {end}: BOOLEAN>>, {CORRUPT}: STRING>"
        first = f'{{"{self._end}":['
        last = f',{{"{self._end}":true}}]}}'
        wrapped = f"concat({literal(first)}, {text}, {literal(last)})"
        return f"from_json({wrapped}, {literal(schema)}, {OPTIONS})"

    def value(self, parsed: str) -> str:
        """Return SQL of the object, which is a struct."""
        return f"get({parsed}.{identifier(self._end)}, 0)"

    def misfit(self, parsed: str, text: str) -> str:
        """Return an SQL condition: *text* is not one JSON object, or has values of other types."""
        end = identifier(self._end)
        return (
            f"{parsed} IS NULL OR {parsed}.{CORRUPT} IS NOT NULL "
            f"OR coalesce(size({parsed}.{end}), 0) <> 2 OR {self.value(parsed)} IS NULL "
            f"OR get({parsed}.{end}, 1).{end} IS NULL "
            f"OR NOT is_valid_utf8({text}) OR {_has_lone_surrogate(text)} "
            f"OR {_has_foreign_number(text)}"
        )


def _has_lone_surrogate(text: str) -> str:
    """Return an SQL condition: the text has a lone surrogate, which Spark turns into ``?``."""
    without_escapes = f"replace({text}, {_TWO_BACKSLASHES}, ' ')"
    without_pairs = f"regexp_replace({without_escapes}, {_SURROGATES}, ' ')"
    # The first condition is cheap and false for most texts, so that few are searched by pattern.
    return (
        f"((contains({text}, {_LOWER_ESCAPE}) OR contains({text}, {_UPPER_ESCAPE})) "
        f"AND {without_pairs} RLIKE {_ONE_SURROGATE})"
    )


def _has_foreign_number(text: str) -> str:
    """Return an SQL condition: the text has +INF, -INF or +Infinity, numbers to Spark only.

    NaN and Infinity are allowed.
    """
    without_escapes = f"replace(replace({text}, {_TWO_BACKSLASHES}, ''), {_ESCAPED_QUOTE}, '')"
    without_strings = f"regexp_replace({without_escapes}, {_STRING}, ' ')"
    is_suspect = f"contains({text}, 'INF') OR contains({text}, '+I')"
    return f"(({is_suspect}) AND {without_strings} RLIKE '[+]I|INF')"


# An escaped backslash. Remove it first: a "u" or a quote behind it is not escaped by it.
_TWO_BACKSLASHES = literal("\\\\")
_ESCAPED_QUOTE = literal('\\"')
_STRING = literal('"[^"]*+"')
_LOWER_ESCAPE = literal(r"\ud")
_UPPER_ESCAPE = literal(r"\uD")
_SURROGATES = literal(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ONE_SURROGATE = literal(r"\\u[dD][89a-fA-F]")

"""Checks which columns of a DataFrame become the records of ``batch.send``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reactive_kafka.errors import ConfigError

HEADERS = "array<struct<key:string,value:binary>>"
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "partition": ("int",),
}
"""Column -> its types, in Spark's short form.

Source: Spark's "Structured Streaming + Kafka Integration Guide", writing data to Kafka.
"""


def columns_of(who: str, rows: Any) -> list[tuple[str, str]]:
    """Return the names and types of the columns of a DataFrame.

    Raises:
        ConfigError: It is no DataFrame of Spark.
    """
    columns = getattr(rows, "dtypes", None)
    # Those of pandas are no list.
    if not isinstance(columns, list):
        kind = type(rows)
        raise ConfigError(
            f"{who}: expected a DataFrame of Spark, not {kind.__module__}.{kind.__qualname__}"
        )
    return columns


def sent_columns(
    who: str, columns: Iterable[tuple[str, str]], partitioner: Any = None
) -> list[str]:
    """Return the names of the columns that are sent. All others are ignored.

    Args:
        who: The call, for errors.
        columns: The names and types of all columns, as in ``DataFrame.dtypes``.
        partitioner: The setting of the channel. Spark's producers know only ``murmur2``.

    Raises:
        ConfigError: The column ``value`` is missing, a column has another type or is there twice,
            or Spark would choose other partitions than the channel does.
    """
    columns = list(columns)
    types = dict(columns)
    problems = []
    if "value" not in types:
        names = ", ".join(name for name, _ in columns) or "none"
        problems.append(
            f"{who}: the column value is missing (string or binary); the DataFrame has: {names}"
        )
    for name, allowed in ALLOWED.items():
        count = sum(other == name for other, _ in columns)
        if count > 1:
            problems.append(
                f"{who}: the DataFrame has {count} columns called {name}: drop or rename others"
            )
        elif name in types and types[name] not in allowed:
            problems.append(
                f"{who}: the column {name} is {types[name]}, and has to be {' or '.join(allowed)}"
            )
    if partitioner not in (None, "murmur2") and "partition" not in types:
        problems.append(
            f'{who}: partitioner = {partitioner!r}: Spark chooses partitions by "murmur2" only: add'
            " a column partition (int)"
        )
    if problems:
        raise ConfigError(*problems)
    return [name for name in ALLOWED if name in types]

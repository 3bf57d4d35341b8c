"""The cells of Spark in docs/types.md: what the columns of a payload have of the JSON that we
write.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from pydantic import create_model

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.payload_schema import payload_schema
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.formats.meaning import COLUMNS_OF_SPARK, NO_COLUMN, ROWS, SAME, STRUCT, Column, Row

from .records import on_spark
from .test_payload import payload_of, run


def rows_of(struct: bool) -> dict[str, Row]:
    """Field -> row, of those whose value fits its column."""
    fitting = [
        row
        for row in ROWS
        if row.name in COLUMNS_OF_SPARK and not COLUMNS_OF_SPARK[row.name].rejected
    ]
    return {f"held_{at}": row for at, row in enumerate(fitting) if (row.ways == STRUCT) is struct}


def expected_of(row: Row, column: Column) -> Any:
    return row.value if column.has is SAME else column.has


def aware(value: Any) -> Any:
    """What Spark gives: times are those of this process's zone, without it."""
    return value.astimezone() if isinstance(value, datetime) else value


@on_spark
@pytest.mark.parametrize("struct", [False, True])
async def test_a_column_has_what_the_table_says(engine: SparkEngine, struct: bool) -> None:
    rows = rows_of(struct)
    model: Any
    if struct:
        model = msgspec.defstruct("Holder", [(name, row.annotation) for name, row in rows.items()])
    else:
        fields: dict[str, Any] = {name: (row.annotation, ...) for name, row in rows.items()}
        model = create_model("Holder", **fields)
    document = ", ".join(f'"{name}": {row.json.form}' for name, row in rows.items())
    (found,), rejected = await run(engine, payload_of(model), [f"{{{document}}}".encode()])
    assert rejected == {}
    for name, row in rows.items():
        assert aware(found[name]) == expected_of(row, COLUMNS_OF_SPARK[row.name]), row.name


@on_spark
async def test_what_the_table_says_is_rejected_never_reaches_the_function(
    engine: SparkEngine,
) -> None:
    rows = [row for row in ROWS if row.name in COLUMNS_OF_SPARK]
    bad = [
        row
        for row in rows
        if COLUMNS_OF_SPARK[row.name].rejected and COLUMNS_OF_SPARK[row.name] != NO_COLUMN
    ]
    for row in bad:
        model: Any = create_model("Holder", held=(row.annotation, ...))
        found, rejected = await run(
            engine, payload_of(model), [f'{{"held": {row.json.form}}}'.encode()]
        )
        assert (found, list(rejected)) == ([], [0]), row.name


@pytest.mark.parametrize(
    "name", [name for name, column in COLUMNS_OF_SPARK.items() if column == NO_COLUMN]
)
def test_a_type_without_a_column_is_refused_at_the_start(name: str) -> None:
    (row,) = [row for row in ROWS if row.name == name]
    with pytest.raises(ConfigError, match="which no column has"):
        payload_schema(create_model("Holder", held=(row.annotation, ...)), "@app.spark('clicks')")

"""The columns of a DataFrame that batch.send writes, and what it says of those that do not fit."""

from __future__ import annotations

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.sent_columns import (
    ALLOWED,
    HEADERS,
    columns_of,
    sent_columns,
)

WHO = "batch.send(df, 'totals')"
TYPES = st.sampled_from(["string", "binary", "int", "bigint", "void", HEADERS, "array<string>"])
NAMES = st.sampled_from([*ALLOWED, "topic", "offset", "timestamp"])


@given(columns=st.dictionaries(NAMES, TYPES), partitioner=st.sampled_from([None, "murmur2", "x:y"]))
def test_either_all_columns_of_a_record_are_sent_and_fit_or_each_problem_is_named(
    columns: dict[str, str], partitioner: str | None
) -> None:
    unfit = {name for name in ALLOWED if name in columns and columns[name] not in ALLOWED[name]}
    if "value" not in columns:
        unfit.add("value")
    if partitioner == "x:y" and "partition" not in columns:
        unfit.add("partitioner")
    try:
        sent = sent_columns(WHO, columns.items(), partitioner)
    except ConfigError as error:
        assert len(error.problems) == len(unfit)
        assert all(problem.startswith(f"{WHO}: ") for problem in error.problems)
        assert all(any(name in problem for problem in error.problems) for name in unfit)
    else:
        assert unfit == set()
        assert set(sent) == columns.keys() & ALLOWED.keys()


def test_a_missing_value_says_which_columns_there_are() -> None:
    with pytest.raises(ConfigError) as refused:
        sent_columns(WHO, [("page", "string"), ("count", "bigint")])
    assert refused.value.problems == (
        "batch.send(df, 'totals'): the column value is missing (string or binary);"
        " the DataFrame has: page, count",
    )


def test_a_column_of_another_type_says_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as refused:
        sent_columns(WHO, [("value", "bigint")])
    assert refused.value.problems == (
        "batch.send(df, 'totals'): the column value is bigint, and has to be string or binary",
    )


def test_a_column_that_is_there_twice_is_named() -> None:
    columns = [("key", "string"), ("value", "string"), ("value", "bigint"), ("page", "string")]
    with pytest.raises(ConfigError) as refused:
        sent_columns(WHO, [*columns, ("page", "string"), ("key", "string"), ("key", "string")])
    assert refused.value.problems == (
        "batch.send(df, 'totals'): the DataFrame has 3 columns called key: drop or rename others",
        "batch.send(df, 'totals'): the DataFrame has 2 columns called value: drop or rename others",
    )


@pytest.mark.parametrize("rows", [None, [{"value": "x"}], pandas.DataFrame({"value": ["x"]})])
def test_what_is_no_dataframe_of_spark_is_refused(rows: object) -> None:
    with pytest.raises(ConfigError) as refused:
        columns_of(WHO, rows)
    (problem,) = refused.value.problems
    assert problem.startswith("batch.send(df, 'totals'): expected a DataFrame of Spark, not ")
    assert problem.endswith(type(rows).__name__)


def test_a_partitioner_that_spark_does_not_have_needs_a_column_partition() -> None:
    columns = [("key", "string"), ("value", "string")]
    with pytest.raises(ConfigError, match=r"partitioner = 'crc32'.*add a column partition"):
        sent_columns(WHO, columns, "crc32")
    assert sent_columns(WHO, [*columns, ("partition", "int")], "crc32") == [
        "key",
        "value",
        "partition",
    ]

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import ConfigError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.batch import batch_id, check_spark_function, reason_of, spark_range

CLICKS = TopicPartition("clicks", 3)
RANGES = st.tuples(
    st.text(max_size=5), st.text(max_size=5), st.integers(0, 20), st.integers(0, 2**62), st.integers(0, 2**62)
)


def test_the_same_range_has_the_same_id_in_every_process() -> None:
    assert spark_range("billing", CLICKS, 10, 20).id == "013c08d1f1eecd8f"


@given(RANGES, RANGES)
def test_two_ranges_share_an_id_only_when_they_are_the_same(one: Any, other: Any) -> None:
    def identity(group: str, topic: str, partition: int, start: int, until: int) -> str:
        return spark_range(group, TopicPartition(topic, partition), start, until).id

    assert (identity(*one) == identity(*other)) == (one == other)


def test_a_batch_id_joins_the_ids_of_its_ranges() -> None:
    ranges = [spark_range("billing", CLICKS, 0, 5), spark_range("billing", TopicPartition("clicks", 4), 0, 5)]
    assert batch_id(ranges) == f"{ranges[0].id}-{ranges[1].id}"


def test_a_range_reads_as_topic_partition_and_offsets() -> None:
    assert str(spark_range("billing", CLICKS, 10, 20)) == "clicks-3 [10, 20)"


def right(df: Any, batch: Any) -> None: ...
def other_names(frame: Any, its_batch: Any) -> None: ...
def with_setting(setting: int, df: Any, batch: Any) -> None: ...


class Right:
    def method(self, df: Any, batch: Any) -> None: ...
    def __call__(self, df: Any, batch: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [right, other_names, Right().method, Right(), functools.partial(with_setting, 1), lambda df, batch: None],
)
def test_a_function_of_a_data_frame_and_a_batch_is_taken(function: Callable[..., Any]) -> None:
    check_spark_function(function, "clicks")


async def is_async(df: Any, batch: Any) -> None: ...


async def async_generator(df: Any, batch: Any) -> AsyncIterator[int]:
    yield 1


def generator(df: Any, batch: Any) -> Iterator[int]:
    yield 1


class AsyncObject:
    async def __call__(self, df: Any, batch: Any) -> None: ...


def nothing() -> None: ...
def only_df(df: Any) -> None: ...
def three(df: Any, batch: Any, more: int = 1) -> None: ...
def star(df: Any, *rest: Any) -> None: ...
def swapped(batch: Any, df: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (is_async, "is async"),
        (async_generator, "is async"),
        (AsyncObject(), "is async"),
        (functools.partial(is_async, batch=None), "is async"),
        (generator, "is a generator"),
        (nothing, "takes no parameters"),
        (only_df, "takes 1 parameters (df)"),
        (three, "takes 3 parameters (df, batch, more)"),
        (star, "takes *"),
        (swapped, "the wrong way round (batch, df)"),
    ],
)
def test_any_other_function_is_refused_with_the_right_form(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_spark_function(function, "clicks")
    assert problem in str(refused.value)
    assert '@app.spark("clicks")' in str(refused.value)
    assert "def name(df: DataFrame, batch: SparkBatch) -> None" in str(refused.value)


def test_a_reason_is_one_line_with_the_errors_type() -> None:
    assert reason_of(ValueError("no such customer\nsecond line")) == "ValueError: no such customer"
    assert reason_of(KeyError()) == "KeyError"


def test_the_reason_of_an_error_on_an_executor_is_that_of_the_users_python() -> None:
    text = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "job.py", line 3, in parse\n    raise ValueError("bad row")\n'
        "ValueError: bad row\n\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    assert reason_of(RuntimeError(text)) == "ValueError: bad row"


def test_the_reason_of_a_java_error_is_the_java_exception() -> None:
    text = "An error occurred while calling o45.count.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b.C"
    assert reason_of(RuntimeError(text)) == "RuntimeError: org.apache.spark.SparkException: Job aborted"

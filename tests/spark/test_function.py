import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.spark_function import check_spark_function


def right(df: Any, batch: Any) -> None: ...
def other_names(frame: Any, its_batch: Any) -> None: ...
def with_setting(setting: int, df: Any, batch: Any) -> None: ...


class Right:
    def method(self, df: Any, batch: Any) -> None: ...
    def __call__(self, df: Any, batch: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        right,
        other_names,
        Right().method,
        Right(),
        functools.partial(with_setting, 1),
        lambda df, batch: None,
    ],
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
def test_any_other_function_is_refused_with_the_right_form(
    function: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_spark_function(function, "clicks")
    assert problem in str(refused.value)
    assert '@app.spark("clicks")' in str(refused.value)
    assert "def name(df: DataFrame, batch: SparkBatch) -> None" in str(refused.value)

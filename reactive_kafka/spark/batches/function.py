"""The function that ``@app.spark`` decorated: its form, and whether it fits its channel's settings. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.batches.payload import Payload
from reactive_kafka.spark.batches.schema import payload_schema

Function = Callable[..., Any]
RIGHT_FORM = "def name(df: DataFrame, batch: SparkBatch) -> None"
_VALUES = {False: (None, "bytes"), True: (None, "bytes", "json")}
"""Has a payload -> the values of ``value_deserializer`` that change nothing."""


@dataclass(frozen=True, slots=True)
class SparkFunction:
    """The function for a channel's batches, and how records get the columns of its model."""

    function: Function
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class SparkDecoration:
    """One ``@app.spark`` of a function; ``model`` is None if the function gets bytes only."""

    function: Function
    model: Any = None
    show_corrupt: bool = False

    def planned(self, incoming: IncomingSettings, who: str, problems: list[str]) -> SparkFunction:
        """The function as it runs on the channel; what does not fit is added to *problems*. *who* is the decorator."""
        problems += _not_for_spark(incoming, who, has_payload=self.model is not None)
        payload = None
        try:
            if self.model is not None:
                payload = Payload(payload_schema(self.model, who), self.show_corrupt)
        except ConfigError as error:
            problems += error.problems
        return SparkFunction(self.function, payload)


def _not_for_spark(incoming: IncomingSettings, who: str, *, has_payload: bool) -> Iterator[str]:
    """Settings of this very channel that are for handlers only, and would have no effect."""
    if incoming.ack != "post":
        yield f"{who}: ack = {incoming.ack!r} is not for Spark, whose batches are acked when their job is done"
    spark = f"[incoming.{incoming.name}.spark]"
    if incoming.concurrency > 1 and _is_its_own(incoming, "concurrency"):
        yield (
            f"{incoming.place('concurrency', incoming.concurrency)}: it counts handlers, and {who} runs batches: "
            f"say max_concurrent_jobs in {spark}"
        )
    for key in ("batch_max_records", "batch_max_wait"):
        if key in incoming.places and _is_its_own(incoming, key):
            yield f"{incoming.place(key, None)}: it is for Batch handlers, and {who} is none: say {key} in {spark}"
    if incoming.value_deserializer not in _VALUES[has_payload] and _is_its_own(incoming, "value_deserializer"):
        yield (
            f"{incoming.place('value_deserializer', incoming.value_deserializer)}: {who} gets the bytes in the column "
            "value, and with payload = Model the columns of their JSON"
        )
    if incoming.key_deserializer not in (None, "bytes") and _is_its_own(incoming, "key_deserializer"):
        place = incoming.place("key_deserializer", incoming.key_deserializer)
        yield f"{place}: {who} gets the bytes in the column key"


def _is_its_own(incoming: IncomingSettings, key: str) -> bool:
    """Whether the setting is the channel's own; [kafka] has the defaults of all channels."""
    return "[kafka]" not in incoming.place(key, None)


def check_spark_function(function: Function, channel: str) -> None:
    """Raise ConfigError unless *function* is a plain function of a DataFrame and a batch: the text shows that form."""
    if problem := _problem_with(function):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(f'@app.spark("{channel}"): {name} {problem}; the right form is: {RIGHT_FORM}')


def _problem_with(function: Function) -> str | None:
    of_an_object = getattr(type(function), "__call__")  # noqa: B004, B009 - its code, not whether it has one
    for code in (function, getattr(function, "func", None), of_an_object):  # "func": of a functools.partial
        if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
            return "is async, but runs in a worker thread: leave out 'async'"
        if inspect.isgeneratorfunction(code):
            return "is a generator: return instead of yield"
    parameters = list(inspect.signature(function).parameters.values())
    if any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        return "takes *, ** or keyword-only parameters"
    names = [one.name for one in parameters]
    if len(names) != 2:
        return f"takes {len(names)} parameters ({', '.join(names)})" if names else "takes no parameters"
    if names[0] == "batch" or names[1] == "df":
        return f"takes them the wrong way round ({', '.join(names)})"
    return None

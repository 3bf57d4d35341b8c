"""The function that ``@app.spark`` decorated: its form, its payload's columns, whether it fits its channel. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError, RejectedByJobError
from reactive_kafka.formats.names import EVENTS, REGISTERED_FORMATS
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.schema import (
    CORRUPT,
    KAFKA_COLUMNS,
    PAYLOAD,
    PayloadSchema,
    identifier,
    literal,
    payload_schema,
)

MISFIT = "_misfit"
NO_VALUE, NO_JSON, IN_ENVELOPE, FIRST_FIELD = 0, 1, 2, 3  # codes of a row that does not fit
TEXT = "CAST(value AS STRING)"
# Without single quotes: neither pydantic nor msgspec reads them as JSON.
OPTIONS = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}', 'allowSingleQuotes', 'false')"
# A CloudEvent in structured mode. Its fields are not those of the value, and a model of optional ones would not tell.
ENVELOPE = (
    "exists(headers, one -> lower(one.key) = 'content-type' "
    "AND startswith(lower(ltrim(CAST(one.value AS STRING))), 'application/cloudevents'))"
)
Function = Callable[..., Any]
RIGHT_FORM = "def name(df: DataFrame, batch: SparkBatch) -> None"
# Has a payload -> the values of ``value_deserializer`` that change nothing.
_VALUES = {False: (None, "bytes"), True: (None, "bytes", "json")}
_NEVER_JSON = (EVENTS, *REGISTERED_FORMATS)
"""Formats that a channel is refused even if it has them from [kafka]: its values may look like JSON, and are none."""


@dataclass(frozen=True)
class Payload:
    """How a channel's records get the columns of a model."""

    schema: PayloadSchema
    show_corrupt: bool = False  # keep rows that do not fit, with the record's text in a column ``_corrupt``
    finds_events: bool = True  # of ``cloud_events``: an event in an envelope does not fit

    def parsed(self, records: Any) -> Any:
        """*records* with Kafka's columns, the payload as one column, and a code if it does not fit."""
        # "stack" makes one row of one row. Spark's optimizer would copy a plain column of from_json into every
        # expression that uses one of its fields, and parse each text a dozen times: 5.8 s for 50,000 records instead
        # of 0.8 s.
        json = f"{self.schema.struct.json[:-1]}, {CORRUPT}: STRING>"
        column = f"{self.schema.struct.column[:-1]}, {CORRUPT}: STRING>"
        payload = f"from_json({TEXT}, {literal(json)}, {OPTIONS})"
        if column != json:
            payload = f"CAST({payload} AS {column})"  # by position, so it also renames
        rows = records.selectExpr(*KAFKA_COLUMNS, f"stack(1, {payload}) AS {PAYLOAD}")
        return rows.selectExpr(*KAFKA_COLUMNS, PAYLOAD, f"{self._misfit} AS {MISFIT}")

    def fitting(self, parsed: Any) -> Any:
        """The function's DataFrame, out of :meth:`parsed`."""
        names = [identifier(field.name) for field in self.schema.struct.fields]
        columns = [f"{PAYLOAD}.{name} AS {name}" for name in names]
        if self.show_corrupt:
            # Python cannot read a text that is not UTF-8; the column value has the bytes.
            text = f"CASE WHEN {MISFIT} IS NOT NULL THEN coalesce(make_valid_utf8({TEXT}), '') END AS {CORRUPT}"
            return parsed.selectExpr(*KAFKA_COLUMNS, *columns, text)
        return parsed.where(f"{MISFIT} IS NULL").selectExpr(*KAFKA_COLUMNS, *columns)

    def corrupt(self, parsed: Any) -> Iterator[tuple[TopicPartition, int, BaseException]]:
        """The records of :meth:`parsed` that do not fit, with the reasons. Runs a Spark job."""
        rows = parsed.where(f"{MISFIT} IS NOT NULL").select("topic", "partition", "offset", MISFIT).toArrow()
        for piece in rows.to_batches():
            for topic, partition, offset, code in zip(*(one.to_pylist() for one in piece.columns), strict=True):
                yield TopicPartition(topic, partition), offset, self._reasons[code]

    @property
    def _misfit(self) -> str:
        """SQL: the code of what is wrong with a row; null if it fits."""
        # Parsing is not enough: the parser stops at the end of the first object, and replaces what is not UTF-8.
        no_json = (
            f"{PAYLOAD} IS NULL OR {PAYLOAD}.{CORRUPT} IS NOT NULL OR NOT is_valid_utf8({TEXT}) "
            f"OR NOT endswith(trim(TRAILING ' \\t\\r\\n' FROM {TEXT}), '}}')"
        )
        none = "CAST(NULL AS INT)" if self.schema.accepts_none else str(NO_VALUE)
        misfits = enumerate(self.schema.misfits, FIRST_FIELD)
        fields = " ".join(f"WHEN {one.condition} THEN {code}" for code, one in misfits)
        envelope = f"WHEN {ENVELOPE} THEN {IN_ENVELOPE} " if self.finds_events else ""
        return f"CASE WHEN value IS NULL THEN {none} {envelope}WHEN {no_json} THEN {NO_JSON} {fields} END"

    @cached_property
    def _reasons(self) -> list[BaseException]:
        """By code. One error serves all records."""
        model = self.schema.model
        texts = [
            "the record has no value (a tombstone)",
            "no JSON object, or a field of another type",
            "a CloudEvent in structured mode, whose data stands in an envelope: the columns are read from the value "
            "(binary mode has the data there; cloud_events = false takes the envelope for it)",
        ]
        texts += [one.reason for one in self.schema.misfits]
        return [RejectedByJobError(f"does not fit {model}: {text}") for text in texts]


@dataclass(frozen=True, slots=True)
class SparkFunction:
    """The function for a channel's batches, and how records get the columns of its model."""

    function: Function
    payload: Payload | None = None
    model: Any = None  # what the payload's columns are those of


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
                payload = Payload(payload_schema(self.model, who), self.show_corrupt, incoming.cloud_events)
        except ConfigError as error:
            problems += error.problems
        return SparkFunction(self.function, payload, self.model)


def _not_for_spark(incoming: IncomingSettings, who: str, *, has_payload: bool) -> Iterator[str]:
    """Settings of this very channel that are for handlers only, and would have no effect."""
    if incoming.ack != "post":
        yield f"{who}: ack = {incoming.ack!r} is not for Spark, whose batches are acked when their job is done"
    spark = f"[incoming.{incoming.name}.spark]"
    if incoming.concurrency > 1 and _is_its_own(incoming, "concurrency"):
        place = incoming.place("concurrency", incoming.concurrency)
        yield f"{place}: it counts handlers, and {who} runs batches: say max_concurrent_jobs in {spark}"
    for key in ("batch_max_records", "batch_max_wait"):
        if key in incoming.places and _is_its_own(incoming, key):
            yield f"{incoming.place(key, None)}: it is for Batch handlers, and {who} is none: say {key} in {spark}"
    named = incoming.value_deserializer
    is_its_own = _is_its_own(incoming, "value_deserializer")
    if named not in _VALUES[has_payload] and (is_its_own or named in _NEVER_JSON):
        place = incoming.place("value_deserializer", named)
        instead = "" if is_its_own else f': say value_deserializer = "bytes" in [incoming.{incoming.name}]'
        columns = "gets the bytes in the column value, and with payload = Model the columns of their JSON"
        yield f"{place}: {who} {columns}{instead}"
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

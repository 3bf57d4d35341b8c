"""The function decorated with ``@app.spark``, and the columns of its payload. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError, RejectedByJobError
from reactive_kafka.formats.format_names import EVENTS, REGISTERED_FORMATS
from reactive_kafka.formats.json_text import TextSource, question_of
from reactive_kafka.formats.registered.schema_questions import SchemaQuestion
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.payload_schema import (
    CORRUPT,
    KAFKA_COLUMNS,
    PayloadSchema,
    identifier,
    payload_schema,
)
from reactive_kafka.spark.batches.scalars import Misfit
from reactive_kafka.spark.batches.single import SingleObject

MISFIT = "_misfit"
PARSED = "_parsed"
PAYLOAD = "_payload"
# The codes of rows that do not fit.
NO_VALUE, NO_JSON, IN_ENVELOPE, NO_DATA, UNREAD, FIRST_FIELD = range(6)
TEXT = "CAST(value AS STRING)"
READ = "_read"
"""A column for records whose values are no JSON: the JSON that was made of the value, what is wrong
with it, and the schema that is missing.
"""
# At most so many schemas are requested before a batch is read again.
MOST_ASKED = 500
# SQL: the record is a CloudEvent in structured mode. The model describes the data inside of it, and
# if all fields are optional, the envelope would be taken for the data.
ENVELOPE = (
    "exists(headers, one -> lower(one.key) = 'content-type' "
    "AND startswith(lower(ltrim(CAST(one.value AS STRING))), 'application/cloudevents'))"
)
Function = Callable[..., Any]
RIGHT_FORM = "def name(df: DataFrame, batch: SparkBatch) -> None"
MADE_JSON = (EVENTS, *REGISTERED_FORMATS)
"""Formats whose values are no JSON. This package turns them into JSON on the executors."""
# Has a payload -> the values of `value_deserializer` that are allowed.
_VALUES = {False: (None, "bytes"), True: (None, "bytes", "json", *MADE_JSON)}


class Unfit(NamedTuple):
    """The records of a batch that do not fit, and the schemas that are missing to tell."""

    records: Sequence[tuple[TopicPartition, int, BaseException]]
    asks: Sequence[SchemaQuestion]


@dataclass(frozen=True)
class Payload:
    """Makes the columns of a model from a channel's records."""

    schema: PayloadSchema
    # Keep rows that do not fit, with the text of the record in a column `_corrupt`.
    show_corrupt: bool = False
    # The setting `cloud_events`: an event in an envelope does not fit.
    finds_events: bool = True
    # Makes JSON from values that are none. Then records have the column `READ`.
    texts: TextSource | None = None
    single: SingleObject = field(default_factory=SingleObject, repr=False, compare=False)

    def parsed(self, records: Any) -> Any:
        """Add the payload as one column, and a code for rows that do not fit."""
        names = KAFKA_COLUMNS if self.texts is None else (*KAFKA_COLUMNS, READ)
        # "stack" makes one row from one row. It keeps Spark's optimizer from copying from_json into
        # every expression that uses one of its fields, which would parse each text a dozen times:
        # 5.8 s for 50,000 records instead of 0.8 s.
        parsed = self.single.parsed(self._text, self.schema.struct)
        rows = records.selectExpr(*names, f"stack(1, {parsed}) AS {PARSED}")
        # The second "stack" is for the same reason: misfits are found in the values made here.
        value = self.schema.struct.value(self.single.value(PARSED))
        rows = rows.selectExpr(*names, PARSED, f"stack(1, {value}) AS {PAYLOAD}")
        return rows.selectExpr(*names, PAYLOAD, f"{self._misfit} AS {MISFIT}")

    def fitting(self, parsed: Any) -> Any:
        """Return the function's DataFrame, made from that of :meth:`parsed`."""
        names = [identifier(field.name) for field in self.schema.struct.fields]
        columns = [f"{PAYLOAD}.{name} AS {name}" for name in names]
        if self.show_corrupt:
            # Python cannot read a text that is not UTF-8. The column `value` has the exact bytes.
            text = f"coalesce(make_valid_utf8({TEXT}), '')"
            corrupt = f"CASE WHEN {MISFIT} IS NOT NULL THEN {text} END AS {CORRUPT}"
            return parsed.selectExpr(*KAFKA_COLUMNS, *columns, corrupt)
        return parsed.where(f"{MISFIT} IS NULL").selectExpr(*KAFKA_COLUMNS, *columns)

    @property
    def finds_unfit(self) -> bool:
        """True if a batch must be read by :meth:`unfit` before its function is called."""
        return self.texts is not None or not self.show_corrupt

    def unfit(self, parsed: Any) -> Unfit:
        """Find the records of :meth:`parsed` that do not fit, and why. It runs a Spark job.

        If schemas are missing, the result is incomplete: the batch must be read again with them.
        """
        condition = f"{READ}.missing <> ''" if self.show_corrupt else f"{MISFIT} IS NOT NULL"
        columns = ["topic", "partition", "offset", MISFIT]
        if self.texts is not None:
            condition = f"{condition} AND coalesce({READ}.missing, '-') <> ''"
            columns += [f"{READ}.problem", f"{READ}.missing"]
        records: list[tuple[TopicPartition, int, BaseException]] = []
        missing: dict[str, None] = {}
        # Text -> its error, so that records with the same problem share one.
        errors: dict[str, BaseException] = {}
        for piece in parsed.where(condition).selectExpr(*columns).toArrow().to_batches():
            rows = zip(*(column.to_pylist() for column in piece.columns), strict=True)
            for topic, partition, offset, code, *read in rows:
                problem, missing_schema = read or (None, None)
                if missing_schema is not None:
                    missing[missing_schema] = None
                    continue
                if problem is None:
                    reason = self._reasons[code]
                else:
                    if problem not in errors:
                        errors[problem] = self._refused(problem)
                    reason = errors[problem]
                records.append((TopicPartition(topic, partition), offset, reason))
        return Unfit(records, [question_of(name) for name in list(missing)[:MOST_ASKED]])

    @property
    def _text(self) -> str:
        """SQL of a row's JSON."""
        return TEXT if self.texts is None else f"{READ}.text"

    @property
    def _misfit(self) -> str:
        """SQL of the code of a row, which is null if the row fits. The first match counts."""
        text = self._text
        no_value = str(NO_VALUE)
        no_data = str(NO_DATA)
        if self.schema.accepts_none:
            no_value = no_data = "CAST(NULL AS INT)"
        cases = [f"WHEN value IS NULL THEN {no_value}"]
        if self.texts is not None:
            unread = f"{READ}.problem IS NOT NULL OR {READ}.missing IS NOT NULL"
            cases += [f"WHEN {unread} THEN {UNREAD}", f"WHEN {text} IS NULL THEN {no_data}"]
        elif self.finds_events:
            cases.append(f"WHEN {ENVELOPE} THEN {IN_ENVELOPE}")
        cases.append(f"WHEN {self.single.misfit(PARSED, text)} THEN {NO_JSON}")
        for code, misfit in enumerate(self._field_misfits, FIRST_FIELD):
            cases.append(f"WHEN {misfit.condition} THEN {code}")
        return f"CASE {' '.join(cases)} END"

    @cached_property
    def _field_misfits(self) -> tuple[Misfit, ...]:
        return self.schema.misfits(self.single.value(PARSED), PAYLOAD)

    @cached_property
    def _reasons(self) -> list[BaseException]:
        """The errors by code. All records with one code share its error."""
        kind = "record" if self.texts is not None and self.texts.is_binary else "JSON object"
        texts = [
            "the record has no value (a tombstone)",
            f"no {kind}, or a field of another type",
            "a CloudEvent in structured mode, whose data is in an envelope: the columns are"
            " read from the value (binary mode has the data there; value_deserializer ="
            ' "cloudevents" reads both, and cloud_events = false takes the envelope for it)',
            "the event has no data",
            "it cannot be read",
        ]
        texts += [misfit.reason for misfit in self._field_misfits]
        return [self._refused(text) for text in texts]

    def _refused(self, text: str) -> RejectedByJobError:
        return RejectedByJobError(f"does not fit {self.schema.model}: {text}")


@dataclass(frozen=True, slots=True)
class SparkFunction:
    """The function for a channel's batches, and the columns of its model."""

    function: Function
    payload: Payload | None = None
    # The model of the payload.
    model: Any = None


@dataclass(frozen=True, slots=True)
class SparkDecoration:
    """One ``@app.spark`` of a function. ``model`` is None if the function gets bytes only."""

    function: Function
    model: Any = None
    show_corrupt: bool = False

    def needs_texts(self, incoming: IncomingSettings) -> bool:
        """True if the function has a payload, and the channel's values must become JSON first."""
        return self.model is not None and incoming.value_deserializer in MADE_JSON

    def planned(
        self,
        incoming: IncomingSettings,
        who: str,
        problems: list[str],
        texts: TextSource | None = None,
    ) -> SparkFunction:
        """Return the function for a channel.

        Args:
            incoming: The settings of the channel.
            who: The decorator, for the texts of problems.
            problems: Gets what is wrong with the function or the channel.
            texts: Makes JSON from the channel's values, if they are none.
        """
        problems += _settings_without_effect(incoming, who, has_payload=self.model is not None)
        payload = None
        try:
            if self.model is not None:
                is_binary = texts is not None and texts.is_binary
                schema = payload_schema(self.model, who, base64=is_binary)
                payload = Payload(schema, self.show_corrupt, incoming.cloud_events, texts)
        except ConfigError as error:
            problems += error.problems
        return SparkFunction(self.function, payload, self.model)


def _settings_without_effect(
    incoming: IncomingSettings, who: str, *, has_payload: bool
) -> Iterator[str]:
    """Yield a problem for each setting of this channel that is for handlers only."""
    if incoming.ack != "post":
        yield (
            f"{who}: ack = {incoming.ack!r} is not for Spark, whose batches are acked when their"
            " job is done"
        )
    spark = f"[incoming.{incoming.name}.spark]"
    if incoming.concurrency > 1 and _is_of_channel(incoming, "concurrency"):
        place = incoming.place("concurrency", incoming.concurrency)
        yield (
            f"{place}: it counts handlers, and {who} runs batches: say max_concurrent_jobs in"
            f" {spark}"
        )
    for key in ("batch_max_records", "batch_max_bytes", "batch_max_wait"):
        if key in incoming.places and _is_of_channel(incoming, key):
            place = incoming.place(key, None)
            yield f"{place}: it is for Batch handlers, and {who} is none: say {key} in {spark}"
    value_format = incoming.value_deserializer
    is_allowed = value_format in _VALUES[has_payload]
    if not is_allowed and _is_of_channel(incoming, "value_deserializer"):
        place = incoming.place("value_deserializer", value_format)
        formats = ", ".join(("json", *MADE_JSON))
        yield (
            f"{place}: {who} gets the bytes in the column value, and with payload = Model the"
            f" columns of a model ({formats})"
        )
    key_format = incoming.key_deserializer
    is_allowed = key_format in (None, "bytes")
    if not is_allowed and _is_of_channel(incoming, "key_deserializer"):
        place = incoming.place("key_deserializer", key_format)
        yield f"{place}: {who} gets the bytes in the column key"


def _is_of_channel(incoming: IncomingSettings, key: str) -> bool:
    """True if the setting is the channel's own, and not a default for all channels in [kafka]."""
    return "[kafka]" not in incoming.place(key, None)


def check_spark_function(function: Function, channel: str) -> None:
    """Check that *function* is a plain function of a DataFrame and a batch.

    Raises:
        ConfigError: It is not. The text shows the right form.
    """
    problem = _problem_with(function)
    if problem:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f'@app.spark("{channel}"): {name} {problem}; the right form is: {RIGHT_FORM}'
        )


def _problem_with(function: Function) -> str | None:
    # The code of an object that can be called.
    of_an_object = getattr(type(function), "__call__")  # noqa: B004, B009
    # The code of a functools.partial.
    of_a_partial = getattr(function, "func", None)
    for code in (function, of_a_partial, of_an_object):
        if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
            return "is async, but runs in a worker thread: leave out 'async'"
        if inspect.isgeneratorfunction(code):
            return "is a generator: return instead of yield"
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind not in positional for parameter in parameters):
        return "takes *, ** or keyword-only parameters"
    names = [parameter.name for parameter in parameters]
    if not names:
        return "takes no parameters"
    takes = f"takes {len(names)} parameters ({', '.join(names)})"
    if len(names) > 2:
        return (
            f"{takes}, and nothing fills more than two: what a connection is made of cannot go"
            " along to Spark's executors"
        )
    if len(names) != 2:
        return takes
    if names[0] == "batch" or names[1] == "df":
        return f"takes them the wrong way round ({', '.join(names)})"
    return None

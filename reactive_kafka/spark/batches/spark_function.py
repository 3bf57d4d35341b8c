"""The function that ``@app.spark`` decorated: its form, its payload's columns, whether it fits its
channel. No I/O.
"""

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
# Codes of a row that does not fit.
NO_VALUE, NO_JSON, IN_ENVELOPE, NO_DATA, UNREAD, FIRST_FIELD = range(6)
TEXT = "CAST(value AS STRING)"
READ = "_read"
"""Column with the JSON of a record that is none itself, what is wrong with it, and the schema that
it waits for.
"""
# Schemas that are asked for before a batch is read again.
MOST_ASKED = 500
# A CloudEvent in structured mode. Its fields are not those of the value, and a model of optional
# ones would not tell.
ENVELOPE = (
    "exists(headers, one -> lower(one.key) = 'content-type' "
    "AND startswith(lower(ltrim(CAST(one.value AS STRING))), 'application/cloudevents'))"
)
Function = Callable[..., Any]
RIGHT_FORM = "def name(df: DataFrame, batch: SparkBatch) -> None"
# Has a payload -> the values of ``value_deserializer`` that change nothing.
MADE_JSON = (EVENTS, *REGISTERED_FORMATS)
"""Formats whose values are no JSON: their records are read by this package, on executors, to become
some.
"""
_VALUES = {False: (None, "bytes"), True: (None, "bytes", "json", *MADE_JSON)}


class Unfit(NamedTuple):
    """What was found of a batch before its function is called: records that do not fit, and schemas
    to ask for.
    """

    records: Sequence[tuple[TopicPartition, int, BaseException]]
    asks: Sequence[SchemaQuestion]


@dataclass(frozen=True)
class Payload:
    """How a channel's records get the columns of a model."""

    schema: PayloadSchema
    # Keep rows that do not fit, with the record's text in a column ``_corrupt``
    show_corrupt: bool = False
    # Of ``cloud_events``: an event in an envelope does not fit.
    finds_events: bool = True
    # Makes JSON of values that are none; *records* have a column for that then.
    texts: TextSource | None = None
    single: SingleObject = field(default_factory=SingleObject, repr=False, compare=False)

    def parsed(self, records: Any) -> Any:
        """*records* with Kafka's columns, the payload as one column, and a code if it does not
        fit.
        """
        names = KAFKA_COLUMNS if self.texts is None else (*KAFKA_COLUMNS, READ)
        # "stack" makes one row of one row. Spark's optimizer would copy a plain column of from_json
        # into every expression that uses one of its fields, and parse each text a dozen times: 5.8
        # s for 50,000 records instead of 0.8 s.
        parsed = self.single.parsed(self._text, self.schema.struct)
        rows = records.selectExpr(*names, f"stack(1, {parsed}) AS {PARSED}")
        # And the same again: what is wrong is seen from what was made, without making it twice.
        value = self.schema.struct.value(self.single.value(PARSED))
        rows = rows.selectExpr(*names, PARSED, f"stack(1, {value}) AS {PAYLOAD}")
        return rows.selectExpr(*names, PAYLOAD, f"{self._misfit} AS {MISFIT}")

    def fitting(self, parsed: Any) -> Any:
        """The function's DataFrame, out of :meth:`parsed`."""
        names = [identifier(field.name) for field in self.schema.struct.fields]
        columns = [f"{PAYLOAD}.{name} AS {name}" for name in names]
        if self.show_corrupt:
            # Python cannot read a text that is not UTF-8; the column value has the bytes.
            text = f"CASE WHEN {MISFIT} IS NOT NULL THEN coalesce(make_valid_utf8({TEXT}), '') END AS {CORRUPT}"
            return parsed.selectExpr(*KAFKA_COLUMNS, *columns, text)
        return parsed.where(f"{MISFIT} IS NULL").selectExpr(*KAFKA_COLUMNS, *columns)

    @property
    def finds_unfit(self) -> bool:
        """Whether :meth:`unfit` has something to find, so that a batch is read before its function
        is called.
        """
        return self.texts is not None or not self.show_corrupt

    def unfit(self, parsed: Any) -> Unfit:
        """The records of :meth:`parsed` that do not fit, with the reasons. Runs a Spark job.

        Where schemas are missing, the others are not all of them: the batch is to be read again.
        """
        found = f"{MISFIT} IS NOT NULL" if not self.show_corrupt else f"{READ}.missing <> ''"
        columns = ["topic", "partition", "offset", MISFIT]
        if self.texts is not None:
            found = f"{found} AND coalesce({READ}.missing, '-') <> ''"
            columns += [f"{READ}.problem", f"{READ}.missing"]
        records: list[tuple[TopicPartition, int, BaseException]] = []
        missing: dict[str, None] = {}
        known: dict[str, BaseException] = {}
        for piece in parsed.where(found).selectExpr(*columns).toArrow().to_batches():
            for topic, partition, offset, code, *read in zip(
                *(one.to_pylist() for one in piece.columns), strict=True
            ):
                problem, name = read or (None, None)
                if name is not None:
                    missing[name] = None
                    continue
                if problem is not None and problem not in known:
                    known[problem] = self._refused(problem)
                reason = self._reasons[code] if problem is None else known[problem]
                records.append((TopicPartition(topic, partition), offset, reason))
        return Unfit(records, [question_of(name) for name in list(missing)[:MOST_ASKED]])

    @property
    def _text(self) -> str:
        """SQL: the JSON of a row."""
        return TEXT if self.texts is None else f"{READ}.text"

    @property
    def _misfit(self) -> str:
        """SQL: the code of what is wrong with a row; null if it fits."""
        text = self._text
        no_json = self.single.misfit(PARSED, text)
        none, no_data = (
            ("CAST(NULL AS INT)",) * 2
            if self.schema.accepts_none
            else (str(NO_VALUE), str(NO_DATA))
        )
        misfits = enumerate(self._field_misfits, FIRST_FIELD)
        fields = " ".join(f"WHEN {one.condition} THEN {code}" for code, one in misfits)
        first = f"WHEN {ENVELOPE} THEN {IN_ENVELOPE}" if self.finds_events else ""
        if self.texts is not None:
            unread = f"{READ}.problem IS NOT NULL OR {READ}.missing IS NOT NULL"
            first = f"WHEN {unread} THEN {UNREAD} WHEN {text} IS NULL THEN {no_data}"
        return f"CASE WHEN value IS NULL THEN {none} {first} WHEN {no_json} THEN {NO_JSON} {fields} END"

    @cached_property
    def _field_misfits(self) -> tuple[Misfit, ...]:
        return self.schema.misfits(self.single.value(PARSED), PAYLOAD)

    @cached_property
    def _reasons(self) -> list[BaseException]:
        """By code. One error serves all records."""
        kind = "record" if self.texts is not None and self.texts.is_binary else "JSON object"
        texts = [
            "the record has no value (a tombstone)",
            f"no {kind}, or a field of another type",
            "a CloudEvent in structured mode, whose data stands in an envelope: the columns are read from the value "
            '(binary mode has the data there; value_deserializer = "cloudevents" reads both, and cloud_events = false '
            "takes the envelope for it)",
            "the event has no data",
            "it cannot be read",
        ]
        texts += [one.reason for one in self._field_misfits]
        return [self._refused(text) for text in texts]

    def _refused(self, text: str) -> RejectedByJobError:
        return RejectedByJobError(f"does not fit {self.schema.model}: {text}")


@dataclass(frozen=True, slots=True)
class SparkFunction:
    """The function for a channel's batches, and how records get the columns of its model."""

    function: Function
    payload: Payload | None = None
    # What the payload's columns are those of.
    model: Any = None


@dataclass(frozen=True, slots=True)
class SparkDecoration:
    """One ``@app.spark`` of a function; ``model`` is None if the function gets bytes only."""

    function: Function
    model: Any = None
    show_corrupt: bool = False

    def needs_texts(self, incoming: IncomingSettings) -> bool:
        """Whether the channel has a payload whose columns are not those of its values
        themselves.
        """
        return self.model is not None and incoming.value_deserializer in MADE_JSON

    def planned(
        self,
        incoming: IncomingSettings,
        who: str,
        problems: list[str],
        texts: TextSource | None = None,
    ) -> SparkFunction:
        """The function as it runs on the channel; what does not fit is added to *problems*. *who*
        is the decorator.
        """
        problems += _not_for_spark(incoming, who, has_payload=self.model is not None)
        payload = None
        try:
            if self.model is not None:
                schema = payload_schema(
                    self.model, who, base64=texts is not None and texts.is_binary
                )
                payload = Payload(schema, self.show_corrupt, incoming.cloud_events, texts)
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
    if named not in _VALUES[has_payload] and _is_its_own(incoming, "value_deserializer"):
        place = incoming.place("value_deserializer", named)
        formats = ", ".join(("json", *MADE_JSON))
        columns = f"gets the bytes in the column value, and with payload = Model the columns of a model ({formats})"
        yield f"{place}: {who} {columns}"
    if incoming.key_deserializer not in (None, "bytes") and _is_its_own(
        incoming, "key_deserializer"
    ):
        place = incoming.place("key_deserializer", incoming.key_deserializer)
        yield f"{place}: {who} gets the bytes in the column key"


def _is_its_own(incoming: IncomingSettings, key: str) -> bool:
    """Whether the setting is the channel's own; [kafka] has the defaults of all channels."""
    return "[kafka]" not in incoming.place(key, None)


def check_spark_function(function: Function, channel: str) -> None:
    """Raise ConfigError unless *function* is a plain function of a DataFrame and a batch: the text
    shows that form.
    """
    if problem := _problem_with(function):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f'@app.spark("{channel}"): {name} {problem}; the right form is: {RIGHT_FORM}'
        )


def _problem_with(function: Function) -> str | None:
    of_an_object = getattr(type(function), "__call__")  # noqa: B004, B009 - its code, not whether it has one
    # "func": of a functools.partial.
    for code in (function, getattr(function, "func", None), of_an_object):
        if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
            return "is async, but runs in a worker thread: leave out 'async'"
        if inspect.isgeneratorfunction(code):
            return "is a generator: return instead of yield"
    parameters = list(inspect.signature(function).parameters.values())
    if any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        return "takes *, ** or keyword-only parameters"
    names = [one.name for one in parameters]
    if len(names) > 2:
        why = "and nothing fills more than two: what a connection is made of cannot go along to Spark's executors"
        return f"takes {len(names)} parameters ({', '.join(names)}), {why}"
    if len(names) != 2:
        return (
            f"takes {len(names)} parameters ({', '.join(names)})"
            if names
            else "takes no parameters"
        )
    if names[0] == "batch" or names[1] == "df":
        return f"takes them the wrong way round ({', '.join(names)})"
    return None

"""Payload columns: records' JSON parsed on executors, and the records that do not fit. Pure SQL on DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reactive_kafka.errors import RejectedByJobError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.schema import CORRUPT, KAFKA_COLUMNS, PAYLOAD, PayloadSchema, identifier, literal

MISFIT = "_misfit"
NO_VALUE, NO_JSON, FIRST_FIELD = 0, 1, 2  # codes of a row that does not fit
TEXT = "CAST(value AS STRING)"
OPTIONS = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}', 'allowSingleQuotes', 'false')"
"""Without single quotes: neither pydantic nor msgspec reads them as JSON."""


@dataclass(frozen=True)
class Payload:
    """How a channel's records get the columns of a model."""

    schema: PayloadSchema
    show_corrupt: bool = False  # keep rows that do not fit, with the record's text in a column ``_corrupt``

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
        return f"CASE WHEN value IS NULL THEN {none} WHEN {no_json} THEN {NO_JSON} {fields} END"

    @cached_property
    def _reasons(self) -> list[BaseException]:
        """By code. One error serves all records."""
        model = self.schema.model
        texts = ["the record has no value (a tombstone)", "no JSON object, or a field of another type"]
        texts += [one.reason for one in self.schema.misfits]
        return [RejectedByJobError(f"does not fit {model}: {text}") for text in texts]

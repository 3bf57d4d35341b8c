"""Turns records of formats with schemas, and CloudEvents, into JSON on the executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from reactive_kafka.formats.json_text import TextSource
from reactive_kafka.formats.registered.schema_questions import SchemaQuestion
from reactive_kafka.spark.batches.blame import CANNOT_READ
from reactive_kafka.spark.batches.payload_schema import KAFKA_COLUMNS
from reactive_kafka.spark.batches.spark_function import READ

_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>,"
    f" {READ} STRUCT<text: STRING, problem: STRING, missing: STRING>"
)


def with_texts(records: Any, source: TextSource, answers: Mapping[SchemaQuestion, Any]) -> Any:
    """Return *records* with the column `READ`. The executors need this package for it.

    Args:
        records: A DataFrame with Kafka's columns.
        source: Makes JSON of values.
        answers: The answers of the schema registry.
    """
    # The executors get bytes and unpack them in the function below, which needs nothing of this
    # package until then. If Spark unpacked the objects itself, an executor without this package
    # would fail before it could say what is missing.
    packed = pickle.dumps((source, dict(answers)))
    columns = (*KAFKA_COLUMNS,)
    name = READ
    refusal = f"{CANNOT_READ} {source.format!r}"

    def read(pieces: Iterator[Any]) -> Iterator[Any]:
        # Spark sends this function by value, because it is a local one. It may use nothing of this
        # module except the variables above.
        import pyarrow as pa

        try:
            import pickle

            from reactive_kafka.formats.json_text import read_texts

            source, answers = pickle.loads(packed)
            read_text = source.reader(answers)
        except (ImportError, AttributeError) as error:
            raise RuntimeError(
                f"{refusal}: {error}: install this version of the package, with its extra"
            ) from None
        text = pa.string()
        kind = pa.struct([("text", text), ("problem", text), ("missing", text)])
        for piece in pieces:
            values = piece.column("value").to_pylist()
            headers = piece.column("headers").to_pylist()
            pairs = [[(header["key"], header["value"]) for header in row or ()] for row in headers]
            fields = [
                pa.array(field, text)
                for field in read_texts(read_text, zip(values, pairs, strict=True))
            ]
            column = pa.StructArray.from_arrays(fields, fields=list(kind))
            yield pa.RecordBatch.from_arrays([*piece.columns, column], names=[*columns, name])

    return records.select(*KAFKA_COLUMNS).mapInArrow(read, _COLUMNS)

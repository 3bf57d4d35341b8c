"""What runs on executors to read records of formats with schemas, and CloudEvents: it makes JSON of
them.
"""

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
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    f"headers ARRAY<STRUCT<key: STRING, value: BINARY>>, {READ} STRUCT<text: STRING, problem: STRING, missing: STRING>"
)


def with_texts(records: Any, source: TextSource, answers: Mapping[SchemaQuestion, Any]) -> Any:
    """*records* with a column more, made with these answers of the registry; executors need this
    package for it.
    """
    # As bytes: what Spark unpacks itself, and cannot, would end the task before it can say what is
    # missing.
    sent = pickle.dumps((source, dict(answers)))
    columns = (*KAFKA_COLUMNS,)
    name = READ
    refusal = f"{CANNOT_READ} {source.format!r}"

    def read(pieces: Iterator[Any]) -> Iterator[Any]:
        # By value, since it has no name of its own: it uses nothing of this module but what is
        # bound above.
        import pyarrow as pa

        try:
            import pickle

            from reactive_kafka.formats.json_text import read_texts

            source, answers = pickle.loads(sent)
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
            pairs = [[(one["key"], one["value"]) for one in row or ()] for row in headers]
            found = [
                pa.array(one, text)
                for one in read_texts(read_text, zip(values, pairs, strict=True))
            ]
            made = pa.StructArray.from_arrays(found, fields=list(kind))
            yield pa.RecordBatch.from_arrays([*piece.columns, made], names=[*columns, name])

    return records.select(*KAFKA_COLUMNS).mapInArrow(read, _COLUMNS)

"""A batch that runs twice: its first run fails after both sinks have written. See README.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import directory_per_range
import plain_append

from reactive_kafka import App, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTORIES = Path("directories").absolute()
APPENDED = Path("appended").absolute()

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "clicks": {
                "group_id": "sinks",
                "auto_offset_reset": "earliest",
                "retry": {"max_attempts": 2, "backoff": "1s"},
                "spark": {"batch_max_wait": "1s"},
            }
        },
        "spark": {"master": "local[1]"},
    }
)


@app.spark("clicks")
def keep(df: DataFrame, batch: SparkBatch) -> None:
    clicks = df.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS click")
    directory_per_range.write(clicks, batch, DIRECTORIES)
    plain_append.write(clicks, batch, APPENDED)
    if batch.attempt == 1:
        raise RuntimeError("this run ends between write and commit")
    for folder in (DIRECTORIES, APPENDED):
        rows = batch.spark.read.parquet(str(folder)).count()
        print(f"{folder.name}: {rows} rows", flush=True)


if __name__ == "__main__":
    app.run()

"""Not exactly once: files that are appended. Here to show the difference; use another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reactive_kafka import SparkBatch


def write(df: DataFrame, batch: SparkBatch, folder: Path) -> None:
    """Append *df* to *folder*. A range that runs again is there twice.

    The files' names are Spark's own and new with each run, so nothing says that a range has been
    written: a process that dies after the write and before the commit has its records written by
    the next one again. Besides, two appends into one folder at a time share a place for unfinished
    files, and the first to finish deletes the other's.
    """
    df.write.mode("append").parquet(str(folder))

"""A directory of parquet files for each range: a range that runs again replaces what it wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reactive_kafka import SparkBatch


def write(df: DataFrame, batch: SparkBatch, folder: Path) -> None:
    """Write *df* into *folder*, exactly once; one job, however many partitions the batch has.

    Not fenced: a member that was frozen here, and goes on when the next owner of its partitions has
    written, writes all the same. The same range is replaced by the same rows; one that the next
    owner has split is then there twice.

    Args:
        df: Has topic, partition and offset, or range_id already.
        folder: An absolute path that driver and executors share.
    """
    # A failed whole may have written before its parts ran.
    for id in batch.supersedes:
        shutil.rmtree(folder / f"range_id={id}", ignore_errors=True)
    rows = df if "range_id" in df.columns else batch.with_range_id(df)
    # "dynamic": only the directories that rows go to are replaced. With "static", the default, all
    # others are deleted.
    writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("range_id").parquet(str(folder))

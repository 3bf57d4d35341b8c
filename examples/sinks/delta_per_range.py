"""A Delta table: each range is a transaction of its own, and Delta skips one that it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reactive_kafka import SparkBatch


def write(df: DataFrame, batch: SparkBatch, table: Path | str) -> None:
    """Append *df* to *table*, exactly once.

    Delta keeps the last ``txnVersion`` of each ``txnAppId``, and skips a write whose version is not
    above it. Here the range is the application, and has one version: a repeat is skipped, and
    whatever is another range is written. The batch's id would not do: a rebalance may split a
    batch, and the same ranges come back in other company. Nor would the partition as application
    with ``until`` as version: a part of a superseded whole would be skipped.

    Args:
        df: Has topic, partition and offset.
        table: Exists (see :func:`create`), so that two members' first writes do not both make it.
    """
    # A failed whole may have written before its parts ran.
    if batch.supersedes:
        ids = ", ".join(f"'{id}'" for id in batch.supersedes)
        batch.spark.sql(f"DELETE FROM delta.`{table}` WHERE range_id IN ({ids})")
    rows = batch.with_range_id(df)
    for one in batch.ranges:
        writer = rows.where(rows.range_id == one.id).write.format("delta").mode("append")
        writer.option("txnAppId", one.id).option("txnVersion", 1).save(str(table))


def create(spark: SparkSession, table: Path | str, columns: str) -> None:
    """Make the table, once, before the pipeline runs. Delta forgets ranges after 30 days: offsets
    reset further back than that are written again.

    Args:
        columns: As in SQL, without the range's: ``"page STRING, offset BIGINT"``.
    """
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({columns}, range_id STRING) USING delta "
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 days')"
    )

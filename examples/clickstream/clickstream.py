"""Clicks, counted by hour and page, into parquet files and PostgreSQL: exactly once in both. See
README.md.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reactive_kafka import App, SparkBatch, SparkRange

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("CLICKSTREAM_FOLDER", HERE / "hourly")).absolute()
POSTGRES = os.environ.get("CLICKSTREAM_POSTGRES", "postgresql://localhost/clickstream")

app = App(HERE / "reactive-kafka.toml")


@dataclass
class Click:
    """The payload. A record that is no such JSON never reaches the function: it becomes a dead
    letter.
    """

    user: str
    page: str
    at: datetime
    seconds: float | None = None


@app.spark("clicks", payload=Click)
def count_by_hour(df: DataFrame, batch: SparkBatch) -> None:
    """One batch: rejects clicks from the future, counts the others, and writes the counts."""
    from_the_future = "at > timestamp + INTERVAL 1 HOUR"
    batch.reject(df.where(from_the_future), "clicked more than an hour after it was sent")
    clicks = df.where(f"NOT ({from_the_future})")
    to_parquet(clicks, batch)
    to_postgres(clicks, batch)


def by_hour(clicks: DataFrame, *columns: str) -> DataFrame:
    """Columns hour, page, *columns*, clicks and seconds."""
    keys = [F.date_trunc("hour", "at").alias("hour"), F.col("page"), *map(F.col, columns)]
    seconds = F.sum(F.coalesce("seconds", F.lit(0.0)))
    return clicks.groupBy(*keys).agg(F.count("*").alias("clicks"), seconds.alias("seconds"))


def to_parquet(clicks: DataFrame, batch: SparkBatch) -> None:
    """A directory for each range, replaced when the range runs again. Readers sum over them."""
    # A failed whole may have written before its parts ran.
    for id in batch.supersedes:
        shutil.rmtree(FOLDER / f"range_id={id}", ignore_errors=True)
    counts = by_hour(batch.with_range_id(clicks), "range_id")
    writer = counts.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("range_id").parquet(str(FOLDER))


def to_postgres(clicks: DataFrame, batch: SparkBatch) -> None:
    """Counts, and how far each partition came, in one transaction."""
    with psycopg.connect(POSTGRES) as connection:
        new = " OR ".join(ahead(connection, one) for one in batch.ranges)
        counts = by_hour(clicks.where(new)).toArrow().to_pylist()
        # All members take the rows' locks in one order.
        counts.sort(key=lambda row: (row["hour"], row["page"]))
        connection.cursor().executemany(
            "INSERT INTO hourly AS old VALUES (%(hour)s, %(page)s, %(clicks)s, %(seconds)s)"
            " ON CONFLICT (hour, page) DO UPDATE"
            " SET clicks = old.clicks + excluded.clicks, seconds = old.seconds + excluded.seconds",
            counts,
        )


def ahead(connection: psycopg.Connection, one: SparkRange) -> str:
    """Move a partition's progress to the range's ``until``; a condition for the rows that were
    ahead of it.
    """
    place = (one.topic, one.partition)
    connection.execute("INSERT INTO progress VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", place)
    where = "WHERE topic = %s AND partition = %s"
    found = connection.execute(f"SELECT reached FROM progress {where} FOR UPDATE", place).fetchone()
    connection.execute(
        f"UPDATE progress SET reached = greatest(reached, %s) {where}", (one.until, *place)
    )
    reached = found[0] if found else 0
    return f"(topic = '{one.topic}' AND partition = {one.partition} AND offset >= {reached})"


if __name__ == "__main__":
    app.run()

"""A PostgreSQL table: rows, and how far each partition came, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reactive_kafka import SparkBatch, SparkRange

PROGRESS = """
CREATE TABLE IF NOT EXISTS progress (
    topic TEXT, partition INT, reached BIGINT NOT NULL, PRIMARY KEY (topic, partition)
)
"""
"""One such table for each group and each table that it writes."""


def write(df: DataFrame, batch: SparkBatch, dsn: str, table: str, columns: list[str]) -> None:
    """Insert the *columns* of *df* into *table*, exactly once.

    The rows come to the driver: right for results, and for batches that fit its memory. Executors
    that write by themselves have a transaction each, and cannot promise this. The ranges of a
    partition must come one after the other, as they do unless the channel says ``ordering =
    "unordered"``.

    Args:
        df: Has topic, partition and offset.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    insert = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    # One transaction: committed at the end of the block, or not at all.
    with psycopg.connect(dsn) as connection:
        new = " OR ".join(ahead(connection, one) for one in batch.ranges)
        rows = df.where(new).select(*columns).toArrow()
        with connection.cursor().copy(insert) as copy:
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)


def ahead(connection: psycopg.Connection, one: SparkRange) -> str:
    """Move the partition's progress to the range's ``until``; a condition for the rows that were
    ahead of it.

    Of a range that was written before there are none. Until the transaction ends nobody else gets
    past here for the same partition, not even a member that does not know yet that it has lost it.
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

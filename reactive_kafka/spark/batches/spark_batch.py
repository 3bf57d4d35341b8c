"""``SparkBatch``, the second argument of a Spark function, with its ranges and rejections. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple

from reactive_kafka.errors import RejectedByJobError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.scalars import literal

COLUMNS = ("topic", "partition", "offset")
NAMED_IN_AN_ERROR = 5
# These are 64 bits: among ten million ranges in one sink, two have the same id with a chance of 3
# in a million.
ID_HEX_DIGITS = 16
# (DataFrame, name of an outgoing channel): writes the rows.
SendRows = Callable[[Any, str], None]


@dataclass(frozen=True, slots=True)
class SparkRange:
    """The records of one partition in a batch: offsets from ``start`` to before ``until``.

    Attributes:
        id: An id that is the same for a range of a group in every process and every attempt, so
            that a sink can tell what it has written already. It has 16 hex digits, and can be the
            name of a directory.
    """

    topic: str
    partition: int
    start: int
    until: int
    id: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"


@dataclass(frozen=True, slots=True)
class SparkBatch:
    """The batch that a Spark function works on.

    Attributes:
        id: The ids of the ranges, joined by ``-``.
        ranges: One for each partition in the batch, ordered by topic and partition.
        spark: The session (``pyspark.sql.SparkSession``).
        attempt: 1 for the first run of these records by this process, 2 for the next, and so on.
        supersedes: The ids of the failed ranges that contained these ranges, outermost first. A
            failed job may have written data, which the sink may want to remove.
    """

    id: str
    ranges: tuple[SparkRange, ...]
    spark: Any
    attempt: int
    supersedes: tuple[str, ...] = ()
    # None: the batch was made by hand, and belongs to no application.
    _send_rows: SendRows | None = field(default=None, init=False, repr=False, compare=False)
    rejects: Rejects = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rejects", Rejects(self.ranges))

    def reject(self, rows: Any, reason: str | BaseException) -> None:
        """Nack single records. The other records of the batch are acked.

        It takes effect when the function returns. If the function raises, the whole batch is
        nacked. If a record is rejected twice, the first reason counts. Only the three columns are
        collected.

        Args:
            rows: A DataFrame with the columns topic, partition, offset (a Spark job collects them),
                or an iterable of such tuples.
            reason: A text for people and for dead letters, or an exception, whose class selects the
                failure route.

        Raises:
            ValueError: An offset is outside the batch's ranges, or a column is missing. No row is
                rejected then.
            RuntimeError: The batch has ended.
        """
        self.rejects.add(rows, reason)

    def send(self, df: Any, channel: str) -> None:
        """Write the rows of *df* to the topic of an outgoing channel. A Spark job writes them.

        It returns when the brokers have confirmed every row, so the batch is acked after that. Each
        row is written at least once: what a failed job, a failed batch or a crash has written stays
        in the topic, and is written again by the next attempt. Columns that are not named here are
        ignored. The channel's serializers, middleware and counts do not apply.

        Args:
            df: A DataFrame with the column value (string or binary), and if wanted key (string or
                binary), headers (``array<struct<key:string,value:binary>>``) and partition (int).
                Without a partition the key chooses it.
            channel: The name of an outgoing channel of a topic.

        Raises:
            ConfigError: There is no such channel, or it has an outbox or transactions; *df* is no
                DataFrame of Spark; or a column is missing, of another type, or there twice.
            RuntimeError: The batch has ended.
        """
        if self.rejects.is_closed:
            raise RuntimeError("batch.send came too late: the function has returned")
        if self._send_rows is None:
            raise RuntimeError("batch.send needs a batch that an application has made")
        self._send_rows(df, channel)

    def with_range_id(self, df: Any) -> Any:
        """Return *df* with the column ``range_id``, the id of each record's range.

        *df* must have the columns topic, partition and offset.
        """
        return df.selectExpr("*", f"{range_id_sql(self.ranges)} AS range_id")


def can_send(batch: SparkBatch, send_rows: SendRows | None) -> SparkBatch:
    """Let *batch* send rows with *send_rows*; return it."""
    object.__setattr__(batch, "_send_rows", send_rows)
    return batch


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One range of a batch with its records."""

    range: SparkRange
    # In order: Arrow record batches, or Python ranges of offsets that the executors read.
    pieces: tuple[Any, ...]
    # The number of records; if executors read them, the number of offsets.
    records: int


class Rejected(NamedTuple):
    """A record of a successful batch that must be nacked."""

    partition: TopicPartition
    offset: int
    reason: BaseException


class Rejects:
    """Collects the records that one run of a batch rejects. Several threads may use it."""

    def __init__(self, ranges: Iterable[SparkRange]) -> None:
        self._ranges: dict[TopicPartition, list[SparkRange]] = {}
        offsets = 0
        for covered in ranges:
            partition = TopicPartition(covered.topic, covered.partition)
            self._ranges.setdefault(partition, []).append(covered)
            offsets += covered.until - covered.start
        # So many rows are collected. More than there are offsets, to find rows outside of these.
        self._most_rows = offsets + NAMED_IN_AN_ERROR
        self._reasons: dict[tuple[TopicPartition, int], BaseException] = {}
        # The function has returned.
        self.is_closed = False

    def add(self, rows: Any, reason: str | BaseException) -> None:
        """Check rows and note them, as ``SparkBatch.reject`` describes."""
        if not isinstance(reason, str | BaseException):
            raise ValueError(
                f"the reason of batch.reject is a string or an exception, not {reason!r}"
            )
        if self.is_closed:
            raise RuntimeError("batch.reject came too late: the function has returned")
        if hasattr(rows, "selectExpr"):
            # It is a DataFrame.
            rows = collected(rows, self._most_rows)
        positions = self._checked(rows)
        error = RejectedByJobError(reason) if isinstance(reason, str) else reason
        for partition, offset in positions:
            self.note(partition, offset, error)

    def note(self, partition: TopicPartition, offset: int, reason: BaseException) -> None:
        """Note that a record is rejected. If it was before, the earlier reason counts."""
        self._reasons.setdefault((partition, offset), reason)

    def close(self) -> list[Rejected]:
        """Return the rejected records by partition and offset. No more can be rejected."""
        self.is_closed = True
        return [Rejected(*key, self._reasons[key]) for key in sorted(self._reasons)]

    def _checked(self, rows: Iterable[Any]) -> Iterable[tuple[TopicPartition, int]]:
        """Return the rows as partitions and offsets, in order, each once.

        Raises:
            ValueError: A row is outside the ranges, or names no record.
        """
        positions: dict[tuple[TopicPartition, int], None] = {}
        outside = []
        for row in rows:
            position = _position(row)
            if position is not None and self._covers(*position):
                positions[position] = None
                continue
            outside.append(row)
            if len(outside) > NAMED_IN_AN_ERROR:
                break
        if outside:
            named = ", ".join(_shown(row) for row in outside[:NAMED_IN_AN_ERROR])
            more = ", ..." if len(outside) > NAMED_IN_AN_ERROR else ""
            covered = ", ".join(str(item) for ranges in self._ranges.values() for item in ranges)
            raise ValueError(
                f"batch.reject: not records of this batch: {named}{more}; it covers {covered}"
            )
        return positions

    def _covers(self, partition: TopicPartition, offset: int) -> bool:
        ranges = self._ranges.get(partition, ())
        return any(covered.start <= offset < covered.until for covered in ranges)


def spark_range(group_id: str, partition: TopicPartition, start: int, until: int) -> SparkRange:
    """Return a range with its id.

    The id depends on the group, because another group may write the same offsets to the same sink.
    """
    identity = json.dumps([group_id, *partition, start, until])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:ID_HEX_DIGITS]
    return SparkRange(*partition, start, until, digest)


def batch_id(ranges: Iterable[SparkRange]) -> str:
    """Return the id of a batch with these ranges."""
    return "-".join(part.id for part in ranges)


def range_id_sql(ranges: Iterable[SparkRange]) -> str:
    """Return a Spark SQL expression for the id of a record's range.

    It uses the columns topic, partition and offset, and is null for records outside the ranges.
    """
    cases = (
        f"WHEN topic = {literal(part.topic)} AND partition = {part.partition} "
        f"AND offset >= {part.start} AND offset < {part.until} THEN '{part.id}'"
        for part in ranges
    )
    return f"CASE {' '.join(cases)} END"


def collected(frame: Any, most: int) -> Iterator[tuple[Any, ...]]:
    """Collect the records that a DataFrame names, each once, at most *most* of them.

    Raises:
        ValueError: It lacks a column.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(
            f"batch.reject needs the columns {', '.join(COLUMNS)}; "
            f"{', '.join(missing)} not found among {', '.join(frame.columns)}"
        )
    for piece in frame.select(*COLUMNS).distinct().limit(most).toArrow().to_batches():
        yield from zip(*(column.to_pylist() for column in piece.columns), strict=True)


def _position(row: Any) -> tuple[TopicPartition, int] | None:
    """Return a row as partition and offset, or None if it is not (topic, partition, offset)."""
    try:
        topic, partition, offset = row
        return TopicPartition(str(topic), index(partition)), index(offset)
    except (TypeError, ValueError):
        return None


def _shown(row: Any) -> str:
    position = _position(row)
    if position is None:
        return repr(row)[:100]
    partition, offset = position
    return f"{partition.topic}-{partition.partition} offset {offset}"

"""The second argument of a Spark function: the ranges of a batch, and the records of it that are
rejected. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple

from reactive_kafka.errors import RejectedByJobError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.scalars import literal

COLUMNS = ("topic", "partition", "offset")
NAMED_IN_AN_ERROR = 5
# 64 bits: ten million ranges in one sink collide with a chance of 3 in a million.
ID_HEX_DIGITS = 16


@dataclass(frozen=True, slots=True)
class SparkRange:
    """Records of one partition that a batch covers: offsets from ``start`` up to, not including,
    ``until``.

    Attributes:
        id: The same for the same range of the same group in every process and attempt: a sink can
            tell by it what it has written. 16 hex digits, suitable as the name of a directory.
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
        ranges: One for each partition that the batch has records of, by topic and partition.
        spark: The session (``pyspark.sql.SparkSession``).
        attempt: 1 for the first run of these records by this process, 2 for the next, ...
        supersedes: The ids of failed ranges that these ranges were parts of, outermost first. A
            failed job may have written data, which the sink may want to remove.
    """

    id: str
    ranges: tuple[SparkRange, ...]
    spark: Any
    attempt: int
    supersedes: tuple[str, ...] = ()
    rejects: Rejects = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rejects", Rejects(self.ranges))

    def reject(self, rows: Any, reason: str | BaseException) -> None:
        """Leave single records to the channel's failure strategy; the others of the batch are
        acked.

        It takes effect when the function returns; if the function raises, the whole batch is
        nacked. The first reason for a record counts. Only the three columns are collected.

        Args:
            rows: A DataFrame with the columns topic, partition, offset (a Spark job collects them),
                or an iterable of such tuples.
            reason: For people and dead letters. Failure routes go by the class of an exception.

        Raises:
            ValueError: An offset is outside the batch's ranges, or a column is missing; no row is
                rejected.
            RuntimeError: The batch has ended.
        """
        self.rejects.add(rows, reason)

    def with_range_id(self, df: Any) -> Any:
        """*df*, which has topic, partition and offset, with the column ``range_id``: the id of the
        record's range.
        """
        return df.selectExpr("*", f"{range_id_sql(self.ranges)} AS range_id")


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One range of a batch with its records."""

    range: SparkRange
    # In order: Arrow record batches, or Python ranges of offsets that the executors read.
    pieces: tuple[Any, ...]
    # Where executors read them, the number of offsets.
    records: int


class Rejected(NamedTuple):
    """A record of a successful batch that is to be nacked."""

    partition: TopicPartition
    offset: int
    reason: BaseException


class Rejects:
    """Collects what one run of a batch rejects, out of its ranges. May be used from several
    threads.
    """

    def __init__(self, ranges: Iterable[SparkRange]) -> None:
        self._ranges: dict[TopicPartition, list[SparkRange]] = {}
        for one in ranges:
            self._ranges.setdefault(TopicPartition(one.topic, one.partition), []).append(one)
        self._most = NAMED_IN_AN_ERROR + sum(
            one.until - one.start for its in self._ranges.values() for one in its
        )
        self._reasons: dict[tuple[TopicPartition, int], BaseException] = {}
        self._is_closed = False

    def add(self, rows: Any, reason: str | BaseException) -> None:
        """Check and note rows, as ``SparkBatch.reject`` describes it."""
        if not isinstance(reason, str | BaseException):
            raise ValueError(
                f"the reason of batch.reject is a string or an exception, not {reason!r}"
            )
        if self._is_closed:
            raise RuntimeError("batch.reject came too late: the function has returned")
        found = self._checked(collected(rows, self._most) if hasattr(rows, "selectExpr") else rows)
        error = RejectedByJobError(reason) if isinstance(reason, str) else reason
        for partition, offset in found:
            self.note(partition, offset, error)

    def note(self, partition: TopicPartition, offset: int, reason: BaseException) -> None:
        """A record is rejected; an earlier reason stays."""
        self._reasons.setdefault((partition, offset), reason)

    def close(self) -> list[Rejected]:
        """The rejected records, by partition and offset; no more can be rejected."""
        self._is_closed = True
        return [Rejected(*key, self._reasons[key]) for key in sorted(self._reasons)]

    def _checked(self, rows: Iterable[Any]) -> Iterable[tuple[TopicPartition, int]]:
        """The rows as partitions and offsets, in order, each once; ValueError if one is outside the
        ranges, or none.
        """
        found: dict[tuple[TopicPartition, int], None] = {}
        strange = []
        for row in rows:
            key = _key(row)
            if key is not None and any(
                one.start <= key[1] < one.until for one in self._ranges.get(key[0], ())
            ):
                found[key] = None
                continue
            strange.append(row)
            if len(strange) > NAMED_IN_AN_ERROR:
                break
        if strange:
            named = ", ".join(_shown(row) for row in strange[:NAMED_IN_AN_ERROR])
            more = ", ..." if len(strange) > NAMED_IN_AN_ERROR else ""
            covered = ", ".join(str(one) for ranges in self._ranges.values() for one in ranges)
            raise ValueError(
                f"batch.reject: not records of this batch: {named}{more}; it covers {covered}"
            )
        return found


def spark_range(group_id: str, partition: TopicPartition, start: int, until: int) -> SparkRange:
    """The range with its id, which covers the group: another group may write the same offsets to
    the same sink.
    """
    identity = json.dumps([group_id, *partition, start, until])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:ID_HEX_DIGITS]
    return SparkRange(*partition, start, until, digest)


def batch_id(ranges: Iterable[SparkRange]) -> str:
    """The id of a batch."""
    return "-".join(one.id for one in ranges)


def range_id_sql(ranges: Iterable[SparkRange]) -> str:
    """A Spark SQL expression over topic, partition and offset: the id of the range that holds them,
    else null.
    """
    cases = (
        f"WHEN topic = {literal(one.topic)} AND partition = {one.partition} "
        f"AND offset >= {one.start} AND offset < {one.until} THEN '{one.id}'"
        for one in ranges
    )
    return f"CASE {' '.join(cases)} END"


def collected(frame: Any, most: int) -> Iterator[tuple[Any, ...]]:
    """The records that a DataFrame names, each once, and at most *most* of them; ValueError if it
    lacks a column.
    """
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise ValueError(
            f"batch.reject needs the columns {', '.join(COLUMNS)}; "
            f"{', '.join(missing)} not found among {', '.join(frame.columns)}"
        )
    for piece in frame.select(*COLUMNS).distinct().limit(most).toArrow().to_batches():
        yield from zip(*(column.to_pylist() for column in piece.columns), strict=True)


def _key(row: Any) -> tuple[TopicPartition, int] | None:
    """A row as partition and offset; None if it is not (topic, partition, offset)."""
    try:
        topic, partition, offset = row
        return TopicPartition(str(topic), index(partition)), index(offset)
    except (TypeError, ValueError):
        return None


def _shown(row: Any) -> str:
    key = _key(row)
    return repr(row)[:100] if key is None else f"{key[0].topic}-{key[0].partition} offset {key[1]}"

"""The records that a batch rejects, and why. Pure; a DataFrame of such records is asked for its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING, Any

from reactive_kafka.errors import RejectedByJobError
from reactive_kafka.records import TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.batch import SparkRange

COLUMNS = ("topic", "partition", "offset")
NAMED_IN_AN_ERROR = 5


class Rejects:
    """Collects what one run of a batch rejects. May be used from several threads.

    Args:
        ranges: The batch's: nothing else can be rejected.
    """

    def __init__(self, ranges: Iterable[SparkRange]) -> None:
        self._ranges: dict[TopicPartition, list[tuple[int, int]]] = {}
        for one in ranges:
            self._ranges.setdefault(TopicPartition(one.topic, one.partition), []).append((one.start, one.until))
        self._most = NAMED_IN_AN_ERROR + sum(stop - start for its in self._ranges.values() for start, stop in its)
        self._reasons: dict[tuple[TopicPartition, int], BaseException] = {}
        self._is_closed = False

    def add(self, rows: Any, reason: str | BaseException) -> None:
        """Check and note rows, as ``SparkBatch.reject`` describes it."""
        if not isinstance(reason, str | BaseException):
            raise ValueError(f"the reason of batch.reject is a string or an exception, not {reason!r}")
        if self._is_closed:
            raise RuntimeError("batch.reject came too late: the function has returned")
        found = self._checked(collected(rows, self._most) if hasattr(rows, "selectExpr") else rows)
        error = RejectedByJobError(reason) if isinstance(reason, str) else reason
        for partition, offset in found:
            self.note(partition, offset, error)

    def note(self, partition: TopicPartition, offset: int, reason: BaseException) -> None:
        """A record is rejected; an earlier reason stays."""
        self._reasons.setdefault((partition, offset), reason)

    def close(self) -> list[tuple[TopicPartition, int, BaseException]]:
        """The rejected records, by partition and offset; no more can be rejected."""
        self._is_closed = True
        return [(*key, self._reasons[key]) for key in sorted(self._reasons)]

    def _checked(self, rows: Iterable[Any]) -> Iterable[tuple[TopicPartition, int]]:
        """The rows as partitions and offsets.

        Raises:
            ValueError: Something is not such a row, or is outside the ranges.
        """
        found: dict[tuple[TopicPartition, int], None] = {}  # in order, each once
        strange = []
        for row in rows:
            key = _key(row)
            if key is None or not any(start <= key[1] < until for start, until in self._ranges.get(key[0], ())):
                strange.append(row)
                if len(strange) > NAMED_IN_AN_ERROR:
                    break
            else:
                found[key] = None
        if strange:
            named = ", ".join(_shown(row) for row in strange[:NAMED_IN_AN_ERROR])
            more = ", ..." if len(strange) > NAMED_IN_AN_ERROR else ""
            covered = ", ".join(
                f"{partition.topic}-{partition.partition} [{start}, {until})"
                for partition, ranges in self._ranges.items()
                for start, until in ranges
            )
            raise ValueError(f"batch.reject: not records of this batch: {named}{more}; it covers {covered}")
        return found


def collected(frame: Any, most: int) -> Iterator[tuple[Any, ...]]:
    """The records that a DataFrame names, each once, and at most *most* of them.

    Raises:
        ValueError: It lacks a column.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise ValueError(
            f"batch.reject needs the columns {', '.join(COLUMNS)}; "
            f"{', '.join(missing)} not found among {', '.join(frame.columns)}"
        )
    table = frame.select(*COLUMNS).distinct().limit(most).toArrow()
    for piece in table.to_batches():
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

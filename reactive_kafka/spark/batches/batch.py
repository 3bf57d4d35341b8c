"""The second argument of a Spark function, and the form that the function must have. Pure, without Spark."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.rejects import Rejects
from reactive_kafka.spark.batches.sql import literal

ID_HEX_DIGITS = 16  # 64 bits: ten million ranges in one sink collide with a chance of 3 in a million


@dataclass(frozen=True, slots=True)
class SparkRange:
    """Records of one partition that a batch covers: offsets from ``start`` up to, not including, ``until``.

    Attributes:
        id: The same for the same range of the same group in every process and attempt: a sink can tell by it what
            it has written. 16 hex digits, suitable as the name of a directory.
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
        supersedes: The ids of failed ranges that these ranges were parts of, outermost first. A failed job may have
            written data, which the sink may want to remove.
        rejects: What :meth:`reject` collects.
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
        """Leave single records to the channel's failure strategy; the others of the batch are acked.

        It takes effect when the function returns; if the function raises, the whole batch is nacked. The first reason
        for a record counts. Only the three columns are collected.

        Args:
            rows: A DataFrame with the columns topic, partition, offset (a Spark job collects them), or an iterable of
                such tuples.
            reason: For people and dead letters. Failure routes go by the class of an exception.

        Raises:
            ValueError: An offset is outside the batch's ranges, or a column is missing; no row is rejected.
            RuntimeError: The batch has ended.
        """
        self.rejects.add(rows, reason)

    def with_range_id(self, df: Any) -> Any:
        """*df*, which has topic, partition and offset, with the column ``range_id``: the id of the record's range."""
        return df.selectExpr("*", f"{range_id_sql(self.ranges)} AS range_id")


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One range of a batch with its records.

    Attributes:
        pieces: Arrow record batches of :func:`reactive_kafka.spark.batches.columns.schema`, in order, or Python
            ``range`` objects of offsets that the executors read.
        records: The number of records; where executors read them, the number of offsets.
    """

    range: SparkRange
    pieces: tuple[Any, ...]
    records: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record of a successful batch that is to be nacked."""

    partition: TopicPartition
    offset: int
    reason: BaseException


def spark_range(group_id: str, partition: TopicPartition, start: int, until: int) -> SparkRange:
    """The range with its id, which covers the group: another group may write the same offsets to the same sink."""
    topic, number = partition
    identity = json.dumps([group_id, topic, number, start, until])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:ID_HEX_DIGITS]
    return SparkRange(topic, number, start, until, digest)


def batch_id(ranges: Iterable[SparkRange]) -> str:
    """The id of a batch of *ranges*."""
    return "-".join(one.id for one in ranges)


def range_id_sql(ranges: Iterable[SparkRange]) -> str:
    """A Spark SQL expression over topic, partition and offset: the id of the range that holds them, else null."""
    cases = (
        f"WHEN topic = {literal(one.topic)} AND partition = {one.partition} "
        f"AND offset >= {one.start} AND offset < {one.until} THEN '{one.id}'"
        for one in ranges
    )
    return f"CASE {' '.join(cases)} END"


RIGHT_FORM = "def name(df: DataFrame, batch: SparkBatch) -> None"


def check_spark_function(function: Callable[..., Any], channel: str) -> None:
    """Check that *function* is a plain function of a DataFrame and a batch.

    Raises:
        ConfigError: It is not; the text shows the right form.
    """
    problem = _problem_with(function)
    if problem:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(f'@app.spark("{channel}"): {name} {problem}; the right form is: {RIGHT_FORM}')


def _problem_with(function: Callable[..., Any]) -> str | None:
    of_an_object = getattr(type(function), "__call__")  # noqa: B004, B009 - its code, not whether it has one
    for code in (function, getattr(function, "func", None), of_an_object):  # "func": of a functools.partial
        if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
            return "is async, but runs in a worker thread: leave out 'async'"
        if inspect.isgeneratorfunction(code):
            return "is a generator: return instead of yield"
    parameters = list(inspect.signature(function).parameters.values())
    if any(one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters):
        return "takes *, ** or keyword-only parameters"
    names = [one.name for one in parameters]
    if len(names) != 2:
        return f"takes {len(names)} parameters ({', '.join(names)})" if names else "takes no parameters"
    if names[0] == "batch" or names[1] == "df":
        return f"takes them the wrong way round ({', '.join(names)})"
    return None


def reason_of(error: BaseException, limit: int = 300) -> str:
    """An error of the function or of Spark in one line: Spark's own texts have pages of stack traces.

    Args:
        limit: The most characters.
    """
    lines = [line for line in str(error).split("JVM stacktrace:")[0].splitlines() if line.strip()]
    inner = _python_error(lines)
    if inner:  # raised on an executor; the names of Spark's wrappers say nothing
        return inner[:limit]
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]  # the next line names the Java exception
    text = lines[0].strip().removeprefix(": ") if lines else ""
    return f"{type(error).__name__}: {text}"[:limit] if text else type(error).__name__


def _python_error(lines: list[str]) -> str | None:
    """The last line of the first Python traceback in *lines*: the first line after its frames that is not indented."""
    starts = (number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line)
    start = next(starts, None)
    if start is None:
        return None
    return next((line.strip() for line in lines[start + 1 :] if not line[0].isspace()), None)

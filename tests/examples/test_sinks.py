"""What was written before a crash is there once after the repeat; but for the sink that is there to
show a repeat.

A crash between the sink's write and the commit is: the same function, again, with the same ranges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pyspark.errors import PySparkException

from tests.examples.spark import COLUMNS, EXAMPLES, Cut, batch_of, example
from tests.examples.typed_page import shown
from tests.harness.postgres import Postgres

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    # PySpark leaves the socket that a result came through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Partition, offset.
Place = tuple[int, int]


class Sink:
    """A sink of the examples, written to as its page says, and read as a user would."""

    def __init__(
        self, write: Callable[[Any, Any], None], read: Callable[[], Iterable[tuple[Any, ...]]]
    ) -> None:
        self.write = write
        self._read = read

    def run(self, spark: Any, *cuts: Cut, supersedes: Iterable[Cut] = ()) -> None:
        """One run of a batch of these ranges."""
        self.write(*batch_of(spark, *cuts, supersedes=list(supersedes)))

    def rows(self) -> Counter[Place]:
        """How often each record is there."""
        return Counter((partition, offset) for partition, offset in self._read())


def once(*cuts: Cut) -> Counter[Place]:
    """What is right: each record of the ranges, once."""
    return Counter(
        (partition, offset) for partition, start, until in cuts for offset in range(start, until)
    )


def parquet(spark: Any, folder: Path) -> Iterable[tuple[Any, ...]]:
    return [
        tuple(row)
        for row in spark.read.parquet(str(folder)).select("partition", "offset").collect()
    ]


def directories(spark: Any, folder: Path) -> Sink:
    module = example("sinks/directory_per_range.py")
    return Sink(lambda df, batch: module.write(df, batch, folder), lambda: parquet(spark, folder))


def delta(spark: Any, folder: Path) -> Sink:
    module = example("sinks/delta_per_range.py")
    module.create(spark, folder, COLUMNS)
    # Its tenth version is a checkpoint by default; here each second one is, so that they are
    # written and read.
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    return Sink(
        lambda df, batch: module.write(df, batch, folder),
        lambda: (
            spark.read.format("delta").load(str(folder)).select("partition", "offset").collect()
        ),
    )


def rows_in_postgres(postgres: Postgres) -> Sink:
    module = example("sinks/postgres_rows.py")
    schema = f"run_{uuid4().hex}"
    dsn = f"{postgres.dsn}?options=-csearch_path%3D{schema}"
    with psycopg.connect(dsn) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(module.PROGRESS)
        connection.execute('CREATE TABLE clicks ("partition" INT, "offset" BIGINT)')

    def read() -> Iterable[tuple[Any, ...]]:
        with psycopg.connect(dsn) as connection:
            return connection.execute('SELECT "partition", "offset" FROM clicks').fetchall()

    return Sink(
        lambda df, batch: module.write(df, batch, dsn, "clicks", ["partition", "offset"]), read
    )


@pytest.fixture(params=["directory", "delta", "postgres"])
def sink(request: pytest.FixtureRequest, spark: Any, postgres: Postgres, tmp_path: Path) -> Sink:
    """A sink that is exactly once, empty."""
    folder = tmp_path / "sink"
    makers: dict[str, Callable[[], Sink]] = {
        "directory": lambda: directories(spark, folder),
        "delta": lambda: delta(spark, folder),
        "postgres": lambda: rows_in_postgres(postgres),
    }
    return makers[request.param]()


def test_a_batch_that_runs_again_is_there_once_and_the_next_one_is_added(
    spark: Any, sink: Sink
) -> None:
    batch = [(0, 0, 30), (1, 5, 25)]
    for cuts in (batch, batch, [(0, 30, 31)], [(0, 31, 60)]):
        sink.run(spark, *cuts)
    assert sink.rows() == once(*batch, (0, 30, 60))


def test_ranges_that_come_again_in_other_company_are_there_once(spark: Any, sink: Sink) -> None:
    sink.run(spark, (0, 0, 30), (1, 5, 25))
    # A rebalance has split the batch: this partition stayed here,
    sink.run(spark, (0, 0, 30))
    # And that one went to a member with a plan of its own.
    sink.run(spark, (1, 5, 25), (2, 0, 10))
    assert sink.rows() == once((0, 0, 30), (1, 5, 25), (2, 0, 10))


def test_parts_of_a_whole_that_failed_after_its_write_are_there_once(
    spark: Any, sink: Sink
) -> None:
    whole = (0, 0, 40)
    sink.run(spark, whole)
    for part in ((0, 0, 20), (0, 0, 20), (0, 20, 40)):
        sink.run(spark, part, supersedes=[whole])
    assert sink.rows() == once(whole)


def test_with_plain_append_a_batch_that_runs_again_is_there_twice(
    spark: Any, tmp_path: Path
) -> None:
    module = example("sinks/plain_append.py")
    sink = Sink(
        lambda df, batch: module.write(df, batch, tmp_path), lambda: parquet(spark, tmp_path)
    )
    for _ in range(2):
        sink.run(spark, (0, 0, 30))
    assert sink.rows() == once((0, 0, 30)) + once((0, 0, 30))


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The example, with its folders in a temporary one."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "sinks"))
    monkeypatch.chdir(tmp_path)
    return example("sinks/twice.py")


def test_a_batch_that_runs_twice_is_counted_as_the_readme_shows(
    spark: Any, twice: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    df, batch = batch_of(spark, (0, 0, 30))
    with pytest.raises(RuntimeError, match="between write and commit"):
        twice.keep(df, batch)
    twice.keep(df, replace(batch, attempt=2))
    assert capsys.readouterr().out == shown("examples/sinks/README.md")


def test_nothing_of_a_batch_that_fails_half_way_stays_in_postgres(
    spark: Any, postgres: Postgres
) -> None:
    sink = rows_in_postgres(postgres)
    broken = [(0, 0, 10), (1, 0, 10)]
    df, batch = batch_of(spark, *broken)
    second_fails = "IF(partition = 1, raise_error('broken'), offset) AS offset"
    with pytest.raises(PySparkException, match="broken"):
        sink.write(df.selectExpr("topic", "partition", second_fails), batch)
    assert sink.rows() == Counter()
    sink.run(spark, *broken)
    assert sink.rows() == once(*broken)


def test_what_overlaps_with_what_is_there_is_cut_off_in_postgres(
    spark: Any, postgres: Postgres
) -> None:
    sink = rows_in_postgres(postgres)
    sink.run(spark, (0, 0, 30))
    # Offsets were reset: other ranges, other ids.
    sink.run(spark, (0, 10, 50))
    assert sink.rows() == once((0, 0, 50))

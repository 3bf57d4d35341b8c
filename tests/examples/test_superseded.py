"""Examples that write into a directory for each range hold each record once, also if a batch failed
after its write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import SparkBatch
from tests import pages
from tests.examples.spark import EXAMPLES, Cut, batch_of, example
from tests.pages import PAGES
from tests.test_docs import laid_out, run_code

Write = Callable[[Any, SparkBatch], None]
SPARK_PAGE = pages.page("docs/spark.md")


def sources() -> list[tuple[str, str]]:
    """All examples: where, and their text."""
    blocks = [(block.where, block.text) for page in PAGES for block in pages.blocks(page, "python")]
    return blocks + [
        (pages.name(file), file.read_text()) for file in sorted(EXAMPLES.rglob("*.py"))
    ]


# Those that send to a topic leave it to its readers: nothing can be removed there.
WITH_RANGES = [one for one in sources() if "with_range_id(" in one[1] and ".write" in one[1]]


@pytest.mark.parametrize(
    "text", [text for _, text in WITH_RANGES], ids=[where for where, _ in WITH_RANGES]
)
def test_an_example_that_writes_by_range_removes_what_failed_ranges_have_written(text: str) -> None:
    assert "batch.supersedes" in text


@pytest.fixture(params=["docs/spark.md", "clickstream"])
def written(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Write, Path]:
    """The function of an example, and the folder that it writes into."""
    if request.param == "clickstream":
        monkeypatch.setenv("CLICKSTREAM_FOLDER", str(tmp_path / "hourly"))
        module = example("clickstream/clickstream.py")
        return module.to_parquet, module.FOLDER
    with laid_out(SPARK_PAGE, tmp_path, monkeypatch):
        module = run_code(SPARK_PAGE)
    return module.by_page, module.PAGES


@pytest.mark.spark
# PySpark leaves the socket that a result came through to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_each_record_is_counted_once_after_a_batch_that_failed_behind_its_write_was_split(
    written: tuple[Write, Path], spark: Any
) -> None:
    write, folder = written

    def run(*cuts: Cut, supersedes: tuple[Cut, ...] = ()) -> None:
        df, batch = batch_of(spark, *cuts, supersedes=supersedes)
        write(
            df.selectExpr(
                "*", "'home' AS page", "CAST(offset AS DOUBLE) AS seconds", "NOW() AS at"
            ),
            batch,
        )

    def counted() -> int:
        column = {"by_page": "count", "to_parquet": "clicks"}[write.__name__]
        return int(spark.read.parquet(str(folder)).selectExpr(f"SUM({column})").head()[0])

    # It writes, and fails behind that.
    run((0, 0, 8), (1, 0, 8))
    assert counted() == 16
    # Each partition by itself: the first one works, the second one fails behind its write.
    run((0, 0, 8))
    run((1, 0, 8))
    run((1, 0, 4), supersedes=((1, 0, 8),))
    assert counted() == 12
    run((1, 4, 6), supersedes=((1, 0, 8), (1, 4, 8)))
    run((1, 6, 8), supersedes=((1, 0, 8), (1, 4, 8)))
    # After a crash before the commit.
    run((1, 6, 8), supersedes=((1, 0, 8), (1, 4, 8)))
    assert counted() == 16

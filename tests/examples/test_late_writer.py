"""What a sink of files holds when a member that was frozen in its write goes on after the next
owner has written.

A frozen writer that goes on is: the same function, with the ranges that it had, after the next
owner's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_sinks import Sink, delta, directories, once

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the socket that a result came through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

files = pytest.mark.parametrize("sink_in", [directories, delta])
SinkIn = Callable[[Any, Path], Sink]
WHOLE, HALVES = (0, 0, 10), ((0, 0, 5), (0, 5, 10))


@files
def test_a_late_write_of_the_range_that_the_next_owner_has_written_leaves_every_row_once(
    spark: Any, tmp_path: Path, sink_in: SinkIn
) -> None:
    sink = sink_in(spark, tmp_path)
    # The next owner: it runs the planned range, under its id.
    sink.run(spark, WHOLE)
    # The one that was frozen.
    sink.run(spark, WHOLE, (1, 0, 3))
    assert sink.rows() == once(WHOLE, (1, 0, 3))


@files
def test_a_late_write_of_a_range_that_the_next_owner_has_split_is_there_twice(
    spark: Any, tmp_path: Path, sink_in: SinkIn
) -> None:
    """As the page of the sinks says: it is a range that nobody has written yet."""
    sink = sink_in(spark, tmp_path)
    # The next owner, for which the whole has failed.
    for half in HALVES:
        sink.run(spark, half, supersedes=[WHOLE])
    assert sink.rows() == once(WHOLE)
    # The one that was frozen.
    sink.run(spark, WHOLE)
    assert sink.rows() == once(WHOLE) + once(WHOLE)
    # A later run of a part removes it.
    sink.run(spark, HALVES[0], supersedes=[WHOLE])
    assert sink.rows() == once(WHOLE)

"""What the tests of Spark examples share: batches made by hand, and a session with Delta."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.spark.batches.spark_batch import SparkBatch, batch_id, spark_range

EXAMPLES = Path(__file__).parents[2] / "examples"
COLUMNS = "topic STRING, partition INT, offset BIGINT, value BINARY"

# Partition, start, until.
Cut = tuple[int, int, int]


def example(path: str) -> ModuleType:
    """The module of a file below ``examples/``."""
    file = EXAMPLES / path
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their annotations up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def batch_of(spark: Any, *cuts: Cut, supersedes: Sequence[Cut] = ()) -> tuple[Any, SparkBatch]:
    """The rows and the batch of these ranges of the topic ``clicks``; values are the offsets as
    text.
    """
    ranges = tuple(_range(cut) for cut in cuts)
    batch = SparkBatch(
        batch_id(ranges), ranges, spark, 1, tuple(_range(cut).id for cut in supersedes)
    )
    rows = [
        ("clicks", partition, offset, b"%d" % offset)
        for partition, start, until in cuts
        for offset in range(start, until)
    ]
    return spark.createDataFrame(rows, COLUMNS), batch


def _range(cut: Cut) -> Any:
    partition, start, until = cut
    return spark_range("readers", TopicPartition("clicks", partition), start, until)

"""What everybody is given to do: the records, the job on them, the session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.spark.plan import CONF, MASTER, PAGES, VALUE_BYTES
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.spark.session.spark_engine import maker_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one process is asked to measure.

    Args:
        bootstrap: ``host:port`` of the broker.
        topic: Filled with whole batches.
        group: A consumer group that nobody used before.
        batch_records: Records of a batch.
        warm: Batches before the clocks run.
        batches: Batches that are measured.
        all_batches: How many the topic holds.
    """

    bootstrap: str
    topic: str
    group: str
    batch_records: int
    warm: int
    batches: int
    all_batches: int


def click(number: int) -> bytes:
    """A record's value: JSON of 200 bytes that names one of 100 pages."""
    start = b'{"page": "/products/%03d", "user": %d, "text": "' % (number % PAGES, number)
    return start.ljust(VALUE_BYTES - 2, b".") + b'"}'


def count_pages(df: DataFrame) -> None:
    """The job: records by page, thrown away at the end, so that no disk is measured."""
    pages = df.selectExpr("get_json_object(CAST(value AS STRING), '$.page') AS page")
    pages.groupBy("page").count().write.format("noop").mode("overwrite").save()


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session that the package would start with the same settings, for those who go without
    it.
    """
    opened = maker_for(SparkSettings(master=MASTER, conf=CONF), ranges=True).open()
    try:
        yield opened.spark
    finally:
        opened.stop()
        opened.end()


class Laps:
    """Reads the clock at the end of each batch; from any thread.

    Args:
        warm: The clock starts at the end of so many batches.
        batches: So many more are measured; what comes later is not.
        began: Called when the clock starts, in the thread of the batch.
        ended: Called when it stops.
    """

    def __init__(
        self,
        warm: int,
        batches: int,
        began: Callable[[], Any] = lambda: None,
        ended: Callable[[], Any] = lambda: None,
    ) -> None:
        self._warm = warm
        self._batches = batches
        self._began = began
        self._ended = ended
        self._lock = threading.Lock()
        self._readings: list[float] = []
        self._count = 0
        self.records = 0

    def batch_ended(self, records: int) -> None:
        """One more batch is over."""
        with self._lock:
            self._count += 1
            if self._warm <= self._count <= self._warm + self._batches:
                self._readings.append(time.perf_counter())
                self.records += records if self._count > self._warm else 0
        if self._count == self._warm:
            self._began()
        elif self._count == self._warm + self._batches:
            self._ended()

    @property
    def wall_s(self) -> float:
        """From start to stop."""
        return self._readings[-1] - self._readings[0]

    @property
    def batch_s(self) -> list[float]:
        """Each batch's own time, from the end of the one before."""
        pairs = zip(self._readings, self._readings[1:], strict=False)
        return [later - earlier for earlier, later in pairs]

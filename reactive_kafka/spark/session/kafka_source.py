"""Ranges of offsets as a DataFrame that Spark's executors read from Kafka."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.batch import BatchPart
from reactive_kafka.spark.batches.columns import data_frame
from reactive_kafka.spark.session.kafka_options import SECRET, kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("reactive_kafka.spark")


class KafkaSource:
    """Makes DataFrames of ranges that Spark's executors read from Kafka, with the channel's rights and isolation.

    *servers* is asked for the brokers' addresses when a DataFrame is made.

    Raises:
        ConfigError: A property has no equivalent for executors; the text names channel and key.
    """

    def __init__(self, settings: IncomingSettings, servers: Callable[[], str]) -> None:
        self._settings = settings
        self._servers = servers
        self._options = kafka_options(settings, _read_pem)

    def __call__(self, spark: SparkSession, parts: Sequence[BatchPart]) -> DataFrame:
        """The rows of *parts*, with the columns of :func:`reactive_kafka.spark.batches.columns.schema`.

        Nothing is read before a job needs it. A job fails if offsets of a range are not in the log any more. Pieces
        that are Arrow record batches are shipped.
        """
        try:
            self._options = kafka_options(self._settings, _read_pem)  # certificates may have been renewed
        except ConfigError as error:  # a renewal is under way, perhaps: the options of the start may still work
            logger.warning("%s", error)
        # failOnDataLoss: without it Spark skips lost records and reports a success.
        fixed = {"includeHeaders": "true", "failOnDataLoss": "true"}
        options = {"kafka.bootstrap.servers": self._servers(), **self._options, **fixed}
        frames = [
            spark.read.format("kafka").options(**options, **offsets_json(ranges)).load()
            for ranges in reads(runs(parts))
        ]
        if shipped := [piece for part in parts for piece in part.pieces if not isinstance(piece, range)]:
            frames.append(data_frame(spark, shipped))
        return reduce(lambda one, other: one.union(other), frames)


def _read_pem(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def runs(parts: Iterable[BatchPart]) -> dict[TopicPartition, list[range]]:
    """partition -> the offsets that executors are to read, ascending, adjacent ranges joined."""
    found: dict[TopicPartition, list[range]] = {}
    for part in parts:
        if offsets := [piece for piece in part.pieces if isinstance(piece, range)]:
            found.setdefault(TopicPartition(part.range.topic, part.range.partition), []).extend(offsets)
    return {partition: _joined(offsets) for partition, offsets in found.items()}


def _joined(offsets: list[range]) -> list[range]:
    joined: list[range] = []
    for one in sorted(offsets, key=lambda one: one.start):
        if joined and one.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return joined


def reads(offsets: Mapping[TopicPartition, Sequence[range]]) -> list[dict[TopicPartition, range]]:
    """The reads that the runs need: one read takes one range of each partition."""
    most = max(map(len, offsets.values()), default=0)
    return [
        {partition: its[number] for partition, its in offsets.items() if number < len(its)} for number in range(most)
    ]


def offsets_json(ranges: Mapping[TopicPartition, range]) -> dict[str, str]:
    """The options that name partitions and offsets; ends are exclusive, like ours."""
    by_topic: dict[str, dict[int, range]] = {}
    for (topic, number), offsets in ranges.items():
        by_topic.setdefault(topic, {})[number] = offsets
    named = {
        "assign": {topic: list(its) for topic, its in by_topic.items()},
        "startingOffsets": {topic: {at: one.start for at, one in its.items()} for topic, its in by_topic.items()},
        "endingOffsets": {topic: {at: one.stop for at, one in its.items()} for topic, its in by_topic.items()},
    }
    return {option: json.dumps(value) for option, value in named.items()}


class SecretFilter(logging.Filter):
    """Drops lines of pyspark's clients about options with secrets: at DEBUG they print the values."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be logged."""
        text = record.getMessage()
        return not any(option in text for option in SECRET)


for _name in ("py4j.clientserver", "py4j.java_gateway", "pyspark.sql.connect.logging"):
    logging.getLogger(_name).addFilter(SecretFilter())

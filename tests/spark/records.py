"""Records for the tests of Spark, and what runs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.config.tables import SparkChannelSettings
from reactive_kafka.events import Event
from reactive_kafka.records import HeaderPairs
from reactive_kafka.spark.batches.columns import PIECE_RECORDS, record_batch
from reactive_kafka.spark.batches.spark_batch import BatchPart, spark_range
from reactive_kafka.spark.batches.spark_function import Payload, SparkFunction
from reactive_kafka.spark.channel.runner import SparkRunner
from reactive_kafka.spark.session.spark_engine import SparkEngine

CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
SPARK = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    # Pyspark leaves those of collect() open.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def on_spark(test: Any) -> Any:
    """Mark a test that needs the engine of the session."""
    for mark in SPARK:
        test = mark(test)
    return test


@dataclass(frozen=True, slots=True)
class Raw:
    """What the protocol asks of a raw record, and no more."""

    offset: int
    timestamp: int | None = 1_700_000_000_123
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: HeaderPairs = ()


class Heard:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        self.events.append(event)


def outgoing(name: str, topic: str, **more: Any) -> OutgoingSettings:
    """The settings of an outgoing channel."""
    return OutgoingSettings(name=name, topic=topic, **more)


def part_of(partition: TopicPartition, records: Sequence[Raw]) -> BatchPart:
    """The range from the first record to the last, with their columns."""
    its_range = spark_range("billing", partition, records[0].offset, records[-1].offset + 1)
    cuts = range(0, len(records), PIECE_RECORDS)
    pieces = tuple(record_batch(partition, records[at : at + PIECE_RECORDS]) for at in cuts)
    return BatchPart(its_range, pieces, len(records))


def values_of(partition: TopicPartition, values: Sequence[bytes | None]) -> BatchPart:
    """Records from offset 0 on with these values."""
    return part_of(partition, [Raw(offset, value=value) for offset, value in enumerate(values)])


def runner_of(
    engine: SparkEngine,
    function: Any,
    *,
    payload: Payload | None = None,
    timeout_s: float = 60.0,
    pool: str | None = None,
    **more: Any,
) -> SparkRunner:
    """A runner of the channel ``clicks``."""
    spark = SparkChannelSettings(timeout_s=timeout_s, pool=pool)
    settings = IncomingSettings(
        name="clicks", topics=("clicks",), group_id="billing", drain_timeout_s=5.0, spark=spark
    )
    return SparkRunner(
        engine, SparkFunction(function, payload), settings, **{"observer": Heard(), **more}
    )

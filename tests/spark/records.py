"""Records for the tests of Spark."""

from collections.abc import Sequence
from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.spark.columns import record_batches
from reactive_kafka.spark.runner import Pieces


@dataclass(frozen=True, slots=True)
class Raw:
    """What the protocol asks of a raw record, and no more."""

    offset: int
    timestamp: int | None = 1_700_000_000_123
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: HeaderPairs = ()


def pieces_of(partition: TopicPartition, records: Sequence[Raw]) -> Pieces:
    return [(partition, piece) for piece in record_batches(partition, records)]

"""What a failure strategy decides about a record, as a value. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal, Protocol

from reactive_kafka.records import HeaderPairs, Record, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """A nacked record as a failure strategy sees it: the bytes that were read, decoded or not.

    Attributes:
        group_id: None for a channel that reads without a group.
        partition: Where it was read: for a delayed retry a partition of the retry topic.
        timestamp_ms: The record's, in milliseconds since the epoch; None in the oldest message
            formats.
        reason: What was given to ``nack``, or what the handler raised.
        replacement: What ``nack(reason, record=...)`` wants written instead.
        now_ms: The time of the nack, in milliseconds since the epoch.
    """

    channel: str
    group_id: str | None
    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None
    reason: BaseException
    replacement: Record | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the record unsettled and stop the channel.

    Attributes:
        error: Why the channel stops; None: for the reason of the nack.
    """

    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Log and count the record, and treat it as settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLetter:
    """Write this dead letter or retry, and settle the record once the broker has it.

    Users know it as ``reactive_kafka.Write``. A checkpoint store has another class of that name.

    Attributes:
        partition: None goes by the key. A retry's is taken modulo the number of partitions of its
            topic.
        timestamp_ms: None takes the time of writing. A retry is due its topic's delay after it.
        kind: What it counts as. It also says which headers may be dropped if the broker finds the
            record too large.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    kind: Literal["dead-letter", "retry"] = "dead-letter"


Decision = Stop | Skip | WriteLetter


class FailureStrategy(Protocol):
    """Decides what becomes of a nacked record.

    An error that it raises stops the channel, and the record stays unsettled.
    """

    def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """Return the decision, or an awaitable of it; the record is unsettled until then."""

"""Delayed retries: which topic is next, when a record of one is due, and what a record has behind it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reactive_kafka.failure.decision import FailedRecord
from reactive_kafka.failure.headers import COUNT, DELAYED, FIRST_PROCESSING, ORIGINAL_TIMESTAMP, number_of
from reactive_kafka.records import Headers, TopicPartition


def delay_of(topic: str) -> int | None:
    """The delay of a retry topic in milliseconds, after the last ``_`` of its name; None: it names none."""
    return number_of(topic.rpartition("_")[2].encode())


def due_in_s(timestamp_ms: int | None, delay_ms: int, now_ms: float) -> float:
    """How long a record of a retry topic has to wait yet, in seconds; 0 where it is due, or has no timestamp.

    A timestamp in the future says no more than that a clock is wrong: no record waits longer than the delay.

    Args:
        timestamp_ms: The record's, in milliseconds since the epoch.
        now_ms: The time by the same clock.
    """
    if timestamp_ms is None:
        return 0.0
    return max(0.0, min(timestamp_ms + delay_ms - now_ms, delay_ms)) / 1000


@dataclass(frozen=True, slots=True)
class Past:
    """Where a record stood first, and how often it was delayed since.

    Attributes:
        partition: Of the source topic, as far as is known.
        timestamp_ms: The one that it had there; None: not known.
        retries: How often it has been tried again; None: its headers make no sense, so it might be any number.
        first_ms: When it failed first.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None
    retries: int | None
    first_ms: int


def past_of(failed: FailedRecord, retry_topics: Collection[str]) -> Past:
    """What is known of a record: headers count only if it was read from one of *retry_topics*.

    Without a count it was put there by hand, and starts from the beginning; the first hop writes ``"0"``.
    """
    if failed.partition.topic not in retry_topics:
        return _fresh(failed)
    headers = Headers(failed.headers)
    if headers.get(COUNT) is None:
        return _fresh(failed)
    count, first = number_of(headers.get(COUNT)), number_of(headers.get(FIRST_PROCESSING))
    partition, offset = _origin(headers) or (failed.partition, failed.offset)
    return Past(
        partition=partition,
        offset=offset,
        timestamp_ms=number_of(headers.get(ORIGINAL_TIMESTAMP)),
        retries=None if count is None or first is None else count + 1,  # this was the retry that the header counts
        first_ms=failed.now_ms if first is None else first,
    )


def _fresh(failed: FailedRecord) -> Past:
    at = failed.timestamp_ms
    return Past(failed.partition, failed.offset, at if at is None or at >= 0 else None, 0, failed.now_ms)


def _origin(headers: Headers) -> tuple[TopicPartition, int] | None:
    topic, partition, offset = (headers.get(f"{DELAYED}{name}") for name in ("topic", "partition", "offset"))
    number, at = number_of(partition), number_of(offset)
    if not topic or number is None or at is None:
        return None
    return TopicPartition(topic.decode(errors="replace"), number), at

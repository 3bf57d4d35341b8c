"""The headers of dead letters and delayed retries, and the names of retry topics. Pure.

The header names are SmallRye's. A record's own headers under these names are never believed, and
never kept next to ours: anybody who sends records could forge them, and a record that fails again
and again would grow. Only a record that was read from one of the channel's own retry topics is
believed about how often it was tried, and which record it was at first.

Source: SmallRye's KafkaDeadLetterQueue, KafkaDelayedRetryTopic, DeserializationFailureHandler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from reactive_kafka.errors import DecodeError, HandlerError, text_of
from reactive_kafka.failure.decision import FailedRecord
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import HeaderPairs, Headers, TopicPartition

MAX_VALUE_BYTES = 1024
# A count of more digits is not believed: with these it fits into 64 bits.
_MOST_DIGITS = 18

DEAD_LETTER = "dead-letter-"
DELAYED = "delayed-retry-"
UNDECODED = "deserialization-failure-"
COUNT = "delayed-retry-count"
ORIGINAL_TIMESTAMP = "delayed-retry-original-timestamp"
FIRST_PROCESSING = "delayed-retry-first-processing-timestamp"
LETTER_TIMESTAMP = DEAD_LETTER + "timestamp"

# With either prefix, DEAD_LETTER or DELAYED.
_NAMES = (
    "exception-class-name",
    "reason",
    "cause-class-name",
    "cause",
    "topic",
    "partition",
    "offset",
)
_UNDECODED_NAMES = frozenset(
    UNDECODED + name
    for name in (
        "reason",
        "cause",
        "topic",
        "deserializer",
        "key",
        "data",
        "key-data",
        "value-data",
        "dlq",
    )
)

DEAD_LETTER_NAMES = (
    frozenset(DEAD_LETTER + name for name in _NAMES) | {LETTER_TIMESTAMP} | _UNDECODED_NAMES
)
DELAYED_NAMES = frozenset(DELAYED + name for name in _NAMES) | {
    COUNT,
    ORIGINAL_TIMESTAMP,
    FIRST_PROCESSING,
}
LETTER_NAMES = DEAD_LETTER_NAMES | DELAYED_NAMES
"""Every header of ours that a dead letter can have."""
DISPENSABLE = {
    prefix + name for prefix in (DEAD_LETTER, DELAYED) for name in ("reason", "cause")
} | _UNDECODED_NAMES
"""The headers that are dropped if a record is too large with all of ours: texts of any length. The
class of the error, topic, partition and offset stay.
"""


def header_text(text: str) -> bytes:
    """Return *text* as one line of UTF-8, at most 1 KB, with invisible characters escaped."""
    line = one_line(text, MAX_VALUE_BYTES).encode()
    # A character that the limit cuts in two is left out.
    return line[:MAX_VALUE_BYTES].decode(errors="ignore").encode()


def parse_count(text: bytes | None) -> int | None:
    """Return a count of 0 or more from decimal digits; None if the text is not one."""
    if text is None or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def error_headers(reason: BaseException, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield class and text of the exception, and of its cause if it has one."""
    reason = original_error(reason)
    yield f"{prefix}exception-class-name", header_text(qualified_name(type(reason)))
    yield f"{prefix}reason", header_text(text_of(reason))
    cause = _cause(reason)
    if cause is not None:
        yield f"{prefix}cause-class-name", header_text(qualified_name(type(cause)))
        yield f"{prefix}cause", header_text(text_of(cause))


def place_headers(
    partition: TopicPartition, offset: int, prefix: str
) -> Iterator[tuple[str, bytes]]:
    """Yield topic, partition and offset of a record."""
    yield f"{prefix}topic", header_text(partition.topic)
    yield f"{prefix}partition", b"%d" % partition.partition
    yield f"{prefix}offset", b"%d" % offset


def undecoded_headers(
    reason: BaseException, topic: str, deserializers: Mapping[str, str | None]
) -> Iterator[tuple[str, bytes]]:
    """Yield what SmallRye says of a record that could not be decoded; nothing for other failures.

    SmallRye also puts the record's bytes into a header. Here the letter has them as key and value.

    Args:
        deserializers: Part of the record (see :class:`DecodeError`) -> its configured deserializer.
    """
    reason = original_error(reason)
    if not isinstance(reason, DecodeError):
        return
    yield f"{UNDECODED}reason", header_text(text_of(reason))
    cause = _cause(reason)
    if cause is not None:
        yield f"{UNDECODED}cause", header_text(text_of(cause))
    yield f"{UNDECODED}topic", header_text(topic)
    deserializer = deserializers.get(reason.part)
    if deserializer is not None:
        yield f"{UNDECODED}deserializer", header_text(deserializer)


def merge_headers(
    ours: Iterable[tuple[str, bytes]],
    original: HeaderPairs,
    overrides: HeaderPairs,
    reserved: frozenset[str],
) -> HeaderPairs:
    """Return our headers, then the record's own, then those that a nack gave.

    Args:
        original: The record's own headers. Those with a *reserved* name are left out.
        overrides: What a nack gave. They replace all others of the same name.
    """
    overridden = {name for name, _ in overrides}
    mine = [(name, value) for name, value in ours if name not in overridden]
    theirs = [
        (name, value) for name, value in original if name not in reserved and name not in overridden
    ]
    return (*mine, *theirs, *overrides)


def original_error(reason: BaseException) -> BaseException:
    """Return what the user's code raised, without the HandlerError around it."""
    while isinstance(reason, HandlerError) and reason.__cause__ is not None:
        reason = reason.__cause__
    return reason


def qualified_name(kind: type[BaseException]) -> str:
    """Return ``package.module.Class``."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _cause(error: BaseException) -> BaseException | None:
    """Return what Python's traceback would show above the error."""
    if error.__cause__ is not None:
        return error.__cause__
    if error.__suppress_context__:
        return None
    return error.__context__


def delay_of(topic: str) -> int | None:
    """Return the delay of a retry topic in ms, from the end of its name; None if it has none.

    The delay is written after the last ``_``.
    """
    return parse_count(topic.rpartition("_")[2].encode())


def due_in_s(timestamp_ms: int | None, delay_ms: int, now_ms: float) -> float:
    """Return how many seconds a record of a retry topic still has to wait; 0 if it is due.

    A record without a timestamp is due. A timestamp in the future only says that a clock is wrong:
    no record waits longer than the delay.
    """
    if timestamp_ms is None:
        return 0.0
    return max(0.0, min(timestamp_ms + delay_ms - now_ms, delay_ms)) / 1000


@dataclass(frozen=True, slots=True)
class RetryHistory:
    """Which record this was at first, and how often it was delayed since.

    Attributes:
        partition: The partition of the source topic, as far as is known.
        offset: The offset there.
        timestamp_ms: The timestamp that it had there; None: not known.
        retries: How often it has been tried again. None: its headers make no sense, so it might be
            any number.
        first_ms: When it failed first, in milliseconds since the epoch.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None
    retries: int | None
    first_ms: int

    @property
    def forgeable(self) -> frozenset[str]:
        """The names under which the record's own headers are not kept in its dead letter.

        Anybody may have written them. If the record was delayed, the ``delayed-retry-*`` headers
        are ours, and stay.
        """
        if self.retries == 0:
            return LETTER_NAMES
        return DEAD_LETTER_NAMES


def retry_history_of(failed: FailedRecord, retry_topics: Collection[str]) -> RetryHistory:
    """Return what is known of a record; headers count only if it came from a retry topic.

    A record of a retry topic that has no count was put there by hand. It starts from the beginning:
    the first retry writes the count ``0``.
    """
    if failed.partition.topic not in retry_topics:
        return _new_history(failed)
    headers = Headers(failed.headers)
    if headers.get(COUNT) is None:
        return _new_history(failed)
    count = parse_count(headers.get(COUNT))
    first_ms = parse_count(headers.get(FIRST_PROCESSING))
    retries: int | None = None
    if count is not None and first_ms is not None:
        # The header counts the retries before this one.
        retries = count + 1
    partition, offset = _original_place(headers) or (failed.partition, failed.offset)
    return RetryHistory(
        partition=partition,
        offset=offset,
        timestamp_ms=parse_count(headers.get(ORIGINAL_TIMESTAMP)),
        retries=retries,
        first_ms=failed.now_ms if first_ms is None else first_ms,
    )


def _new_history(failed: FailedRecord) -> RetryHistory:
    timestamp_ms = failed.timestamp_ms
    if timestamp_ms is not None and timestamp_ms < 0:
        # Kafka's -1: the record has no timestamp.
        timestamp_ms = None
    return RetryHistory(
        partition=failed.partition,
        offset=failed.offset,
        timestamp_ms=timestamp_ms,
        retries=0,
        first_ms=failed.now_ms,
    )


def _original_place(headers: Headers) -> tuple[TopicPartition, int] | None:
    topic = headers.get(f"{DELAYED}topic")
    partition = parse_count(headers.get(f"{DELAYED}partition"))
    offset = parse_count(headers.get(f"{DELAYED}offset"))
    if not topic or partition is None or offset is None:
        return None
    return TopicPartition(topic.decode(errors="replace"), partition), offset

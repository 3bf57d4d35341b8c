"""What dead letters and delayed retries say of themselves: headers under SmallRye's names, names of
topics. Pure.

A record's own headers under these names are never believed, and never kept beside ours: whoever
sends records could forge them, and a record that comes round again would grow. Only what was read
from one of the channel's own retry topics tells how often it was tried, and where it stood first.
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
# Of a number in a header: it fits 64 bits.
_MOST_DIGITS = 18

DEAD_LETTER = "dead-letter-"
DELAYED = "delayed-retry-"
UNDECODED = "deserialization-failure-"
COUNT = "delayed-retry-count"
ORIGINAL_TIMESTAMP = "delayed-retry-original-timestamp"
FIRST_PROCESSING = "delayed-retry-first-processing-timestamp"
LETTER_TIMESTAMP = DEAD_LETTER + "timestamp"

_OURS = (
    "exception-class-name",
    "reason",
    "cause-class-name",
    "cause",
    "topic",
    "partition",
    "offset",
)
_UNDECODED = (
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
_UNDECODED_NAMES = {UNDECODED + name for name in _UNDECODED}

DEAD_LETTER_NAMES = (
    frozenset(DEAD_LETTER + name for name in _OURS) | {LETTER_TIMESTAMP} | _UNDECODED_NAMES
)
DELAYED_NAMES = frozenset(DELAYED + name for name in _OURS) | {
    COUNT,
    ORIGINAL_TIMESTAMP,
    FIRST_PROCESSING,
}
LETTER_NAMES = DEAD_LETTER_NAMES | DELAYED_NAMES
"""All that a dead letter can have of ours."""
DISPENSABLE = {
    prefix + name for prefix in (DEAD_LETTER, DELAYED) for name in ("reason", "cause")
} | _UNDECODED_NAMES
"""What may go where a record does not fit with all of ours: texts of any length. Class and origin
stay.
"""


def header_text(text: str) -> bytes:
    """*text* as UTF-8 on one line of at most 1 KB, with control and invisible characters
    escaped.
    """
    line = one_line(text, MAX_VALUE_BYTES).encode()
    # Cut between two characters.
    return line[:MAX_VALUE_BYTES].decode(errors="ignore").encode()


def number_of(text: bytes | None) -> int | None:
    """A count of nothing or more, in decimal digits only; None: it is none."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _MOST_DIGITS else None


def about(reason: BaseException, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Class and text of the exception, and of what caused it where something did."""
    reason = given(reason)
    yield f"{prefix}exception-class-name", header_text(dotted(type(reason)))
    yield f"{prefix}reason", header_text(text_of(reason))
    if (cause := _cause(reason)) is not None:
        yield f"{prefix}cause-class-name", header_text(dotted(type(cause)))
        yield f"{prefix}cause", header_text(text_of(cause))


def origin(partition: TopicPartition, offset: int, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Where a record stands."""
    yield f"{prefix}topic", header_text(partition.topic)
    yield f"{prefix}partition", b"%d" % partition.partition
    yield f"{prefix}offset", b"%d" % offset


def undecoded(
    reason: BaseException, topic: str, deserializers: Mapping[str, str | None]
) -> Iterator[tuple[str, bytes]]:
    """What SmallRye says of a record that could not be deserialised; the bytes themselves are the
    letter's.

    *deserializers* is part of the record (see :class:`DecodeError`) -> what is configured for it.
    """
    reason = given(reason)
    if not isinstance(reason, DecodeError):
        return
    yield f"{UNDECODED}reason", header_text(text_of(reason))
    if (cause := _cause(reason)) is not None:
        yield f"{UNDECODED}cause", header_text(text_of(cause))
    yield f"{UNDECODED}topic", header_text(topic)
    if (deserializer := deserializers.get(reason.part)) is not None:
        yield f"{UNDECODED}deserializer", header_text(deserializer)


def joined(
    ours: Iterable[tuple[str, bytes]],
    original: HeaderPairs,
    overrides: HeaderPairs,
    names: frozenset[str],
) -> HeaderPairs:
    """Ours, then the record's but *names*, then those that a nack gave; of one name only the last
    of these speaks.
    """
    given_names = {name for name, _ in overrides}
    mine = [(name, value) for name, value in ours if name not in given_names]
    theirs = [
        (name, value) for name, value in original if name not in names and name not in given_names
    ]
    return (*mine, *theirs, *overrides)


def given(reason: BaseException) -> BaseException:
    """What the user's code raised, where we have wrapped it."""
    while isinstance(reason, HandlerError) and reason.__cause__ is not None:
        reason = reason.__cause__
    return reason


def dotted(kind: type[BaseException]) -> str:
    """``package.module.Class``."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def delay_of(topic: str) -> int | None:
    """The delay of a retry topic in milliseconds, after the last ``_`` of its name; None: it names
    none.
    """
    return number_of(topic.rpartition("_")[2].encode())


def due_in_s(timestamp_ms: int | None, delay_ms: int, now_ms: float) -> float:
    """How long a record of a retry topic has to wait yet, in seconds; 0 where it is due, or has no
    timestamp.

    A timestamp in the future says no more than that a clock is wrong: no record waits longer than
    the delay.
    """
    if timestamp_ms is None:
        return 0.0
    return max(0.0, min(timestamp_ms + delay_ms - now_ms, delay_ms)) / 1000


@dataclass(frozen=True, slots=True)
class Past:
    """Where a record stood first, and how often it was delayed since."""

    # Of the source topic, as far as is known.
    partition: TopicPartition
    offset: int
    # The one that it had there; None: not known.
    timestamp_ms: int | None
    # How often it has been tried again; None: its headers make no sense, so it might be any number.
    retries: int | None
    # When it failed first.
    first_ms: int

    @property
    def forgeable(self) -> frozenset[str]:
        """The names under which the record's own headers are not kept in its dead letter: they may
        be anybody's.
        """
        # The others are ours if it was delayed.
        return LETTER_NAMES if self.retries == 0 else DEAD_LETTER_NAMES


def past_of(failed: FailedRecord, retry_topics: Collection[str]) -> Past:
    """What is known of a record: headers count only if it was read from one of *retry_topics*.

    Without a count it was put there by hand, and starts from the beginning; the first hop writes
    ``"0"``.
    """
    if failed.partition.topic not in retry_topics:
        return _fresh(failed)
    headers = Headers(failed.headers)
    if headers.get(COUNT) is None:
        return _fresh(failed)
    count = number_of(headers.get(COUNT))
    first = number_of(headers.get(FIRST_PROCESSING))
    partition, offset = _origin(headers) or (failed.partition, failed.offset)
    return Past(
        partition=partition,
        offset=offset,
        timestamp_ms=number_of(headers.get(ORIGINAL_TIMESTAMP)),
        # This was the retry that the header counts.
        retries=None if count is None or first is None else count + 1,
        first_ms=failed.now_ms if first is None else first,
    )


def _fresh(failed: FailedRecord) -> Past:
    at = failed.timestamp_ms
    return Past(
        failed.partition, failed.offset, at if at is None or at >= 0 else None, 0, failed.now_ms
    )


def _origin(headers: Headers) -> tuple[TopicPartition, int] | None:
    topic, partition, offset = (
        headers.get(f"{DELAYED}{name}") for name in ("topic", "partition", "offset")
    )
    number = number_of(partition)
    at = number_of(offset)
    if not topic or number is None or at is None:
        return None
    return TopicPartition(topic.decode(errors="replace"), number), at

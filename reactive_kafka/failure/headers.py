"""The headers of dead letters and delayed retries, under SmallRye's names. Pure.

A record's own headers under these names are never believed, and never kept beside ours: whoever sends records
could forge them, and a record that comes round again would grow. Only what was read from one of the channel's own
retry topics tells how often it was tried, and where it stood first.
Source: SmallRye's KafkaDeadLetterQueue, KafkaDelayedRetryTopic, DeserializationFailureHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reactive_kafka.errors import DecodeError, HandlerError, text_of
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import HeaderPairs, TopicPartition

MAX_VALUE_BYTES = 1024
_MOST_DIGITS = 18  # of a number in a header: it fits 64 bits

DEAD_LETTER, DELAYED, UNDECODED = "dead-letter-", "delayed-retry-", "deserialization-failure-"
COUNT = "delayed-retry-count"
ORIGINAL_TIMESTAMP = "delayed-retry-original-timestamp"
FIRST_PROCESSING = "delayed-retry-first-processing-timestamp"

_FAILURE = ("exception-class-name", "reason", "cause-class-name", "cause")
_ORIGIN = ("topic", "partition", "offset")
_UNDECODED = ("reason", "cause", "topic", "deserializer", "key", "data", "key-data", "value-data", "dlq")

DEAD_LETTER_NAMES = frozenset(DEAD_LETTER + name for name in (*_FAILURE, *_ORIGIN)) | {
    UNDECODED + name for name in _UNDECODED
}
DELAYED_NAMES = frozenset(DELAYED + name for name in (*_FAILURE, *_ORIGIN)) | {
    COUNT,
    ORIGINAL_TIMESTAMP,
    FIRST_PROCESSING,
}
DISPENSABLE = frozenset(prefix + name for prefix in (DEAD_LETTER, DELAYED) for name in ("reason", "cause")) | {
    UNDECODED + name for name in _UNDECODED
}
"""What may go where a record does not fit with all of ours: texts of any length. Class and origin stay."""


def header_text(text: str) -> bytes:
    """*text* as UTF-8 on one line of at most 1 KB, with control and invisible characters escaped."""
    line = one_line(text, MAX_VALUE_BYTES).encode()
    return line[:MAX_VALUE_BYTES].decode(errors="ignore").encode()  # cut between two characters


def number_of(text: bytes | None) -> int | None:
    """A count of nothing or more, in decimal digits only; None: it is none."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _MOST_DIGITS else None


def about(reason: BaseException, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Class and text of the exception, and of what caused it where something did."""
    reason = given(reason)
    yield f"{prefix}exception-class-name", header_text(dotted(type(reason)))
    yield f"{prefix}reason", header_text(text_of(reason))
    cause = _cause(reason)
    if cause is not None:
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
    """What SmallRye says of a record that could not be deserialised; the bytes themselves are the letter's.

    Args:
        deserializers: Part of the record (see :class:`DecodeError`) -> what is configured for it.
    """
    reason = given(reason)
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


def joined(
    ours: Iterable[tuple[str, bytes]], original: HeaderPairs, overrides: HeaderPairs, names: frozenset[str]
) -> HeaderPairs:
    """Ours, then the record's, then those that a nack gave; of one name only the last of these three speaks.

    Args:
        names: What the record itself has no say about.
    """
    given_names = {name for name, _ in overrides}
    mine = [(name, value) for name, value in ours if name not in given_names]
    theirs = [(name, value) for name, value in original if name not in names and name not in given_names]
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

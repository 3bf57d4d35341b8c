"""The failure strategies that are built in. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.errors import DataLossError, EncodeError
from reactive_kafka.failure import headers
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Stop, Write
from reactive_kafka.failure.headers import Past
from reactive_kafka.formats import encoder_for
from reactive_kafka.records import Record
from reactive_kafka.wire import fields_problem, topic_problem

_encode = encoder_for(None)  # bytes as they are, strings as UTF-8, everything else as JSON


class Fail:
    """``fail``: the record stays unsettled, and the channel stops."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Stop()


class Ignore:
    """``ignore``: the record counts as settled."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Skip()


class DeadLetterQueue:
    """``dead-letter-queue``: the record as it was read goes to *topic*, with headers that say why and from where.

    A record of a retry topic is named by where it stood first, and gets its first timestamp back. Its
    ``delayed-retry-*`` headers stay: they tell how often and since when it was tried.

    Args:
        deserializer, key_deserializer: Those configured, for the headers of a record that cannot be decoded.
        retry_topics: Those of the channel.
    """

    def __init__(
        self,
        topic: str,
        *,
        deserializer: str | None = None,
        key_deserializer: str | None = None,
        retry_topics: Collection[str] = (),
    ) -> None:
        self._topic = topic
        self._deserializers = {"value": deserializer, "key": key_deserializer}
        self._retry_topics = frozenset(retry_topics)

    def decide(self, failed: FailedRecord) -> Decision:
        """Write a dead letter; what ``nack(record=...)`` gave takes the place of the record's own.

        Raises:
            EncodeError: What it gave cannot be written.
        """
        return self.letter(failed, headers.past_of(failed, self._retry_topics))

    def letter(self, failed: FailedRecord, past: Past) -> Write:
        """The dead letter of a record with this past."""
        content = _content(failed, self._topic)
        ours = (
            *headers.about(failed.reason, headers.DEAD_LETTER),
            *headers.origin(past.partition, past.offset, headers.DEAD_LETTER),
            *headers.undecoded(failed.reason, past.partition.topic, self._deserializers),
        )
        pairs = headers.joined(ours, failed.headers, content.headers, headers.DEAD_LETTER_NAMES)
        at = past.timestamp_ms if content.timestamp_ms is None else content.timestamp_ms
        return replace(content, headers=pairs, timestamp_ms=at)


class DelayedRetry:
    """``delayed-retry-topic``: the record goes to the next retry topic, and to the dead letters when it was enough.

    Enough is ``max_retries`` retries, or a next one that would come later than ``timeout`` after the first failure;
    or headers that make no sense, because a count that cannot be read must not start again from nothing for ever.
    """

    def __init__(self, settings: DelayedRetrySettings, dead_letters: DeadLetterQueue) -> None:
        self._settings = settings
        self._topics = frozenset(settings.topics)
        self._dead_letters = dead_letters

    def decide(self, failed: FailedRecord) -> Decision:
        """Write a retry, due its topic's delay from now, or a dead letter.

        Of what ``nack(record=...)`` gave a retry takes value, key and headers; the rest is a dead letter's only.
        """
        past = headers.past_of(failed, self._topics)
        topic = self._next_topic(failed, past)
        return self._dead_letters.letter(failed, past) if topic is None else _delayed(failed, past, topic)

    def _next_topic(self, failed: FailedRecord, past: Past) -> str | None:
        topics, retries = self._settings.topics, past.retries
        if retries is None or retries >= self._settings.max_retries or isinstance(failed.reason, DataLossError):
            return None  # of what is lost there is nothing to try again
        topic = topics[min(retries, len(topics) - 1)]
        tried_ms = failed.now_ms + (headers.delay_of(topic) or 0) - past.first_ms
        return None if tried_ms > self._settings.timeout_s * 1000 else topic


def _delayed(failed: FailedRecord, past: Past, topic: str) -> Write:
    content = _content(failed, topic)
    ours = [
        (headers.COUNT, b"%d" % (past.retries or 0)),
        (headers.FIRST_PROCESSING, b"%d" % past.first_ms),
        *headers.about(failed.reason, headers.DELAYED),
        *headers.origin(past.partition, past.offset, headers.DELAYED),
    ]
    if past.timestamp_ms is not None:
        ours.insert(1, (headers.ORIGINAL_TIMESTAMP, b"%d" % past.timestamp_ms))
    # The next failure reads these: no nack may change them.
    extra = [(name, value) for name, value in content.headers if name not in headers.DELAYED_NAMES]
    return Write(
        topic=topic,
        value=content.value,
        key=content.key,
        headers=headers.joined(ours, failed.headers, extra, headers.DELAYED_NAMES),
        partition=failed.partition.partition,
        timestamp_ms=failed.now_ms,
        kind="retry",
    )


def check_replacement(channel: str, record: Record) -> None:
    """See that what ``nack(record=...)`` is given can be written.

    Raises:
        EncodeError: Its value or key has no bytes, a header is no pair of a string and bytes, its topic or partition
            is none that can be, or its timestamp has no time zone.
    """
    key, value = _encode(record.key), _encode(record.value)
    pairs = tuple(record.headers) if isinstance(record.headers, Iterable) else record.headers
    problem = topic_problem(record.topic) if record.topic else None
    if problem := problem or fields_problem(value, key, pairs, record.partition, None):
        raise EncodeError(f"channel {channel!r}: nack's record cannot be written: {problem}")
    if record.timestamp is not None and record.timestamp.tzinfo is None:
        raise EncodeError(f"channel {channel!r}: the timestamp {record.timestamp} of nack's record has no time zone")


def _content(failed: FailedRecord, topic: str) -> Write:
    """The record's own bytes, or what a nack wants written instead, which :func:`check_replacement` has seen.

    A replacement's value always counts, for None is a tombstone; a key of None keeps the record's own.
    """
    record = failed.replacement
    if record is None:
        return Write(topic=topic, value=failed.value, key=failed.key)
    return Write(
        topic=record.topic or topic,
        value=_encode(record.value),
        key=failed.key if record.key is None else _encode(record.key),
        headers=tuple(record.headers),
        partition=record.partition,
        timestamp_ms=None if record.timestamp is None else int(record.timestamp.timestamp() * 1000),
    )

"""The failure strategies that are built in, and those of a channel by the names that its settings
use. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.errors import ConfigError, DataLossError, EncodeError
from reactive_kafka.failure import headers
from reactive_kafka.failure.decision import (
    Decision,
    FailedRecord,
    FailureStrategy,
    Skip,
    Stop,
    Write,
)
from reactive_kafka.failure.headers import Past
from reactive_kafka.formats import FormatError, is_event_type
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.formats.user_objects import load_strategy, made_strategy
from reactive_kafka.records import Record
from reactive_kafka.wire import fields_problem, topic_problem

DEAD_LETTER_QUEUE = "dead-letter-queue"
DELAYED_RETRY = "delayed-retry-topic"
BUILT_IN = ("fail", "ignore", DEAD_LETTER_QUEUE, DELAYED_RETRY)


class Fail:
    """``fail``: the record stays unsettled, and the channel stops."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Stop()


class Ignore:
    """``ignore``: the record counts as settled."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Skip()


class DeadLetterQueue:
    """``dead-letter-queue``: the record as it was read goes to *topic*, with headers that say why
    and from where.

    A letter's timestamp is the time of writing, and the record's own is in a header: with the
    record's own timestamp the retention of *topic* would delete the letter of an old record at
    once.

    A record of a retry topic is named by where it stood first, with its first timestamp. Its
    ``delayed-retry-*`` headers stay: they tell how often and since when it was tried. Those of any
    other record do not: whoever has sent it has written them.

    Args:
        deserializer, key_deserializer: Those configured, for the headers of a record that cannot be
            decoded.
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
        ours = [
            *headers.about(failed.reason, headers.DEAD_LETTER),
            *headers.origin(past.partition, past.offset, headers.DEAD_LETTER),
        ]
        if past.timestamp_ms is not None:
            ours.append((headers.LETTER_TIMESTAMP, b"%d" % past.timestamp_ms))
        ours.extend(headers.undecoded(failed.reason, past.partition.topic, self._deserializers))
        pairs = headers.joined(ours, failed.headers, content.headers, past.forgeable)
        return replace(content, headers=pairs)


class DelayedRetry:
    """``delayed-retry-topic``: the record goes to the next retry topic, and to the dead letters
    when it was enough.

    Enough is ``max_retries`` retries, or a next one that would come later than ``timeout`` after
    the first failure; or headers that make no sense, because a count that cannot be read must not
    start again from nothing for ever.
    """

    def __init__(self, settings: DelayedRetrySettings, dead_letters: DeadLetterQueue) -> None:
        self._settings = settings
        self._topics = frozenset(settings.topics)
        self._dead_letters = dead_letters

    def decide(self, failed: FailedRecord) -> Decision:
        """Write a retry, due its topic's delay from now, or a dead letter.

        Of what ``nack(record=...)`` gave a retry takes value, key and headers; the rest is a dead
        letter's only.
        """
        past = headers.past_of(failed, self._topics)
        topic = self._next_topic(failed, past)
        return (
            self._dead_letters.letter(failed, past)
            if topic is None
            else _delayed(failed, past, topic)
        )

    def _next_topic(self, failed: FailedRecord, past: Past) -> str | None:
        topics = self._settings.topics
        retries = past.retries
        if (
            retries is None
            or retries >= self._settings.max_retries
            or isinstance(failed.reason, DataLossError)
        ):
            # Of what is lost there is nothing to try again.
            return None
        topic = topics[min(retries, len(topics) - 1)]
        tried_ms = failed.now_ms + (headers.delay_of(topic) or 0) - past.first_ms
        return None if tried_ms > self._settings.timeout_s * 1000 else topic

    def later(self, failed: FailedRecord, topic: str) -> Decision:
        """Write a retry into this topic, because its handler asks for that, however often it was
        tried.
        """
        return _delayed(failed, headers.past_of(failed, self._topics), topic)


def topic_for(delay_s: float, topics: Collection[str]) -> str | None:
    """The retry topic with the shortest delay that is not below this one; None: all are below."""
    delays = {topic: (headers.delay_of(topic) or 0) / 1000 for topic in topics}
    return min(
        (topic for topic in topics if delays[topic] >= delay_s),
        key=delays.__getitem__,
        default=None,
    )


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
    """See that what ``nack(record=...)`` is given can be written; EncodeError says which field it
    is that cannot.
    """
    kind: Any = type(record.value)
    if is_event_type(kind):
        why = f"its value is a {kind.__name__}: give it the event's data, and headers for its attributes"
        raise EncodeError(f"channel {channel!r}: nack's record cannot be written: {why}")
    key = write_by_value(record.key)
    value = write_by_value(record.value)
    pairs = tuple(record.headers) if isinstance(record.headers, Iterable) else record.headers
    problem = topic_problem(record.topic) if record.topic else None
    if problem := problem or fields_problem(value, key, pairs, record.partition, None):
        raise EncodeError(f"channel {channel!r}: nack's record cannot be written: {problem}")
    if record.timestamp is not None and record.timestamp.tzinfo is None:
        raise EncodeError(
            f"channel {channel!r}: the timestamp {record.timestamp} of nack's record has no time zone"
        )


def _content(failed: FailedRecord, topic: str) -> Write:
    """The record's own bytes, or what a nack wants written instead, which :func:`check_replacement`
    has seen.

    A replacement's value always counts, for None is a tombstone; a key of None keeps the record's
    own.
    """
    record = failed.replacement
    if record is None:
        return Write(topic=topic, value=failed.value, key=failed.key)
    return Write(
        topic=record.topic or topic,
        value=write_by_value(record.value),
        key=failed.key if record.key is None else write_by_value(record.key),
        headers=tuple(record.headers),
        partition=record.partition,
        timestamp_ms=None if record.timestamp is None else int(record.timestamp.timestamp() * 1000),
    )


def strategies_of(settings: IncomingSettings) -> Mapping[str, FailureStrategy]:
    """Name -> strategy, of all that the settings name; the dead-letter queue too, where it is
    configured.

    A custom one is ``module:object``: an instance, or a class or function that makes one of the
    settings. ConfigError: it cannot be imported or made, or has no ``decide``, or a built-in one
    lacks its topic.
    """
    return _built_in(settings) | _each(settings, _made)


def load_custom(settings: IncomingSettings) -> Mapping[str, Any]:
    """Name -> the user's own strategy, or what makes it, of all that the settings name; ConfigError
    as above.
    """
    return _each(settings, _loaded)


def _each(
    settings: IncomingSettings, get: Callable[[str, IncomingSettings], Any]
) -> dict[str, Any]:
    """Name -> what *get* says of it, of the strategies that are not built in; each key that it
    raises for is told.
    """
    names = {"failure_strategy": settings.failure_strategy}
    names |= {
        f"failure_routes.{exception}": name for exception, name in settings.failure_routes.items()
    }
    problems = []
    result = {}
    built_in = _built_in(settings)
    for key, name in names.items():
        if name not in built_in and name not in result:
            try:
                result[name] = get(name, settings)
            except FormatError as error:
                problems.append(f"{settings.place(key, name)}: {error}")
    if problems:
        raise ConfigError(*problems)
    return result


def _built_in(settings: IncomingSettings) -> dict[str, FailureStrategy]:
    result: dict[str, FailureStrategy] = {"fail": Fail(), "ignore": Ignore()}
    if settings.dead_letter_queue is not None:
        letters = result[DEAD_LETTER_QUEUE] = DeadLetterQueue(
            settings.dead_letter_queue.topic,
            deserializer=settings.value_deserializer,
            key_deserializer=settings.key_deserializer,
            retry_topics=() if settings.delayed_retry is None else settings.delayed_retry.topics,
        )
        if settings.delayed_retry is not None:
            result[DELAYED_RETRY] = DelayedRetry(settings.delayed_retry, letters)
    return result


def _loaded(name: str, settings: IncomingSettings) -> Any:
    if ":" not in name:
        allowed = ", ".join(_built_in(settings))
        raise FormatError(f"there is no such strategy here; allowed: {allowed} or module:object")
    try:
        return load_strategy(name, "decide")
    except FormatError as error:
        raise FormatError(f"{error}; allowed: {', '.join(BUILT_IN)} or module:object") from error


def _made(name: str, settings: IncomingSettings) -> FailureStrategy:
    strategy: FailureStrategy = made_strategy(_loaded(name, settings), "decide", settings)
    if not callable(getattr(strategy, "decide", None)):
        raise FormatError(f"{type(strategy).__name__} has no method decide(failed)")
    return strategy

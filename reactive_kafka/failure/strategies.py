"""The failure strategies that are built in, and those of a channel by name. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable
from typing import Any

from reactive_kafka.config.kinds import show_duration
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.errors import ConfigError, DataLossError, EncodeError
from reactive_kafka.failure import headers
from reactive_kafka.failure.asked_delay import EXPECTED_DELAY, asked_delay_s
from reactive_kafka.failure.decision import (
    Decision,
    FailedRecord,
    FailureStrategy,
    Skip,
    Stop,
    WriteLetter,
)
from reactive_kafka.failure.headers import RetryHistory, delay_of, retry_history_of
from reactive_kafka.failure.routes import setting_for
from reactive_kafka.formats import FormatError, is_event_type
from reactive_kafka.formats.encoders import write_by_value
from reactive_kafka.formats.sent_values import check_value
from reactive_kafka.formats.user_objects import load_strategy, made_strategy
from reactive_kafka.records import Record, epoch_ms
from reactive_kafka.wire import fields_problem, record_problem, shown, topic_problem

DEAD_LETTER_QUEUE = "dead-letter-queue"
DELAYED_RETRY = "delayed-retry-topic"
BUILT_IN = ("fail", "ignore", DEAD_LETTER_QUEUE, DELAYED_RETRY)


class Fail:
    """``fail``: the record stays unsettled, and the channel stops."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Stop()


class IgnoreFailure:
    """``ignore``: the record counts as settled."""

    def decide(self, failed: FailedRecord) -> Decision:
        return Skip()


class DeadLetterQueue:
    """``dead-letter-queue``: writes the record as it was read, with headers about the failure.

    The timestamp of a letter is the time of writing, and the record's own timestamp is in a header.
    With the record's own timestamp the retention of the topic would delete the letter of an old
    record at once.

    If the record was read from a retry topic, the headers name the record that it was at first. Its
    ``delayed-retry-*`` headers stay: they say how often and since when it was tried. Those of any
    other record are left out: its sender has written them.

    Args:
        topic: Where the letters go.
        deserializer: The configured one, for the headers of a record that cannot be decoded.
        key_deserializer: The same for the key.
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
        """Write a dead letter; what ``nack(record=...)`` gave replaces the record's own content.

        Raises:
            EncodeError: What it gave cannot be written.
        """
        return self.letter(failed, retry_history_of(failed, self._retry_topics))

    def letter(self, failed: FailedRecord, history: RetryHistory) -> WriteLetter:
        """Return the dead letter of a record with this history."""
        content = _content(failed, self._topic)
        ours = [
            *headers.error_headers(failed.reason, headers.DEAD_LETTER),
            *headers.place_headers(history.partition, history.offset, headers.DEAD_LETTER),
        ]
        if history.timestamp_ms is not None:
            ours.append((headers.LETTER_TIMESTAMP, b"%d" % history.timestamp_ms))
        ours.extend(
            headers.undecoded_headers(failed.reason, history.partition.topic, self._deserializers)
        )
        merged = headers.merge_headers(ours, failed.headers, content.headers, history.forgeable)
        return replace(content, headers=merged)


class DelayedRetry:
    """``delayed-retry-topic``: writes to the next retry topic, in the end to the dead letters.

    A record becomes a dead letter after ``max_retries`` retries, or if its next retry would come
    later than ``timeout`` after its first failure. So does a record whose headers make no sense: if
    a count that cannot be read started again from 0, the record might come round for ever.
    """

    def __init__(self, settings: DelayedRetrySettings, dead_letters: DeadLetterQueue) -> None:
        self._settings = settings
        self._topics = frozenset(settings.topics)
        self._dead_letters = dead_letters

    def decide(self, failed: FailedRecord) -> Decision:
        """Write a retry, due its topic's delay from now, or a dead letter.

        A retry takes value, key and headers from what ``nack(record=...)`` gave. The rest of that
        is for dead letters only.
        """
        history = retry_history_of(failed, self._topics)
        topic = self._next_topic(failed, history)
        if topic is None:
            return self._dead_letters.letter(failed, history)
        return retry_letter(failed, history, topic)

    def _next_topic(self, failed: FailedRecord, history: RetryHistory) -> str | None:
        """Return the topic of the next retry; None if there is to be none."""
        topics = self._settings.topics
        retries = history.retries
        if retries is None or retries >= self._settings.max_retries:
            return None
        if isinstance(failed.reason, DataLossError):
            # The record's data is lost: another attempt would fail in the same way.
            return None
        # The last topic takes all further retries.
        topic = topics[min(retries, len(topics) - 1)]
        next_retry_ms = failed.now_ms + (delay_of(topic) or 0)
        if next_retry_ms - history.first_ms > self._settings.timeout_s * 1000:
            return None
        return topic


def retry_topic_for(channel: str, delay: float | str | timedelta, topics: Collection[str]) -> str:
    """Return the retry topic with the shortest delay that is at least *delay*.

    Args:
        channel: Its name, for error texts.
        delay: As ``retry_later`` was given it.
        topics: The retry topics of the channel.

    Raises:
        ValueError: It is no time, there is no retry topic, or all their delays are shorter.
    """
    call = f"channel {channel!r}: retry_later({delay!r})"
    delay_s = asked_delay_s(delay)
    if delay_s is None:
        raise ValueError(f"{call}: {EXPECTED_DELAY}")
    if not topics:
        raise ValueError(f'{call}: neither failure_strategy nor a route is "delayed-retry-topic"')
    delays_s = {topic: (delay_of(topic) or 0) / 1000 for topic in topics}
    long_enough = [topic for topic in topics if delays_s[topic] >= delay_s]
    if not long_enough:
        longest = show_duration(max(delays_s.values()))
        raise ValueError(
            f"{call}: the longest retry delay is {longest}; there are {', '.join(topics)}"
        )
    return min(long_enough, key=delays_s.__getitem__)


def retry_letter(failed: FailedRecord, history: RetryHistory, topic: str) -> WriteLetter:
    """Return what is written to a retry topic for a record with this history.

    Whoever reads the retry topic adds the delay in its name to the timestamp, which is the time of
    the failure, and waits until then.
    """
    content = _content(failed, topic)
    ours = [(headers.COUNT, b"%d" % (history.retries or 0))]
    if history.timestamp_ms is not None:
        ours.append((headers.ORIGINAL_TIMESTAMP, b"%d" % history.timestamp_ms))
    ours.append((headers.FIRST_PROCESSING, b"%d" % history.first_ms))
    ours.extend(headers.error_headers(failed.reason, headers.DELAYED))
    ours.extend(headers.place_headers(history.partition, history.offset, headers.DELAYED))
    # The next failure of the record reads our headers: no nack may change them.
    overrides = [
        (name, value) for name, value in content.headers if name not in headers.DELAYED_NAMES
    ]
    return WriteLetter(
        topic=topic,
        value=content.value,
        key=content.key,
        headers=headers.merge_headers(ours, failed.headers, overrides, headers.DELAYED_NAMES),
        partition=failed.partition.partition,
        timestamp_ms=failed.now_ms,
        kind="retry",
    )


def check_replacement(channel: str, record: Record) -> None:
    """Check that what ``nack(record=...)`` was given can be written.

    Raises:
        EncodeError: It cannot. The text names the field.
        TypeError: It is no Record.
    """
    if not isinstance(record, Record):
        raise TypeError(f"nack(record=...) takes a Record, not {type(record).__name__}")
    cannot_write = f"channel {channel!r}: nack's record cannot be written"
    kind: Any = type(record.value)
    if is_event_type(kind):
        raise EncodeError(
            f"{cannot_write}: its value is a {kind.__name__}: "
            "give it the event's data, and headers for its attributes"
        )
    if record.channel is not None:
        raise EncodeError(
            f"{cannot_write}: channel = {shown(record.channel)}: a replacement cannot choose a "
            "channel; set its topic"
        )
    try:
        check_value(record)
        key = write_by_value(record.key)
        value = write_by_value(record.value)
    except EncodeError as error:
        raise EncodeError(f"{cannot_write}: {error}") from error
    pairs = tuple(record.headers) if isinstance(record.headers, Iterable) else record.headers
    problem = None if record.topic is None else topic_problem(record.topic)
    if problem is None:
        problem = fields_problem(value, key, pairs, record.partition, None)
    if problem is not None:
        raise EncodeError(f"{cannot_write}: {problem}")
    if record.timestamp is not None and record.timestamp.tzinfo is None:
        raise EncodeError(f"{cannot_write}: its timestamp {record.timestamp} has no time zone")


def _content(failed: FailedRecord, topic: str) -> WriteLetter:
    """Return the record's own bytes, or what a nack wants written instead.

    :func:`check_replacement` has checked the replacement. Its value always counts, for None is a
    tombstone. A key of None keeps the record's own key.
    """
    record = failed.replacement
    if record is None:
        return WriteLetter(topic=topic, value=failed.value, key=failed.key)
    return WriteLetter(
        topic=topic if record.topic is None else record.topic,
        value=write_by_value(record.value),
        key=failed.key if record.key is None else write_by_value(record.key),
        headers=tuple(record.headers),
        partition=record.partition,
        timestamp_ms=None if record.timestamp is None else epoch_ms(record.timestamp),
    )


class ChannelStrategies:
    """The failure strategies of one channel, by the names that its settings use.

    Raises:
        ConfigError: A strategy cannot be made.
    """

    def __init__(self, settings: IncomingSettings) -> None:
        self._settings = settings
        self._strategies = strategies_of(settings)
        retries = settings.delayed_retry
        self._retry_topics = frozenset(() if retries is None else retries.topics)

    def name_for(self, reason: BaseException) -> str:
        """Return the name of the strategy for a failure: of its nearest route, or the default."""
        return setting_for(reason, self._settings.failure_routes, self._settings.failure_strategy)

    def decide(self, name: str, failed: FailedRecord) -> Decision | Awaitable[object]:
        """Ask the strategy *name* about a record. Raises nothing: an error in it becomes a Stop.

        The answer is an awaitable only if a user's own strategy is async. What that brings has to
        be checked by :func:`check_decision`.
        """
        strategy = self._strategies[name]
        try:
            decision: object = strategy.decide(failed)
            if isawaitable(decision):
                return decision
            return check_decision(name, decision)
        except BaseException as error:
            # This includes SystemExit, and CancelledError: nothing is awaited here, so the
            # cancellation is not of our task. A bug of a strategy must not pass for a decision.
            return stop_for_bug(error, failed)

    def retry_into(self, topic: str, failed: FailedRecord) -> Decision:
        """Decide a retry into *topic*, which the handler asked for, however often it was tried."""
        return retry_letter(failed, retry_history_of(failed, self._retry_topics), topic)


def check_decision(strategy: str, decision: object) -> Decision:
    """Return *decision* if it can be carried out; *strategy* is the name for error texts.

    Raises:
        TypeError: It is no decision.
        ValueError: It wants something written that can never be. The text names field and value.
    """
    if not isinstance(decision, Stop | Skip | WriteLetter):
        raise TypeError(
            f"the failure strategy {strategy!r} decides Stop, Skip or Write, "
            f"not {type(decision).__name__}"
        )
    if isinstance(decision, Stop) and not isinstance(decision.error, BaseException | None):
        raise TypeError(
            f"the failure strategy {strategy!r} decided Stop({decision.error!r}), "
            "which is no exception"
        )
    if isinstance(decision, WriteLetter):
        problem = _letter_problem(decision)
        if problem is not None:
            raise ValueError(
                f"the failure strategy {strategy!r} decided a Write that can never be written: "
                f"{problem}"
            )
    return decision


def _letter_problem(letter: WriteLetter) -> str | None:
    if letter.kind not in ("dead-letter", "retry"):
        return f"kind = {letter.kind!r}: expected 'dead-letter' or 'retry'"
    return record_problem(
        letter.topic,
        letter.value,
        letter.key,
        letter.headers,
        letter.partition,
        letter.timestamp_ms,
    )


def stop_for_bug(error: BaseException, failed: FailedRecord) -> Stop:
    """Return the decision for a strategy that has raised *error*."""
    if error.__context__ is None and error is not failed.reason:
        # The log shows both: the strategy's error, and the failure that it was asked about.
        error.__context__ = failed.reason
    return Stop(error)


def strategies_of(settings: IncomingSettings) -> Mapping[str, FailureStrategy]:
    """Return name -> strategy, for all that the settings name, and the dead-letter queue.

    A strategy of the user's is named ``module:object``: an instance, or a class or function that
    makes one from the settings.

    Raises:
        ConfigError: One cannot be imported or made, has no ``decide``, or is built in and lacks its
            topic.
    """
    return _built_in(settings) | _for_each_custom(settings, _made)


def load_custom(settings: IncomingSettings) -> Mapping[str, Any]:
    """Return name -> the user's own strategy, or what makes it, without making any.

    Raises:
        ConfigError: As for :func:`strategies_of`.
    """
    return _for_each_custom(settings, _loaded)


def _for_each_custom(
    settings: IncomingSettings, get: Callable[[str, IncomingSettings], Any]
) -> dict[str, Any]:
    """Call *get* for each strategy that is not built in; one error names all wrong keys."""
    names = {"failure_strategy": settings.failure_strategy}
    for exception, name in settings.failure_routes.items():
        names[f"failure_routes.{exception}"] = name
    problems = []
    result = {}
    built_in = _built_in(settings)
    for key, name in names.items():
        if name in built_in or name in result:
            continue
        try:
            result[name] = get(name, settings)
        except FormatError as error:
            problems.append(f"{settings.place(key, name)}: {error}")
    if problems:
        raise ConfigError(*problems)
    return result


def _built_in(settings: IncomingSettings) -> dict[str, FailureStrategy]:
    strategies: dict[str, FailureStrategy] = {"fail": Fail(), "ignore": IgnoreFailure()}
    if settings.dead_letter_queue is not None:
        retries = settings.delayed_retry
        letters = DeadLetterQueue(
            settings.dead_letter_queue.topic,
            deserializer=settings.value_deserializer,
            key_deserializer=settings.key_deserializer,
            retry_topics=() if retries is None else retries.topics,
        )
        strategies[DEAD_LETTER_QUEUE] = letters
        if retries is not None:
            strategies[DELAYED_RETRY] = DelayedRetry(retries, letters)
    return strategies


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

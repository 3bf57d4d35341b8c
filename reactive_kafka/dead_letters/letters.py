"""What dead letters say, and where a replay writes them. No I/O.

Anyone who may write to the dead-letter topic chooses these headers. So they are shown as text, and
a topic that they name becomes a target only if the configuration names it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reactive_kafka.dead_letters.timestamps import TimestampLimits
from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.failure.headers import (
    DEAD_LETTER,
    DEAD_LETTER_NAMES,
    LETTER_NAMES,
    LETTER_TIMESTAMP,
    parse_count,
)
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import HeaderPairs, LogRange, RawRecord, TopicPartition
from reactive_kafka.wire import is_topic

GROUP = "reactive-kafka-replay"
MOST_NAMED = 10
_TEXT_LIMIT = 200


class ReplayError(ReactiveKafkaError):
    """Dead letters cannot be read or sent back: the text says why."""


class LetterOrigin(NamedTuple):
    """The record that became a dead letter, according to its headers."""

    partition: TopicPartition
    offset: int


class ReplayTarget(NamedTuple):
    """Where to write a dead letter. Without a partition its key decides."""

    topic: str
    partition: int | None


Refused = str
"""Why a dead letter has no origin, or no target."""


@dataclass(frozen=True, slots=True)
class LetterKind:
    """The headers of dead letters of one kind.

    Attributes:
        writer: Who writes such letters.
        prefix: ``<prefix>topic``, ``<prefix>partition`` and ``<prefix>offset`` name the origin.
        reason: Which header says why.
        exception: Which header names the exception's class. None: no header does.
    """

    writer: str
    prefix: str
    reason: str
    exception: str | None

    def has(self, headers: HeaderPairs) -> bool:
        """Return whether a record with these headers is such a letter."""
        if self.prefix == DEAD_LETTER:
            return any(name in DEAD_LETTER_NAMES for name, _ in headers)
        return any(name.startswith(self.prefix) for name, _ in headers)


CHANNEL = LetterKind("channel", DEAD_LETTER, "reason", "exception-class-name")
SHARE_GROUP = LetterKind("share group", "__dlq.errors.", "message", None)
KINDS = (
    CHANNEL,
    SHARE_GROUP,
    LetterKind("Kafka Streams", "__streams.errors.", "message", "exception"),
    LetterKind("Kafka Connect", "__connect.errors.", "exception.message", "exception.class.name"),
)
"""The kinds that are read.

Ours, which is SmallRye's, comes first: our letters keep the headers of another kind that their
record had.

Source: KIP-1191 (ShareGroupDLQStateManager), KIP-1034 (ExceptionHandlerUtils), KIP-298
(DeadLetterQueueReporter).
"""


def kind_of(headers: HeaderPairs) -> LetterKind | None:
    """Return the kind of a dead letter; None if the record is not a dead letter."""
    return next((kind for kind in KINDS if kind.has(headers)), None)


def origin_of(headers: HeaderPairs) -> LetterOrigin | Refused:
    """Return the record that became a dead letter, or why the headers do not say it."""
    kind = kind_of(headers)
    if kind is None:
        return "it is not a dead letter: it has none of the headers of one"
    first = _newest(headers)
    texts = {name: first.get(f"{kind.prefix}{name}") for name in ("topic", "partition", "offset")}
    missing = [f"{kind.prefix}{name}" for name, value in texts.items() if value is None]
    if missing:
        return f"it has no header {', '.join(missing)}"
    topic = (texts["topic"] or b"").decode("ascii", "replace")
    partition = parse_count(texts["partition"])
    offset = parse_count(texts["offset"])
    if not is_topic(topic):
        return f"its header {kind.prefix}topic is {shown(texts['topic'])!r}"
    if partition is None:
        return f"its header {kind.prefix}partition is {shown(texts['partition'])!r}"
    if offset is None:
        return f"its header {kind.prefix}offset is {shown(texts['offset'])!r}"
    return LetterOrigin(TopicPartition(topic, partition), offset)


def original_timestamp(record: RawRecord) -> int | None:
    """Return the timestamp (ms) of the record that became this letter, else the letter's own."""
    named = parse_count(_newest(record.headers).get(LETTER_TIMESTAMP))
    return record.timestamp if named is None else named


def _newest(headers: HeaderPairs) -> dict[str, bytes | None]:
    """Return name -> value.

    Of several headers with one name the first counts: SmallRye puts the newest in front.
    """
    return dict(reversed(headers))


def target_of(
    headers: HeaderPairs, letters: str, sizes: Mapping[str, int], is_named: Callable[[str], bool]
) -> ReplayTarget | Refused:
    """Return where a letter goes back to, or why it cannot.

    It goes to its own partition if that still exists, else to that of its key.

    Args:
        headers: The headers of the letter.
        letters: The topic of the letter.
        sizes: Topic -> number of partitions.
        is_named: Whether a letter may go to a topic. Its headers alone do not make a topic a
            target.
    """
    origin = origin_of(headers)
    if isinstance(origin, Refused):
        return origin
    topic, partition = origin.partition
    if topic == letters:
        return "it comes from this very topic"
    if topic.startswith("__"):
        return f"it comes from {topic}, an internal topic of the broker"
    if not is_named(topic):
        return f"it comes from topic {topic}, which no incoming channel of the configuration reads"
    if topic not in sizes:
        return f"it comes from topic {topic}, which does not exist"
    return ReplayTarget(topic, partition if partition < sizes[topic] else None)


def own_headers(headers: HeaderPairs) -> HeaderPairs:
    """Return the record's own headers, without those that make it a dead letter."""
    own = tuple((name, value) for name, value in headers if name not in LETTER_NAMES)
    kind = kind_of(headers)
    if kind is None or kind is CHANNEL:
        return own
    return tuple((name, value) for name, value in own if not name.startswith(kind.prefix))


def letter_of(partition: TopicPartition, record: RawRecord, *, with_value: bool) -> dict[str, Any]:
    """Return a record of a dead-letter topic as JSON has it; each text is one line, and cut.

    ``written_by`` is None for a record that is not a dead letter. ``origin`` and its
    ``timestamp_ms`` are None if no headers name them; ``exception`` and ``reason`` are empty then.
    The value is included only *with_value*.
    """
    kind = kind_of(record.headers)
    origin = origin_of(record.headers)
    first = _newest(record.headers)
    letter: dict[str, Any] = {
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "written_by": None if kind is None else kind.writer,
        "origin": None,
        "exception": "",
        "reason": "",
        "key": shown(record.key),
        "value_bytes": None if record.value is None else len(record.value),
    }
    if not isinstance(origin, Refused):
        named = parse_count(first.get(LETTER_TIMESTAMP))
        letter["origin"] = {
            **origin.partition._asdict(),
            "offset": origin.offset,
            "timestamp_ms": named,
        }
    if kind is not None:
        letter["reason"] = shown(first.get(f"{kind.prefix}{kind.reason}")) or ""
        if kind.exception is not None:
            exception = shown(first.get(f"{kind.prefix}{kind.exception}")) or ""
            # Kafka Streams writes the exception's text after its class.
            letter["exception"] = exception.partition(":")[0]
    if kind is SHARE_GROUP:
        letter["group"] = shown(first.get(f"{kind.prefix}group"))
        letter["deliveries"] = parse_count(first.get(f"{kind.prefix}delivery.count"))
    if with_value:
        letter["value"] = shown(record.value)
    return letter


def shown(value: bytes | None) -> str | None:
    """Return bytes as text on one line, cut. Bytes that are not UTF-8 become escapes."""
    if value is None:
        return None
    # A character of UTF-8 has at most 4 bytes.
    beginning = value[: 4 * _TEXT_LIMIT + 4]
    return one_line(beginning.decode("utf-8", "backslashreplace"), _TEXT_LIMIT)


Reached = Mapping[TopicPartition, int]
"""Partition of the dead letters -> the position up to which they were replayed."""


def progress_group(letters: str, to: str | None) -> str:
    """Return the group that stores how far dead letters were replayed.

    *to* is the topic of ``--to``; None: to their origins. Both replays may write a record to the
    same topic, so each skips the records that the other has written.
    """
    return f"{GROUP}:{letters}" if to is None else f"{GROUP}:{letters}:{to}"


def rest(
    letters: str, to: str | None, logs: Mapping[TopicPartition, LogRange], reached: Reached
) -> dict[TopicPartition, LogRange]:
    """Return the part of *logs* that is left to replay.

    Raises:
        ReplayError: A position is past the end of its log.
    """
    ranges = {}
    for partition, log in logs.items():
        start = max(reached.get(partition, 0), log.start)
        if start > log.end:
            raise ReplayError(
                f"{partition} ends at {log.end}, and was replayed up to {start}: was the topic "
                f"recreated? If so: reactive-kafka offsets reset {progress_group(letters, to)} "
                f"--topic {letters} --to earliest"
            )
        ranges[partition] = LogRange(start, log.end)
    return ranges


@dataclass(slots=True)
class ReplayPlan:
    """What a replay writes: counted first, confirmed by the user, then carried out by these rules.

    Attributes:
        letters: The topic of dead letters.
        to: The topic that all of them go to. None: each goes back to its origin.
        sizes: Topic -> number of partitions, for the topics that exist.
        ranges: The offsets to read.
        is_source: Whether the configuration reads a topic, so that its letters may go back.
        known: Group -> how far its replay has come, for the groups that were looked at.
        counts: Target topic -> records to write there.
        asked: Target topics whose configs were asked for.
        limits: Target topic -> the timestamps that it keeps, if the broker says it.
        restamped: (target topic, config) -> records that get a new timestamp for that reason.
        refused: The first records that stay, and why.
        refused_count: How many records stay.
        done: Records that were replayed before.
        strangers: Records to write though they are not dead letters, because ``--to`` names a topic
            for all.
        keeps_progress: The group of the replay stores how far it came. False for a single record,
            which a later replay of all writes again.
    """

    letters: str
    to: str | None
    sizes: Mapping[str, int]
    ranges: dict[TopicPartition, LogRange]
    is_source: Callable[[str], bool]
    known: dict[str, Reached] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    asked: set[str] = field(default_factory=set)
    limits: dict[str, TimestampLimits] = field(default_factory=dict)
    restamped: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    refused_count: int = 0
    done: int = 0
    strangers: int = 0
    keeps_progress: bool = True

    def other_progress_group(self, target: str) -> str:
        """Return the group of the other replay that may have written a record to this topic.

        For a replay to the origins that is the replay with ``--to``, and the other way around.
        """
        return progress_group(self.letters, target if self.to is None else None)

    def wanted(self, record: RawRecord) -> tuple[ReplayTarget | Refused, bool]:
        """Return where a record would go if it had not been replayed before.

        The second value says whether the other replay writes it to the same topic.
        """
        origin = target_of(record.headers, self.letters, self.sizes, self._is_named)
        if isinstance(origin, ReplayTarget) and self.to in (None, origin.topic):
            return origin, self.is_source(origin.topic)
        if self.to is None:
            return origin, False
        return ReplayTarget(self.to, None), False

    def _is_named(self, topic: str) -> bool:
        return topic == self.to or self.is_source(topic)

    def target(self, partition: TopicPartition, record: RawRecord) -> ReplayTarget | Refused | None:
        """Return where a record goes, or why it stays; None if it was replayed before."""
        wanted, other_writes_it = self.wanted(record)
        if isinstance(wanted, Refused) or not other_writes_it:
            return wanted
        reached = self.known.get(self.other_progress_group(wanted.topic), {})
        return None if record.offset < reached.get(partition, 0) else wanted

    def loses(self, topic: str, record: RawRecord, now_ms: int) -> str | None:
        """Return the config for which *topic* would not keep the original timestamp, or None."""
        timestamp_ms = original_timestamp(record)
        limits = self.limits.get(topic)
        if timestamp_ms is None or limits is None:
            return None
        return limits.against(timestamp_ms, now_ms)

    def count(self, partition: TopicPartition, record: RawRecord, now_ms: int) -> None:
        """Count a record. ``limits`` must have those of its target."""
        target = self.target(partition, record)
        if target is None:
            self.done += 1
        elif isinstance(target, ReplayTarget):
            self.counts[target.topic] += 1
            self.strangers += kind_of(record.headers) is None
            why = self.loses(target.topic, record, now_ms)
            if why is not None:
                self.restamped[target.topic, why] += 1
        else:
            self.refused_count += 1
            if len(self.refused) < MOST_NAMED:
                self.refused.append((partition, record.offset, target))

    def cut(self, partition: TopicPartition, until: int) -> None:
        """Read only up to *until* in this partition, and nothing of later partitions."""
        start, _ = self.ranges[partition]
        self.ranges = {tp: log for tp, log in self.ranges.items() if tp < partition} | {
            partition: LogRange(start, until)
        }

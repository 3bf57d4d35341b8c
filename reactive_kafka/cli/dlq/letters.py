"""Dead letters as the command line sees them, and what a replay of them writes where. No I/O.

Anyone who may write to the dead-letter topic chooses these headers: they are shown as text, and
what they name becomes a target only if the configuration names it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reactive_kafka.cli.dlq.timestamps import TimestampLimits
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import LogRange
from reactive_kafka.failure.headers import (
    DEAD_LETTER,
    DEAD_LETTER_NAMES,
    LETTER_NAMES,
    LETTER_TIMESTAMP,
    parse_count,
)
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.records import HeaderPairs, RawRecord, TopicPartition
from reactive_kafka.wire import is_topic

GROUP = "reactive-kafka-replay"
MOST_NAMED = 10
_TEXT_LIMIT = 200


class LetterOrigin(NamedTuple):
    """The record that became a dead letter, according to its headers."""

    partition: TopicPartition
    offset: int


class ReplayTarget(NamedTuple):
    """Where a dead letter is to be written; without a partition, the key decides."""

    topic: str
    partition: int | None


Refused = str
"""Why a dead letter has no origin, or no target."""


@dataclass(frozen=True, slots=True)
class LetterKind:
    """The headers of dead letters of one kind: ``<prefix>topic``, ``partition`` and ``offset`` name
    the origin.

    Attributes:
        writer: Who writes such letters.
        reason: Which header says why.
        exception: Which header names the exception's class; None: none does.
    """

    writer: str
    prefix: str
    reason: str
    exception: str | None

    def has(self, headers: HeaderPairs) -> bool:
        """Whether a record with these headers is such a letter."""
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
"""The kinds that are read, ours and SmallRye's first: our letters keep the headers of others that
their record had.

Source: KIP-1191 (ShareGroupDLQStateManager), KIP-1034 (ExceptionHandlerUtils), KIP-298
(DeadLetterQueueReporter).
"""


def kind_of(headers: HeaderPairs) -> LetterKind | None:
    """Of which kind a dead letter is; None: the record has none of the headers of one."""
    return next((kind for kind in KINDS if kind.has(headers)), None)


def origin_of(headers: HeaderPairs) -> LetterOrigin | Refused:
    """The record that became a dead letter."""
    kind = kind_of(headers)
    if kind is None:
        return "it is no dead letter: it has none of the headers of one"
    first = _newest(headers)
    texts = {name: first.get(f"{kind.prefix}{name}") for name in ("topic", "partition", "offset")}
    missing = [f"{kind.prefix}{name}" for name, value in texts.items() if value is None]
    if missing:
        return f"it has no header {', '.join(missing)}"
    partition = parse_count(texts["partition"])
    offset = parse_count(texts["offset"])
    topic = (texts["topic"] or b"").decode("ascii", "replace")
    for name, value in (
        ("topic", is_topic(topic) or None),
        ("partition", partition),
        ("offset", offset),
    ):
        if value is None:
            return f"its header {kind.prefix}{name} is {shown(texts[name])!r}"
    return LetterOrigin(TopicPartition(topic, partition or 0), offset or 0)


def original_timestamp(record: RawRecord) -> int | None:
    """The timestamp in ms of the record that became this letter; where no header names it, the
    letter's own.
    """
    named = parse_count(_newest(record.headers).get(LETTER_TIMESTAMP))
    return record.timestamp if named is None else named


def _newest(headers: HeaderPairs) -> dict[str, bytes | None]:
    """Name -> value; of several headers of one name the first: SmallRye puts the newest in front of
    older ones.
    """
    return dict(reversed(headers))


def target_of(
    headers: HeaderPairs, letters: str, sizes: Mapping[str, int], is_named: Callable[[str], bool]
) -> ReplayTarget | Refused:
    """Where a letter of topic *letters* goes back to: its own partition if that still exists, else
    that of its key.

    *is_named* says which topics it may go to: its headers alone make no topic a target.
    """
    origin = origin_of(headers)
    if isinstance(origin, Refused):
        return origin
    topic, partition = origin.partition
    if topic == letters:
        return "it comes from this very topic"
    if topic.startswith("__"):
        return f"it comes from {topic}, a topic of the broker's own"
    if not is_named(topic):
        return (
            f"it comes from topic {topic}, and no incoming channel of the configuration reads that"
        )
    if topic not in sizes:
        return f"it comes from topic {topic}, which does not exist"
    return ReplayTarget(topic, partition if partition < sizes[topic] else None)


def own_headers(headers: HeaderPairs) -> HeaderPairs:
    """The record's own headers: without ours, and without those that make it a letter of another
    kind.
    """
    kind = kind_of(headers)
    foreign = None if kind is None or kind is CHANNEL else kind.prefix
    return tuple(
        (name, value)
        for name, value in headers
        if name not in LETTER_NAMES and not (foreign is not None and name.startswith(foreign))
    )


def letter_of(partition: TopicPartition, record: RawRecord, *, with_value: bool) -> dict[str, Any]:
    """What is shown of a record in a dead-letter topic, by the names of the JSON; each text is on
    one line, and cut.

    ``written_by`` is None for a record that is no dead letter, ``origin`` where no headers name it,
    and its ``timestamp_ms`` where none names that; ``exception`` and ``reason`` are empty where
    none names them. The value is shown only *with_value*.
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
            # Kafka Streams has the exception's text behind its class.
            named_class, _, _ = (
                shown(first.get(f"{kind.prefix}{kind.exception}")) or ""
            ).partition(":")
            letter["exception"] = named_class
    if kind is SHARE_GROUP:
        letter["group"] = shown(first.get(f"{kind.prefix}group"))
        letter["deliveries"] = parse_count(first.get(f"{kind.prefix}delivery.count"))
    if with_value:
        letter["value"] = shown(record.value)
    return letter


def shown(value: bytes | None) -> str | None:
    """Bytes as text on one line, cut; bytes that are not UTF-8 as escapes."""
    if value is None:
        return None
    return one_line(value[: 4 * _TEXT_LIMIT + 4].decode("utf-8", "backslashreplace"), _TEXT_LIMIT)


Reached = Mapping[TopicPartition, int]
"""partition of the dead letters -> the position up to which they were replayed."""


def memory_of(letters: str, to: str | None) -> str:
    """The group that stores how far dead letters were replayed: to one topic, or, with None, to
    their origins.

    Both ways may lead a record to the same topic; so a record that one of them has written is
    skipped by the other.
    """
    return f"{GROUP}:{letters}" if to is None else f"{GROUP}:{letters}:{to}"


def rest(
    letters: str, to: str | None, logs: Mapping[TopicPartition, LogRange], reached: Reached
) -> dict[TopicPartition, LogRange]:
    """What of *logs* is left to be replayed; CommandFailed: a position is behind the end of its log."""
    ranges = {}
    for partition, log in logs.items():
        at = max(reached.get(partition, 0), log.start)
        if at > log.end:
            raise CommandFailed(
                f"{partition} ends at {log.end}, and was replayed up to {at}: was the topic recreated? If so: "
                f"reactive-kafka offsets reset {memory_of(letters, to)} --topic {letters} --to earliest"
            )
        ranges[partition] = LogRange(at, log.end)
    return ranges


@dataclass(slots=True)
class ReplayPlan:
    """What a replay writes: counted first, confirmed, and then carried out by the same rules."""

    # The topic of dead letters.
    letters: str
    # Where all of them go; None: each to its origin.
    to: str | None
    # Topic -> number of partitions, of the topics that exist.
    sizes: Mapping[str, int]
    # What is read.
    ranges: dict[TopicPartition, LogRange]
    # Whether the configuration reads a topic, so that its letters may go back.
    is_source: Callable[[str], bool]
    # Group -> how far that way had come; of those looked at.
    known: dict[str, Reached] = field(default_factory=dict)
    # Target topic -> records that are written there.
    counts: Counter[str] = field(default_factory=Counter)
    # Target topics whose configs were asked for.
    asked: set[str] = field(default_factory=set)
    # Target topic -> its own, where the broker tells.
    limits: dict[str, TimestampLimits] = field(default_factory=dict)
    # (target, config) -> records.
    restamped: Counter[tuple[str, str]] = field(default_factory=Counter)
    # The first that stay, and why.
    refused: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    refused_count: int = 0
    # Records that were replayed before.
    done: int = 0
    # Records that are written though they are no dead letters, because --to names a topic for all.
    strangers: int = 0

    def other_memory(self, target: str) -> str:
        """The group of the other way by which a record may have come to this topic."""
        return memory_of(self.letters, target if self.to is None else None)

    def wanted(self, record: RawRecord) -> tuple[ReplayTarget | Refused, bool]:
        """Where a record would go if it was not replayed before, and whether the other way leads
        there, too.
        """
        origin = target_of(record.headers, self.letters, self.sizes, self._is_named)
        if isinstance(origin, ReplayTarget) and self.to in (None, origin.topic):
            return origin, self.is_source(origin.topic)
        return (origin if self.to is None else ReplayTarget(self.to, None)), False

    def _is_named(self, topic: str) -> bool:
        return topic == self.to or self.is_source(topic)

    def target(self, partition: TopicPartition, record: RawRecord) -> ReplayTarget | Refused | None:
        """Where a record goes; None: it was replayed before."""
        wanted, is_on_both_ways = self.wanted(record)
        if isinstance(wanted, Refused) or not is_on_both_ways:
            return wanted
        others = self.known.get(self.other_memory(wanted.topic), {})
        return None if record.offset < others.get(partition, 0) else wanted

    def loses(self, topic: str, record: RawRecord, now_ms: int) -> str | None:
        """Why this target would not keep a record with its original timestamp: a config; None: it
        would.
        """
        at = original_timestamp(record)
        limits = self.limits.get(topic)
        return None if at is None or limits is None else limits.against(at, now_ms)

    def count(self, partition: TopicPartition, record: RawRecord, now_ms: int) -> None:
        """Count a record that will be read; ``limits`` has those of its target."""
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
        """Read no further than this: what comes after it, and all later partitions, are left to
        another replay.
        """
        start, _ = self.ranges[partition]
        self.ranges = {tp: log for tp, log in self.ranges.items() if tp < partition} | {
            partition: LogRange(start, until)
        }

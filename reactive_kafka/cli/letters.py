"""Dead letters as the command line sees them: their origin, their reason, and the target of a replay. No I/O.

Anyone who may write to the dead-letter topic chooses these headers: they are shown as text, and become a target only
after the user has confirmed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reactive_kafka.failure.headers import DEAD_LETTER, DEAD_LETTER_NAMES, DELAYED_NAMES
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import HeaderPairs, RawRecord, TopicPartition
from reactive_kafka.wire import is_topic

OURS = DEAD_LETTER_NAMES | DELAYED_NAMES
"""The headers that a replayed record loses."""

_TEXT_LIMIT = 200
_MOST_DIGITS = 18  # of a number in a header: it fits 64 bits


class LetterOrigin(NamedTuple):
    """The record that became a dead letter, according to its headers."""

    partition: TopicPartition
    offset: int


class ReplayTarget(NamedTuple):
    """Where a dead letter is to be written.

    Attributes:
        partition: None: the key decides.
    """

    topic: str
    partition: int | None


class Refused(NamedTuple):
    """Why a dead letter has no target."""

    why: str


def origin_of(headers: HeaderPairs) -> LetterOrigin | Refused:
    """The record that became a dead letter.

    Of several headers of one name the first counts: SmallRye puts the newest in front of older ones.
    """
    first = dict(reversed(headers))
    texts = {name: first.get(f"{DEAD_LETTER}{name}") for name in ("topic", "partition", "offset")}
    missing = [f"{DEAD_LETTER}{name}" for name, value in texts.items() if value is None]
    if missing:
        return Refused(f"it has no header {', '.join(missing)}")
    partition, offset = _number(texts["partition"]), _number(texts["offset"])
    topic = (texts["topic"] or b"").decode("ascii", "replace")
    for name, value in (("topic", is_topic(topic) or None), ("partition", partition), ("offset", offset)):
        if value is None:
            return Refused(f"its header {DEAD_LETTER}{name} is {shown(texts[name])!r}")
    return LetterOrigin(TopicPartition(topic, partition or 0), offset or 0)


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) <= _MOST_DIGITS else None


def target_of(headers: HeaderPairs, letters: str, sizes: Mapping[str, int]) -> ReplayTarget | Refused:
    """Where a dead letter goes back to: its own partition where that still exists, else the one of its key.

    Args:
        letters: The topic that it was read from.
        sizes: topic -> number of partitions, of the topics that exist.
    """
    origin = origin_of(headers)
    if isinstance(origin, Refused):
        return origin
    topic, partition = origin.partition
    if topic == letters:
        return Refused("it comes from this very topic")
    if topic.startswith("__"):
        return Refused(f"it comes from {topic}, a topic of the broker's own")
    if topic not in sizes:
        return Refused(f"it comes from topic {topic}, which does not exist")
    return ReplayTarget(topic, partition if partition < sizes[topic] else None)


def without_ours(headers: HeaderPairs) -> HeaderPairs:
    """The record's own headers."""
    return tuple((name, value) for name, value in headers if name not in OURS)


class Letter(NamedTuple):
    """One dead letter as it is shown: each text on one line, cut.

    Attributes:
        origin: None if its headers do not name it.
        exception: Class of the exception, dotted; empty if no header names it.
        timestamp_ms: Since the epoch; None in the oldest formats.
    """

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None
    origin: LetterOrigin | None
    exception: str
    reason: str
    key: str | None
    value: str | None
    value_bytes: int | None


def letter_of(partition: TopicPartition, record: RawRecord, *, with_value: bool) -> Letter:
    """What is shown of a record in a dead-letter topic; its value only if *with_value*."""
    origin, first = origin_of(record.headers), dict(reversed(record.headers))
    return Letter(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        origin=None if isinstance(origin, Refused) else origin,
        exception=shown(first.get(f"{DEAD_LETTER}exception-class-name")) or "",
        reason=shown(first.get(f"{DEAD_LETTER}reason")) or "",
        key=shown(record.key),
        value=shown(record.value) if with_value else None,
        value_bytes=None if record.value is None else len(record.value),
    )


def shown(value: bytes | None) -> str | None:
    """Bytes as text on one line, cut; bytes that are not UTF-8 as escapes."""
    if value is None:
        return None
    return one_line(value[: 4 * _TEXT_LIMIT + 4].decode("utf-8", "backslashreplace"), _TEXT_LIMIT)

"""Kinds of values of incoming channels only: assigned partitions, patterns, ordering keys, retry topics. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from reactive_kafka.config.schema import AssignedPartition
from reactive_kafka.config.secrets import shown
from reactive_kafka.config.urls import check_url
from reactive_kafka.config.values import INT32_MAX, TOPICS, Kind, names_an_object
from reactive_kafka.records import TopicPartition

_ASSIGNED = re.compile(r"([a-zA-Z0-9._-]{1,249}):([0-9]{1,10})(?::(-1|[0-9]{1,19})|@(.+))?")
_HIGHEST_OFFSET = 2**63 - 1
_EPOCH = datetime.fromtimestamp(0, UTC)
_ASSIGN_FORM = (
    'a list of partitions, each once: "topic:0:100" (from an offset, 0 is the beginning), "topic:1:-1" (from the end), '
    '"topic:2" (from the committed position) or "topic:3@2026-11-21T00:00:00Z" (from a time, with its zone)'
)
_DELAY = re.compile(r".*_([0-9]{1,12})")
RETRY_DELAYS_MS = (10_000, 20_000, 50_000)
"""Delays of the retry topics of a channel that names none. Source: SmallRye, ``delayed-retry-topic.topics``."""


def _parse_assign(raw: Any) -> tuple[AssignedPartition, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"expected {_ASSIGN_FORM}")
    assigned = tuple(_parse_assigned(part.strip()) for part in parts)
    if len({item.partition for item in assigned}) < len(assigned):
        raise ValueError(f"expected {_ASSIGN_FORM}; a partition stands here twice")
    return assigned


def _parse_assigned(part: str) -> AssignedPartition:
    match = _ASSIGNED.fullmatch(part)
    if match is None or match[1] in (".", "..") or int(match[2]) > INT32_MAX:
        raise ValueError(f"expected {_ASSIGN_FORM}; {shown('', part)} cannot be read")
    return AssignedPartition(partition=TopicPartition(match[1], int(match[2])), start=_start(part, match[3], match[4]))


def _start(part: str, offset: str | None, time: str | None) -> int | datetime | Literal["end"] | None:
    if time is not None:
        return _time(part, time)
    if offset is None:
        return None
    if int(offset) > _HIGHEST_OFFSET:
        raise ValueError(f"expected {_ASSIGN_FORM}; the offset of {shown('', part)} is too large")
    return "end" if offset == "-1" else int(offset)


def _time(part: str, time: str) -> datetime:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError(f"expected {_ASSIGN_FORM}; the time of {shown('', part)} cannot be read") from None
    if moment.tzinfo is None:
        raise ValueError(
            f"expected {_ASSIGN_FORM}; the time of {shown('', part)} has no zone: add Z, or an offset as +02:00"
        )
    if moment < _EPOCH:  # Kafka gives times below 0 a meaning of their own
        raise ValueError(f"expected {_ASSIGN_FORM}; the time of {shown('', part)} is before 1970")
    return moment


def _show_assign(assigned: Sequence[AssignedPartition]) -> list[str]:
    return [_show_assigned(item) for item in assigned]


def _show_assigned(item: AssignedPartition) -> str:
    place = f"{item.partition.topic}:{item.partition.partition}"
    if item.start is None:
        return place
    if isinstance(item.start, datetime):
        return f"{place}@{item.start.isoformat()}"
    return f"{place}:{-1 if item.start == 'end' else item.start}"


_PATTERN_FORM = 'a regular expression that the whole name of a topic fits, as "orders-.*"'


def _parse_pattern(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(f"expected {_PATTERN_FORM}")
    try:
        re.compile(raw)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"expected {_PATTERN_FORM}; {error}") from None
    return raw


_KEY_FORM = '"header:NAME" or "module:function" of the raw record'


def _parse_key(raw: Any) -> str:
    is_header = isinstance(raw, str) and raw.startswith("header:") and bool(raw.removeprefix("header:").strip())
    if not is_header and not (isinstance(raw, str) and names_an_object(raw)):
        raise ValueError(f"expected {_KEY_FORM}")
    return str(raw)


_RETRY_TOPICS_FORM = (
    'a list of different topics, each ending in "_" and its delay in milliseconds: "orders_retry_10000"'
)


def retry_delay_ms(topic: str) -> int | None:
    """The delay that a retry topic's name ends in; None where it does not end in one above 0."""
    match = _DELAY.fullmatch(topic)
    return (int(match[1]) or None) if match else None


def _parse_retry_topics(raw: Any) -> tuple[str, ...]:
    try:
        topics: tuple[str, ...] = TOPICS.parse(raw)
    except ValueError:
        raise ValueError(f"expected {_RETRY_TOPICS_FORM}") from None
    for topic in topics:
        if retry_delay_ms(topic) is None:
            raise ValueError(f"expected {_RETRY_TOPICS_FORM}; {topic!r} does not")
    return topics


_STORE_FORM = (
    'the URL of a store: "sqlite:///offsets.db", "postgresql+asyncpg://user@host/database", "redis://host:6379/0", '
    '"file:///folder", or one with the scheme of a store of your own'
)


def _parse_store(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(f"expected {_STORE_FORM}")
    try:
        check_url(raw.strip())
    except ValueError as error:
        raise ValueError(f"expected the URL of a store: {error}") from None
    return raw.strip()


_STATE_FORM = (
    '"module:Model" (a dataclass, pydantic model or msgspec Struct) or "module:codec" (an object with encode(state) '
    "and decode(text))"
)


def _parse_state(raw: Any) -> str:
    if not isinstance(raw, str) or not names_an_object(raw):
        raise ValueError(f"expected {_STATE_FORM}")
    return raw


ASSIGN = Kind(_ASSIGN_FORM, _parse_assign, show=_show_assign, native=(str, list))
PATTERN = Kind(_PATTERN_FORM, _parse_pattern, native=(str,))
ORDERING_KEY = Kind(_KEY_FORM, _parse_key, native=(str,))
STATE = Kind(_STATE_FORM, _parse_state, native=(str,))
STORE = Kind(_STORE_FORM, _parse_store, native=(str,), free=True)
RETRY_TOPICS = Kind(_RETRY_TOPICS_FORM, _parse_retry_topics, show=list, native=(str, list))

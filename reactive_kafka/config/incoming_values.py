"""Kinds of values that only incoming channels have: partitions, patterns, ordering keys, retry topics, stores. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from reactive_kafka.config.secrets import shown
from reactive_kafka.config.urls import check_url
from reactive_kafka.config.values import INT32_MAX, TOPICS, Hint, Kind, comma_list, names_an_object, read_text
from reactive_kafka.records import TopicPartition

_ASSIGNED = re.compile(r"([a-zA-Z0-9._-]{1,249}):([0-9]{1,10})(?::(-1|[0-9]{1,19})|@(.+))?")
_HIGHEST_OFFSET = 2**63 - 1
_EPOCH = datetime.fromtimestamp(0, UTC)
_DELAY = re.compile(r".*_([0-9]{1,12})")
RETRY_DELAYS_MS = (10_000, 20_000, 50_000)
"""The delays of the default retry topics. Source: SmallRye, ``delayed-retry-topic.topics``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartition:
    """A partition that a channel reads without a group's assignment.

    Attributes:
        start: Where reading begins at every start: an offset (0 is the log's beginning), ``"end"``, or the first
            record at or after a time. None: the committed position, else ``auto_offset_reset``.
    """

    partition: TopicPartition
    start: int | datetime | Literal["end"] | None = None


def _read_assign(raw: Any) -> tuple[AssignedPartition, ...]:
    assigned = tuple(_read_assigned(item) for item in comma_list(raw))
    if len({item.partition for item in assigned}) < len(assigned):
        raise Hint("a partition stands here twice")
    return assigned


def _read_assigned(raw: Any) -> AssignedPartition:
    if not isinstance(raw, str):
        raise ValueError("not a string")
    part = raw.strip()
    match = _ASSIGNED.fullmatch(part)
    if match is None or match[1] in (".", "..") or int(match[2]) > INT32_MAX:
        raise Hint(f"{shown('', part)} cannot be read")
    return AssignedPartition(partition=TopicPartition(match[1], int(match[2])), start=_start(part, match[3], match[4]))


def _start(part: str, offset: str | None, time: str | None) -> int | datetime | Literal["end"] | None:
    if time is not None:
        return _time(part, time)
    if offset is None:
        return None
    if int(offset) > _HIGHEST_OFFSET:
        raise Hint(f"the offset of {shown('', part)} is too large")
    return "end" if offset == "-1" else int(offset)


def _time(part: str, time: str) -> datetime:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise Hint(f"the time of {shown('', part)} cannot be read") from None
    if moment.tzinfo is None:
        raise Hint(f"the time of {shown('', part)} has no zone: add Z, or an offset such as +02:00")
    if moment < _EPOCH:  # Kafka gives negative timestamps special meanings
        raise Hint(f"the time of {shown('', part)} is before 1970")
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


def _read_pattern(raw: Any) -> str:
    pattern = read_text(raw)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Hint(str(error)) from None
    return pattern


def _read_object(raw: Any) -> str:
    if not names_an_object(raw):
        raise ValueError("not the name of an object")
    return str(raw)


def _read_key(raw: Any) -> str:
    is_header = isinstance(raw, str) and raw.startswith("header:") and bool(raw.removeprefix("header:").strip())
    return str(raw) if is_header else _read_object(raw)


def retry_delay_ms(topic: str) -> int | None:
    """The delay at the end of a retry topic's name. None if there is none, or if it is 0."""
    match = _DELAY.fullmatch(topic)
    return (int(match[1]) or None) if match else None


def _read_retry_topics(raw: Any) -> tuple[str, ...]:
    topics = TOPICS.parse(raw)
    for topic in topics:
        if retry_delay_ms(topic) is None:
            raise Hint(f"{topic!r} does not")
    return topics


def _read_store(raw: Any) -> str:
    url = read_text(raw).strip()
    try:
        check_url(url)
    except ValueError as error:
        raise Hint(str(error), expects="the URL of a store") from None
    return url


ASSIGN = Kind(
    'a list of partitions, each once: "topic:0:100" (from an offset, 0 is the beginning), "topic:1:-1" (from the end), '
    '"topic:2" (from the committed position) or "topic:3@2026-11-21T00:00:00Z" (from a time, with its zone)',
    _read_assign,
    show=_show_assign,
    native=(str, list),
)
PATTERN = Kind('a regular expression that matches whole topic names, such as "orders-.*"', _read_pattern, native=(str,))
ORDERING_KEY = Kind('"header:NAME" or "module:function" of the raw record', _read_key, native=(str,))
STATE = Kind(
    '"module:Model" (a dataclass, pydantic model or msgspec Struct) or "module:codec" (an object with encode(state) '
    "and decode(text))",
    _read_object,
    native=(str,),
)
STORE = Kind(
    'the URL of a store: "sqlite:///offsets.db", "postgresql+asyncpg://user@host/database", "redis://host:6379/0", '
    '"file:///folder", or one with the scheme of a store of your own',
    _read_store,
    native=(str,),
    free=True,
)
RETRY_TOPICS = Kind(
    'a list of different topics, each ending in "_" and its delay in milliseconds: "orders_retry_10000"',
    _read_retry_topics,
    show=list,
    native=(str, list),
)

"""Kinds of values that only incoming channels have. Pure.

Assigned partitions, patterns, rates, ordering keys, retry topics, exceptions and stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from reactive_kafka.config.json_schema import value_schemas as schemas
from reactive_kafka.config.kinds import (
    INT32_MAX,
    TEXT,
    TOPICS,
    Hint,
    Kind,
    comma_list,
    names_an_object,
    only,
    read_sent_text,
)
from reactive_kafka.config.secrets import shown
from reactive_kafka.config.store_urls import check_url
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges

_ASSIGNED = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249}):"
    r"(?:(?P<all>\*)(?:@(?P<range>.+))?"
    r"|(?P<number>[0-9]{1,10})"
    r"(?::(?P<start>-1|[0-9]{1,19}(?:\.\.(?P<until>[0-9]{1,19}))?)|@(?P<time>.+))?)"
)
_HIGHEST_OFFSET = 2**63 - 1
_EPOCH = datetime.fromtimestamp(0, UTC)
_HEADER = re.compile(r"header:\s*\S.*", re.DOTALL)
_DELAY = re.compile(r".*_([0-9]{1,12})")
_RATE = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,9})?) ?/ ?([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
RETRY_DELAYS_MS = (10_000, 20_000, 50_000)
"""The delays of the default retry topics. Source: SmallRye, ``delayed-retry-topic.topics``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartition:
    """A partition that a channel reads without a group's assignment.

    Attributes:
        start: Where to read from at every start: an offset (0 is the beginning of the log),
            ``"end"``, or the first record at or after a time. None: the committed position, else
            ``auto_offset_reset``.
        until: The offset at which reading ends; it is not read. Then ``start`` is an offset, and
            the partition may have more such ranges. Or the time at which reading ends: at the
            first record at or after it, which is not read. Then ``start`` is a time.
    """

    partition: TopicPartition
    start: int | datetime | Literal["end"] | None = None
    until: int | datetime | None = None

    def __str__(self) -> str:
        """Return the partition as users write it."""
        partition = f"{self.partition.topic}:{self.partition.partition}"
        if isinstance(self.start, datetime):
            return f"{partition}@{_times(self.start, self.until)}"
        if self.until is not None:
            return f"{partition}:{self.start}..{self.until}"
        if self.start is None:
            return partition
        offset = -1 if self.start == "end" else self.start
        return f"{partition}:{offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTopic:
    """A topic of which a channel reads all partitions, future ones too, without an assignment.

    Attributes:
        start: The time from which all of them are read; None: they are read from where each was.
        until: The time at which reading ends. There is one if there is a ``start``.
    """

    topic: str
    start: datetime | None = None
    until: datetime | None = None

    def __str__(self) -> str:
        """Return the topic as users write it."""
        if self.start is None:
            return f"{self.topic}:*"
        return f"{self.topic}:*@{_times(self.start, self.until)}"


def _times(start: datetime, until: object) -> str:
    if isinstance(until, datetime):
        return f"{start.isoformat()}..{until.isoformat()}"
    return start.isoformat()


Assigned = AssignedPartition | AssignedTopic


def ranges_of(assign: Iterable[Assigned]) -> dict[TopicPartition, Ranges]:
    """Return partition -> the offsets to read, for partitions whose reading ends at an offset."""
    pairs: dict[TopicPartition, list[tuple[int, int]]] = {}
    for assigned in assign:
        if not isinstance(assigned, AssignedPartition) or not isinstance(assigned.until, int):
            continue
        if isinstance(assigned.start, int):
            pairs.setdefault(assigned.partition, []).append((assigned.start, assigned.until))
    return {partition: Ranges.of(its_pairs) for partition, its_pairs in pairs.items()}


TimeRange = tuple[datetime, datetime]
"""From the first time on, and before the second."""


def time_ranges_of(assign: Iterable[Assigned]) -> dict[TopicPartition | str, TimeRange]:
    """Return partition, or topic -> the times to read, where reading ends at a time."""
    return {
        assigned.partition if isinstance(assigned, AssignedPartition) else assigned.topic: (
            assigned.start,
            assigned.until,
        )
        for assigned in assign
        if isinstance(assigned.start, datetime) and isinstance(assigned.until, datetime)
    }


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A number of records in each second, minute or hour.

    ``by`` says what has the rate each: ``key``, ``partition`` or ``header:NAME``. None: the channel
    has one rate.
    """

    records: Decimal
    unit: Literal["s", "m", "h"]
    by: str | None = None

    @property
    def per_second(self) -> float:
        """Records per second, above 0."""
        return float(self.records / _SECONDS[self.unit])

    def __str__(self) -> str:
        """Return the rate as users write it, and what has it."""
        by = "" if self.by is None else f" by {self.by}"
        return f"{self.records.normalize():f}/{self.unit}{by}"


def _read_rate(raw: Any) -> RateLimit | None:
    match = _RATE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None or not Decimal(match[1]):
        return None
    # The pattern allows only the three units.
    return RateLimit(Decimal(match[1]), match[2])  # type: ignore[arg-type]


def _read_assign(raw: Any) -> tuple[Assigned, ...]:
    items = tuple(_read_assigned(item) for item in comma_list(raw))
    by_partition: dict[TopicPartition, list[AssignedPartition]] = {}
    whole_topics = []
    for item in items:
        if isinstance(item, AssignedPartition):
            by_partition.setdefault(item.partition, []).append(item)
        else:
            whole_topics.append(item.topic)
    for topic in whole_topics:
        if whole_topics.count(topic) > 1:
            raise Hint(f"{topic}:* is here twice")
    for (topic, number), same_partition in by_partition.items():
        if topic in whole_topics:
            raise Hint(f"{topic}:* includes partition {number} already")
        if len(same_partition) > 1 and any(
            not isinstance(item.until, int) for item in same_partition
        ):
            raise Hint(f"{topic}:{number} is here twice, and not each time with a range")
        try:
            ranges_of(same_partition)
        except ValueError as error:
            raise Hint(f"of {topic}:{number} the range {error}") from None
    return items


def _read_assigned(raw: Any) -> Assigned:
    """Read one item of ``assign``."""
    if not isinstance(raw, str):
        raise ValueError("not a string")
    match = _ASSIGNED.fullmatch(raw.strip())
    if match is None or match["topic"] in (".", "..") or int(match["number"] or 0) > INT32_MAX:
        raise Hint(f"{shown('assign', raw.strip())} cannot be read")
    if match["all"]:
        if match["range"] is None:
            return AssignedTopic(topic=match["topic"])
        item = shown("assign", match[0])
        times = _time_range(item, match["range"])
        if times is None:
            raise Hint(f"{item} has one time: all partitions take a range of them, A..B")
        return AssignedTopic(topic=match["topic"], start=times[0], until=times[1])
    partition = TopicPartition(match["topic"], int(match["number"]))
    start = match["start"]
    if match["time"] is not None:
        item = shown("assign", match[0])
        times = _time_range(item, match["time"])
        if times is None:
            return AssignedPartition(partition=partition, start=_time(item, match["time"]))
        return AssignedPartition(partition=partition, start=times[0], until=times[1])
    if start is None:
        return AssignedPartition(partition=partition)
    first = int(start.partition("..")[0])
    until = None if match["until"] is None else int(match["until"])
    if max(first, until or 0) > _HIGHEST_OFFSET:
        raise Hint(f"the offset of {shown('', match[0])} is too large")
    return AssignedPartition(
        partition=partition, start="end" if first == -1 else first, until=until
    )


def _time_range(part: str, times: str) -> TimeRange | None:
    """Return the range of times that an item names; None: it names one time."""
    first, dots, last = times.partition("..")
    if not dots:
        return None
    start = _time(part, first)
    until = _time(part, last)
    if until <= start:
        raise Hint(f"of {part} the range of times ends before it begins, or is empty")
    return start, until


def _time(part: str, time: str) -> datetime:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise Hint(f"the time of {part} cannot be read") from None
    if moment.tzinfo is None:
        raise Hint(f"the time of {part} has no zone: add Z, or an offset such as +02:00")
    # Kafka gives negative timestamps special meanings.
    if moment < _EPOCH:
        raise Hint(f"the time of {part} is before 1970")
    return moment


def _read_pattern(raw: Any) -> str:
    try:
        re.compile(TEXT.parse(raw))
    except (re.error, OverflowError, RecursionError) as error:
        raise Hint(str(error)) from None
    return str(raw)


def retry_delay_ms(topic: str) -> int | None:
    """Return the delay at the end of a retry topic's name; None without one, or if it is 0."""
    match = _DELAY.fullmatch(topic)
    if match is None:
        return None
    return int(match[1]) or None


def _read_exceptions(raw: Any) -> tuple[str, ...] | None:
    names = tuple(TEXT.parse(name).strip() for name in comma_list(raw))
    return names if all(map(is_dotted, names)) and len(set(names)) == len(names) else None


def is_dotted(name: str) -> bool:
    """Return whether *name* may be that of an exception, with or without its module."""
    return all(part.isidentifier() for part in name.split("."))


def _read_share(raw: Any) -> float | None:
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return float(raw) if is_number and 0 <= raw <= 1 else None


def _read_retry_topics(raw: Any) -> tuple[str, ...]:
    topics = TOPICS.parse(raw)
    for topic in topics:
        if retry_delay_ms(topic) is None:
            raise Hint(f"{topic!r} does not")
    return topics


def _read_store(raw: Any) -> str:
    url = TEXT.parse(raw).strip()
    try:
        check_url(url)
    except ValueError as error:
        raise Hint(str(error), expects="the URL of a store") from None
    return url


def _read_group(raw: Any) -> str | Literal[False] | None:
    return False if raw is False else read_sent_text(raw)


GROUP: Kind[str | Literal[False]] = Kind(
    "a string that is not empty, or false",
    _read_group,
    native=(str, bool),
    free=True,
    json=schemas.either(schemas.ANY_TEXT, {"const": False}),
)
ASSIGN = Kind(
    'a list of partitions, each once: "topic:0:100" (from an offset, 0 is the beginning), '
    '"topic:1:-1" (from the end), "topic:2" (from the committed position), '
    '"topic:3@2026-11-21T00:00:00Z" (from a time, with its zone), "topic:4:100..200" (offsets 100 '
    'to 199; several of a partition must ascend), "topic:*" (all partitions, also new ones) or '
    '"topic:*@2026-11-21T00:00:00Z..2026-11-22T00:00:00Z" (from a time up to another one, which '
    "is not included; also of one partition)",
    _read_assign,
    show=lambda assigned: [str(one) for one in assigned],
    native=(str, list),
    json=schemas.ASSIGN,
)
PATTERN = Kind(
    'a regular expression that matches whole topic names, such as "orders-.*"',
    _read_pattern,
    native=(str,),
    json=schemas.ANY_TEXT,
)
ORDERING_KEY: Kind[str] = Kind(
    '"header:NAME" or "module:function" of the raw record',
    only(lambda raw: names_an_object(raw) or (isinstance(raw, str) and _HEADER.fullmatch(raw))),
    native=(str,),
    json=schemas.ORDERING_KEY,
)
STATE: Kind[str] = Kind(
    '"module:Model" (a dataclass, pydantic model or msgspec Struct) or "module:codec" (an object '
    "with "
    "encode(state) and decode(text))",
    only(names_an_object),
    native=(str,),
    json=schemas.OBJECT,
)
STORE = Kind(
    'the URL of a store: "sqlite:///offsets.db", "postgresql+asyncpg://user@host/database", '
    '"redis://host:6379/0", "file:///folder", or one with the scheme of a store of your own',
    _read_store,
    native=(str,),
    free=True,
    json=schemas.STORE,
)
RETRY_TOPICS = Kind(
    'a list of different topics, each ending in "_" and its delay in milliseconds: '
    '"orders_retry_10000"',
    _read_retry_topics,
    show=list,
    native=(str, list),
    json=schemas.RETRY_TOPICS,
)
EXCEPTIONS = Kind(
    'a list of different exceptions: "ValueError", "package.module.SomeError"',
    _read_exceptions,
    list,
    (str, list),
    json=schemas.EXCEPTIONS,
)
SHARE = Kind("a number from 0 to 1", _read_share, native=(int, float), json=schemas.SHARE)
RATE_BY: Kind[str] = Kind(
    '"header:NAME", "key" or "partition"',
    only(
        lambda raw: raw in ("key", "partition") or (isinstance(raw, str) and _HEADER.fullmatch(raw))
    ),
    native=(str,),
    json=schemas.RATE_BY,
)
RATE = Kind(
    'a number of records, above 0, in a second, a minute or an hour: "100/s", "30/m", "0.5/s", '
    '"1/h"',
    _read_rate,
    str,
    (str,),
    json=schemas.RATE,
)

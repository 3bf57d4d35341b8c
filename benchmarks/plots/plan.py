"""What is measured for which picture. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.plan import FEW_PARTITIONS, WAIT_S
from benchmarks.plots.work import Payload

RECORDS = 1_000_000
ROUNDS = 2


class Source(NamedTuple):
    """A topic: so many partitions, so many records in it, with so many different keys; 0: without
    any.
    """

    partitions: int = FEW_PARTITIONS
    records: int = RECORDS
    keys: int = 0


FULL = Source()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a line, or one row of a table.

    Args:
        line: Which line, as the legend calls it.
        at: Where on its axis; a name where it has none.
        who: What the handler takes, or the raw client.
        records: How many it handles; 0: all that are there.
        more: Of the task, beside those.
        times: It runs so often in a round.
    """

    line: str
    at: float | str
    who: Payload
    source: Source = FULL
    records: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1


RAW = "aiokafka `getmany(500)`"
MESSAGE = "reactive_kafka, `Message`"
BYTES = "reactive_kafka, `bytes`"
WHO: dict[str, Payload] = {RAW: "raw", MESSAGE: "Message", BYTES: "bytes"}

PARTITIONS = (1, 4, 16, 100, 300, 1_000)
IN_FLIGHT = (1, 10, 100, 1_000, 10_000)
KEYS = (1, 10, 1_000, 10_000, 1_000_000)
RATES = (1_000, 10_000)

BY_KEY = '`ordering = "key"`'
BY_PARTITION = '`ordering = "partition"`'
WAITING = "a handler that waits 10 ms"
THROUGHPUT = "throughput"
LATENCY = "latency"
DEFAULTS = "the defaults"


def _partitions() -> Iterable[Point]:
    for count in PARTITIONS:
        for line, who in WHO.items():
            yield Point(line=line, at=count, who=who, source=Source(partitions=count))


def _in_flight() -> Iterable[Point]:
    for count in IN_FLIGHT:
        more = {"wait_s": WAIT_S, "channel": {"concurrency": count, "ordering": "unordered"}}
        yield Point(
            line=WAITING, at=count, who="bytes", records=min(150 * count, 300_000), more=more
        )


def _keys() -> Iterable[Point]:
    for count in KEYS:
        source = Source(keys=count)
        by_key = {"channel": {"ordering": "key", "concurrency": 64}}
        yield Point(line=BY_PARTITION, at=count, who="Message", source=source)
        yield Point(line=BY_KEY, at=count, who="Message", source=source, more=by_key)


def _stages() -> Iterable[Point]:
    for line in (MESSAGE, BYTES):
        yield Point(line=line, at=FEW_PARTITIONS, who=WHO[line], more={"sampled": True}, times=4)


def _latency() -> Iterable[Point]:
    for rate in RATES:
        for line in (RAW, BYTES):
            yield Point(
                line=line, at=rate, who=WHO[line], source=Source(records=0), more={"rate": rate}
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting to tune, and what it is good for."""

    name: str
    who: Payload = "bytes"
    channel: Mapping[str, Any] = field(default_factory=dict)
    loop: str = "asyncio"


AT_FULL_SPEED = (
    Choice(name=DEFAULTS),
    Choice(name="the handler takes `Message`", who="Message"),
    Choice(
        name="the handler takes a `Batch` of 500", who="Batch", channel={"batch_max_records": 500}
    ),
    Choice(name="uvloop", loop="uvloop"),
    Choice(name="`max_in_flight = 100`", channel={"max_in_flight": 100}),
    Choice(name="`max_in_flight = 10_000`", channel={"max_in_flight": 10_000}),
    Choice(name='`commit_interval = "100ms"`', channel={"commit_interval": "100ms"}),
    Choice(name='`commit_interval = "5s"`', channel={"commit_interval": "5s"}),
    Choice(
        name="`max_partition_fetch_bytes = 65_536`", channel={"max_partition_fetch_bytes": 65_536}
    ),
    Choice(
        name="`max_partition_fetch_bytes = 4_194_304`",
        channel={"max_partition_fetch_bytes": 4_194_304},
    ),
    Choice(name="`concurrency = 4`", channel={"concurrency": 4}),
    Choice(name='`ordering = "unordered"`', channel={"ordering": "unordered"}),
    Choice(name="`cloud_events = false`", channel={"cloud_events": False}),
)
AT_1000_A_SECOND = (
    Choice(name=DEFAULTS),
    Choice(name="the handler takes `Message`", who="Message"),
    Choice(name="uvloop", loop="uvloop"),
    Choice(name='`commit_interval = "100ms"`', channel={"commit_interval": "100ms"}),
    Choice(
        name="`fetch_min_bytes = 16_384`, `fetch_max_wait_ms = 50`",
        channel={"fetch_min_bytes": 16_384, "fetch_max_wait_ms": 50},
    ),
)
PACE = 1_000


def _tuned(choices: Iterable[Choice], line: str) -> Iterable[Point]:
    for one in choices:
        more: dict[str, Any] = {"channel": dict(one.channel), "loop": one.loop}
        if line == LATENCY:
            yield Point(
                line=line,
                at=one.name,
                who=one.who,
                source=Source(records=0),
                more={**more, "rate": PACE},
            )
        else:
            yield Point(line=line, at=one.name, who=one.who, more=more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured together, in turns; the ratios of its points are those of one run."""

    points: tuple[Point, ...]
    rounds: int = ROUNDS


PLANS = {
    "partitions": Plan(points=tuple(_partitions())),
    "in-flight": Plan(points=tuple(_in_flight())),
    "keys": Plan(points=tuple(_keys())),
    "stages": Plan(points=tuple(_stages()), rounds=1),
    "latency": Plan(points=tuple(_latency()), rounds=1),
    "tuning": Plan(points=tuple(_tuned(AT_FULL_SPEED, THROUGHPUT)), rounds=3),
    "tuning-latency": Plan(points=tuple(_tuned(AT_1000_A_SECOND, LATENCY)), rounds=1),
}
FLOOR = "floor"
SERIES = (*PLANS, FLOOR)

"""What is gauged, on which topics. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.plan import FEW_PARTITIONS

P50 = "p50 ms"
P99 = "p99 ms"
FIRST_S = "first record s"
LAST_S = "a record of each channel s"
CORE = "% of a core"
RESIDENT = "RSS MB"
LAG_P99 = "loop lag p99 ms"
LAG_MAX = "loop lag max ms"
TICK_MS = "CPU ms a tick"
WORST_TICK_MS = "worst tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One row of a table of figures.

    Args:
        name: What the table calls it.
        run: ``module:function`` in benchmarks.gauges.
        table: What its table is about.
        topics: How many it gets, 0 for none: each channel reads one.
        partitions: Of each topic.
        filled: How many records each topic holds.
        given: A number for the function: a rate, a size.
        times: It runs so often in a round, and medians count.
    """

    name: str
    run: str
    table: str
    topics: int = 1
    partitions: int = FEW_PARTITIONS
    filled: int = 0
    given: int = 0
    times: int = 1


OURS_LATENCY = {rate: f"reactive_kafka, {rate:,} records/s" for rate in (1_000, 10_000)}
RAW_LATENCY = {rate: f"aiokafka `getmany(500)`, {rate:,} records/s" for rate in OURS_LATENCY}
START = {
    channels: f"reactive_kafka, {channels} channel{'s' if channels > 1 else ''}, started"
    for channels in (1, 100)
}
RAW_START = "aiokafka `getmany(500)`, started"
IDLE = {
    1: "reactive_kafka, 1 channel, nothing to read",
    100: "reactive_kafka, 100 channels of 10 partitions, nothing to read",
}
AFTER_RECORDS = "reactive_kafka, 1 channel, after 500,000 records"
OURS_REBALANCE = "reactive_kafka, 1,000 partitions, rebalanced"
RAW_REBALANCE = "aiokafka `getmany(500)`, 1,000 partitions, rebalanced"
KEPT_ACKS = {
    1: "1,000,000 kept acks behind 1 record that is not settled",
    10_000: "1,000,000 kept acks among 10,000 records that are not settled",
}

LATENCY = "from send to handler"
START_UP = "from the start of the process"
REST = "at rest"
REBALANCES = "rebalances"
TICKS = "ticks of commits"
GAUGES = (
    *(
        Gauge(name=names[rate], run=f"latency:{run}", table=LATENCY, given=rate)
        for rate in OURS_LATENCY
        for names, run in ((RAW_LATENCY, "raw"), (OURS_LATENCY, "ours"))
    ),
    Gauge(name=RAW_START, run="start:raw", table=START_UP, filled=1, times=5),
    Gauge(name=START[1], run="start:ours", table=START_UP, filled=1, times=5),
    Gauge(
        name=START[100],
        run="start:ours",
        table=START_UP,
        topics=100,
        partitions=1,
        filled=1,
        times=3,
    ),
    Gauge(name=IDLE[1], run="idle:ours", table=REST),
    Gauge(name=IDLE[100], run="idle:ours", table=REST, topics=100, partitions=10),
    Gauge(name=AFTER_RECORDS, run="idle:ours", table=REST, filled=500_000),
    Gauge(name=RAW_REBALANCE, run="rebalance:raw", table=REBALANCES, partitions=1_000, given=1_000),
    Gauge(
        name=OURS_REBALANCE, run="rebalance:ours", table=REBALANCES, partitions=1_000, given=1_000
    ),
    *(
        Gauge(name=name, run="ticks:kept_acks", table=TICKS, topics=0, given=unsettled)
        for unsettled, name in KEPT_ACKS.items()
    ),
)

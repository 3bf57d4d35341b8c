"""Facts for tests: plain ones to vary, and hypothesis strategies for any."""

from __future__ import annotations

import dataclasses
import time
from functools import cache
from typing import Any

from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.observe.catalogue import CATALOGUE, OF_A_SUPERVISOR
from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    OutboxFacts,
    OutgoingFacts,
    PartitionFacts,
    PartitionTotals,
    PoisonFacts,
    SparkBatchFacts,
    SparkFacts,
    TraceExemplar,
)
from reactive_kafka.observe.facts import (
    DurationHistogram as DurationHistogram,
)
from reactive_kafka.observe.open_problems import OpenProblems

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def partition(**changes: Any) -> PartitionFacts:
    """A partition with two records in flight and five behind."""
    plain = PartitionFacts(
        partition=ORDERS_0,
        position=20,
        committed=17,
        log_end=22,
        lag=5,
        in_flight=2,
        queued=1,
        oldest_unacked_s=1.5,
        paused=False,
    )
    return dataclasses.replace(plain, **changes)


def open_problems() -> OpenProblems:
    """Nothing was reported to be wrong."""
    return OpenProblems()


def poison(**changes: Any) -> PoisonFacts:
    """A record unsettled for too long."""
    plain = PoisonFacts(partition=ORDERS_0, offset=17, age_s=61.2345, waiting=42)
    return dataclasses.replace(plain, **changes)


def totals(**changes: Any) -> PartitionTotals:
    """What was counted of a partition: nothing but *changes*."""
    return PartitionTotals(**changes)


def durations(*seconds: float, traced: tuple[float, int, int] | None = None) -> DurationHistogram:
    """A histogram of these durations. *traced* is one of them, with its trace and its span."""
    histogram = DurationHistogram()
    for duration_s in seconds:
        histogram.observe(duration_s)
    if traced is not None:
        histogram.exemplify(TraceExemplar(*traced, time.time()))
    return histogram


def outbox(rows: int | None, oldest_s: float | None = None, relayed: int = 0) -> OutboxFacts:
    """An outbox with events that wait."""
    return OutboxFacts(rows, oldest_s, relayed)


def channel(**changes: Any) -> ChannelFacts:
    """A channel in good health with one partition."""
    plain = ChannelFacts(
        channel="orders",
        state="running",
        reason=None,
        on_poison="fail",
        has_joined=True,
        broker_error=None,
        partitions=(partition(),),
        poison=(),
        totals={
            ORDERS_0: PartitionTotals(
                received=20, acked=16, nacked={"ignore": 1}, dead_lettered=2, delayed=3, poison=0
            )
        },
        commits={"ok": 3},
        commit_durations=DurationHistogram(),
        handler_durations=DurationHistogram(),
        retries=0,
        rebalances={"assigned": 1},
        resets={},
        abandoned_handlers=0,
        poison_limit_s=60.0,
    )
    return dataclasses.replace(plain, **changes)


def outgoing(**changes: Any) -> OutgoingFacts:
    """An outgoing channel in good health."""
    plain = OutgoingFacts(
        channel="invoices",
        broker_error=None,
        in_flight=0,
        sent={"ok": 16},
        send_durations=DurationHistogram(),
    )
    return dataclasses.replace(plain, **changes)


def spark(**changes: Any) -> SparkFacts:
    """A session that is ready, of the channel ``clicks``."""
    plain = SparkFacts(
        channel="clicks",
        ready=True,
        reason=None,
        jobs={"ok": 2},
        job_durations=DurationHistogram(),
        batch_records=500,
        tasks={"completed": 4},
    )
    return dataclasses.replace(plain, **changes)


def batch(**changes: Any) -> SparkBatchFacts:
    """A Spark batch that runs: 5 of 8 tasks are done, in the first of two stages."""
    plain = SparkBatchFacts(
        id="7f3a0123456789ab",
        ranges=("clicks-0 [100, 50100)",),
        records=50_000,
        attempt=1,
        since_s=12.3456,
        timeout_s=600.0,
        stages=2,
        stages_done=0,
        tasks=8,
        tasks_done=5,
        tasks_active=2,
        tasks_failed=0,
    )
    return dataclasses.replace(plain, **changes)


def ended(**changes: Any) -> SparkBatchFacts:
    """A Spark batch that has ended well, in the first second of 2001."""
    return batch(
        **{
            "tasks_done": 8,
            "tasks_active": 0,
            "stages_done": 2,
            "outcome": "ok",
            "ended_at": 978307200.0,
            "ended_ago_s": 10.0,
        }
        | changes
    )


def app(*channels: ChannelFacts, **changes: Any) -> AppFacts:
    """A started application of *channels*."""
    return dataclasses.replace(
        AppFacts(started=True, stopping=False, loop_lag_s=0.0, channels=channels), **changes
    )


def with_partitions(count: int) -> AppFacts:
    """An application with a channel of so many partitions, of which each has its counters."""
    every = [TopicPartition("orders", number) for number in range(count)]
    counted = totals(received=20, acked=16, nacked={"ignore": 1})
    return app(
        channel(
            partitions=tuple(partition(partition=one) for one in every),
            totals=dict.fromkeys(every, counted),
        )
    )


def grown(facts: AppFacts, by: int) -> AppFacts:
    """The same channels after each of them and each of their partitions has moved on."""
    return app(
        *(
            dataclasses.replace(
                one,
                retries=one.retries + by,
                partitions=tuple(
                    dataclasses.replace(
                        each,
                        position=each.position + by,
                        committed=(each.committed or 0) + by,
                        lag=(each.lag or 0) + by,
                    )
                    for each in one.partitions
                ),
            )
            for one in facts.channels
        )
    )


def names_of_series() -> set[str]:
    """Every name that a series of a scrape may have, with those of a supervisor."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {
        f"{metric.name}{suffix}"
        for metric in (*CATALOGUE, *OF_A_SUPERVISOR)
        for suffix in suffixes.get(metric.kind, ("",))
    }


def names_of_a_supervisor() -> list[str]:
    """The metrics that only a supervisor of workers has."""
    return [metric.name for metric in OF_A_SUPERVISOR]


# What a reason may hold.
_lines = st.text(alphabet="aé\n\x1b\u2028\udc80", min_size=1, max_size=8)
_text = st.one_of(st.none(), _lines)
_partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 3))
_counts = st.integers(0, 10**12)
_seconds = st.floats(0, 1e6)


def _counted(*keys: str) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(keys), _counts)


@st.composite
def histograms(draw: st.DrawFn) -> DurationHistogram:
    """Histograms of a few durations."""
    result = DurationHistogram()
    for duration_s in draw(st.lists(_seconds, max_size=3)):
        result.observe(duration_s)
    return result


_partition_facts = st.builds(
    PartitionFacts,
    partition=_partitions,
    position=_counts,
    committed=st.one_of(st.none(), _counts),
    log_end=st.one_of(st.none(), _counts),
    lag=st.one_of(st.none(), _counts),
    in_flight=_counts,
    queued=_counts,
    oldest_unacked_s=st.one_of(st.none(), _seconds),
    paused=st.booleans(),
)
_poison_facts = st.builds(
    PoisonFacts, partition=_partitions, offset=_counts, age_s=_seconds, waiting=_counts
)
_totals = st.builds(
    PartitionTotals,
    received=_counts,
    acked=_counts,
    nacked=_counted("fail", "ignore"),
    dead_lettered=_counts,
    delayed=_counts,
    poison=_counts,
)


@cache
def channels(name: str) -> st.SearchStrategy[ChannelFacts]:
    """Any channel called *name*."""
    return st.builds(
        ChannelFacts,
        channel=st.just(name),
        state=st.sampled_from(
            ["starting", "connecting", "running", "paused", "stopping", "failed", "stopped"]
        ),
        reason=_text,
        on_poison=st.sampled_from(["fail", "pause-partition", "warn"]),
        has_joined=st.booleans(),
        broker_error=_text,
        partitions=st.lists(
            _partition_facts, max_size=3, unique_by=lambda facts: facts.partition
        ).map(tuple),
        poison=st.lists(_poison_facts, max_size=5, unique_by=lambda facts: facts.partition).map(
            tuple
        ),
        totals=st.dictionaries(_partitions, _totals, max_size=3),
        commits=_counted("ok", "failed", "unknown"),
        commit_durations=histograms(),
        handler_durations=histograms(),
        retries=_counts,
        rebalances=_counted("assigned", "revoked", "lost"),
        resets=_counted("earliest", "latest"),
        abandoned_handlers=_counts,
        not_ready=st.lists(_lines, max_size=2).map(tuple),
        poison_limit_s=_seconds,
    )


@cache
def _outgoings(name: str) -> st.SearchStrategy[OutgoingFacts]:
    return st.builds(
        OutgoingFacts,
        channel=st.just(name),
        broker_error=_text,
        in_flight=_counts,
        sent=_counted("ok", "failed"),
        send_durations=histograms(),
    )


_batches = st.builds(
    SparkBatchFacts,
    id=st.text("0123456789abcdef-", max_size=40),
    ranges=st.lists(_lines, max_size=5).map(tuple),
    records=_counts,
    attempt=_counts,
    since_s=_seconds,
    timeout_s=_seconds,
    stages=_counts,
    stages_done=_counts,
    tasks=_counts,
    tasks_done=_counts,
    tasks_active=_counts,
    tasks_failed=_counts,
    rejected=_counts,
    outcome=st.sampled_from([None, "ok", "failed", "cancelled", "lost"]),
    reason=_text,
    ended_at=st.one_of(st.none(), st.floats(0, 4e9)),
    ended_ago_s=st.one_of(st.none(), _seconds),
)


@cache
def _sessions(name: str) -> st.SearchStrategy[SparkFacts]:
    return st.builds(
        SparkFacts,
        channel=st.just(name),
        ready=st.booleans(),
        reason=_text,
        jobs=_counted("ok", "failed", "cancelled", "lost"),
        job_durations=histograms(),
        batch_records=_counts,
        tasks=_counted("active", "completed", "failed"),
        mode=st.sampled_from(["records", "ranges"]),
        running=st.lists(_batches, max_size=2).map(tuple),
        last=st.lists(_batches, max_size=2).map(tuple),
    )


def _tuples(names: list[str], make: Any) -> Any:
    return st.lists(st.sampled_from(names), unique=True).flatmap(
        lambda chosen: st.tuples(*map(make, chosen))
    )


@cache
def apps() -> st.SearchStrategy[AppFacts]:
    """Any application; an incoming and an outgoing channel may share a name."""
    return st.builds(
        AppFacts,
        started=st.booleans(),
        stopping=st.booleans(),
        loop_lag_s=_seconds,
        channels=_tuples(["orders", "clicks"], channels),
        outgoing=_tuples(["orders", "invoices"], _outgoings),
        spark=_tuples(["clicks", "elsewhere"], _sessions),
    )

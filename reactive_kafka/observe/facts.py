"""A snapshot of a running application: plain numbers for health, metrics and the page.

They are collected when asked for; nothing is updated per record for their sake.
Ages and durations are seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from reactive_kafka.records import TopicPartition

DURATION_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0
)  # fmt: skip


AGE_BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0
)  # fmt: skip


class DurationHistogram:
    """Counts durations in fixed buckets; cheap enough for the hot path, read at scrape time.

    One ``observe`` of prometheus_client takes 0.7 µs, where the whole way of a record is to cost about one. Here a
    worker adds all short calls of a stretch at once.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float] = DURATION_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last bucket: longer than every bound
        self.sum_s = 0.0

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Count a duration, of *count* records that took it together."""
        self.counts[bisect_left(self.bounds, duration_s)] += count
        self.sum_s += duration_s * count

    def observe_many_short(self, count: int, total_s: float) -> None:
        """Count *count* durations, all within the first bucket, *total_s* in total."""
        self.counts[0] += count
        self.sum_s += total_s


def age_histogram() -> DurationHistogram:
    """Of how old records are."""
    return DurationHistogram(AGE_BUCKETS_S)


@dataclass(slots=True)
class PartitionTotals:
    """Counters of one partition of one channel, over all its assignments to this process."""

    received: int = 0
    acked: int = 0
    nacked: dict[str, int] = field(default_factory=dict)  # failure strategy -> records
    dead_lettered: int = 0  # written to the dead-letter topic, confirmed
    delayed: int = 0  # written to a retry topic, confirmed
    poison: int = 0
    outputs_lost: int = 0  # records that are settled, and whose output was not written
    skipped: dict[str, int] = field(default_factory=dict)  # reason (filter, age, unmatched) -> records

    def add(self, other: PartitionTotals) -> None:
        """Count what *other* has counted."""
        for name in ("received", "acked", "dead_lettered", "delayed", "poison", "outputs_lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.nacked, other.nacked), (self.skipped, other.skipped)):
            for name, records in theirs.items():
                mine[name] = mine.get(name, 0) + records


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonFacts:
    """A record unsettled for too long."""

    partition: TopicPartition
    offset: int
    age_s: float
    waiting: int  # records received behind it and not settled


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One assigned partition."""

    partition: TopicPartition
    position: int  # offset of the next record to read
    committed: int | None  # None: nothing is committed
    log_end: int | None  # None: not known yet
    lag: int | None  # log end minus committed; minus the first unsettled record, if the channel commits nothing
    in_flight: int  # with a handler, not settled
    queued: int  # received, not with a handler yet
    oldest_unacked_s: float | None  # None: nothing is in flight
    paused: bool  # not fetched: back-pressure, poison or the user
    done: bool = False  # its last range is read and settled: nothing of it is fetched any more
    metadata_units: int = 0  # UTF-16 units that the next commit carries at most; counted where acks are kept


ChannelState = Literal["starting", "connecting", "running", "paused", "done", "stopping", "failed", "stopped"]
"""``starting``: made, and not started; ``connecting``: a client is built, or waits for its assignment; ``running``:
every client has an assignment, maybe an empty one; ``paused``: running, and paused by the application; ``done``:
running, and the ranges that it reads are read and settled; ``stopping``: it drains, commits and leaves the group;
``failed``: it lets go of its partitions, then waits for a restart; ``stopped``: it has left the group, and is
closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """One incoming channel."""

    channel: str
    state: ChannelState
    reason: str | None  # why it failed or is not ready: one line for people
    on_poison: str
    has_joined: bool  # has had an assignment, maybe an empty one, since it started
    broker_error: str | None  # why the broker cannot be used now
    partitions: tuple[PartitionFacts, ...]
    poison: tuple[PoisonFacts, ...]  # over the limit now
    totals: Mapping[TopicPartition, PartitionTotals]
    commits: Mapping[str, int]  # outcome (ok, failed, unknown) -> requests
    commit_durations: DurationHistogram
    handler_durations: DurationHistogram
    retries: int
    rebalances: Mapping[str, int]  # kind (assigned, revoked, lost) -> changes of the assignment
    resets: Mapping[str, int]  # target (earliest, latest) -> partitions whose position was reset by policy
    abandoned_handlers: int  # calls that a revocation, a stop or the end of poison stopped waiting for
    unreadable: Mapping[str, int] = field(default_factory=dict)  # on_unreadable -> offsets that could not be read
    not_ready: tuple[str, ...] = ()  # further reasons (an unknown position, a failed commit)
    failure_strategies: tuple[str, ...] = ()  # those named in the settings: nacks are counted by them
    paused_by: tuple[str, ...] = ()  # the application's reasons for a pause of the whole channel
    record_ages: DurationHistogram = field(default_factory=age_histogram)  # from their timestamps to settlement
    delivery_delays: DurationHistogram = field(default_factory=age_histogram)  # from their timestamps to handlers
    limited_by: str | None = None  # its rate limit ("100/s"), while records wait for that alone
    stopped_by: str | None = None  # why it is stopped, or stops, while the application goes on; None: it is not
    duplicates_dropped: int = 0  # records that the checkpoint store already had
    replays_avoided: int = 0  # records not delivered again, because their acks had been kept
    metadata_dropped: int = 0  # positions committed without metadata, because the broker rejected it
    warnings: tuple[str, ...] = ()  # problems that do not make the channel unready
    unsynced_age_s: float | None = None  # age of the oldest settled record the checkpoint store lacks; None: it has all
    poison_limit_s: float = 0.0  # unprocessed_record_max_age; 0: the watch is off
    health_enabled: bool = True  # it counts in the probes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFacts:
    """One outgoing channel, or a memory channel: what goes into it, and is sent when its handler has settled it."""

    channel: str
    broker_error: str | None
    in_flight: int
    sent: Mapping[str, int]  # outcome (ok, failed) -> records
    send_durations: DurationHistogram
    failure: str | None = None  # why its task ended: only a restart helps
    health_enabled: bool = True  # it counts in the probes
    direction: Literal["outgoing", "memory"] = "outgoing"
    not_ready: tuple[str, ...] = ()  # further reasons (a schema that its registry has not told)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchFacts:
    """A Spark batch, running or ended."""

    id: str
    ranges: tuple[str, ...]  # "orders-0 [100, 200)", one for each partition
    records: int
    attempt: int
    since_s: float  # how long it has been running, or how long it took
    timeout_s: float
    stages: int  # known to Spark so far
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_active: int
    tasks_failed: int
    # Of its work that is done, from 0 to 1; it never falls while a batch runs, though tasks may be added.
    # None: as many as tasks_done of tasks.
    share: float | None = None
    rejected: int = 0
    outcome: str | None = None  # ok, failed, cancelled, lost; None while it runs
    reason: str | None = None  # why it was not ok: one line for people
    ended_at: float | None = None  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFacts:
    """The Spark session as one channel sees it, and that channel's batches."""

    channel: str
    ready: bool
    reason: str | None  # why it is not ready: one line for people
    jobs: Mapping[str, int]  # outcome (ok, failed, cancelled, lost) -> batches
    job_durations: DurationHistogram
    batch_records: int  # records of the running or last batch
    tasks: Mapping[str, int]  # state (active, completed, failed) -> tasks of the running jobs
    mode: str = "records"
    running: tuple[SparkBatchFacts, ...] = ()
    last: tuple[SparkBatchFacts, ...] = ()  # the newest last, at most 20
    rejected: int = 0  # records that successful jobs could not use
    bisection_jobs: int = 0  # batches that were part of a failed one


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """The whole application."""

    started: bool
    stopping: bool
    loop_lag_s: float  # how late the event loop was, the worst of the last seconds
    ended: str | None = None  # why the application has ended; nothing of it is running
    channels: tuple[ChannelFacts, ...] = ()
    outgoing: tuple[OutgoingFacts, ...] = ()
    spark: tuple[SparkFacts, ...] = ()

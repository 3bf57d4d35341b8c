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
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    600.0,
)


AGE_BUCKETS_S = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    21600.0,
    86400.0,
)


class DurationHistogram:
    """Counts durations in fixed buckets; cheap enough for the hot path, read at scrape time.

    One ``observe`` of prometheus_client takes 0.7 µs, where the whole way of a record is to cost
    about one. Here a worker adds all short calls of a stretch at once.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float] = DURATION_BUCKETS_S) -> None:
        self.bounds = bounds
        # The last bucket: longer than every bound.
        self.counts = [0] * (len(bounds) + 1)
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
    # Failure strategy -> records.
    nacked: dict[str, int] = field(default_factory=dict)
    # Written to the dead-letter topic, confirmed.
    dead_lettered: int = 0
    # Written to a retry topic, confirmed.
    delayed: int = 0
    poison: int = 0
    # Records that are settled, and whose output was not written.
    outputs_lost: int = 0
    # Reason (filter, age, unmatched) -> records.
    skipped: dict[str, int] = field(default_factory=dict)

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
    # Records received behind it and not settled.
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One assigned partition."""

    partition: TopicPartition
    # Offset of the next record to read.
    position: int
    # None: nothing is committed.
    committed: int | None
    # None: not known yet.
    log_end: int | None
    # Log end minus committed; minus the first unsettled record, if the channel commits nothing.
    lag: int | None
    # With a handler, not settled.
    in_flight: int
    # Received, not with a handler yet.
    queued: int
    # None: nothing is in flight.
    oldest_unacked_s: float | None
    # Not fetched: back-pressure, poison or the user.
    paused: bool
    # Its last range is read and settled: nothing of it is fetched any more.
    done: bool = False
    # UTF-16 units that the next commit carries at most; counted where acks are kept.
    metadata_units: int = 0


ChannelState = Literal[
    "starting", "connecting", "running", "paused", "done", "stopping", "failed", "stopped"
]
"""``starting``: made, and not started; ``connecting``: a client is built, or waits for its
assignment; ``running``: every client has an assignment, maybe an empty one; ``paused``: running,
and paused by the application; ``done``: running, and the ranges that it reads are read and settled;
``stopping``: it drains, commits and leaves the group; ``failed``: it lets go of its partitions,
then waits for a restart; ``stopped``: it has left the group, and is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """One incoming channel."""

    channel: str
    state: ChannelState
    # Why it failed or is not ready: one line for people.
    reason: str | None
    on_poison: str
    # Has had an assignment, maybe an empty one, since it started.
    has_joined: bool
    # Why the broker cannot be used now.
    broker_error: str | None
    partitions: tuple[PartitionFacts, ...]
    # Over the limit now.
    poison: tuple[PoisonFacts, ...]
    totals: Mapping[TopicPartition, PartitionTotals]
    # Outcome (ok, failed, unknown) -> requests.
    commits: Mapping[str, int]
    commit_durations: DurationHistogram
    handler_durations: DurationHistogram
    retries: int
    # Kind (assigned, revoked, lost) -> changes of the assignment.
    rebalances: Mapping[str, int]
    # Target (earliest, latest) -> partitions whose position was reset by policy.
    resets: Mapping[str, int]
    # Calls that a revocation, a stop or the end of poison stopped waiting for.
    abandoned_handlers: int
    # on_unreadable -> offsets that could not be read.
    unreadable: Mapping[str, int] = field(default_factory=dict)
    # Further reasons (an unknown position, a failed commit)
    not_ready: tuple[str, ...] = ()
    # Those named in the settings: nacks are counted by them.
    failure_strategies: tuple[str, ...] = ()
    # The application's reasons for a pause of the whole channel.
    paused_by: tuple[str, ...] = ()
    # From their timestamps to settlement.
    record_ages: DurationHistogram = field(default_factory=age_histogram)
    # From their timestamps to handlers.
    delivery_delays: DurationHistogram = field(default_factory=age_histogram)
    # Its rate limit ("100/s"), while records wait for that alone.
    limited_by: str | None = None
    # Why it is stopped, or stops, while the application goes on; None: it is not.
    stopped_by: str | None = None
    # Records that the checkpoint store already had.
    duplicates_dropped: int = 0
    # Records not delivered again, because their acks had been kept.
    replays_avoided: int = 0
    # Positions committed without metadata, because the broker rejected it.
    metadata_dropped: int = 0
    # Problems that do not make the channel unready.
    warnings: tuple[str, ...] = ()
    # Age of the oldest settled record the checkpoint store lacks; None: it has all.
    unsynced_age_s: float | None = None
    # unprocessed_record_max_age; 0: the watch is off.
    poison_limit_s: float = 0.0
    # It counts in the probes.
    health_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFacts:
    """One outgoing channel, or a memory channel: what goes into it, and is sent when its handler
    has settled it.
    """

    channel: str
    broker_error: str | None
    in_flight: int
    # Outcome (ok, failed) -> records.
    sent: Mapping[str, int]
    send_durations: DurationHistogram
    # Why its task ended: only a restart helps.
    failure: str | None = None
    # It counts in the probes.
    health_enabled: bool = True
    direction: Literal["outgoing", "memory"] = "outgoing"
    # Further reasons (a schema that its registry has not told)
    not_ready: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBatchFacts:
    """A Spark batch, running or ended."""

    id: str
    # "orders-0 [100, 200)", one for each partition.
    ranges: tuple[str, ...]
    records: int
    attempt: int
    # How long it has been running, or how long it took.
    since_s: float
    timeout_s: float
    # Known to Spark so far.
    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_active: int
    tasks_failed: int
    # Of its work that is done, from 0 to 1; it never falls while a batch runs, though tasks may be
    # added. None: as many as tasks_done of tasks.
    share: float | None = None
    rejected: int = 0
    # Ok, failed, cancelled, lost; None while it runs.
    outcome: str | None = None
    # Why it was not ok: one line for people.
    reason: str | None = None
    # Seconds since the epoch.
    ended_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFacts:
    """The Spark session as one channel sees it, and that channel's batches."""

    channel: str
    ready: bool
    # Why it is not ready: one line for people.
    reason: str | None
    # Outcome (ok, failed, cancelled, lost) -> batches.
    jobs: Mapping[str, int]
    job_durations: DurationHistogram
    # Records of the running or last batch.
    batch_records: int
    # State (active, completed, failed) -> tasks of the running jobs.
    tasks: Mapping[str, int]
    mode: str = "records"
    running: tuple[SparkBatchFacts, ...] = ()
    # The newest last, at most 20.
    last: tuple[SparkBatchFacts, ...] = ()
    # Records that successful jobs could not use.
    rejected: int = 0
    # Batches that were part of a failed one.
    bisection_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """The whole application."""

    started: bool
    stopping: bool
    # How late the event loop was, the worst of the last seconds.
    loop_lag_s: float
    # Why the application has ended; nothing of it is running.
    ended: str | None = None
    channels: tuple[ChannelFacts, ...] = ()
    outgoing: tuple[OutgoingFacts, ...] = ()
    spark: tuple[SparkFacts, ...] = ()

"""Facts: snapshots of a running application, as plain numbers for health, metrics and the page.

They are collected on request, so no record pays for them. Ages and durations are in seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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


class TraceExemplar(NamedTuple):
    """A duration that was counted, and the OpenTelemetry span that was recorded meanwhile."""

    duration_s: float
    trace_id: int
    span_id: int
    # Seconds since the epoch.
    at: float


class DurationHistogram:
    """Counts durations in fixed buckets. It is cheap enough for the delivery of records.

    One ``observe`` of prometheus_client takes 0.7 µs, and all of the work for a record should take
    about 1 µs. Here a worker adds many short calls at once.

    Attributes:
        bounds: The upper bounds of the buckets, in seconds.
        counts: The number of durations in each bucket. The last one is above every bound.
        sum_s: The sum of all durations, in seconds.
        exemplars: Number of a bucket -> its last duration with a trace.
    """

    __slots__ = ("bounds", "counts", "exemplars", "sum_s")

    def __init__(self, bounds: Sequence[float] = DURATION_BUCKETS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0
        self.exemplars: dict[int, TraceExemplar] = {}

    def observe(self, duration_s: float, count: int = 1) -> None:
        """Count a duration, once for each of *count* records."""
        self.counts[bisect_left(self.bounds, duration_s)] += count
        self.sum_s += duration_s * count

    def exemplify(self, exemplar: TraceExemplar) -> None:
        """Keep the trace of a duration. The duration itself is counted elsewhere."""
        self.exemplars[bisect_left(self.bounds, exemplar.duration_s)] = exemplar

    def observe_many_short(self, count: int, total_s: float) -> None:
        """Count *count* durations that all belong in the first bucket and sum up to *total_s*."""
        self.counts[0] += count
        self.sum_s += total_s


def age_histogram() -> DurationHistogram:
    """Return a histogram with buckets for the ages of records."""
    return DurationHistogram(AGE_BUCKETS_S)


@dataclass(frozen=True, slots=True)
class OutboxFacts:
    """The outbox of one incoming channel."""

    # Events that Kafka does not have yet. None: they are being counted.
    rows: int | None
    # How long the first of them has been in the table. None: there is none, or it is not known yet.
    oldest_s: float | None = None
    # Events that Kafka has got from this process.
    relayed: int = 0

    def text(self) -> str | None:
        """Return what waits, for people; None: nothing does."""
        if self.rows == 0:
            return None
        if self.rows is None:
            return "the events of the outbox are being counted"
        waits = (
            "1 event of the outbox waits"
            if self.rows == 1
            else (f"{self.rows:,} events of the outbox wait")
        )
        return waits if self.oldest_s is None else f"{waits}, the first for {self.oldest_s:.0f} s"


@dataclass(slots=True)
class PartitionTotals:
    """Counters of one partition of one channel, over all its assignments to this process."""

    received: int = 0
    acked: int = 0
    # Failure strategy -> records.
    nacked: dict[str, int] = field(default_factory=dict)
    # Written to the dead-letter topic, and confirmed by the broker.
    dead_lettered: int = 0
    # Written to a retry topic, and confirmed by the broker.
    delayed: int = 0
    poison: int = 0
    # Settled records whose output was not written.
    outputs_lost: int = 0
    # Reason (filter, age, unmatched, operator) -> records.
    skipped: dict[str, int] = field(default_factory=dict)

    def add(self, other: PartitionTotals) -> None:
        """Add the counters of *other* to these."""
        self.received += other.received
        self.acked += other.acked
        self.dead_lettered += other.dead_lettered
        self.delayed += other.delayed
        self.poison += other.poison
        self.outputs_lost += other.outputs_lost
        for strategy, records in other.nacked.items():
            self.nacked[strategy] = self.nacked.get(strategy, 0) + records
        for reason, records in other.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + records


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonFacts:
    """A record that has been unsettled for too long."""

    partition: TopicPartition
    offset: int
    age_s: float
    # Records received behind it that are not settled.
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
    # Log end minus committed position. If the channel commits nothing: minus the offset of the
    # first unsettled record.
    lag: int | None
    # Records that a handler has and that are not settled.
    in_flight: int
    # Records that are received and that no handler has yet.
    queued: int
    # None: nothing is in flight.
    oldest_unacked_s: float | None
    # It is not fetched, because of back-pressure, poison or a pause by the application.
    paused: bool
    # Its last range is read and settled, so nothing of it is fetched any more.
    done: bool = False
    # Upper bound of the UTF-16 units that go with the next commit, if acks are kept.
    metadata_units: int = 0
    # Ranges of offsets (first, after the last) that are settled, from the committed position on.
    settled_above: tuple[tuple[int, int], ...] = ()


ChannelState = Literal[
    "starting", "connecting", "running", "paused", "done", "stopping", "failed", "stopped"
]
"""What a channel does at the moment.

- ``starting``: it is created and not started.
- ``connecting``: a client is being built, or waits for its assignment.
- ``running``: every client has an assignment, which may be empty.
- ``paused``: it runs, and the application has paused it.
- ``done``: it runs, and all of the ranges that it reads are settled.
- ``stopping``: it drains, commits and leaves the group.
- ``failed``: it releases its partitions, then waits for a restart.
- ``stopped``: it has left the group and is closed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """One incoming channel."""

    channel: str
    state: ChannelState
    # Why it failed or is not ready: one line for people.
    reason: str | None
    on_poison: str
    # It has had an assignment, maybe an empty one, since it started.
    has_joined: bool
    # Why the broker cannot be used now.
    broker_error: str | None
    partitions: tuple[PartitionFacts, ...]
    # The records that are poison now.
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
    # Calls that a revocation, a stop or the end of poison stopped waiting for, and threads of
    # attempts that took longer than ``attempt_timeout``.
    abandoned_handlers: int
    # on_unreadable -> offsets that could not be read.
    unreadable: Mapping[str, int] = field(default_factory=dict)
    # Results that were not sent, because the partition of their record was gone.
    stale_results: int = 0
    # More reasons why it is not ready, such as an unknown position or a failed commit.
    not_ready: tuple[str, ...] = ()
    # The failure strategies of the settings. Metrics count nacks by them.
    failure_strategies: tuple[str, ...] = ()
    # The application's reasons for a pause of the whole channel.
    paused_by: tuple[str, ...] = ()
    # Times from the timestamp of a record until it was settled.
    record_ages: DurationHistogram = field(default_factory=age_histogram)
    # Times from the timestamp of a record until a handler got it.
    delivery_delays: DurationHistogram = field(default_factory=age_histogram)
    # The setting that records wait for ("rate_limit = 100/s"), while nothing else keeps them.
    limited_by: str | None = None
    # Records that wait because their handlers have asked for that (``Later``), for people.
    postponed: tuple[str, ...] = ()
    # Why this channel was stopped while the application runs. None: it was not.
    stopped_by: str | None = None
    # Records that the checkpoint store already had.
    duplicates_dropped: int = 0
    # Records not delivered again, because their acks had been kept.
    replays_avoided: int = 0
    # Positions committed without metadata, because the broker rejected it.
    metadata_dropped: int = 0
    # Problems that do not make the channel unready.
    warnings: tuple[str, ...] = ()
    # Age of the oldest settled record that the checkpoint store lacks. None: it has all of them.
    unsynced_age_s: float | None = None
    # None: there is no outbox.
    outbox: OutboxFacts | None = None
    # unprocessed_record_max_age. 0: no record is ever poison.
    poison_limit_s: float = 0.0
    # The probes include it.
    health_enabled: bool = True
    # Its topics, or its pattern.
    topics: tuple[str, ...] = ()
    # None: it belongs to no group.
    group_id: str | None = None
    # How its group shares partitions: "classic" or "consumer". None: it belongs to no group, reads
    # given partitions, or is not connected.
    protocol: str | None = None
    # The functions that take its records: module and qualified name. Empty: it is iterated over.
    handlers: tuple[str, ...] = ()
    # Where its dead letters are written. None: it writes none.
    dead_letter_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFacts:
    """One outgoing channel, or one memory channel.

    A value in a memory channel counts as sent when the handler of the channel has settled it.
    """

    channel: str
    broker_error: str | None
    in_flight: int
    # Outcome (ok, failed) -> records.
    sent: Mapping[str, int]
    send_durations: DurationHistogram
    # Why its task ended. Only a restart of the application helps.
    failure: str | None = None
    # The probes include it.
    health_enabled: bool = True
    direction: Literal["outgoing", "memory"] = "outgoing"
    # More reasons why it is not ready, such as a schema that the registry has not sent yet.
    not_ready: tuple[str, ...] = ()
    # The values of a memory channel whose handlers asked to be called later.
    postponed: tuple[str, ...] = ()
    # None: this is a memory channel.
    topic: str | None = None


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
    # The stages and tasks that Spark knows so far.
    stages: int
    stages_done: int
    tasks: int
    tasks_done: int
    tasks_active: int
    tasks_failed: int
    # How much of its work is done, from 0 to 1. It never falls while the batch runs, although Spark
    # may add tasks. None: it is tasks_done / tasks.
    share: float | None = None
    rejected: int = 0
    # "ok", "failed", "cancelled" or "lost". None: it runs.
    outcome: str | None = None
    # Why it was not ok, in one line for people.
    reason: str | None = None
    # Seconds since the epoch.
    ended_at: float | None = None
    # How long ago it ended. None: it runs.
    ended_ago_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFacts:
    """The Spark session as one channel sees it, and that channel's batches."""

    channel: str
    ready: bool
    # Why it is not ready, in one line for people.
    reason: str | None
    # Outcome (ok, failed, cancelled, lost) -> batches.
    jobs: Mapping[str, int]
    job_durations: DurationHistogram
    # Number of records in the running batch, or in the last one.
    batch_records: int
    # State (active, completed, failed) -> tasks of the running jobs.
    tasks: Mapping[str, int]
    mode: str = "records"
    running: tuple[SparkBatchFacts, ...] = ()
    # The last batches that have ended, at most 20, the newest last.
    last: tuple[SparkBatchFacts, ...] = ()
    # Records that successful jobs could not use.
    rejected: int = 0
    # Batches that were parts of a failed one.
    bisection_jobs: int = 0


NOT_ASKED = "it has not answered yet"
"""The reason of a function of ``@app.readiness`` before its first answer."""


@dataclass(frozen=True, slots=True)
class ReadinessFacts:
    """What a function of ``@app.readiness`` has said last."""

    name: str
    # Why the application is not ready, in one line for people. None: it is.
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationIdentity:
    """Which application this is, and where it runs."""

    # [http] service_name, else the name of its module.
    name: str
    # `__version__` of its package. None: it has none.
    version: str | None
    # The version of reactive_kafka.
    library_version: str
    host: str
    pid: int
    # Since its start. None: it is not running.
    uptime_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFacts:
    """The whole application."""

    started: bool
    stopping: bool
    # The longest delay of the event loop in the last seconds.
    loop_lag_s: float
    # Why the application has ended. None: it has not.
    ended: str | None = None
    channels: tuple[ChannelFacts, ...] = ()
    outgoing: tuple[OutgoingFacts, ...] = ()
    spark: tuple[SparkFacts, ...] = ()
    readiness: tuple[ReadinessFacts, ...] = ()
    # Action -> outcome (ok, refused, failed) -> actions of operators over HTTP.
    actions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

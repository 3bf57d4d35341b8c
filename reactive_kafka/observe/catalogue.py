"""The list of all metrics, with kind, unit, labels and meaning; ``docs/metrics.md`` shows it. Pure.

Label values come from the configuration, from the partitions of the broker and from the lists
below, never from a record. So channels and their partitions limit the number of series.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal[
    "records",
    "seconds",
    "offset",
    "calls",
    "requests",
    "rebalances",
    "partitions",
    "batches",
    "tasks",
    "units",
    "commits",
    "offsets",
    "actions",
    "",
]

COMMIT_OUTCOMES = ("ok", "failed", "unknown")
REBALANCE_KINDS = ("assigned", "revoked", "lost")
SKIP_REASONS = ("filter", "age", "unmatched", "operator")
UNREADABLE_POLICIES = ("wait", "skip", "fail")
RESET_TARGETS = ("earliest", "latest")
SEND_OUTCOMES = ("ok", "failed")
SPARK_OUTCOMES = ("ok", "failed", "cancelled", "lost")
ACTION_OUTCOMES = ("ok", "refused", "failed")
SPARK_TASK_STATES = ("active", "completed", "failed")

_CHANNEL = ("channel",)
_PARTITION = ("channel", "topic", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. Names of counters end in ``_total``, names of times in ``_seconds``."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str


def _metric(kind: Kind, name: str, unit: Unit, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(f"reactive_kafka_{name}", kind, unit, labels, meaning)


_counter = partial(_metric, "counter")
_gauge = partial(_metric, "gauge")
_histogram = partial(_metric, "histogram")

RECORDS_RECEIVED = _counter(
    "records_received_total", "records", _PARTITION, "Records taken from the client."
)
RECORDS_ACKED = _counter("records_acked_total", "records", _PARTITION, "Records settled by an ack.")
RECORDS_NACKED = _counter(
    "records_nacked_total",
    "records",
    (*_PARTITION, "strategy"),
    "Records nacked, by the failure strategy that was applied.",
)
RECORDS_SKIPPED = _counter(
    "records_skipped_total",
    "records",
    (*_CHANNEL, "reason"),
    "Records settled without a call of a handler, by reason: filter, age (max_record_age),"
    " unmatched, operator (channel.skip).",
)
DEAD_LETTERS = _counter(
    "dead_letters_total",
    "records",
    _PARTITION,
    "Records written to the dead-letter topic, confirmed by the broker; by the partition they came"
    " from.",
)
DELAYED_RETRIES = _counter(
    "delayed_retries_total",
    "records",
    _PARTITION,
    "Records written to a retry topic, confirmed by the broker; by the partition they came from.",
)
OUTPUTS_LOST = _counter(
    "outputs_lost_total",
    "records",
    _CHANNEL,
    "Settled records whose output could not be written: they are not handled again, and the output"
    " is lost.",
)
RECORDS_IN_FLIGHT = _gauge(
    "records_in_flight",
    "records",
    _PARTITION,
    "Records delivered to a handler or to the application, without a verdict.",
)
RECORDS_QUEUED = _gauge(
    "records_queued", "records", _PARTITION, "Records received and not yet delivered."
)
OLDEST_UNACKED_AGE = _gauge(
    "oldest_unacked_age_seconds",
    "seconds",
    _PARTITION,
    "Time since the oldest unsettled record was delivered; 0 with nothing in flight.",
)
POISON_RECORDS = _counter(
    "poison_records_total",
    "records",
    _PARTITION,
    "Records found unsettled for longer than unprocessed_record_max_age, each once.",
)
COMMITS = _counter(
    "commits_total",
    "requests",
    (*_CHANNEL, "outcome"),
    "Commit requests, by outcome: ok, failed, unknown (no answer in time).",
)
COMMIT_DURATION = _histogram(
    "commit_duration_seconds",
    "seconds",
    _CHANNEL,
    "Time from sending a commit request to its answer.",
)
COMMITTED_OFFSET = _gauge(
    "committed_offset",
    "offset",
    _PARTITION,
    "Committed position of the group; no series while nothing is committed.",
)
POSITION = _gauge("position", "offset", _PARTITION, "Offset of the next record to read.")
LAG = _gauge(
    "lag_records",
    "records",
    _PARTITION,
    "Log end minus committed offset, or minus handled offset with commit_strategy = ignore; no"
    " series while the log "
    "end is unknown.",
)
HANDLER_DURATION = _histogram(
    "handler_duration_seconds",
    "seconds",
    _CHANNEL,
    "Duration of one handler call, without its waits for a write, for room in a channel, for a"
    " store or a registry.",
)
DELIVERY_DELAY = _histogram(
    "delivery_delay_seconds",
    "seconds",
    _CHANNEL,
    "Time from a record's timestamp until its handler got it.",
)
RECORD_AGE = _histogram(
    "record_age_seconds",
    "seconds",
    _CHANNEL,
    "Time from a record's timestamp until it was settled, with all before it in its partition.",
)
STALE_RESULTS = _counter(
    "stale_results_total",
    "calls",
    _CHANNEL,
    "Handler calls whose result was not sent, because the partition was gone (stale_results).",
)
RETRIES = _counter(
    "retries_total", "calls", _CHANNEL, "Handler calls for a record after the first one."
)
REBALANCES = _counter(
    "rebalances_total",
    "rebalances",
    (*_CHANNEL, "kind"),
    "Changes of the assignment, by kind: assigned, revoked, lost.",
)
PAUSED_PARTITIONS = _gauge(
    "paused_partitions",
    "partitions",
    _CHANNEL,
    "Assigned partitions that are not being fetched: back-pressure, poison, or a pause by the"
    " application.",
)
DUPLICATES_DROPPED = _counter(
    "duplicates_dropped_total",
    "records",
    _CHANNEL,
    "Records that the checkpoint store already had, and that were not handled again.",
)
REPLAYS_AVOIDED = _counter(
    "replays_avoided_total",
    "records",
    _CHANNEL,
    "Records not handled again because their acks were kept with the committed position.",
)
METADATA_DROPPED = _counter(
    "metadata_dropped_total",
    "commits",
    _CHANNEL,
    "Positions committed without their metadata, because the broker's limit is lower.",
)
OFFSET_METADATA_UNITS = _gauge(
    "offset_metadata_units",
    "units",
    _PARTITION,
    "Upper bound of the UTF-16 units that go with the next commit, of 4,096; 0 if no acks are"
    " kept.",
)
UNSYNCED_AGE = _gauge(
    "checkpoint_unsynced_age_seconds",
    "seconds",
    _CHANNEL,
    "How long something has been settled without being in the checkpoint store; 0: it has"
    " everything.",
)
OUTBOX_ROWS = _gauge(
    "outbox_rows",
    "records",
    _CHANNEL,
    "Events in the outbox of the incoming channel that Kafka does not have yet.",
)
OUTBOX_OLDEST_AGE = _gauge(
    "outbox_oldest_age_seconds",
    "seconds",
    _CHANNEL,
    "How long the first of these events has been in the table; 0: none waits.",
)
OUTBOX_RELAYED = _counter(
    "outbox_relayed_total",
    "records",
    _CHANNEL,
    "Events of the outbox that this process has written to Kafka.",
)
OFFSET_RESETS = _counter(
    "offset_resets_total",
    "partitions",
    (*_CHANNEL, "to"),
    "Partitions whose position was set by auto_offset_reset or on_recreated_topic, by target.",
)
UNREADABLE_OFFSETS = _counter(
    "unreadable_offsets_total",
    "offsets",
    (*_CHANNEL, "policy"),
    "Offsets in batches that could not be read, each batch once, by on_unreadable: wait, skip,"
    " fail.",
)
ABANDONED_HANDLERS = _gauge(
    "abandoned_handlers",
    "calls",
    _CHANNEL,
    "Handler calls that a revocation, a stop or the end of poison stopped waiting for, and threads"
    " past attempt_timeout, since the start.",
)
CHANNEL_UP = _gauge(
    "channel_up", "", _CHANNEL, "1 while the channel's check in /health is UP, else 0."
)
RECORDS_SENT = _counter(
    "records_sent_total",
    "records",
    (*_CHANNEL, "outcome"),
    "Records sent, by outcome: ok (confirmed by the broker), failed.",
)
SEND_DURATION = _histogram(
    "send_duration_seconds",
    "seconds",
    _CHANNEL,
    "Time from sending a record to the broker's confirmation.",
)
SPARK_JOBS = _counter(
    "spark_jobs_total",
    "batches",
    (*_CHANNEL, "outcome"),
    "Finished runs of Spark batches, by outcome: ok, failed, cancelled, lost.",
)
SPARK_JOB_DURATION = _histogram(
    "spark_job_duration_seconds", "seconds", _CHANNEL, "Duration of one run of a Spark batch."
)
SPARK_BATCH_RECORDS = _gauge(
    "spark_batch_records",
    "records",
    _CHANNEL,
    "Records in the running Spark batch, or in the last one.",
)
SPARK_TASKS = _gauge(
    "spark_tasks",
    "tasks",
    (*_CHANNEL, "state"),
    "Tasks of the running Spark batches, by state: active, completed, failed.",
)
SPARK_RUNNING = _gauge("spark_running_batches", "batches", _CHANNEL, "Spark batches running now.")
SPARK_REJECTED = _counter(
    "spark_rejected_records_total",
    "records",
    _CHANNEL,
    "Records that a successful Spark batch could not use: corrupt payloads and rejected records.",
)
SPARK_BISECTIONS = _counter(
    "spark_bisection_jobs_total",
    "batches",
    _CHANNEL,
    "Spark batches that were part of a failed one, with on_failure = bisect.",
)
SPARK_READY = _gauge(
    "spark_ready", "", _CHANNEL, "1 while the channel's Spark session can run a job, else 0."
)
LOOP_LAG = _gauge(
    "loop_lag_seconds", "seconds", (), "Delay of the event loop: the worst of the last seconds."
)

ACTIONS = _counter(
    "actions_total",
    "actions",
    ("action", "outcome"),
    "Actions of operators over HTTP, by outcome: ok, refused (a 4xx answer), failed. Those without"
    " the token do not count.",
)

CATALOGUE = tuple(value for value in tuple(vars().values()) if isinstance(value, Metric))
"""Every metric of this module. The page and a scrape have the same order."""

# Those of the supervisor of `run --workers`, which adds them to the sums of its workers.
WORKER_UP = _gauge(
    "worker_up", "", ("worker",), "1 if the worker has answered this scrape, else 0."
)
WORKER_RESTARTS = _counter(
    "worker_restarts_total", "", ("worker",), "How often the worker was started again."
)
OF_A_SUPERVISOR = (WORKER_UP, WORKER_RESTARTS)

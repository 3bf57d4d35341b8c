"""Every metric: name, kind, unit, labels, meaning. A closed list; ``docs/metrics.md`` shows it. Pure.

Label values come from the configuration, from the broker's partitions and from the closed lists
below, never from a record: the number of series is bounded by channels and their partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal[
    "records", "seconds", "offset", "calls", "requests", "rebalances", "partitions", "batches", "tasks", "units",
    "commits", "",
]  # fmt: skip

COMMIT_OUTCOMES = ("ok", "failed", "unknown")
REBALANCE_KINDS = ("assigned", "revoked", "lost")
RESET_TARGETS = ("earliest", "latest")
SEND_OUTCOMES = ("ok", "failed")
SPARK_OUTCOMES = ("ok", "failed", "cancelled", "lost")
SPARK_TASK_STATES = ("active", "completed", "failed")

_CHANNEL = ("channel",)
_PARTITION = ("channel", "topic", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family; a counter's name ends in ``_total``, a time's in ``_seconds``."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str


RECORDS_RECEIVED = Metric(
    name="reactive_kafka_records_received_total",
    kind="counter",
    unit="records",
    labels=_PARTITION,
    meaning="Records taken from the client.",
)
RECORDS_ACKED = Metric(
    name="reactive_kafka_records_acked_total",
    kind="counter",
    unit="records",
    labels=_PARTITION,
    meaning="Records settled by an ack.",
)
RECORDS_NACKED = Metric(
    name="reactive_kafka_records_nacked_total",
    kind="counter",
    unit="records",
    labels=(*_PARTITION, "strategy"),
    meaning="Records nacked, by the failure strategy that was applied.",
)
DEAD_LETTERS = Metric(
    name="reactive_kafka_dead_letters_total",
    kind="counter",
    unit="records",
    labels=_PARTITION,
    meaning="Records written to the dead-letter topic, confirmed by the broker; by the partition they came from.",
)
DELAYED_RETRIES = Metric(
    name="reactive_kafka_delayed_retries_total",
    kind="counter",
    unit="records",
    labels=_PARTITION,
    meaning="Records written to a retry topic, confirmed by the broker; by the partition they came from.",
)
RECORDS_IN_FLIGHT = Metric(
    name="reactive_kafka_records_in_flight",
    kind="gauge",
    unit="records",
    labels=_PARTITION,
    meaning="Records delivered to a handler or to the application, without a verdict.",
)
RECORDS_QUEUED = Metric(
    name="reactive_kafka_records_queued",
    kind="gauge",
    unit="records",
    labels=_PARTITION,
    meaning="Records received and not yet delivered.",
)
OLDEST_UNACKED_AGE = Metric(
    name="reactive_kafka_oldest_unacked_age_seconds",
    kind="gauge",
    unit="seconds",
    labels=_PARTITION,
    meaning="Time since the oldest unsettled record was delivered; 0 with nothing in flight.",
)
POISON_RECORDS = Metric(
    name="reactive_kafka_poison_records_total",
    kind="counter",
    unit="records",
    labels=_PARTITION,
    meaning="Records found unsettled for longer than unprocessed_record_max_age, each once.",
)
COMMITS = Metric(
    name="reactive_kafka_commits_total",
    kind="counter",
    unit="requests",
    labels=("channel", "outcome"),
    meaning="Commit requests, by outcome: ok, failed, unknown (no answer in time).",
)
COMMIT_DURATION = Metric(
    name="reactive_kafka_commit_duration_seconds",
    kind="histogram",
    unit="seconds",
    labels=_CHANNEL,
    meaning="Time from sending a commit request to its answer.",
)
COMMITTED_OFFSET = Metric(
    name="reactive_kafka_committed_offset",
    kind="gauge",
    unit="offset",
    labels=_PARTITION,
    meaning="Committed position of the group; no series while nothing is committed.",
)
POSITION = Metric(
    name="reactive_kafka_position",
    kind="gauge",
    unit="offset",
    labels=_PARTITION,
    meaning="Offset of the next record to read.",
)
LAG = Metric(
    name="reactive_kafka_lag_records",
    kind="gauge",
    unit="records",
    labels=_PARTITION,
    meaning="Log end minus committed offset; no series while the log end is unknown.",
)
HANDLER_DURATION = Metric(
    name="reactive_kafka_handler_duration_seconds",
    kind="histogram",
    unit="seconds",
    labels=_CHANNEL,
    meaning="Duration of one handler call.",
)
RETRIES = Metric(
    name="reactive_kafka_retries_total",
    kind="counter",
    unit="calls",
    labels=_CHANNEL,
    meaning="Handler calls for a record after the first one.",
)
REBALANCES = Metric(
    name="reactive_kafka_rebalances_total",
    kind="counter",
    unit="rebalances",
    labels=("channel", "kind"),
    meaning="Changes of the assignment, by kind: assigned, revoked, lost.",
)
PAUSED_PARTITIONS = Metric(
    name="reactive_kafka_paused_partitions",
    kind="gauge",
    unit="partitions",
    labels=_CHANNEL,
    meaning="Assigned partitions that are not being fetched: back-pressure, poison, or a pause by the application.",
)
DUPLICATES_DROPPED = Metric(
    name="reactive_kafka_duplicates_dropped_total",
    kind="counter",
    unit="records",
    labels=_CHANNEL,
    meaning="Records that the checkpoint store already had, and that were not handled again.",
)
REPLAYS_AVOIDED = Metric(
    name="reactive_kafka_replays_avoided_total",
    kind="counter",
    unit="records",
    labels=_CHANNEL,
    meaning="Records not handled again because their acks were kept with the committed position.",
)
METADATA_DROPPED = Metric(
    name="reactive_kafka_metadata_dropped_total",
    kind="counter",
    unit="commits",
    labels=_CHANNEL,
    meaning="Positions committed without their metadata, because the broker's limit is lower.",
)
OFFSET_METADATA_UNITS = Metric(
    name="reactive_kafka_offset_metadata_units",
    kind="gauge",
    unit="units",
    labels=_PARTITION,
    meaning="Upper bound of the UTF-16 units that go with the next commit, of 4,096; 0 if no acks are kept.",
)
UNSYNCED_AGE = Metric(
    name="reactive_kafka_checkpoint_unsynced_age_seconds",
    kind="gauge",
    unit="seconds",
    labels=_CHANNEL,
    meaning="How long something has been settled without being in the checkpoint store; 0: it has everything.",
)
OFFSET_RESETS = Metric(
    name="reactive_kafka_offset_resets_total",
    kind="counter",
    unit="partitions",
    labels=("channel", "to"),
    meaning="Partitions whose position was set by auto_offset_reset, by target.",
)
ABANDONED_HANDLERS = Metric(
    name="reactive_kafka_abandoned_handlers",
    kind="gauge",
    unit="calls",
    labels=_CHANNEL,
    meaning="Handler calls that a revocation, a stop or the end of poison stopped waiting for, since the start.",
)
CHANNEL_UP = Metric(
    name="reactive_kafka_channel_up",
    kind="gauge",
    unit="",
    labels=_CHANNEL,
    meaning="1 while the channel's check in /health is UP, else 0.",
)
RECORDS_SENT = Metric(
    name="reactive_kafka_records_sent_total",
    kind="counter",
    unit="records",
    labels=("channel", "outcome"),
    meaning="Records sent, by outcome: ok (confirmed by the broker), failed.",
)
SEND_DURATION = Metric(
    name="reactive_kafka_send_duration_seconds",
    kind="histogram",
    unit="seconds",
    labels=_CHANNEL,
    meaning="Time from sending a record to the broker's confirmation.",
)
SPARK_JOBS = Metric(
    name="reactive_kafka_spark_jobs_total",
    kind="counter",
    unit="batches",
    labels=("channel", "outcome"),
    meaning="Finished runs of Spark batches, by outcome: ok, failed, cancelled, lost.",
)
SPARK_JOB_DURATION = Metric(
    name="reactive_kafka_spark_job_duration_seconds",
    kind="histogram",
    unit="seconds",
    labels=_CHANNEL,
    meaning="Duration of one run of a Spark batch.",
)
SPARK_BATCH_RECORDS = Metric(
    name="reactive_kafka_spark_batch_records",
    kind="gauge",
    unit="records",
    labels=_CHANNEL,
    meaning="Records in the running Spark batch, or in the last one.",
)
SPARK_TASKS = Metric(
    name="reactive_kafka_spark_tasks",
    kind="gauge",
    unit="tasks",
    labels=("channel", "state"),
    meaning="Tasks of the running Spark batches, by state: active, completed, failed.",
)
SPARK_RUNNING = Metric(
    name="reactive_kafka_spark_running_batches",
    kind="gauge",
    unit="batches",
    labels=_CHANNEL,
    meaning="Spark batches running now.",
)
SPARK_REJECTED = Metric(
    name="reactive_kafka_spark_rejected_records_total",
    kind="counter",
    unit="records",
    labels=_CHANNEL,
    meaning="Records that a successful Spark batch could not use: corrupt payloads and rejected records.",
)
SPARK_BISECTIONS = Metric(
    name="reactive_kafka_spark_bisection_jobs_total",
    kind="counter",
    unit="batches",
    labels=_CHANNEL,
    meaning="Spark batches that were part of a failed one, with on_failure = bisect.",
)
SPARK_READY = Metric(
    name="reactive_kafka_spark_ready",
    kind="gauge",
    unit="",
    labels=_CHANNEL,
    meaning="1 while the channel's Spark session can run a job, else 0.",
)
LOOP_LAG = Metric(
    name="reactive_kafka_loop_lag_seconds",
    kind="gauge",
    unit="seconds",
    labels=(),
    meaning="Delay of the event loop: the worst of the last seconds.",
)

CATALOGUE = (
    RECORDS_RECEIVED,
    RECORDS_ACKED,
    RECORDS_NACKED,
    DEAD_LETTERS,
    DELAYED_RETRIES,
    RECORDS_IN_FLIGHT,
    RECORDS_QUEUED,
    OLDEST_UNACKED_AGE,
    POISON_RECORDS,
    COMMITS,
    COMMIT_DURATION,
    COMMITTED_OFFSET,
    POSITION,
    LAG,
    HANDLER_DURATION,
    RETRIES,
    REBALANCES,
    PAUSED_PARTITIONS,
    DUPLICATES_DROPPED,
    REPLAYS_AVOIDED,
    METADATA_DROPPED,
    OFFSET_METADATA_UNITS,
    UNSYNCED_AGE,
    OFFSET_RESETS,
    ABANDONED_HANDLERS,
    CHANNEL_UP,
    RECORDS_SENT,
    SEND_DURATION,
    SPARK_JOBS,
    SPARK_JOB_DURATION,
    SPARK_BATCH_RECORDS,
    SPARK_TASKS,
    SPARK_RUNNING,
    SPARK_REJECTED,
    SPARK_BISECTIONS,
    SPARK_READY,
    LOOP_LAG,
)

"""The panels of the Grafana dashboard: rows of titles, queries and units. Pure.

``SEEN`` stands for the chosen jobs, instances and channels, ``HERE`` for the jobs and instances.
With ``run --workers`` gauges have a label ``worker``, and each service has several instances, so
every query adds up, or takes the worst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SEEN = '{job=~"$job",instance=~"$instance",channel=~"$channel"}'
HERE = '{job=~"$job",instance=~"$instance"}'

PanelKind = Literal["timeseries", "stat", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, and the name of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. The description says how to read it."""

    title: str
    description: str
    # A unit of Grafana.
    unit: str
    queries: tuple[Query, ...]
    kind: PanelKind = "timeseries"


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A row of panels."""

    title: str
    panels: tuple[Panel, ...]


def _sum(name: str, by: str = "channel") -> str:
    return f"sum by ({by}) (reactive_kafka_{name}{SEEN})"


def _rate(name: str, by: str = "channel") -> str:
    return f"sum by ({by}) (rate(reactive_kafka_{name}{SEEN}[$__rate_interval]))"


def _most(name: str) -> str:
    return f"max by (channel) (reactive_kafka_{name}{SEEN})"


def _increase(name: str, by: str, of: str = SEEN) -> str:
    return f"sum by ({by}) (increase(reactive_kafka_{name}{of}[$__rate_interval]))"


def _in_range(name: str) -> str:
    return f"sum(increase(reactive_kafka_{name}{SEEN}[$__range]))"


def _quantile(share: float, name: str) -> str:
    buckets = f"rate(reactive_kafka_{name}_bucket{SEEN}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (channel, le) ({buckets}))"


def _quantiles(name: str) -> tuple[Query, ...]:
    return (
        Query(_quantile(0.5, name), "{{channel}} p50"),
        Query(_quantile(0.99, name), "{{channel}} p99"),
    )


ROWS = (
    PanelRow(
        "Overview",
        (
            Panel(
                "Channels that are not ready",
                "GET /health/ready of the service says why.",
                "none",
                (Query(f"count(reactive_kafka_channel_up{SEEN} == 0) or vector(0)", "down"),),
                "stat",
            ),
            Panel(
                "Lag",
                "Records behind, in all channels.",
                "short",
                (Query(f"sum(reactive_kafka_lag_records{SEEN})", "lag"),),
                "stat",
            ),
            Panel(
                "Poison",
                "Records that a handler had for too long, in the time shown.",
                "short",
                (Query(_in_range("poison_records_total"), "poison"),),
                "stat",
            ),
            Panel(
                "Dead letters",
                "Records written to dead-letter topics in the time shown.",
                "short",
                (Query(_in_range("dead_letters_total"), "letters"),),
                "stat",
            ),
            Panel(
                "Readiness",
                "1: the channel is ready in every process.",
                "none",
                (Query(f"min by (channel) (reactive_kafka_channel_up{SEEN})", "{{channel}}"),),
                "state-timeline",
            ),
            Panel(
                "Lag by channel",
                "The end of the log minus the committed position.",
                "short",
                (Query(_sum("lag_records"), "{{channel}}"),),
            ),
            Panel(
                "Records a second",
                "received is above settled while lag grows inside of the process.",
                "recps",
                (
                    Query(_rate("records_received_total"), "{{channel}} received"),
                    Query(_rate("records_acked_total"), "{{channel}} acked"),
                ),
            ),
            Panel(
                "Oldest record without a verdict",
                "Above unprocessed_record_max_age it is poison.",
                "s",
                (Query(_most("oldest_unacked_age_seconds"), "{{channel}}"),),
            ),
        ),
    ),
    PanelRow(
        "Handlers",
        (
            Panel(
                "Duration of a call",
                "Of one handler call, without its retries.",
                "s",
                _quantiles("handler_duration_seconds"),
            ),
            Panel(
                "Age of a record at its handler",
                "From the timestamp of a record until a handler got it.",
                "s",
                _quantiles("delivery_delay_seconds"),
            ),
            Panel(
                "Age of a record when it is settled",
                "From the timestamp of a record until it and all before it were settled.",
                "s",
                _quantiles("record_age_seconds"),
            ),
            Panel(
                "In flight and queued",
                "In flight at its limit: handlers are slow. Queued at its limit: they are too few.",
                "short",
                (
                    Query(_sum("records_in_flight"), "{{channel}} in flight"),
                    Query(_sum("records_queued"), "{{channel}} queued"),
                ),
            ),
            Panel(
                "Failures",
                "Nacked records by strategy, and calls that were repeated.",
                "recps",
                (
                    Query(
                        _rate("records_nacked_total", "channel, strategy"),
                        "{{channel}} {{strategy}}",
                    ),
                    Query(_rate("retries_total"), "{{channel}} retries"),
                    Query(_rate("delayed_retries_total"), "{{channel}} delayed retries"),
                ),
            ),
            Panel(
                "Skipped",
                "Records settled without a call, by reason.",
                "recps",
                (
                    Query(
                        _rate("records_skipped_total", "channel, reason"), "{{channel}} {{reason}}"
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Commits and group",
        (
            Panel(
                "Commits",
                "Requests by outcome. A failed one is tried again by itself.",
                "reqps",
                (Query(_rate("commits_total", "channel, outcome"), "{{channel}} {{outcome}}"),),
            ),
            Panel(
                "Duration of a commit",
                "From the request to the broker's answer.",
                "s",
                _quantiles("commit_duration_seconds"),
            ),
            Panel(
                "Read and not committed",
                "Offsets from the committed position on. A crash repeats no more than these.",
                "short",
                (
                    Query(
                        f"sum by (channel) (reactive_kafka_position{SEEN} - "
                        f"reactive_kafka_committed_offset{SEEN})",
                        "{{channel}}",
                    ),
                ),
            ),
            Panel(
                "Rebalances",
                "Changes of the assignment, by kind.",
                "short",
                (
                    Query(
                        _increase("rebalances_total", "channel, kind"),
                        "{{channel}} {{kind}}",
                    ),
                ),
            ),
            Panel(
                "Partitions that are not fetched",
                "Back-pressure, poison, or a pause.",
                "short",
                (Query(_sum("paused_partitions"), "{{channel}}"),),
            ),
            Panel(
                "Most lag",
                "The ten partitions that are farthest behind.",
                "short",
                (
                    Query(
                        f"topk(10, {_sum('lag_records', 'channel, topic, partition')})",
                        "{{channel}} {{topic}}-{{partition}}",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Outgoing",
        (
            Panel(
                "Records sent",
                "By outcome; ok: confirmed by the broker.",
                "recps",
                (
                    Query(
                        _rate("records_sent_total", "channel, outcome"), "{{channel}} {{outcome}}"
                    ),
                ),
            ),
            Panel(
                "Duration of a send",
                "From the send to the broker's confirmation.",
                "s",
                _quantiles("send_duration_seconds"),
            ),
            Panel(
                "Outbox",
                "Events of each incoming channel that wait for Kafka, and those relayed a second.",
                "short",
                (
                    Query(_sum("outbox_rows"), "{{channel}} waiting"),
                    Query(_rate("outbox_relayed_total"), "{{channel}} relayed"),
                ),
            ),
            Panel(
                "Oldest event of the outbox",
                "How long the first event has waited. It grows while nothing is relayed.",
                "s",
                (Query(_most("outbox_oldest_age_seconds"), "{{channel}}"),),
            ),
            Panel(
                "Outputs lost",
                "Settled records whose results could not be written.",
                "short",
                (Query(_in_range("outputs_lost_total"), "lost"),),
                "stat",
            ),
        ),
    ),
    PanelRow(
        "Processes",
        (
            Panel(
                "Delay of the event loop",
                "Above 1 s a handler blocks heartbeats and probes.",
                "s",
                (
                    Query(
                        f"max by (instance, worker) (reactive_kafka_loop_lag_seconds{HERE})",
                        "{{instance}} {{worker}}",
                    ),
                ),
            ),
            Panel(
                "Workers",
                "Of run --workers: those that answer, and how often they were started again.",
                "short",
                (
                    Query(f"sum by (instance) (reactive_kafka_worker_up{HERE})", "{{instance}} up"),
                    Query(
                        f"sum by (instance) (reactive_kafka_worker_restarts_total{HERE})",
                        "{{instance}} restarts",
                    ),
                ),
            ),
            Panel(
                "Actions of operators",
                "What was asked for over HTTP; the log says by whom.",
                "short",
                (
                    Query(
                        _increase("actions_total", "action, outcome", HERE),
                        "{{action}} {{outcome}}",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Spark",
        (
            Panel(
                "Batches",
                "Finished runs, by outcome.",
                "ops",
                (Query(_rate("spark_jobs_total", "channel, outcome"), "{{channel}} {{outcome}}"),),
            ),
            Panel(
                "Duration of a batch",
                "Of one run of a batch.",
                "s",
                _quantiles("spark_job_duration_seconds"),
            ),
            Panel(
                "Tasks",
                "Of the running batches, by state.",
                "short",
                (Query(_sum("spark_tasks", "channel, state"), "{{channel}} {{state}}"),),
            ),
        ),
    ),
)

from pathlib import Path

from reactive_kafka.observe.catalogue import CATALOGUE, Metric

CONTRACT = [
    "records_received_total",
    "records_acked_total",
    "records_nacked_total{strategy}",
    "records_in_flight",
    "records_queued",
    "oldest_unacked_age_seconds",
    "poison_records_total",
    "commits_total{outcome}",
    "commit_duration_seconds",
    "committed_offset",
    "position",
    "lag_records",
    "handler_duration_seconds",
    "delivery_delay_seconds",
    "record_age_seconds",
    "retries_total",
    "rebalances_total{kind}",
    "paused_partitions",
    "records_sent_total{outcome}",
    "send_duration_seconds",
    "spark_jobs_total{outcome}",
    "spark_job_duration_seconds",
    "spark_batch_records",
    "spark_tasks{state}",
    "channel_up",
    "abandoned_handlers",
]
PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def test_every_metric_of_the_contract_that_applies_is_listed_with_its_label() -> None:
    listed = {metric.name: metric.labels for metric in CATALOGUE}
    for entry in CONTRACT:
        name, _, label = entry.rstrip("}").partition("{")
        assert f"reactive_kafka_{name}" in listed
        assert not label or label in listed[f"reactive_kafka_{name}"]


def test_no_label_is_made_of_what_stands_in_a_record() -> None:
    """Row S8 of the faults."""
    labels = {label for metric in CATALOGUE for label in metric.labels}
    assert labels == {
        "action",
        "channel",
        "kind",
        "outcome",
        "partition",
        "policy",
        "reason",
        "state",
        "strategy",
        "to",
        "topic",
    }


def test_no_two_metrics_have_one_name() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_names_say_kind_and_unit_as_prometheus_wants() -> None:
    for metric in CATALOGUE:
        assert metric.name.startswith("reactive_kafka_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.name.endswith("_seconds") == (metric.unit == "seconds")


def test_the_page_of_metrics_is_the_catalogue() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `reactive_kafka_")]
    assert rows == [row(metric) for metric in CATALOGUE]


def row(metric: Metric) -> str:
    """The line of one metric in docs/metrics.md."""
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
    return (
        f"| `{metric.name}` | {metric.kind} | {metric.unit or '-'} | {labels} | {metric.meaning} |"
    )

import math
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from prometheus_client import Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from reactive_kafka.observe.catalogue import CATALOGUE
from reactive_kafka.observe.facts import (
    AppFacts,
    DurationHistogram,
    OutboxFacts,
    PartitionTotals,
    TraceExemplar,
)
from reactive_kafka.observe.prometheus import registry, render, snapshot
from tests.observe.samples import (
    ORDERS_0,
    ORDERS_1,
    app,
    apps,
    batch,
    channel,
    outgoing,
    partition,
    poison,
    spark,
    with_partitions,
)

OPENMETRICS_OF_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(facts: AppFacts) -> Series:
    """Name and labels -> value, as a text scrape shows them."""
    text = render(registry(lambda: facts), "")[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((f"reactive_kafka_{name}", tuple(sorted(labels.items()))))


def test_each_number_of_a_channel_is_shown_under_its_name() -> None:
    facts = app(channel(poison=(poison(),)), loop_lag_s=0.25)
    series, at = scrape(facts), {"channel": "orders", "topic": "orders", "partition": "0"}
    assert value(series, "records_received_total", **at) == 20
    assert value(series, "records_acked_total", **at) == 16
    assert value(series, "records_nacked_total", **at, strategy="ignore") == 1
    assert value(series, "dead_letters_total", **at) == 2
    assert value(series, "delayed_retries_total", **at) == 3
    assert value(series, "records_in_flight", **at) == 2
    assert value(series, "records_queued", **at) == 1
    assert value(series, "oldest_unacked_age_seconds", **at) == 1.5
    assert value(series, "poison_records_total", **at) == 0
    assert value(series, "committed_offset", **at) == 17
    assert value(series, "position", **at) == 20
    assert value(series, "lag_records", **at) == 5
    assert value(series, "commits_total", channel="orders", outcome="ok") == 3
    assert value(series, "commits_total", channel="orders", outcome="unknown") == 0
    assert value(series, "rebalances_total", channel="orders", kind="assigned") == 1
    assert value(series, "offset_resets_total", channel="orders", to="latest") == 0
    assert value(series, "paused_partitions", channel="orders") == 0
    assert value(series, "retries_total", channel="orders") == 0
    assert value(series, "abandoned_handlers", channel="orders") == 0
    assert value(series, "channel_up", channel="orders") == 0
    assert value(series, "loop_lag_seconds") == 0.25


def test_what_became_of_duplicates_metadata_and_the_store_is_shown() -> None:
    plain = scrape(app(channel()))
    for name in ("duplicates_dropped_total", "replays_avoided_total", "metadata_dropped_total"):
        assert value(plain, name, channel="orders") == 0
    assert value(plain, "checkpoint_unsynced_age_seconds", channel="orders") == 0
    busy = channel(
        duplicates_dropped=1,
        replays_avoided=2,
        metadata_dropped=3,
        unsynced_age_s=4.5,
        partitions=(partition(metadata_units=77),),
    )
    series = scrape(app(busy))
    assert value(series, "duplicates_dropped_total", channel="orders") == 1
    assert value(series, "replays_avoided_total", channel="orders") == 2
    assert value(series, "metadata_dropped_total", channel="orders") == 3
    assert value(series, "checkpoint_unsynced_age_seconds", channel="orders") == 4.5
    assert (
        value(series, "offset_metadata_units", channel="orders", topic="orders", partition="0")
        == 77
    )


def test_outgoing_channels_and_spark_are_shown() -> None:
    busy = spark(running=(batch(), batch()), rejected=3, bisection_jobs=7)
    series = scrape(app(outgoing=(outgoing(),), spark=(busy, spark(channel="views", ready=False))))
    assert value(series, "records_sent_total", channel="invoices", outcome="ok") == 16
    assert value(series, "records_sent_total", channel="invoices", outcome="failed") == 0
    assert value(series, "channel_up", channel="invoices") == 1
    assert value(series, "spark_jobs_total", channel="clicks", outcome="ok") == 2
    assert value(series, "spark_jobs_total", channel="clicks", outcome="lost") == 0
    assert value(series, "spark_batch_records", channel="clicks") == 500
    assert value(series, "spark_tasks", channel="clicks", state="completed") == 4
    assert value(series, "spark_running_batches", channel="clicks") == 2
    assert value(series, "spark_rejected_records_total", channel="clicks") == 3
    assert value(series, "spark_bisection_jobs_total", channel="clicks") == 7
    assert value(series, "spark_ready", channel="clicks") == 1
    assert value(series, "spark_ready", channel="views") == 0
    assert value(series, "spark_running_batches", channel="views") == 0


def test_an_outbox_says_what_waits_how_long_and_what_was_relayed() -> None:
    waiting = OutboxFacts(rows=120, oldest_s=12.5, relayed=7)
    series = scrape(app(channel(outbox=waiting), channel(channel="plain")))
    for name, found in (("rows", 120), ("oldest_age_seconds", 12.5), ("relayed_total", 7)):
        assert value(series, f"outbox_{name}", channel="orders") == found
        assert value(series, f"outbox_{name}", channel="plain") == 0


def test_a_histogram_counts_up_to_each_bound_and_everything_at_infinity() -> None:
    durations = DurationHistogram()
    for duration_s in (0.001, 0.002, 0.3, 500.0):
        durations.observe(duration_s)
    series = scrape(app(channel(handler_durations=durations)))
    name, orders = "handler_duration_seconds", {"channel": "orders"}
    # A bound is part of its bucket.
    assert value(series, f"{name}_bucket", **orders, le="0.001") == 1
    assert value(series, f"{name}_bucket", **orders, le="0.25") == 2
    assert value(series, f"{name}_bucket", **orders, le="300.0") == 3
    assert value(series, f"{name}_bucket", **orders, le="600.0") == 4
    assert value(series, f"{name}_bucket", **orders, le="+Inf") == 4
    assert value(series, f"{name}_count", **orders) == 4
    assert math.isclose(value(series, f"{name}_sum", **orders) or 0, 500.303)


def test_what_is_not_known_has_no_series() -> None:
    series = scrape(
        app(channel(partitions=(partition(committed=None, lag=None, oldest_unacked_s=None),)))
    )
    at = {"channel": "orders", "topic": "orders", "partition": "0"}
    assert value(series, "committed_offset", **at) is None
    assert value(series, "lag_records", **at) is None
    assert value(series, "oldest_unacked_age_seconds", **at) == 0


def test_each_strategy_that_the_settings_name_has_a_series_from_the_assignment_on() -> None:
    strategies = ("dead-letter-queue", "ignore")
    series = scrape(
        app(
            channel(
                partitions=(partition(), partition(partition=ORDERS_1)),
                failure_strategies=strategies,
            )
        )
    )
    nacked = {
        (number, strategy): value(
            series,
            "records_nacked_total",
            channel="orders",
            topic="orders",
            partition=number,
            strategy=strategy,
        )
        for number in ("0", "1")
        for strategy in strategies
    }
    assert nacked == {
        ("0", "ignore"): 1,
        ("0", "dead-letter-queue"): 0,
        ("1", "ignore"): 0,
        ("1", "dead-letter-queue"): 0,
    }


def test_counters_of_a_revoked_partition_stay_and_its_gauges_go() -> None:
    totals = {ORDERS_0: PartitionTotals(received=20), ORDERS_1: PartitionTotals(received=7)}
    series = scrape(app(channel(partitions=(partition(partition=ORDERS_1),), totals=totals)))
    revoked = {"channel": "orders", "topic": "orders", "partition": "0"}
    assert value(series, "records_received_total", **revoked) == 20
    assert value(series, "position", **revoked) is None
    assert value(series, "position", **revoked | {"partition": "1"}) == 20


def test_channels_of_one_name_are_up_only_together() -> None:
    both = app(channel(), outgoing=(outgoing(channel="orders", broker_error="no leader"),))
    assert value(scrape(both), "channel_up", channel="orders") == 0


@given(apps())
@settings(max_examples=50)
def test_any_facts_make_valid_text_and_openmetrics_of_the_catalogue_only(facts: AppFacts) -> None:
    source = registry(lambda: facts)
    known = {metric.name.removesuffix("_total"): metric for metric in CATALOGUE}
    for parse, accept in ((parse_text, ""), (parse_openmetrics, "application/openmetrics-text")):
        families = list(parse(render(source, accept)[0].decode()))
        assert {family.name for family in families} == known.keys()
        samples = [sample for family in families for sample in family.samples]
        seen = Counter((sample.name, tuple(sorted(sample.labels.items()))) for sample in samples)
        assert set(seen.values()) <= {1}, "a series stands twice"
        for family in families:
            for sample in family.samples:
                assert sample.labels.keys() - {"le"} == set(known[family.name].labels)


def test_the_accept_header_of_a_real_prometheus_gets_openmetrics() -> None:
    body, content_type = render(registry(app), OPENMETRICS_OF_PROMETHEUS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def with_a_trace() -> AppFacts:
    durations = DurationHistogram()
    for duration_s in (0.02, 0.3):
        durations.observe(duration_s)
    durations.exemplify(TraceExemplar(0.02, 0xABC, 0xDEF, 1_700_000_000.5))
    return app(channel(handler_durations=durations))


def test_openmetrics_shows_the_trace_of_a_duration_at_its_bucket() -> None:
    text = render(registry(with_a_trace), OPENMETRICS_OF_PROMETHEUS)[0].decode()
    found = {
        sample.labels["le"]: sample.exemplar
        for family in parse_openmetrics(text)
        for sample in family.samples
        if sample.exemplar is not None
    }
    (bucket,) = found
    exemplar = found[bucket]
    assert bucket == "0.025"
    assert exemplar.labels == {"trace_id": f"{0xABC:032x}", "span_id": f"{0xDEF:016x}"}
    assert (exemplar.value, float(exemplar.timestamp)) == (0.02, 1_700_000_000.5)


def test_prometheus_text_has_no_place_for_traces() -> None:
    text = render(registry(with_a_trace), "")[0].decode()
    assert "trace_id" not in text
    assert list(parse_text(text))


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/html", "text/plain;version=abc", ",;=", "\xff"]
)
def test_any_other_accept_header_gets_text(accept: str) -> None:
    assert render(registry(app), accept)[1].startswith("text/plain; version=0.0.4")


def test_an_odd_version_of_openmetrics_neither_fails_nor_comes_back() -> None:
    assert "version=1.0.0" in render(registry(app), "application/openmetrics-text;version=x99")[1]


def test_facts_are_asked_for_at_each_scrape_and_never_between() -> None:
    asked: list[int] = []

    def facts() -> AppFacts:
        asked.append(1)
        return app()

    source = registry(facts)
    assert len(asked) == 0
    render(source, "")
    render(source, "")
    assert len(asked) == 2


def test_a_snapshot_stays_as_it_was() -> None:
    lags = iter([1.0, 2.0])
    taken = snapshot(registry(lambda: app(loop_lag_s=next(lags))))
    first = render(taken, "")
    assert render(taken, "") == first


def test_a_users_own_metric_is_shown_too_and_cannot_take_our_name() -> None:
    source = registry(app)
    Gauge("my_gauge", "Mine.", registry=source).set(4)
    assert b"my_gauge 4.0" in render(source, "")[0]
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Gauge("reactive_kafka_position", "Not mine.", registry=source)


def test_a_scrape_of_ten_thousand_partitions_has_a_size_and_costs_the_loop_nothing_for_each() -> (
    None
):
    """Row J4 of the faults."""
    partitions = 10_000
    facts = with_partitions(partitions)
    metrics = registry(lambda: facts)
    started = time.thread_time()
    families = snapshot(metrics)
    taken = time.thread_time()
    body, _ = render(families, "")
    rendered = time.thread_time()
    series = [line for line in body.splitlines() if not line.startswith(b"#")]
    assert len(series) >= 13 * partitions, "each partition has its series"
    assert len(body) < 100 * len(series)
    assert len(series) < 13 * partitions + 200, "and nothing else grows with them"
    assert 20 * (taken - started) < rendered - taken, "the thread does it"

"""One page of metrics from those of all workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reactive_kafka.cli.workers.metric_sums import MetricSums, parsed

ODD = 'a "quoted" \\ back, with } and {\nline'


def page_of(amount: int, channel: str = "orders") -> str:
    """The metrics of a process that has counted *amount* records."""
    registry = CollectorRegistry()
    Counter("records", "Records.", ["channel"], registry=registry).labels(channel).inc(amount)
    Gauge("lag", "Lag.", ["channel"], registry=registry).labels(channel).set(amount)
    Gauge("lag_of_loop", "Without labels.", registry=registry).set(amount / 4)
    times = Histogram("duration", "Times.", ["channel"], buckets=[1, 10], registry=registry)
    sizes = Summary("size", "Sizes.", registry=registry)
    for number in range(amount):
        times.labels(channel).observe(number)
        sizes.observe(number)
    return generate_latest(registry).decode()


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a page as Prometheus's own parser reads them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def value(page: str, name: str, **labels: str) -> float:
    return samples(page)[name, frozenset(labels.items())]


def test_counters_and_histograms_are_summed_and_gauges_get_the_worker() -> None:
    page = MetricSums().page({101: (1, parsed(page_of(3))), 102: (2, parsed(page_of(5)))})

    assert value(page, "records_total", channel="orders") == 8
    assert value(page, "duration_bucket", channel="orders", le="1.0") == 4
    assert value(page, "duration_bucket", channel="orders", le="+Inf") == 8
    assert value(page, "duration_count", channel="orders") == 8
    assert value(page, "duration_sum", channel="orders") == 3 + 10
    assert value(page, "size_count") == 8
    assert value(page, "lag", channel="orders", worker="1") == 3
    assert value(page, "lag", channel="orders", worker="2") == 5
    assert value(page, "lag_of_loop", worker="2") == 1.25
    assert ("lag", frozenset({("channel", "orders")})) not in samples(page)


def test_a_sum_does_not_go_down_when_a_worker_is_replaced() -> None:
    sums = MetricSums()
    sums.page({101: (1, parsed(page_of(3))), 102: (2, parsed(page_of(5)))})
    sums.ended(102)
    while_it_is_gone = sums.page({101: (1, parsed(page_of(4)))})
    afterwards = sums.page({101: (1, parsed(page_of(4))), 103: (2, parsed(page_of(1)))})

    assert value(while_it_is_gone, "records_total", channel="orders") == 9
    assert ("lag", frozenset({("channel", "orders"), ("worker", "2")})) not in samples(
        while_it_is_gone
    )
    assert value(afterwards, "records_total", channel="orders") == 10
    assert value(afterwards, "duration_count", channel="orders") == 10
    assert value(afterwards, "lag", channel="orders", worker="2") == 1


def test_a_worker_that_does_not_answer_counts_as_it_did_before() -> None:
    sums = MetricSums()
    sums.page({101: (1, parsed(page_of(3))), 102: (2, parsed(page_of(5)))})
    page = sums.page({101: (1, parsed(page_of(3)))})
    assert value(page, "records_total", channel="orders") == 8


@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["orders", ODD, "ä,b=c", ""]))
def test_labels_of_any_text_survive(first: int, second: int, channel: str) -> None:
    page = MetricSums().page(
        {1: (1, parsed(page_of(first, channel))), 2: (2, parsed(page_of(second, channel)))}
    )
    assert value(page, "records_total", channel=channel) == first + second
    assert value(page, "lag", channel=channel, worker="1") == first


def test_infinite_and_missing_numbers_are_written_as_prometheus_reads_them() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("limit", "A limit.", ["kind"], registry=registry)
    gauge.labels("high").set(float("inf"))
    gauge.labels("low").set(float("-inf"))
    gauge.labels("none").set(float("nan"))
    page = MetricSums().page({1: (1, parsed(generate_latest(registry).decode()))})
    assert value(page, "limit", kind="high", worker="1") == float("inf")
    assert value(page, "limit", kind="low", worker="1") == float("-inf")
    assert value(page, "limit", kind="none", worker="1") != value(
        page, "limit", kind="none", worker="1"
    )


def test_a_page_without_headers_and_an_empty_page_are_read() -> None:
    assert parsed("") == {}
    families = parsed('a 1\nb{c="d"} 2 1700000000000\n')
    page = MetricSums().page({1: (1, families)})
    assert value(page, "a", worker="1") == 1
    assert value(page, "b", c="d", worker="1") == 2


def test_the_counts_of_a_summary_are_summed_and_its_quantiles_keep_their_worker() -> None:
    page = """# TYPE call summary
call{quantile="0.5",} 2.0
call_count{} 7
call_sum 14.0
"""
    merged = MetricSums().page({1: (1, parsed(page)), 2: (2, parsed(page))})
    assert value(merged, "call_count") == 14
    assert value(merged, "call_sum") == 28
    for worker in ("1", "2"):
        assert value(merged, "call", quantile="0.5", worker=worker) == 2

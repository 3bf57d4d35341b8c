"""Which points a broker gets, and that no addition to a sum is lost or pushed twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.client_metrics.otlp import Point, Series
from reactive_kafka.client_metrics.wanted_points import (
    PushedSums,
    is_wanted,
    wants_any_of,
    without_partitions,
)
from tests.broker.metrics_receivers import subscription

COMMITS = "org.apache.kafka.consumer.coordinator.commit.latency.avg"


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        (("",), True),
        (("*",), True),
        (("org.apache.kafka.consumer.",), True),
        (("org.apache.kafka.producer.", "org.apache.kafka.consumer.coordinator"), True),
        ((COMMITS,), True),
        ((COMMITS + ".x",), False),
        (("commit",), False),
        ((), False),
    ],
)
def test_a_metric_is_wanted_if_its_name_begins_as_the_subscription_says(
    prefixes: tuple[str, ...], expected: bool
) -> None:
    assert is_wanted(COMMITS, prefixes) is expected


@given(st.text("ab.", max_size=4), st.text("ab.", max_size=4), st.text("ab.", max_size=4))
def test_what_may_be_wanted_of_a_namespace_covers_every_name_in_it(
    namespace: str, rest: str, prefix: str
) -> None:
    if is_wanted(namespace + rest, [prefix]):
        assert wants_any_of(namespace, [prefix])


def test_a_smaller_push_has_no_series_of_partitions() -> None:
    of_channel = Point(Series("retries", (("channel", "orders"),)), 1.0)
    of_partition = Point(Series("lag", (("channel", "orders"), ("partition", "0"))), 1.0)
    assert without_partitions([of_channel, of_partition]) == (of_channel,)


def test_gauges_are_pushed_as_they_are() -> None:
    sums = PushedSums()
    gauge = Point(Series("lag"), 5.0)
    sums.confirmed([gauge])
    assert sums.as_wanted([gauge], subscription(is_delta=True)) == (gauge,)


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1))
def test_confirmed_pushes_add_up_to_the_sum(steps: list[tuple[int, bool]]) -> None:
    sums = PushedSums()
    total = 0
    told = 0.0
    for added, is_confirmed in [*steps, (0, True)]:
        total += added
        point = Point(Series("records"), float(total), is_sum=True)
        (pushed,) = sums.as_wanted([point], subscription(is_delta=True))
        (whole,) = sums.as_wanted([point], subscription(is_delta=False))
        assert whole == point
        if is_confirmed:
            sums.confirmed([point])
            told += pushed.value
    assert told == total

"""Rates, trends and percentiles between looks at the facts."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.observe.facts import AppFacts, DurationHistogram, PartitionTotals
from reactive_kafka.observe.trends import KEPT_S, Looks, TrendFacts, quantile, total_lag
from tests.observe.samples import ORDERS_0, app, channel, outgoing, partition

ORDERS = ("incoming", "orders")
INVOICES = ("outgoing", "invoices")


def facts(received: int = 0, acked: int = 0, lag: int | None = 0, sent: int = 0) -> AppFacts:
    totals = {ORDERS_0: PartitionTotals(received=received, acked=acked, nacked={"ignore": 1})}
    return app(
        channel(totals=totals, partitions=(partition(lag=lag),)),
        outgoing=(outgoing(sent={"ok": sent, "failed": 1}),),
    )


def with_calls(*durations_s: float) -> AppFacts:
    histogram = DurationHistogram()
    for duration_s in durations_s:
        histogram.observe(duration_s)
    return app(channel(handler_durations=histogram))


def test_the_first_look_knows_no_rate() -> None:
    assert Looks().look(facts(100, 90), 0.0) == {ORDERS: TrendFacts(), INVOICES: TrendFacts()}


def test_rates_are_those_of_the_last_five_seconds() -> None:
    looks = Looks()
    for second in range(5):
        looks.look(facts(received=1000 * second), float(second))
    # Nothing more has come since.
    assert looks.look(facts(received=4000), 9.0)[ORDERS].received_per_s == 0.0
    looks = Looks()
    looks.look(facts(100, 50, lag=30, sent=7), 0.0)
    trends = looks.look(facts(120, 60, lag=40, sent=17), 2.0)
    assert trends[ORDERS].received_per_s == 10.0
    assert trends[ORDERS].done_per_s == 5.0
    assert trends[ORDERS].lag_per_s == 5.0
    assert trends[INVOICES].done_per_s == 5.0
    assert trends[INVOICES].lag_per_s is None


def test_a_look_that_is_older_than_a_minute_counts_no_more() -> None:
    looks = Looks()
    looks.look(facts(received=100), 0.0)
    assert looks.look(facts(received=200), KEPT_S + 1)[ORDERS].received_per_s is None


def test_looks_are_bounded_however_often_somebody_looks() -> None:
    looks = Looks()
    for turn in range(100_000):
        looks.look(facts(received=turn), turn / 100)
    assert len(looks._looks[ORDERS]) <= KEPT_S + 10


def test_a_restart_of_the_application_begins_again() -> None:
    looks = Looks()
    looks.look(facts(1000, 1000), 0.0)
    assert looks.look(facts(3, 3), 2.0)[ORDERS].received_per_s is None
    assert looks.look(facts(13, 13), 3.0)[ORDERS].received_per_s == 10.0


def test_a_restart_shows_in_the_records_that_came_too() -> None:
    looks = Looks()
    looks.look(facts(received=1000), 0.0)
    assert looks.look(facts(received=3), 2.0)[ORDERS].received_per_s is None
    assert looks.look(facts(received=13), 3.0)[ORDERS].received_per_s == 10.0


def test_a_channel_that_has_ended_is_forgotten() -> None:
    looks = Looks()
    looks.look(facts(received=100), 0.0)
    assert ORDERS not in looks.look(app(), 1.0)
    assert looks.look(facts(received=200), 2.0)[ORDERS].received_per_s is None


def test_a_nacked_record_is_done_and_a_send_that_failed_came() -> None:
    looks = Looks()
    for second, nacked, failed in ((0.0, 1, 2), (2.0, 21, 12)):
        totals = {ORDERS_0: PartitionTotals(received=30, acked=5, nacked={"ignore": nacked})}
        trends = looks.look(
            app(channel(totals=totals), outgoing=(outgoing(sent={"ok": 3, "failed": failed}),)),
            second,
        )
    assert trends[ORDERS].done_per_s == 10.0
    assert (trends[INVOICES].received_per_s, trends[INVOICES].done_per_s) == (5.0, 0.0)


def test_an_unknown_lag_has_no_trend() -> None:
    looks = Looks()
    looks.look(facts(lag=None), 0.0)
    assert looks.look(facts(lag=5), 2.0)[ORDERS].lag_per_s is None


def test_percentiles_are_those_of_the_last_minute() -> None:
    looks = Looks()
    slow = [20.0] * 100
    assert (looks.look(with_calls(*slow), 0.0)[ORDERS].p99_s or 0) > 10, "since the start"
    trend = looks.look(with_calls(*slow, *[0.003] * 10), 10.0)[ORDERS]
    assert trend.p99_s is not None
    assert 0.0025 <= trend.p99_s <= 0.005
    # No call in the last minute.
    assert looks.look(with_calls(*slow, *[0.003] * 10), 30.0)[ORDERS].p50_s is not None
    looks.look(with_calls(*slow, *[0.003] * 10), 65.0)
    assert looks.look(with_calls(*slow, *[0.003] * 10), 95.0)[ORDERS].p50_s is None


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((10, 0, 0), 0.5, 0.5),
        ((10, 10, 0), 0.5, 1.0),
        ((10, 10, 0), 0.75, 1.5),
        ((0, 0, 5), 0.5, 2.0),
        ((1, 0, 0), 0.99, 0.99),
    ],
)
def test_a_quantile_is_that_of_prometheus(counts: Any, share: float, expected: Any) -> None:
    assert quantile((1.0, 2.0), counts, share) == expected


def test_a_lag_is_the_sum_of_those_that_are_known() -> None:
    assert total_lag([]) is None
    assert total_lag([None, None]) is None
    assert total_lag([3, None, 4]) == 7

"""What gauges take down, without a broker: which records count, and from when on."""

from __future__ import annotations

import time

from benchmarks.gauges import latency, pacer, ticks
from benchmarks.gauges.job import Job
from benchmarks.gauges.plan import FIRST_S, LAG_MAX, LAG_P99, P50, P99, TICK_MS, WORST_TICK_MS
from benchmarks.gauges.rebalance import Watch
from benchmarks.topic import VALUE_BYTES


def test_a_record_says_when_it_was_sent() -> None:
    before = time.time_ns()
    sent = pacer.value()
    assert len(sent) == VALUE_BYTES
    assert 0 <= pacer.age_ms(sent) <= (time.time_ns() - before) / 1e6


def test_ages_count_from_the_end_of_the_warm_up_to_the_end_of_the_measure() -> None:
    ages = latency.Ages()
    hundred_ms_old = (b"%020d" % (time.time_ns() - 100_000_000)).ljust(VALUE_BYTES, b".")
    ages.take(hundred_ms_old, 50.0)
    ages.take(hundred_ms_old, 50.0 + latency.WARM_S - 0.1)
    ages.take(pacer.value(), 50.0 + latency.WARM_S)
    ages.take(pacer.value(), 50.0 + latency.WARM_S + latency.MEASURED_S - 0.1)
    assert not ages.done.is_set()
    ages.take(hundred_ms_old, 50.0 + latency.WARM_S + latency.MEASURED_S)
    assert ages.done.is_set()
    assert 0 <= ages.figures()[P50] <= ages.figures()[P99] < 100


def test_a_rebalance_lasts_from_the_revocation_to_the_first_record_after_the_next_assignment() -> (
    None
):
    watch = Watch()
    watch.assigned()
    # The first assignment is no rebalance.
    watch.record(1.0)
    assert watch.ends.is_set()
    watch.ends.clear()
    # Nothing goes on.
    watch.turned(50.0, 2.0)
    watch.revoked(3.0)
    watch.turned(10.0, 3.1)
    # Of before: its handler has ended late.
    watch.record(3.5)
    assert not watch.ends.is_set()
    watch.assigned()
    watch.turned(30.0, 4.0)
    watch.record(4.5)
    watch.record(5.5)
    assert watch.ends.is_set()
    watch.turned(70.0, 6.0)
    watch.revoked(7.0)
    watch.assigned()
    watch.record(7.5)
    assert watch.figures() == {FIRST_S: 1.5, LAG_P99: 30.0, LAG_MAX: 30.0}


async def test_a_tick_is_measured_with_records_that_were_settled_since() -> None:
    job = Job(bootstrap="", group="", topics=[], given=10_000, filled=0, began=0)
    measured = await ticks.kept_acks(job)
    assert 0 < measured[TICK_MS] <= measured[WORST_TICK_MS]

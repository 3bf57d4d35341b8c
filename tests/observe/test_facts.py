"""What facts count."""

from __future__ import annotations

import dataclasses

from reactive_kafka.observe.facts import DurationHistogram, PartitionTotals


def test_every_counter_of_several_partitions_is_added_up() -> None:
    sums = PartitionTotals()
    names = [field.name for field in dataclasses.fields(PartitionTotals)]
    for place in (1, 2):
        one = PartitionTotals()
        for number, name in enumerate(names, 1):
            count = 10**place * number
            setattr(one, name, {"both": count} if isinstance(getattr(one, name), dict) else count)
        sums.add(one)
    for number, name in enumerate(names, 1):
        found = getattr(sums, name)
        assert (found["both"] if isinstance(found, dict) else found) == 110 * number, name


def test_a_duration_of_several_records_counts_once_for_each() -> None:
    histogram = DurationHistogram((1.0, 2.0))
    histogram.observe(2.0, 3)
    histogram.observe_many_short(4, 0.5)
    assert (histogram.counts, histogram.sum_s) == ([4, 3, 0], 6.5)

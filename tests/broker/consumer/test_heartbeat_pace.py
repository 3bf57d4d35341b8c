"""Tests of how often members send heartbeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    ALL_OWNED_BEAT_S,
    QUICK_BEAT_S,
    SETTLING_BEAT_S,
    SETTLING_S,
    next_beat_at,
    usual_beat_s,
)
from reactive_kafka.records import TopicPartition

TOPICS = st.sampled_from(["orders", "bills", "clicks"])
VIEWS = st.dictionaries(TOPICS, st.frozensets(st.integers(0, 4), min_size=1))
TIMES = st.floats(0, 1e7)


@given(TIMES, TIMES, st.floats(0.05, 60))
def test_the_next_heartbeat_comes_later_and_within_the_interval(
    now: float, changed_at: float, interval_s: float
) -> None:
    due_at = next_beat_at(now, changed_at, interval_s)
    settles = now < changed_at + SETTLING_S
    longest_s = min(interval_s, SETTLING_BEAT_S) if settles else interval_s
    assert now <= due_at <= now + longest_s + 1e-6


@given(TIMES, st.floats(0, 0.01), st.floats(0.05, 60))
def test_heartbeats_of_one_process_go_out_together(
    now: float, later_s: float, interval_s: float
) -> None:
    first = next_beat_at(now, -SETTLING_S, interval_s)
    other = next_beat_at(now + later_s, -SETTLING_S, interval_s)
    # The other one may have just missed the time of the first.
    assert abs(other - first) < 1e-6 or abs(other - first - interval_s) < 1e-6


@given(VIEWS, st.frozensets(TOPICS), st.data())
def test_only_a_member_to_which_no_partition_can_come_waits_longer(
    seen: dict[str, frozenset[int]], topics: frozenset[str], data: st.DataObject
) -> None:
    every = [TopicPartition(topic, number) for topic in sorted(seen) for number in seen[topic]]
    owned = data.draw(st.sets(st.sampled_from(every))) if every else set()
    of_others = [it for it in every if it.topic in topics and it not in owned]
    can_come = bool(of_others) or not topics <= seen.keys()
    expected = QUICK_BEAT_S if can_come else ALL_OWNED_BEAT_S
    assert usual_beat_s(owned, topics, seen) == expected

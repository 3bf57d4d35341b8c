"""Partitions whose positions the broker refuses: how long each rests, and when that is over."""

from __future__ import annotations

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.commit.refusals import BACKOFF, Refusals
from reactive_kafka.errors import FatalBrokerError
from tests.app.helpers import in_virtual_time
from tests.commit.engines import CommitEngine
from tests.tracking.values import tracker_of

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
NO_RIGHT = FatalBrokerError("no right")


def engine_with(*partitions: TopicPartition) -> CommitEngine:
    """An engine with these partitions, of each of which a hundred records are read."""
    engine = CommitEngine()
    engine.begin(1, partitions)
    for partition in partitions:
        tracker = tracker_of(partition)
        tracker.deliver(range(100), 100)
        engine.replace(tracker)
    return engine


@in_virtual_time
async def test_a_position_that_is_stored_in_the_end_was_refused_no_more() -> None:
    engine = engine_with(A)
    tracker = engine.trackers[A]
    tracker.settle(0)
    request = engine.plan(0.0)
    assert request is not None
    engine.confirm(request, 0.0, {A: NO_RIGHT})
    assert engine.refused_reasons == {A: "no right"}
    assert engine.refused_unstored() == {A: 1}

    tracker.settle(1)
    again = engine.plan(engine.refused_at)
    assert again is not None
    engine.confirm(again, 10.0)
    # There is more to commit at each look: that is no sign of a refusal.
    tracker.settle(2)
    assert engine.plan(10.0) is not None
    assert engine.refused_reasons == {}
    assert engine.refused_unstored() == {}
    assert engine.ahead()[0] == 1


@in_virtual_time
async def test_a_partition_that_is_read_from_elsewhere_rests_too_if_its_position_is_refused() -> (
    None
):
    refusals, before, after = Refusals(), tracker_of(A), tracker_of(A)
    refusals.add(before, "no right", 0.0)
    assert not refusals.has(after)
    refusals.add(after, "no right", 1.0)
    assert refusals.is_resting(after, 1.0)
    assert refusals.reasons([after]) == {A: "no right"}
    assert not refusals.has(before)


@in_virtual_time
async def test_each_refusal_in_a_row_has_a_longer_rest() -> None:
    refusals, tracker, now = Refusals(), tracker_of(A), 0.0
    for attempt in range(4):
        refusals.add(tracker, "no right", now)
        assert refusals.again_at([tracker]) - now == pytest.approx(BACKOFF.wait_s(attempt))
        now = refusals.again_at([tracker])
    assert not refusals.is_resting(tracker, now)


@in_virtual_time
async def test_what_rests_is_kept_and_what_has_nothing_due_any_more_is_not() -> None:
    refusals, resting, due, over = (
        Refusals(),
        tracker_of(A),
        tracker_of(B),
        tracker_of(A._replace(partition=2)),
    )
    for tracker in (due, over):
        refusals.add(tracker, "no right", 0.0)
    refusals.add(resting, "no right", 10.0)
    refusals.keep({B}, 10.0)
    assert [refusals.has(one) for one in (resting, due, over)] == [True, True, False]

"""Storing plans: at once, again and again while it fails, and no longer than the partitions are
ours.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import Committed
from reactive_kafka.commit.committer import BACKOFF
from reactive_kafka.commit.strategy import LatestCommits, NoCommits, ThrottledCommits
from reactive_kafka.errors import NotOwnerError, OutcomeUnknownError
from reactive_kafka.errors import TransientBrokerError as Transient
from tests.app.helpers import in_virtual_time, now, until
from tests.commit.bench import LATENCY_S, Bench
from tests.tracking.stored import text_with_plans
from tests.tracking.values import planned_range

FIRST, SECOND = planned_range(0, 10), planned_range(10, 20)
AWAY = Transient("away")


def planned(*errors: Exception | None, strategy: object = None) -> Bench:
    """A committer whose tracker has a plan that the group does not have."""
    bench = Bench(strategy or ThrottledCommits(5.0), *errors)  # type: ignore[arg-type]
    bench.tracker.plan(FIRST)
    return bench


@in_virtual_time
async def test_plans_are_stored_without_waiting_for_a_tick() -> None:
    bench = planned()
    async with bench.running():
        assert await bench.committer.store_plans([bench.tracker])
        assert bench.at() == [0.0]
        assert bench.broker.sent == [Committed(0, text_with_plans(0, FIRST))]
        # They are there.
        assert await bench.committer.store_plans([bench.tracker])
        await asyncio.sleep(11)
        assert len(bench.broker.sent) == 1


@in_virtual_time
async def test_a_position_that_may_move_goes_with_them() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(10)
    bench.tracker.plan(SECOND)
    assert await bench.committer.store_plans([bench.tracker])
    assert bench.broker.sent == [Committed(10, text_with_plans(10, SECOND))]
    assert bench.confirmed == [10]


@pytest.mark.parametrize(
    "strategy", [ThrottledCommits(5.0), ThrottledCommits(0.1), LatestCommits(5.0)]
)
@pytest.mark.parametrize("error", [AWAY, OutcomeUnknownError("no answer")])
@in_virtual_time
async def test_they_are_tried_again_and_again_while_that_fails(
    strategy: object, error: Exception
) -> None:
    bench = planned(*[error] * 9, strategy=strategy)
    async with bench.running():
        assert await bench.committer.store_plans([bench.tracker])
        assert len(bench.broker.sent) >= 10
        assert bench.broker.sent[9] == Committed(0, text_with_plans(0, FIRST))
        assert bench.committer.failing is None
        waits = [
            later - earlier for earlier, later in zip(bench.at(), bench.at()[1:], strict=False)
        ]
        assert all(wait <= BACKOFF.last_s + LATENCY_S + 0.2 for wait in waits[:9])


@in_virtual_time
async def test_a_failing_store_shows_as_long_as_it_fails() -> None:
    bench = planned(*[AWAY] * 4)
    async with bench.running():
        storing = asyncio.create_task(bench.committer.store_plans([bench.tracker]))
        await until(lambda: len(bench.broker.sent) == 4)
        assert bench.committer.failing == "away"
        await until(lambda: len(bench.broker.sent) == 5)
        assert await storing


@in_virtual_time
async def test_it_is_over_as_soon_as_the_partition_is_left() -> None:
    bench = planned(*[AWAY] * 99)
    storing = asyncio.create_task(bench.committer.store_plans([bench.tracker]))
    await asyncio.sleep(20)
    assert not storing.done()
    left_at = now()
    bench.engine.leave()
    assert not await storing
    assert now() - left_at <= 0.2
    assert not await bench.committer.store_plans([bench.tracker])


@in_virtual_time
async def test_it_is_over_when_the_partition_is_read_anew() -> None:
    bench = planned(*[AWAY] * 99)
    storing = asyncio.create_task(bench.committer.store_plans([bench.tracker]))
    await asyncio.sleep(1)
    bench.engine.close()
    assert not await storing


@in_virtual_time
async def test_it_is_over_when_the_broker_says_that_we_are_no_owner() -> None:
    bench = planned(NotOwnerError("fenced"))
    assert not await bench.committer.store_plans([bench.tracker])
    assert len(bench.broker.sent) == 1


@in_virtual_time
async def test_where_nothing_is_committed_nothing_is_stored() -> None:
    bench = planned(strategy=NoCommits())
    assert await bench.committer.store_plans([bench.tracker])
    assert bench.broker.sent == []


@in_virtual_time
async def test_it_waits_for_a_client() -> None:
    bench = planned()
    consumer, bench.committer.consumer = bench.committer.consumer, None
    storing = asyncio.create_task(bench.committer.store_plans([bench.tracker]))
    await asyncio.sleep(30)
    assert not storing.done()
    bench.committer.consumer = consumer
    assert await storing
    assert bench.asked < 1_000


@in_virtual_time
async def test_a_commit_on_its_way_is_waited_for_and_does_not_count() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(10)
    earlier = asyncio.create_task(bench.committer.commit())
    await asyncio.sleep(LATENCY_S / 2)
    bench.tracker.plan(SECOND)
    assert await bench.committer.store_plans([bench.tracker])
    assert earlier.done()
    assert bench.broker.sent == [Committed(10), Committed(10, text_with_plans(10, SECOND))]
    assert bench.at() == [0.0, LATENCY_S]


@in_virtual_time
async def test_a_store_that_is_cancelled_on_its_way_counts_for_nothing() -> None:
    bench = planned()
    storing = asyncio.create_task(bench.committer.store_plans([bench.tracker]))
    await asyncio.sleep(LATENCY_S / 2)
    storing.cancel()
    await asyncio.wait([storing])
    assert storing.cancelled()
    assert await bench.committer.commit()
    # Nobody asks any more.
    assert len(bench.broker.sent) == 1
    assert await bench.committer.store_plans([bench.tracker])
    assert len(bench.broker.sent) == 2


@in_virtual_time
async def test_a_tick_stores_for_whoever_waits() -> None:
    bench = planned(*[AWAY] * 3, strategy=ThrottledCommits(0.3))
    async with bench.running():
        assert await bench.committer.store_plans([bench.tracker])
        # The waiter itself would have come again after 2 s.
        assert bench.at()[-1] < 1.0

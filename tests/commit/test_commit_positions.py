"""Commits that somebody asks for by hand, and brokers that take less metadata: what is sent, and
what is told.
"""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import Committed
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.commit.strategy import (
    CommitStrategy,
    LatestCommits,
    NoCommits,
    ThrottledCommits,
)
from reactive_kafka.errors import (
    CommitRefusedError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
)
from reactive_kafka.errors import TransientBrokerError as Transient
from tests.app.helpers import in_virtual_time
from tests.commit.bench import LATENCY_S, Bench
from tests.commit.test_engine import A, B

TOO_LARGE = MetadataTooLargeError("too long", [A])


@pytest.mark.parametrize("strategy", [ThrottledCommits(5.0), LatestCommits(5.0), NoCommits()])
@in_virtual_time
async def test_a_position_is_committed_at_once_and_ticks_go_on_from_there(
    strategy: CommitStrategy,
) -> None:
    bench = Bench(strategy)
    async with bench.running():
        bench.settle(10)
        await bench.committer.commit_positions({A: 4})
        assert bench.at() == [0.0]
        assert bench.confirmed == [4]
        await asyncio.sleep(12)
        assert bench.broker.positions == ([4] if isinstance(strategy, NoCommits) else [4, 10])


@in_virtual_time
async def test_a_commit_that_may_not_be_sends_nothing() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(3)
    with pytest.raises(CommitRefusedError):
        await bench.committer.commit_positions({A: 4})
    with pytest.raises(NotOwnerError):
        await bench.committer.commit_positions({A: 3, B: 0})
    assert bench.broker.requests == []


@pytest.mark.parametrize("position", [101, 2**62, 2**63, 10**30])
@in_virtual_time
async def test_a_position_that_no_log_has_is_refused_like_one_that_is_not_read(
    position: int,
) -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(100)
    with pytest.raises(CommitRefusedError, match="records from 100 on have not been read"):
        bench.engine.check_positions({A: position})


@in_virtual_time
async def test_one_that_is_on_its_way_is_waited_for_and_then_looked_at_again() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(5)
    ticking = asyncio.create_task(bench.committer.commit())
    await asyncio.sleep(LATENCY_S / 2)
    with pytest.raises(CommitRefusedError, match="would go back from 5"):
        await bench.committer.commit_positions({A: 4})
    await bench.committer.commit_positions({A: 5})
    assert await ticking
    assert bench.broker.positions == [5]


@pytest.mark.parametrize(
    "error", [Transient("away"), OutcomeUnknownError("no answer"), NotOwnerError("gone")]
)
@in_virtual_time
async def test_what_was_not_stored_is_told_and_the_next_tick_makes_up_for_it(
    error: Transient,
) -> None:
    bench = Bench(ThrottledCommits(5.0), error)
    async with bench.running():
        bench.settle(5)
        with pytest.raises(type(error)):
            await bench.committer.commit_positions({A: 5})
        assert bench.confirmed == []
        assert bench.tracker.committed is None
        await asyncio.sleep(5.5)
        assert bench.broker.positions[:2] == [5, 5]
        assert bench.confirmed[0] == 5


@in_virtual_time
async def test_an_empty_string_takes_the_place_of_the_one_beside_the_same_position() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.settle(1)
    for text in ("a", ""):
        bench.tracker.texts.store(text)
        await bench.committer.commit_positions({A: 1})
    # It is used up: there is nothing to send.
    await bench.committer.commit_positions({A: 1})
    assert bench.broker.sent == [Committed(1, "a"), Committed(1, "")]


@in_virtual_time
async def test_without_a_connection_it_is_not_stored() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.committer.consumer = None
    bench.settle(5)
    with pytest.raises(Transient, match="not connected"):
        await bench.committer.commit_positions({A: 5})
    assert bench.engine.plan(0.0) is not None, "nothing is in flight"


# -- brokers that take less


@in_virtual_time
async def test_a_string_that_the_broker_does_not_take_is_left_out_at_once() -> None:
    facts = CommitOutcomes()
    bench = Bench(ThrottledCommits(5.0), TOO_LARGE, facts=facts)
    bench.settle(1)
    bench.tracker.texts.supply(0, "x" * 600)
    assert await bench.committer.commit()
    assert bench.broker.sent == [Committed(1, "x" * 600), Committed(1, "")]
    assert bench.committer.failing is None
    assert (facts.room.dropped, facts.outcomes) == (1, {"ok": 1, "failed": 1, "unknown": 0})


@in_virtual_time
async def test_a_commit_by_hand_leaves_it_out_too() -> None:
    bench = Bench(ThrottledCommits(5.0), TOO_LARGE)
    bench.settle(1)
    bench.tracker.texts.supply(0, "x" * 600)
    await bench.committer.commit_positions({A: 1})
    assert bench.broker.sent[-1] == Committed(1, "")


@in_virtual_time
async def test_where_nothing_can_be_left_out_it_is_a_failure_like_any_other() -> None:
    bench = Bench(ThrottledCommits(5.0), TOO_LARGE)
    bench.settle(1)
    assert not await bench.committer.commit()
    assert bench.committer.failing == "too long"
    assert bench.broker.positions == [1]


@in_virtual_time
async def test_what_a_tick_has_failed_to_store_beside_an_unmoved_position_is_tried_again() -> None:
    bench = Bench(LatestCommits(5.0), Transient("away"))
    async with bench.running():
        bench.tracker.settle(5)
        bench.tracker.texts.supply(5, "of five")
        bench.committer.request()
        await asyncio.sleep(4.9)
        assert bench.broker.sent == [], "only ticks commit what moves nothing"
        await asyncio.sleep(0.5)
        assert bench.broker.sent == [Committed(0, "of five")] * 2
        assert bench.committer.failing is None

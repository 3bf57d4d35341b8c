"""When the committer commits: at ticks, at requests, after failures; and how long it tries at the
end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka.commit.committer import BACKOFF
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.commit.strategy import (
    LatestCommits,
    NoCommits,
    Progress,
    ThrottledCommits,
)
from reactive_kafka.errors import (
    CommitStrategyError,
    NotOwnerError,
    OutcomeUnknownError,
    PositionsRefusedError,
)
from reactive_kafka.errors import TransientBrokerError as Transient
from reactive_kafka.events import CommitFailed
from tests.app.helpers import in_virtual_time, until
from tests.commit.bench import LATENCY_S, REPEAT_AFTER_S, A, Bench


class Never:
    """A strategy whose answer is to be decided, asked at requests only."""

    interval_s = None
    commits_at_ack = False

    def __init__(self, answer: Callable[[Progress], Any]) -> None:
        self._answer = answer

    def position(self, progress: Progress, now: float) -> int | None:
        answer: int | None = self._answer(progress)
        return answer


# -- ticks


@in_virtual_time
async def test_ticks_come_at_the_interval_and_do_not_drift() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.broker.latency_s = 1.0
    async with bench.running():
        for _ in range(4):
            bench.settle()
            await asyncio.sleep(5)
    assert bench.at() == [5.0, 10.0, 15.0]


@in_virtual_time
async def test_a_commit_that_takes_longer_than_the_interval_leaves_ticks_out() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.broker.latency_s = 7.0
    async with bench.running():
        for _ in range(26):
            bench.settle()
            await asyncio.sleep(1)
    assert bench.at() == [5.0, 15.0, 25.0]


@in_virtual_time
async def test_throttled_tries_a_failed_commit_again_at_the_next_tick() -> None:
    bench = Bench(ThrottledCommits(5.0), Transient("coordinator moved"))
    async with bench.running():
        bench.settle()
        await asyncio.sleep(30)
    assert bench.at() == [5.0, 10.0]
    assert bench.confirmed == [1]
    assert bench.committer.failing is None


@in_virtual_time
async def test_nothing_new_asks_the_broker_nothing() -> None:
    bench = Bench(ThrottledCommits(5.0))
    async with bench.running():
        bench.settle()
        await asyncio.sleep(60)
    assert bench.at() == [5.0]


@in_virtual_time
async def test_ignore_asks_the_broker_nothing() -> None:
    bench = Bench(NoCommits())
    async with bench.running():
        bench.settle(5, request=True)
        await asyncio.sleep(60)
        assert (await bench.flushed(5.0))[0]
    assert bench.at() == []


# -- requests


@in_virtual_time
async def test_a_request_is_sent_at_once() -> None:
    bench = Bench(LatestCommits(5.0))
    async with bench.running():
        await asyncio.sleep(1)
        bench.settle(request=True)
        await asyncio.sleep(1)
        bench.settle(request=True)
        await asyncio.sleep(1)
    assert bench.broker.positions == [1, 2]
    assert bench.at() == [1.0, 2.0]


@in_virtual_time
async def test_acks_that_come_while_a_commit_is_on_its_way_go_with_the_next() -> None:
    bench = Bench(LatestCommits(5.0))
    async with bench.running():
        for _ in range(20):
            bench.settle(request=True)
            await asyncio.sleep(LATENCY_S / 10)
        await asyncio.sleep(1)
    assert bench.broker.positions == [1, 11, 20]
    assert bench.confirmed == [1, 11, 20]


@in_virtual_time
async def test_a_failed_commit_at_an_ack_is_tried_again_soon_and_then_less_often() -> None:
    bench = Bench(LatestCommits(100.0), *[Transient("no coordinator")] * 7)
    bench.broker.latency_s = 0.0
    async with bench.running():
        bench.settle(request=True)
        await asyncio.sleep(60)
    waits = [
        round(later - earlier, 6)
        for earlier, later in zip(bench.at(), bench.at()[1:], strict=False)
    ]
    assert waits == [BACKOFF.wait_s(attempt) for attempt in range(7)]
    assert bench.confirmed == [1]


@in_virtual_time
async def test_after_a_commit_that_was_stored_the_next_failure_is_tried_again_as_soon_as_the_first() -> (
    None
):
    away = Transient("no coordinator")
    bench = Bench(LatestCommits(100.0), *[away] * 7, None, away)
    bench.broker.latency_s = 0.0
    async with bench.running():
        bench.settle(request=True)
        await until(lambda: bench.confirmed == [1], 60)
        await asyncio.sleep(60)
        bench.settle(request=True)
        await until(lambda: bench.confirmed == [1, 2], 60)
    assert bench.at()[-1] - bench.at()[-2] == pytest.approx(BACKOFF.wait_s(0))


@in_virtual_time
async def test_a_commit_of_which_nothing_was_stored_is_no_sign_that_commits_are_in_time() -> None:
    bench = Bench(ThrottledCommits(5.0), PositionsRefusedError({A: Transient("no right")}))
    bench.settle()
    assert not await bench.committer.commit()
    assert bench.committer.stored_at == -math.inf


@in_virtual_time
async def test_acks_do_not_hurry_a_broker_that_refuses() -> None:
    bench = Bench(LatestCommits(100.0), *[Transient("no coordinator")] * 100)
    async with bench.running():
        for _ in range(100):
            bench.settle(request=True)
            await asyncio.sleep(0.1)
    assert len(bench.at()) <= 7
    assert bench.committer.failing == "no coordinator"


@pytest.mark.parametrize("has_ticks", [True, False])
@in_virtual_time
async def test_a_new_assignment_does_not_wait_because_of_what_the_group_refused_before(
    has_ticks: bool,
) -> None:
    strategy = ThrottledCommits(1.0) if has_ticks else LatestCommits(100.0)
    bench = Bench(strategy, *[NotOwnerError("the member is out")] * 50)
    async with bench.running():
        bench.settle(request=not has_ticks)
        await until(lambda: len(bench.at()) == 10, 60)
        await asyncio.sleep(2 * LATENCY_S)
        # The last attempt was refused a moment ago, and the next one is 5 s away.
        assert len(bench.at()) == 10
        bench.broker.errors.clear()
        bench.committer.begin_assignment()
        bench.settle(request=not has_ticks)
        await asyncio.sleep(1.5)
    assert bench.broker.positions[-1] == 2
    assert bench.confirmed == [2]


@in_virtual_time
async def test_latest_passes_what_no_ack_moved_at_the_next_tick() -> None:
    bench = Bench(LatestCommits(5.0))
    async with bench.running():
        bench.settle(100, request=True)
        await asyncio.sleep(1)
        bench.tracker.deliver((), 103)
        await asyncio.sleep(10)
    assert bench.broker.positions == [100, 103]
    assert bench.at()[1] == 5.0


@in_virtual_time
async def test_a_strategy_without_an_interval_is_asked_at_requests_and_tried_again_by_itself() -> (
    None
):
    bench = Bench(Never(lambda progress: progress.safe), Transient("no coordinator"))
    async with bench.running():
        bench.settle(request=False)
        await asyncio.sleep(60)
        assert bench.at() == []
        bench.committer.request()
        await asyncio.sleep(10)
    assert bench.at() == [60.0, 60.0 + LATENCY_S + BACKOFF.first_s]


# -- outcomes


@in_virtual_time
async def test_after_an_unknown_outcome_the_next_commit_is_sent_again_for_a_minute() -> None:
    for strategy in (
        ThrottledCommits(5.0),
        LatestCommits(5.0),
        Never(lambda progress: progress.safe),
    ):
        bench = Bench(strategy, OutcomeUnknownError("no answer"))
        async with bench.running():
            bench.settle(request=True)
            await asyncio.sleep(150)
        first = bench.at()[1] + LATENCY_S
        assert [round(at - first) for at in bench.at()[2:]] == [1, 2, 4, 9, 18, 35, 60]


@pytest.mark.parametrize("doubtful", [True, False])
@in_virtual_time
async def test_without_a_client_nothing_is_tried_over_and_over(doubtful: bool) -> None:
    error = OutcomeUnknownError("no answer")
    bench = Bench(
        LatestCommits(5.0),
        *([error, None, error] if doubtful else [Transient("no coordinator")] * 9),
    )
    async with bench.running():
        bench.settle(request=True)
        await asyncio.sleep(12)
        # It is built anew.
        bench.committer.consumer = None
        bench.committer.request()
        asked = bench.asked
        await asyncio.sleep(30)
        assert bench.asked - asked < 100


@in_virtual_time
async def test_a_repeated_commit_that_fails_waits_for_the_tick_too() -> None:
    bench = Bench(
        ThrottledCommits(5.0), OutcomeUnknownError("no answer"), None, Transient("no coordinator")
    )
    async with bench.running():
        bench.settle()
        await asyncio.sleep(300)
    assert bench.at()[:4] == [5.0, 10.0, 10.0 + LATENCY_S + REPEAT_AFTER_S, 15.0]
    assert bench.at()[-1] < 90


@in_virtual_time
async def test_counters_are_the_channels_and_what_fails_is_the_clients() -> None:
    facts = CommitOutcomes()
    good, bad = (
        Bench(ThrottledCommits(5.0), facts=facts),
        Bench(ThrottledCommits(5.0), OutcomeUnknownError("no answer"), facts=facts),
    )
    for bench in (bad, good):
        bench.settle()
        await bench.committer.commit()
    assert facts.outcomes == {"ok": 1, "failed": 0, "unknown": 1}
    assert sum(facts.durations.counts) == 1
    assert (good.committer.failing, bad.committer.failing) == (None, "no answer")
    (event,) = bad.recorder.of(CommitFailed)
    assert (event.outcome, event.partitions, event.reason) == (
        "unknown",
        frozenset({A}),
        "no answer",
    )


@in_virtual_time
async def test_a_strategy_that_fails_ends_the_task_with_its_error() -> None:
    bench = Bench(Never(lambda progress: "seven"))
    task = asyncio.create_task(bench.committer.run())
    bench.settle(request=True)
    with pytest.raises(CommitStrategyError, match="'seven'"):
        await task
    assert "'seven'" in bench.recorder.of(CommitFailed)[0].reason
    assert bench.at() == []


@in_virtual_time
async def test_a_strategy_that_fails_at_the_end_ends_the_flush_and_the_task() -> None:
    bench = Bench(Never(lambda progress: 1 // 0))
    task = asyncio.create_task(bench.committer.run())
    bench.settle()
    assert await bench.flushed(5.0) == (True, 0.0)
    with pytest.raises(CommitStrategyError, match="ZeroDivisionError"):
        await task


@in_virtual_time
async def test_what_failed_is_forgotten_when_nothing_is_due_any_more() -> None:
    bench = Bench(ThrottledCommits(5.0), Transient("no coordinator"))
    bench.settle()
    await bench.committer.commit()
    assert bench.committer.failing is not None
    bench.engine.leave()
    assert await bench.committer.commit()
    assert bench.committer.failing is None


@in_virtual_time
async def test_a_commit_that_was_not_ours_to_make_is_no_trouble_of_the_brokers() -> None:
    bench = Bench(LatestCommits(100.0), *[NotOwnerError("illegal generation")] * 3)
    async with bench.running():
        for _ in range(10):
            bench.settle(request=True)
            await asyncio.sleep(0.01)
        assert bench.committer.failing is None
        assert len(bench.at()) == 1


# -- the end of an assignment


@in_virtual_time
async def test_a_commit_that_is_not_answered_is_left_at_the_deadline() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.broker.latency_s = 1000.0
    bench.settle()
    said, took_s = await bench.flushed(0.2)
    assert not said
    assert took_s == pytest.approx(0.2)
    assert bench.broker.positions == [1]


@in_virtual_time
async def test_a_commit_that_fails_is_tried_again_before_the_deadline() -> None:
    bench = Bench(ThrottledCommits(5.0), Transient("coordinator moved"))
    bench.settle()
    assert (await bench.flushed(5.0))[0]
    assert bench.broker.positions == [1, 1]


@in_virtual_time
async def test_nothing_is_tried_again_for_partitions_that_are_not_ours_any_more() -> None:
    bench = Bench(ThrottledCommits(5.0), NotOwnerError("illegal generation"))
    bench.settle()
    assert not (await bench.flushed(5.0))[0]
    assert bench.broker.positions == [1]
    assert not bench.committer.is_owner


@in_virtual_time
async def test_the_next_assignment_is_ours_whatever_was_refused_of_the_one_before() -> None:
    bench = Bench(ThrottledCommits(5.0), NotOwnerError("the member is out"))
    bench.settle()
    assert not (await bench.flushed(5.0))[0]
    assert not bench.committer.is_owner
    bench.committer.begin_assignment()
    assert bench.committer.is_owner, "or its revocation would be told as a loss"


@in_virtual_time
async def test_a_refusal_that_comes_late_does_not_end_the_assignment_that_has_come_since() -> None:
    bench = Bench(ThrottledCommits(5.0), NotOwnerError("illegal generation"))
    bench.settle()
    late = asyncio.create_task(bench.committer.commit())
    await until(lambda: bench.broker.requests)
    bench.engine.begin(2, [A])
    bench.committer.begin_assignment()
    assert not await late
    assert bench.committer.is_owner


@in_virtual_time
async def test_a_flush_tries_what_the_broker_refuses_in_part_only_once_more() -> None:
    refusal = PositionsRefusedError({A: Transient("no right")})
    bench = Bench(ThrottledCommits(5.0), *[refusal] * 10)
    bench.settle()
    said, took_s = await bench.flushed(5.0)
    assert not said
    assert bench.broker.positions == [1, 1]
    assert took_s < 1


@in_virtual_time
async def test_a_flush_repeats_a_commit_behind_an_unknown_one_once() -> None:
    bench = Bench(ThrottledCommits(5.0), OutcomeUnknownError("no answer"))
    bench.settle()
    assert (await bench.flushed(5.0))[0]
    assert bench.broker.positions == [1, 1, 1]
    assert (await bench.flushed(5.0))[0]
    assert bench.broker.positions == [1, 1, 1]


@in_virtual_time
async def test_a_flush_tells_the_strategy_that_it_is_the_last_time() -> None:
    bench = Bench(Never(lambda progress: progress.safe if progress.is_last else None))
    bench.settle(3)
    assert await bench.committer.commit()
    assert bench.at() == []
    assert (await bench.flushed(5.0))[0]
    assert bench.broker.positions == [3]


@in_virtual_time
async def test_without_a_client_a_flush_says_that_what_is_settled_is_not_stored() -> None:
    bench = Bench(ThrottledCommits(5.0))
    bench.committer.consumer = None
    assert await bench.flushed(1.0) == (True, 0.0), "nothing is to be stored"
    bench.settle()
    assert await bench.flushed(1.0) == (False, 0.0)

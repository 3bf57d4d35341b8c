"""The bound on what is settled and not committed, against a model of one partition."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.commit.strategy import LatestCommits, Progress, ThrottledCommits
from reactive_kafka.commit.uncommitted import AT_ANY_MOMENT, TELL_AFTER_S, UncommittedBound

IN_FLIGHT = 10
"""Most records that one poll of the model brings, and most that are open."""


class Rare:
    """A custom strategy that leaves everything to the last commit."""

    interval_s: float | None = None
    commits_at_ack = False

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.safe if progress.is_last else None


class Partition:
    """What a channel does around its bound: it polls while it may, settles, and commits when it is
    asked to.
    """

    def __init__(self, most: int, strategy: Any, *, is_strict: bool = True) -> None:
        self.brought = self.settled = self.committed = 0
        self.stored_at = -inf
        self.requested = False
        self.refusal: str | None = None
        self.now = 0.0
        self.bound = UncommittedBound(
            most,
            strategy,
            lambda: (self.ahead, self.brought - self.settled),
            self.request,
            lambda: self.refusal,
            lambda: self.stored_at,
            is_strict=is_strict,
        )

    @property
    def ahead(self) -> int:
        return self.settled - self.committed

    def request(self) -> None:
        self.requested = True

    def poll(self, count: int) -> bool:
        """One turn of the fetcher; whether it may fetch."""
        self.now += 1
        self.bound.look(self.brought, self.now)
        if not self.bound.is_reached:
            self.brought += min(count, IN_FLIGHT - (self.brought - self.settled))
        return not self.bound.is_reached

    def settle(self, count: int) -> None:
        self.settled = min(self.brought, self.settled + count)

    def commit(self, refusal: str | None) -> None:
        self.requested, self.refusal = False, refusal
        if refusal is None:
            self.committed, self.stored_at = self.settled, self.now


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("poll"), st.integers(1, IN_FLIGHT)),
        st.tuples(st.just("settle"), st.integers(1, IN_FLIGHT)),
        st.tuples(st.just("commit"), st.sampled_from([None, "refused"])),
    ),
    max_size=200,
)


@settings(max_examples=1000)
@given(
    most=st.integers(1, 60),
    strategy=st.sampled_from([ThrottledCommits(1.0), LatestCommits(1.0)]),
    steps=STEPS,
)
def test_no_more_is_repeated_than_the_bound_and_what_is_in_flight(
    most: int, strategy: Any, steps: list[Any]
) -> None:
    partition = Partition(most, strategy)
    for step, value in steps:
        getattr(partition, step)(value)
        assert partition.brought - partition.committed <= most + IN_FLIGHT


@given(
    most=st.integers(1, 60),
    strategy=st.sampled_from([ThrottledCommits(1.0), LatestCommits(1.0)]),
    steps=STEPS,
)
def test_a_commit_that_is_answered_lets_the_next_poll_fetch(
    most: int, strategy: Any, steps: list[Any]
) -> None:
    partition = Partition(most, strategy)
    for step, value in steps:
        getattr(partition, step)(value)
    if not partition.poll(1):
        # Nobody has to wait for the interval.
        assert partition.requested
        partition.commit(None)
        assert partition.poll(1)


@given(most=st.integers(1, 60), steps=STEPS)
def test_a_strategy_of_ones_own_is_bounded_while_commits_fail_and_only_then(
    most: int, steps: list[Any]
) -> None:
    partition = Partition(most, Rare())
    for step, value in steps:
        getattr(partition, step)(value)
        if step == "poll":
            is_failing, ahead = partition.refusal is not None, partition.ahead
            assert not partition.bound.is_reached or (is_failing and ahead >= most)
            assert partition.bound.is_reached or not is_failing or ahead < most + IN_FLIGHT
        assert not partition.requested


@settings(max_examples=1000)
@given(
    most=st.integers(1, 60),
    strategy=st.sampled_from([ThrottledCommits(1.0), LatestCommits(1.0)]),
    steps=STEPS,
)
def test_where_it_is_not_strict_it_holds_while_commits_fail_or_are_late(
    most: int, strategy: Any, steps: list[Any]
) -> None:
    partition = Partition(most, strategy, is_strict=False)
    for step, value in steps:
        getattr(partition, step)(value)
        stored_at = max(0.0, partition.stored_at)
        if step == "poll" and partition.ahead >= most + IN_FLIGHT:
            is_held = partition.refusal is not None or partition.now - stored_at > 3 * most
            assert partition.bound.is_reached or not is_held
        if step == "poll" and partition.bound.is_reached:
            assert partition.ahead >= most
            assert partition.refusal is not None or partition.now > stored_at


def test_who_is_fast_does_not_wait_for_each_commit_and_sends_few_before_their_time() -> None:
    partition, early = Partition(1_000, ThrottledCommits(1.0), is_strict=False), 0
    for number in range(1000):
        assert partition.poll(IN_FLIGHT)
        partition.now += 0.001 - 1
        partition.settle(IN_FLIGHT)
        early += partition.requested
        partition.requested = False
        if number % 400 == 399:
            partition.commit(None)
    assert partition.brought == 1000 * IN_FLIGHT
    # In a second, one each 0.2 s.
    assert early in (4, 5)


def test_where_no_commit_is_answered_ten_times_as_many_are_the_most_however_fast_they_come() -> (
    None
):
    partition, early = Partition(20, ThrottledCommits(1.0), is_strict=False), list[int]()
    while partition.poll(IN_FLIGHT):
        # No time passes.
        partition.now -= 1
        partition.settle(IN_FLIGHT)
        if partition.requested:
            early.append(partition.ahead)
            partition.requested = False
        assert partition.brought <= AT_ANY_MOMENT * 20 + 2 * IN_FLIGHT
    assert partition.settled >= AT_ANY_MOMENT * 20
    assert early[0] <= 10 + IN_FLIGHT, "half of the bound"
    assert [ahead for ahead in early if ahead >= AT_ANY_MOMENT * 10], (
        "half of what it may be at any moment"
    )
    assert len(early) < 20


def test_it_is_told_once_it_has_lasted() -> None:
    partition = Partition(20, ThrottledCommits(1.0))
    while partition.poll(IN_FLIGHT):
        partition.settle(IN_FLIGHT)
    since = partition.now
    told = partition.bound.not_ready
    assert told(since + TELL_AFTER_S / 2) is None
    assert told(since + TELL_AFTER_S) == (
        "nothing is fetched: 20 offsets are settled and not committed (max_uncommitted = 20)"
    )


def test_of_refused_partitions_those_at_the_bound_are_told_and_counted() -> None:
    refused = {TopicPartition("orders", number): 10 * number for number in range(4)}
    bound = UncommittedBound(
        20,
        ThrottledCommits(1.0),
        lambda: (0, 0),
        lambda: None,
        lambda: None,
        lambda: 0.0,
        lambda: refused,
        is_strict=True,
    )
    assert bound.held_back() == {TopicPartition("orders", 2), TopicPartition("orders", 3)}
    assert bound.not_ready(0.0) == (
        "nothing is fetched of orders-2, orders-3: "
        "50 offsets are settled and not committed (max_uncommitted = 20)"
    )


def test_while_a_commit_is_on_its_way_the_partitions_are_looked_through_a_few_times_a_second_only() -> (
    None
):
    looks, now, brought = list[float](), 0.0, 0

    def ahead() -> tuple[int, int]:
        looks.append(now)
        return 12_000, 0

    bound = UncommittedBound(
        10_000,
        ThrottledCommits(5.0),
        ahead,
        lambda: None,
        failing=lambda: None,
        stored_at=lambda: now,
        is_strict=False,
    )
    # 300,000 records a second, in polls of 600.
    while now < 1.0:
        bound.look(brought, now)
        now, brought = now + 0.002, brought + 600
    assert 5 <= len(looks) <= 21

"""A commit is due after so many settled offsets: never before, and little later, however fast they
are settled.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings
from reactive_kafka.commit.every import LEAST_S, MOST_S, CommitEvery, every_of
from reactive_kafka.commit.strategy import LatestCommits, NoCommits, ThrottledCommits


class Settling:
    """Records that are settled at a rate, and a loop that looks when it is told to."""

    def __init__(self, most: int) -> None:
        self.ahead, self.window, self.now, self.looks = 0, 0, 0.0, 0
        self.every = CommitEvery(most, self.look)

    def look(self) -> tuple[int, int]:
        self.looks += 1
        return self.ahead, self.window

    def comes(self, records: int) -> None:
        self.window += records
        self.every.came(self.now)

    def settles(self, rate: float, seconds: float) -> list[int]:
        """Settle that many records a second; how many each commit stored."""
        stored, rest = list[int](), 0.0
        end = self.now + seconds
        while self.now < end:
            step = min(0.001, end - self.now)
            self.now += step
            rest += rate * step
            done = min(self.window, int(rest))
            rest -= int(rest)
            self.ahead, self.window = self.ahead + done, self.window - done
            if self.every.due_at(self.now) < self.now:
                stored.append(self.ahead)
                self.ahead = 0
        return stored


@given(st.integers(1, 5000), st.integers(1, 20_000), st.floats(0.2, 5.0))
def test_a_commit_is_due_after_so_many_and_little_later(
    most: int, rate: int, seconds: float
) -> None:
    settling = Settling(most)
    settling.comes(10**6)
    stored = settling.settles(rate, seconds)
    assert all(count >= most for count in stored)
    assert all(count <= most + rate * (MOST_S + 0.002) + 1 for count in stored)
    assert settling.ahead < most + rate * (MOST_S + 0.002) + 1


@pytest.mark.parametrize("rate", [10, 300, 7_000, 100_000])
def test_at_a_steady_rate_it_is_late_by_a_look_at_most(rate: int) -> None:
    settling = Settling(1000)
    settling.comes(10**7)
    stored = settling.settles(rate, max(5, min(2500 / rate, 300)))[1:]
    assert stored
    assert max(stored) <= 1000 + rate * (LEAST_S + 0.002) + 1


def test_nothing_is_looked_at_while_nothing_is_unsettled() -> None:
    settling = Settling(10)
    settling.settles(100, 10)
    assert (settling.looks, settling.every.due_at(settling.now)) == (0, inf)
    settling.comes(3)
    settling.settles(100, 10)
    assert settling.looks < 5
    assert settling.every.due_at(settling.now) == inf
    settling.comes(7)
    assert settling.settles(100, 10) == [10]


def test_what_stands_is_looked_at_ten_times_a_second() -> None:
    settling = Settling(10)
    settling.comes(5)
    settling.settles(0, 10)
    assert 90 <= settling.looks <= 110


def test_only_strategies_that_commit_by_the_clock_go_by_a_number() -> None:
    settings = IncomingSettings(name="a", topics=("a",), group_id="g", commit_every=7, consumers=3)
    assert every_of(settings, ThrottledCommits(5), lambda: (2, 0)) is not None
    for strategy in (LatestCommits(5), NoCommits(), type("Own", (ThrottledCommits,), {})(5)):
        assert every_of(settings, strategy, lambda: (2, 0)) is None
    assert (
        every_of(
            IncomingSettings(name="a", topics=("a",), group_id="g"),
            ThrottledCommits(5),
            lambda: (2, 0),
        )
        is None
    )


def test_several_consumers_share_the_number() -> None:
    settings = IncomingSettings(name="a", topics=("a",), group_id="g", commit_every=6, consumers=3)
    every = every_of(settings, ThrottledCommits(5), lambda: (2, 0))
    assert every is not None
    every.came(0.0)
    assert every.due_at(1.0) == -inf

"""Waits double up to the longest, and chance only shortens them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.testing import FakeClock, run_in_virtual_time

BACKOFF = Backoff(0.25, 5.0)


def test_waits_double_up_to_the_longest() -> None:
    assert [BACKOFF.wait_s(attempt) for attempt in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert BACKOFF.wait_s(10**6) == 5.0


@given(st.integers(0, 100), st.floats(0, 1))
def test_chance_takes_a_fifth_off_at_most(attempt: int, chance: float) -> None:
    longest = BACKOFF.wait_s(attempt)
    assert 0.8 * longest <= BACKOFF.wait_s(attempt, chance) <= longest


def test_after_progress_the_next_wait_is_a_first_one() -> None:
    assert drawn(None, 3, 2) == [0.25, 0.5, 1.0, 0.25, 0.5]


def test_a_seed_draws_the_same_waits_again_and_they_differ_from_those_of_another() -> None:
    assert drawn(7, 9) == drawn(7, 9) != drawn(8, 9)


def test_outside_of_virtual_time_waits_differ() -> None:
    async def main() -> set[float]:
        return {BACKOFF.draw_s(0) for _ in range(20)}

    assert len(asyncio.run(main())) > 10


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_waits_grow_by_the_factor(factor: float) -> None:
    assert Backoff(1.0, 100.0, factor=factor).wait_s(2) == factor**2


def drawn(seed: int | None, *rows: int) -> list[float]:
    """The waits of rows of attempts in virtual time."""

    async def main(_: FakeClock) -> list[float]:
        waits, found = Waits(BACKOFF), []
        for row in rows:
            found += [waits.next_s() for _ in range(row)]
            waits.progressed()
        return found

    return run_in_virtual_time(main, seed=seed)

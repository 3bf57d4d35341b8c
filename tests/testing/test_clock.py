"""Time that a test turns."""

from __future__ import annotations

import asyncio
import time

import pytest

from reactive_kafka.testing import DeadlockError, FakeClock, run_in_virtual_time


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(monotonic=5.0, wall=100.0)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.wall()) == (6.5, 101.5)


def test_a_wall_clock_jump_leaves_the_monotonic_clock_alone() -> None:
    """Row D14 of the faults."""
    clock = FakeClock(wall=100.0)
    clock.jump_wall(-3600)
    assert (clock.monotonic(), clock.wall()) == (0.0, -3500.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="back"):
        FakeClock().advance(-1)


def test_an_hour_passes_at_once_and_sleepers_wake_in_order() -> None:
    async def main(clock: FakeClock) -> list[tuple[str, float]]:
        woken: list[tuple[str, float]] = []

        async def sleep(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, round(clock.monotonic(), 3)))

        await asyncio.gather(sleep("late", 3600), sleep("early", 10), sleep("middle", 60))
        assert asyncio.get_running_loop().time() == clock.monotonic()
        return woken

    began = time.monotonic()
    assert run_in_virtual_time(main) == [("early", 10), ("middle", 60), ("late", 3600)]
    assert time.monotonic() - began < 5


def test_time_stands_still_while_something_runs() -> None:
    async def main(clock: FakeClock) -> float:
        for _ in range(100):
            await asyncio.sleep(0)
        return clock.monotonic()

    assert run_in_virtual_time(main) == 0.0


def test_a_deadlock_is_an_error_and_not_a_hang() -> None:
    async def main(clock: FakeClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="every task waits"):
        run_in_virtual_time(main)


def test_a_seed_shuffles_the_order_of_what_is_ready_and_repeats() -> None:
    async def main(clock: FakeClock) -> list[int]:
        order: list[int] = []

        async def note(number: int) -> None:
            await asyncio.sleep(0)
            order.append(number)

        await asyncio.gather(*(note(number) for number in range(20)))
        return order

    plain = run_in_virtual_time(main)
    assert plain == list(range(20))
    orders = [run_in_virtual_time(main, seed=seed) for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == plain != orders[0]

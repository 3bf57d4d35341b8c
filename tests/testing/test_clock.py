"""Time that a test turns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.from_thread
import anyio.to_thread
import pytest

from reactive_kafka.handlers.blocking_calls import as_async
from reactive_kafka.testing import DeadlockError, FakeClock, run_in_virtual_time
from reactive_kafka.testing import fake_clock as virtual


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


IN_THREADS = [
    pytest.param(asyncio.to_thread, id="asyncio"),
    pytest.param(anyio.to_thread.run_sync, id="anyio"),
    pytest.param(lambda work: as_async(work)(), id="handler"),
]


@pytest.mark.parametrize("in_thread", IN_THREADS)
def test_time_stands_still_while_a_call_is_in_a_thread(
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> None:
    async def main(clock: FakeClock) -> float:
        async with asyncio.timeout(0.01):
            for _ in range(3):
                await in_thread(lambda: time.sleep(0.02))
        return clock.monotonic()

    assert run_in_virtual_time(main) == 0


@pytest.mark.parametrize("in_thread", IN_THREADS)
def test_a_thread_that_waits_for_what_time_brings_is_given_up(
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "_LONGEST_THREAD_CALL_S", 0.02)
    go_on = threading.Event()

    async def main(_: FakeClock) -> float:
        waiting = asyncio.ensure_future(in_thread(lambda: go_on.wait(60)))
        for _hour in range(1000):
            await asyncio.sleep(3.6)
        taken_s = time.monotonic() - before
        go_on.set()
        assert await waiting
        return taken_s

    before = time.monotonic()
    # 20 ms once, not each of a thousand times.
    assert run_in_virtual_time(main) < 10


def test_the_next_call_in_the_thread_of_one_that_was_given_up_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual, "_LONGEST_THREAD_CALL_S", 0.5)
    go_on = threading.Event()

    async def main(clock: FakeClock) -> float:
        asyncio.get_running_loop().call_later(5, go_on.set)
        await anyio.to_thread.run_sync(lambda: go_on.wait(60))
        async with asyncio.timeout(0.01):
            await anyio.to_thread.run_sync(lambda: time.sleep(0.05))
        return clock.monotonic()

    assert run_in_virtual_time(main) == 5


def test_a_thread_that_asks_the_loop_again_and_again_is_given_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual, "_LONGEST_THREAD_CALL_S", 0.02)

    async def main(_: FakeClock) -> int:
        due, tries = asyncio.Event(), 0
        asyncio.get_running_loop().call_later(5, due.set)

        def work() -> None:
            nonlocal tries
            while not anyio.from_thread.run_sync(due.is_set) and tries < 1000:
                tries += 1
                time.sleep(0.001)

        await anyio.to_thread.run_sync(work)
        return tries

    assert run_in_virtual_time(main) < 1000


def test_a_thread_that_has_nothing_to_do_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "_LONGEST_THREAD_CALL_S", 30.0)

    async def main(_: FakeClock) -> None:
        # Its thread stays, for the next call.
        await anyio.to_thread.run_sync(lambda: None)
        await asyncio.sleep(5)

    began = time.monotonic()
    run_in_virtual_time(main)
    assert time.monotonic() - began < 10


def test_a_thread_is_no_way_out_of_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "_LONGEST_THREAD_CALL_S", 0.02)
    go_on = threading.Event()

    async def main(_: FakeClock) -> None:
        try:
            await anyio.to_thread.run_sync(lambda: go_on.wait(60), abandon_on_cancel=True)
        finally:
            go_on.set()

    with pytest.raises(DeadlockError, match="every task waits"):
        run_in_virtual_time(main)


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

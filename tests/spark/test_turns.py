import asyncio
from contextlib import AbstractAsyncContextManager

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.spark.session.spark_engine import Turns


class Holder:
    """A task that asks for a turn, and gives it back when it is told to."""

    def __init__(self, turns: Turns, *, alone: bool) -> None:
        self.alone = alone
        self.holds = False
        self._go_on = asyncio.Event()
        self.task = asyncio.create_task(self._hold(turns.turn(alone=alone)))

    async def _hold(self, turn: AbstractAsyncContextManager[None]) -> None:
        async with turn:
            self.holds = True
            try:
                await self._go_on.wait()
            finally:
                self.holds = False

    def leave(self) -> None:
        self._go_on.set()


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_any_number_run_side_by_side() -> None:
    turns = Turns()
    holders = [Holder(turns, alone=False) for _ in range(3)]
    await settle()
    assert [one.holds for one in holders] == [True, True, True]
    for one in holders:
        one.leave()
    await settle()


async def test_whoever_wants_to_be_alone_waits_for_the_others_and_is_overtaken_by_nobody() -> None:
    turns = Turns()
    first, alone, late = (
        Holder(turns, alone=False),
        Holder(turns, alone=True),
        Holder(turns, alone=False),
    )
    await settle()
    assert [one.holds for one in (first, alone, late)] == [True, False, False]
    first.leave()
    await settle()
    assert [one.holds for one in (first, alone, late)] == [False, True, False]
    alone.leave()
    await settle()
    assert late.holds
    late.leave()
    await settle()


async def test_whoever_stops_waiting_makes_room() -> None:
    turns = Turns()
    first, alone, late = (
        Holder(turns, alone=False),
        Holder(turns, alone=True),
        Holder(turns, alone=False),
    )
    await settle()
    alone.task.cancel()
    await settle()
    assert (alone.holds, late.holds) == (False, True)
    first.leave()
    late.leave()
    await settle()


async def test_a_turn_that_comes_in_the_moment_of_a_cancellation_is_given_back() -> None:
    turns = Turns()
    async with turns.turn():
        alone, late = Holder(turns, alone=True), Holder(turns, alone=False)
        await settle()
    # It has its turn, and does not know it yet.
    alone.task.cancel()
    await settle()
    assert (alone.holds, late.holds) == (False, True)
    late.leave()
    await settle()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.booleans()),
        st.tuples(st.sampled_from(["leave", "cancel"]), st.integers(0, 9)),
        st.tuples(st.just("run"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_one_that_is_alone_is_never_beside_another_and_nobody_waits_for_ever(
    actions: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        turns, holders = Turns(), list[Holder]()
        for action, number in actions:
            if action == "ask":
                holders.append(Holder(turns, alone=bool(number)))
            elif action == "run":
                for _ in range(number):
                    await asyncio.sleep(0)
            elif holders:
                one = holders[number % len(holders)]
                one.leave() if action == "leave" else one.task.cancel()
            holding = [one for one in holders if one.holds]
            assert len(holding) <= 1 or not any(one.alone for one in holding)
        for one in holders:
            one.leave()
        async with asyncio.timeout(5):
            await asyncio.gather(*(one.task for one in holders), return_exceptions=True)

    asyncio.run(play())

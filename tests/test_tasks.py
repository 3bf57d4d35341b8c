"""Tasks and their owners, one at a time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import UnexpectedEndError
from reactive_kafka.tasks import (
    TOGETHER_S,
    Flag,
    HomeLoop,
    Tasks,
    aligned_wait_s,
    all_ended,
    is_set_within,
    outcome_of,
)
from tests.app.helpers import in_virtual_time, now, settle_down
from tests.app.sabotage import Odd


class Owner:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []

    def fails(self, error: BaseException) -> None:
        self.told.append(error)


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        raise error

    return work


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def awaits_a_cancelled_child() -> None:
    child = asyncio.ensure_future(asyncio.sleep(10))
    child.cancel()
    await child


async def for_ever() -> None:
    await asyncio.Event().wait()


async def one_in_a_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(10))
        tasks.create_task(_divides())


async def _divides() -> None:
    raise ZeroDivisionError("deep down")


@pytest.mark.parametrize(
    ("work", "kind", "says"),
    [
        (raising(ZeroDivisionError("by hand")), ZeroDivisionError, "by hand"),
        (one_in_a_group, ZeroDivisionError, "deep down"),
        (raising(Odd("odd")), UnexpectedEndError, "the task 'work' was ended by Odd: odd"),
        (raising(SystemExit(3)), UnexpectedEndError, "the task 'work' was ended by SystemExit: 3"),
        (
            raising(asyncio.CancelledError()),
            UnexpectedEndError,
            "the task 'work' was ended by CancelledError",
        ),
        (cancels_itself, UnexpectedEndError, "the task 'work' was ended by CancelledError"),
        (
            awaits_a_cancelled_child,
            UnexpectedEndError,
            "the task 'work' was ended by CancelledError",
        ),
    ],
)
@in_virtual_time
async def test_whatever_escapes_from_a_task_is_told_to_its_owner_and_to_no_other(
    work: Callable[[], Awaitable[None]], kind: type[BaseException], says: str
) -> None:
    tasks, mine, other = Tasks(), Owner(), Owner()
    tasks.of(other.fails)(for_ever, "neighbour")
    tasks.of(mine.fails)(work, "work")
    await settle_down()
    assert [type(error) for error in mine.told] == [kind]
    assert str(mine.told[0]) == says
    assert other.told == []
    assert await tasks.end(1) == []
    assert other.told == []


@in_virtual_time
async def test_an_owner_that_cannot_be_told_is_named_in_the_log_and_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = Tasks()

    def deaf(error: BaseException) -> None:
        raise RuntimeError("deaf")

    tasks.of(deaf)(raising(ZeroDivisionError("lost")), "work")
    await settle_down()
    assert "the task 'work' has failed, and so did telling its owner" in caplog.text
    assert "lost" in caplog.text
    assert await tasks.end(1) == []


@in_virtual_time
async def test_the_end_cancels_each_task_once_and_waits_for_its_cleanup() -> None:
    tasks, owner, story = Tasks(), Owner(), list[str]()

    async def work() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            story.append("cancelled")
            await asyncio.sleep(2)
            story.append("cleaned up")
            raise

    tasks.of(owner.fails)(work, "work")
    await settle_down()
    assert await tasks.end(3) == []
    assert (story, owner.told) == (["cancelled", "cleaned up"], [])


@in_virtual_time
async def test_a_task_that_ignores_its_cancellation_is_left_behind_by_name_after_the_time_it_had() -> (
    None
):
    tasks, owner, cancellations, go_on = Tasks(), Owner(), 0, asyncio.Event()

    async def stubborn() -> None:
        nonlocal cancellations
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                cancellations += 1

    tasks.of(owner.fails)(stubborn, "stubborn")
    tasks.of(owner.fails)(for_ever, "willing")
    await settle_down()
    began = now()
    assert await tasks.end(3) == ["stubborn"]
    assert now() - began == pytest.approx(3)
    await asyncio.sleep(60)
    assert cancellations == 1
    go_on.set()


@in_virtual_time
async def test_what_comes_after_the_end_is_not_begun() -> None:
    tasks, owner, begun = Tasks(), Owner(), list[str]()

    async def work() -> None:
        begun.append("work")

    assert await tasks.end(1) == []
    tasks.of(owner.fails)(work, "late")
    await settle_down()
    assert (begun, owner.told) == ([], [])


async def test_the_end_of_the_loop_cancels_every_task_and_is_nobodys_failure() -> None:
    owner = Owner()

    async def home() -> None:
        tasks = Tasks()
        tasks.of(owner.fails)(for_ever, "work")
        await for_ever()

    running = asyncio.create_task(home())
    await settle_down()
    # As asyncio.run does.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([running])
    await settle_down()
    assert owner.told == []


@in_virtual_time
async def test_each_of_several_comes_to_its_end_and_then_what_one_has_raised_is_raised() -> None:
    story = list[str]()

    async def slow() -> None:
        await asyncio.sleep(5)
        story.append("slow")

    with pytest.raises(ZeroDivisionError, match="first"):
        await all_ended(raising(ZeroDivisionError("first"))(), slow())
    with pytest.raises(BaseExceptionGroup) as group:
        await all_ended(raising(ValueError("a"))(), raising(KeyError("b"))(), slow())
    assert [type(error) for error in group.value.exceptions] == [ValueError, KeyError]
    assert story == ["slow", "slow"]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no"), SystemExit(2), Odd(), asyncio.CancelledError()]
)
@in_virtual_time
async def test_what_somebodys_function_raises_is_an_answer(error: BaseException) -> None:
    assert await outcome_of(raising(error), "hook", 1.0) is error


@in_virtual_time
async def test_a_function_that_takes_too_long_is_cancelled_once_and_left_alone_when_it_ignores_that() -> (
    None
):
    cancellations, go_on = list[float](), asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                cancellations.append(now())

    began = now()
    outcome = await outcome_of(stubborn, "hook", 2.0)
    assert isinstance(outcome, TimeoutError)
    assert str(outcome) == "no end within 2 s"
    assert now() - began == pytest.approx(4)
    assert cancellations == [pytest.approx(began + 2)]
    go_on.set()


@in_virtual_time
async def test_a_function_that_cancels_its_own_task_cancels_nobody_elses() -> None:
    outcome: Any = await outcome_of(cancels_itself, "hook", None)
    task = asyncio.current_task()
    assert task is not None
    assert isinstance(outcome, asyncio.CancelledError)
    assert task.cancelling() == 0


@in_virtual_time
async def test_a_task_whose_timeout_runs_out_as_it_is_cancelled_ends_all_the_same() -> None:
    tasks, owner = Tasks(), Owner()

    async def ticks() -> None:
        while True:
            try:
                async with asyncio.timeout(1):
                    await for_ever()
            except TimeoutError:
                # It is time.
                pass

    handle = tasks.start(ticks, "ticks", owner.fails)
    assert handle is not None
    loop = asyncio.get_running_loop()
    # Before and after the timeout's own cancellation in one turn of the loop.
    for moment in (0.0, 1e-9):
        loop.call_later(1 + moment, handle.cancel)
    await asyncio.sleep(2)
    assert handle.task.done()
    assert owner.told == []


async def test_the_end_of_the_loop_cuts_off_no_cleanup() -> None:
    story = list[str]()

    async def work() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0.01)
            story.append("cleaned up")

    async def home() -> None:
        tasks = Tasks()
        tasks.of(lambda error: story.append(repr(error)))(work, "work")
        try:
            await for_ever()
        finally:
            assert await tasks.end(1) == []

    running = asyncio.create_task(home())
    await settle_down()
    # As asyncio.run does.
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([running])
    assert story == ["cleaned up"]


@in_virtual_time
async def test_who_gives_up_waiting_for_a_function_cancels_it_once_and_leaves_it_time_for_its_cleanup() -> (
    None
):
    story = list[str]()

    async def cleans() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            story.append("cleaned")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await outcome_of(cleans, "hook", None)
    assert story == ["cleaned"]


@given(wait_s=st.floats(0, 100) | st.just(inf), now=st.floats(0, 1e8), later_s=st.floats(0, 0.05))
def test_waits_end_together_and_none_is_longer_or_much_shorter_than_it_was(
    wait_s: float, now: float, later_s: float
) -> None:
    waits = aligned_wait_s(wait_s, now)
    if not 1 <= wait_s < inf:
        assert waits == wait_s
        return
    assert wait_s - TOGETHER_S - 1e-6 <= waits <= wait_s + 1e-6
    steps = (now + waits) / TOGETHER_S
    assert steps == pytest.approx(round(steps), abs=1e-5)
    ends_at, other = now + waits, now + later_s + aligned_wait_s(wait_s, now + later_s)
    assert other - ends_at == pytest.approx(0, abs=1e-6) or other - ends_at == pytest.approx(
        TOGETHER_S, abs=1e-6
    )


# -- calls from other threads

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
PATIENCE_S = 5.0


def home_on(loop: asyncio.AbstractEventLoop) -> HomeLoop:
    async def made() -> HomeLoop:
        return HomeLoop()

    return loop.run_until_complete(made())


def raise_ended() -> str:
    raise LookupError("ended")


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_call_is_answered_if_the_loop_is_closed_before_it_turns(new_loop: Any) -> None:
    loop = new_loop()
    home = home_on(loop)
    made = list[str]()
    answers = [
        home.send(lambda answer: made.append("made"), when_ended)
        for when_ended in (lambda: "ended", raise_ended)
    ]
    assert not any(answer.done() for answer in answers)
    loop.close()
    assert answers[0].result(PATIENCE_S) == "ended"
    with pytest.raises(LookupError):
        answers[1].result(PATIENCE_S)
    assert made == []
    # And a call that comes later.
    assert home.send(lambda answer: None, lambda: "ended").result(PATIENCE_S) == "ended"


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_call_that_was_made_keeps_its_answer_when_the_loop_is_closed(new_loop: Any) -> None:
    loop = new_loop()
    home = home_on(loop)
    made = list[concurrent.futures.Future[str]]()
    answer = home.send(made.append, raise_ended)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    made[0].set_result("made")
    assert answer.result(PATIENCE_S) == "made"


FLAG_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("set", "clear", "wait", "cancel", "settle")),
        st.integers(min_value=0, max_value=4),
    ),
    max_size=25,
)


async def flag_states(flag: Flag | asyncio.Event, steps: list[tuple[str, int]]) -> list[object]:
    """Return what can be seen of a flag, and of those who wait for it, after each step."""
    waiting: list[asyncio.Task[bool]] = []
    seen: list[object] = []
    for step, number in steps:
        if step == "set":
            flag.set()
        elif step == "clear":
            flag.clear()
        elif step == "wait":
            waiting.append(asyncio.create_task(flag.wait()))
        elif step == "cancel" and waiting:
            waiting[number % len(waiting)].cancel()
        elif step == "settle":
            await settle_down()
        seen.append((flag.is_set(), [(task.done(), task.cancelled()) for task in waiting]))
    await settle_down()
    seen.append([(task.done(), task.cancelled()) for task in waiting])
    flag.set()
    await settle_down()
    seen.append([(task.done(), task.cancelled()) for task in waiting])
    return seen


@given(steps=FLAG_STEPS)
def test_a_flag_behaves_as_an_asyncio_event(steps: list[tuple[str, int]]) -> None:
    assert asyncio.run(flag_states(Flag(), steps)) == asyncio.run(
        flag_states(asyncio.Event(), steps)
    )


async def test_those_who_wait_for_a_flag_are_woken_in_the_order_in_which_they_came() -> None:
    flag = Flag()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await flag.wait()
        woken.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(3)]
    await settle_down()
    flag.set()
    # What was woken stays so.
    flag.clear()
    await asyncio.gather(*tasks)
    assert woken == [0, 1, 2]


async def test_a_flag_that_is_not_set_in_time_can_be_waited_for_again() -> None:
    flag = Flag()
    assert not await is_set_within(flag, 0)
    waiting = asyncio.create_task(is_set_within(flag, None))
    await settle_down()
    assert not waiting.done()
    flag.set()
    assert await waiting

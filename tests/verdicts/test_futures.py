"""The awaitables of verdicts: shared on the loop, and answered in the thread that asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka.verdicts.futures import AckFutures


async def in_thread(call: Callable[[], Any]) -> Any:
    """What *call* returns, called in another thread."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def test_a_verdict_on_the_loop_costs_no_future() -> None:
    verdicts = AckFutures()
    assert verdicts.is_here
    assert verdicts.yes is verdicts.yes
    assert (await verdicts.yes, await verdicts.no) == (True, False)


async def test_nothing_that_one_caller_does_with_a_shared_future_is_seen_by_another() -> None:
    verdicts, told = AckFutures(), list[bool]()
    mine = verdicts.follow(verdicts.yes)
    assert not mine.cancel()
    with pytest.raises(asyncio.InvalidStateError):
        mine.set_result(False)
    with pytest.raises(asyncio.InvalidStateError):
        mine.set_exception(ValueError("mine"))
    mine.add_done_callback(lambda done: told.append(done.result()))
    assert await asyncio.wait_for(mine, 0) is True
    assert await asyncio.gather(mine, verdicts.yes, asyncio.shield(mine)) == [True, True, True]
    assert told == [True]
    assert (verdicts.yes.done(), verdicts.yes.cancelled(), await verdicts.yes) == (
        True,
        False,
        True,
    )


async def test_who_follows_a_verdict_may_cancel_or_answer_it_and_the_others_get_what_it_comes_to() -> (
    None
):
    verdicts = AckFutures()
    whole = verdicts.pending()
    cancelled, answered, patient = (verdicts.follow(whole) for _ in range(3))
    cancelled.cancel()
    answered.set_result(False)
    assert not whole.done()
    whole.set_result(True)
    assert await patient is True
    assert (cancelled.cancelled(), answered.result()) == (True, False)


async def test_another_thread_is_not_here() -> None:
    verdicts = AckFutures()
    assert not await in_thread(lambda: verdicts.is_here)


async def test_a_thread_waits_for_the_answer_that_the_loop_gives() -> None:
    verdicts = AckFutures()
    called_in: list[int] = []

    def settle() -> asyncio.Future[bool]:
        called_in.append(threading.get_ident())
        return verdicts.yes

    assert await in_thread(lambda: verdicts.from_thread(settle).result(5.0)) is True
    assert called_in == [threading.get_ident()]


async def test_a_thread_may_be_answered_later() -> None:
    verdicts = AckFutures()
    pending = verdicts.pending()
    answer: Any = await in_thread(lambda: verdicts.from_thread(lambda: pending))
    await asyncio.sleep(0)
    assert not answer.done()
    with pytest.raises(TimeoutError):
        await in_thread(lambda: answer.result(0.01))
    pending.set_result(False)
    assert await in_thread(lambda: answer.result(5.0)) is False
    assert answer.done()


async def test_what_a_thread_was_given_can_be_awaited_on_a_loop() -> None:
    verdicts = AckFutures()
    answer = await in_thread(lambda: verdicts.from_thread(lambda: verdicts.no))
    assert await answer is False


async def test_calls_of_one_thread_are_made_in_their_order() -> None:
    verdicts = AckFutures()
    made: list[int] = []

    def note(number: int) -> asyncio.Future[bool]:
        made.append(number)
        return verdicts.yes

    def thread() -> None:
        answers = [verdicts.from_thread(lambda number=number: note(number)) for number in range(20)]  # type: ignore[misc]
        assert all(answer.result(5.0) for answer in answers)

    await in_thread(thread)
    assert made == list(range(20))


async def test_an_error_of_the_call_is_raised_in_the_thread() -> None:
    verdicts = AckFutures()

    def fail() -> asyncio.Future[bool]:
        raise TypeError("not an exception")

    with pytest.raises(TypeError, match="not an exception"):
        await in_thread(lambda: verdicts.from_thread(fail).result(5.0))


async def test_an_error_that_the_answer_holds_is_raised_in_the_thread() -> None:
    verdicts = AckFutures()
    pending = verdicts.pending()
    answer: Any = await in_thread(lambda: verdicts.from_thread(lambda: pending))
    pending.set_exception(LookupError("gone"))
    with pytest.raises(LookupError, match="gone"):
        await in_thread(lambda: answer.result(5.0))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_ends_a_process_or_a_task_is_raised_in_the_thread_too_and_not_in_the_loop(
    error: BaseException,
) -> None:
    verdicts, raised = AckFutures(), list[BaseException]()

    def fail() -> asyncio.Future[bool]:
        raise error

    def thread() -> None:
        try:
            verdicts.from_thread(fail).result(5.0)  # type: ignore[call-arg]
        except BaseException as caught:
            raised.append(caught)

    await in_thread(thread)
    assert raised == [error]


async def test_who_awaits_what_a_thread_was_given_may_give_up_and_the_thread_is_answered_all_the_same() -> (
    None
):
    loop, escaped = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda loop, context: escaped.append(context))
    verdicts = AckFutures()
    pending = verdicts.pending()
    answer: Any = await in_thread(lambda: verdicts.from_thread(lambda: pending))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await answer
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not answer.done()
    pending.set_result(True)
    assert await in_thread(lambda: answer.result(5.0)) is True
    assert await answer is True
    await asyncio.sleep(0)
    assert escaped == []


def test_after_the_loop_has_ended_the_answer_is_no() -> None:
    """Row E3 of the faults."""

    async def make() -> AckFutures:
        return AckFutures()

    verdicts = asyncio.run(make())
    answers: list[bool] = []
    thread = threading.Thread(
        target=lambda: answers.append(verdicts.from_thread(lambda: verdicts.yes).result(5.0))
    )
    thread.start()
    thread.join()
    assert answers == [False]


def test_after_the_loop_has_ended_the_answer_is_what_is_right_for_the_call() -> None:
    async def make() -> AckFutures:
        return AckFutures()

    verdicts = asyncio.run(make())
    raised: list[BaseException] = []

    def nothing_is_there() -> bool:
        raise LookupError("gone")

    def thread() -> None:
        try:
            verdicts.from_thread(lambda: verdicts.yes, nothing_is_there).result(5.0)  # type: ignore[call-arg]
        except LookupError as error:
            raised.append(error)

    asker = threading.Thread(target=thread)
    asker.start()
    asker.join()
    assert [str(error) for error in raised] == ["gone"]


@pytest.mark.parametrize(
    ("verdicts", "whole"), [([], False), ([False, False], False), ([False, True], True)]
)
async def test_many_verdicts_took_effect_if_one_of_them_did(
    verdicts: list[bool], whole: bool
) -> None:
    made = AckFutures()
    together = made.any_of([made.yes if one else made.no for one in verdicts])
    assert together is (made.yes if whole else made.no)


@pytest.mark.parametrize(("late", "whole"), [(False, False), (True, True)])
async def test_many_verdicts_are_known_when_the_last_of_them_is(late: bool, whole: bool) -> None:
    made = AckFutures()
    first, second = made.pending(), made.pending()
    together = made.any_of([made.no, first, second])
    first.set_result(late)
    await asyncio.sleep(0)
    assert not together.done()
    second.set_result(False)
    assert await together is whole

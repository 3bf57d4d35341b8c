"""What becomes of nacks, on the channel's own parts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.nacks.handling import NACK_TRANSITIONS, Nack, NackState
from reactive_kafka.testing import record
from tests.nacks.acknowledgers import NothingToWrite, Writes, make_acknowledger
from tests.tracking.values import tracker_of
from tests.verdicts.messages import kept_of_nacks, message_of


async def test_poison_records_whose_dead_letters_are_decided_at_once_keep_nobody_waiting() -> None:
    loop, escaped = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda loop, context: escaped.append(context))
    tracker = tracker_of()
    acknowledger, handling = make_acknowledger()
    acknowledger.begins(tracker, "orders")
    tracker.deliver([0, 1], 2)
    for index in (0, 1):
        message = message_of(record(b"", offset=index), tracker, index)
        assert await handling.dead_letter(message, ValueError("poison"))
        assert handling.not_ready == ()
    await asyncio.sleep(0)
    assert (escaped, tracker.committable) == ([], 2)


async def test_many_poison_records_whose_dead_letters_wait_are_one_line_about_the_first() -> None:
    written = asyncio.Event()
    tasks = list[asyncio.Task[Any]]()

    class Letters(NothingToWrite):
        async def write(self, write: object, settle: object = None) -> bool:
            await written.wait()
            return False

    def spawn(work: Any, name: str, context: object = None) -> None:
        tasks.append(asyncio.create_task(work()))

    tracker = tracker_of()
    acknowledger, handling = make_acknowledger(Writes(), Letters(), spawn)
    acknowledger.begins(tracker, "orders")
    tracker.deliver(list(range(50)), 50)
    answers = []
    for index in range(50):
        message = message_of(record(b"", offset=index), tracker, index)
        answers.append(handling.dead_letter(message, ValueError("poison")))
    line = "the dead letter of {} offset 0, which is poison, is not written yet (49 more like it)"
    assert handling.not_ready == (line.format(tracker.partition),)
    written.set()
    await asyncio.gather(*answers, *tasks)
    assert handling.not_ready == ()


@pytest.mark.parametrize("outcome", ["written", "refused", "cancelled", "closed"])
async def test_nothing_is_kept_of_a_nack_that_has_been_carried_out(outcome: str) -> None:
    tasks, told = list[asyncio.Task[Any]](), asyncio.Event()

    class Letters(NothingToWrite):
        async def write(self, write: object, settle: object = None) -> bool:
            await told.wait()
            if outcome == "refused":
                raise ChannelClosedError("the channel has stopped")
            return False

    def spawn(work: Any, name: str, context: object = None) -> None:
        tasks.append(asyncio.create_task(work()))

    tracker = tracker_of()
    acknowledger, _ = make_acknowledger(Writes(), Letters(), spawn)
    acknowledger.begins(tracker, "orders")
    tracker.deliver(list(range(5)), 5)
    answers = []
    for index in range(5):
        message = message_of(record(b"", offset=index), tracker, index)
        answers.append(message.nack(ValueError("bad")))
    await asyncio.sleep(0)
    assert kept_of_nacks(tracker) == (5, 5)
    if outcome == "closed":
        tracker.close()
    if outcome == "cancelled":
        for task in tasks:
            task.cancel()
    told.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert kept_of_nacks(tracker) == (0, 0)
    assert all(one.done() for one in answers)


ENDS = {NackState.SETTLED, NackState.STOPPED, NackState.LEFT}


def test_a_nack_that_has_ended_does_not_change_any_more() -> None:
    for end in ENDS:
        assert set(NACK_TRANSITIONS[end].values()) == {end}


def test_only_a_written_letter_or_a_skip_settles_the_record() -> None:
    leads_there = {
        (state, event)
        for state, moves in NACK_TRANSITIONS.items()
        for event, to in moves.items()
        if to is NackState.SETTLED and state is not NackState.SETTLED
    }
    assert leads_there == {(NackState.WRITING, "written"), (NackState.DECIDING, "skip")}


def test_a_letter_cannot_be_written_for_a_nack_whose_strategy_was_not_asked() -> None:
    nack = Nack(message_of(record(b"", offset=0)), ValueError("bad"), "fail")
    nack.change("nack")
    with pytest.raises(KeyError):
        nack.change("write")
    assert (nack.state, nack.took_effect) == (NackState.NACKED, False)


@given(st.data())
def test_every_way_through_the_table_ends(data: st.DataObject) -> None:
    state, steps = NackState.OPEN, 0
    while state not in ENDS:
        state = NACK_TRANSITIONS[state][data.draw(st.sampled_from(sorted(NACK_TRANSITIONS[state])))]
        steps += 1
    assert steps <= 4

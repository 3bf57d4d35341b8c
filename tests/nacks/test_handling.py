"""What becomes of nacks, on the channel's own parts: with strategies that answer at once, and in
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import FailedRecord, IncomingSettings, Message, Skip, TopicPartition
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.events import Event
from reactive_kafka.failure.decision import Decision, WriteLetter
from reactive_kafka.failure.strategies import ChannelStrategies
from reactive_kafka.nacks.handling import NACK_TRANSITIONS, FailureHandling, Nack, NackState
from reactive_kafka.nacks.letter_writer import LetterWriter
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.tasks import Spawn
from reactive_kafka.testing import record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger, verdicts_of
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery_hook import NoHook
from reactive_kafka.verdicts.message import new_message

SETTINGS = IncomingSettings(name="orders", topics=("orders",), group_id="billing", client={})


class Skips(ChannelStrategies):
    """Strategies that leave every record out, and have decided so before they return."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)

    def decide(self, name: str, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return Skip()


class Writes(Skips):
    """Strategies that write every record elsewhere."""

    def decide(self, name: str, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return WriteLetter(topic="letters", value=b"", key=None)


class NothingToWrite(LetterWriter):
    """Says that every letter is written."""

    not_ready = ()

    def __init__(self) -> None:
        pass

    async def write(self, write: WriteLetter, settle: object = None) -> bool:
        return False


class Nobody:
    def on(self, event: Event) -> None: ...


def make_acknowledger(
    strategies: ChannelStrategies | None = None,
    letters: LetterWriter | None = None,
    spawn: Spawn = lambda work, name, context=None: None,
) -> tuple[Acknowledger, FailureHandling]:
    """The parts of a channel that take acks and nacks."""
    totals = PartitionTotals()
    channel = ChannelContext(
        settings=SETTINGS,
        clock=SYSTEM_CLOCK,
        observer=Nobody(),
        totals=lambda partition: totals,
        spawn=spawn,
        fail=lambda reason: True,
        progress=lambda: None,
    )
    hook = NoHook("orders")
    handling = FailureHandling(
        channel,
        hook,
        Skips() if strategies is None else strategies,
        NothingToWrite() if letters is None else letters,
        blocks_on=lambda tracker, index, verdict: None,
    )
    return Acknowledger(channel, handling, hook), handling


async def test_poison_records_whose_dead_letters_are_decided_at_once_keep_nobody_waiting() -> None:
    loop, escaped = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda loop, context: escaped.append(context))
    tracker = OffsetTracker(TopicPartition("orders", 0), 0)
    acknowledger, handling = make_acknowledger()
    acknowledger.begins(tracker, "orders")
    tracker.deliver([0, 1], 2)
    for index in (0, 1):
        message: Message[bytes] = new_message(b"", record(b"", offset=index), tracker, index)
        assert await handling.dead_letter(message, ValueError("poison"))
        assert handling.not_ready == ()
    await asyncio.sleep(0)
    assert (escaped, tracker.committable) == ([], 2)


@pytest.mark.parametrize("outcome", ["written", "refused", "cancelled", "closed"])
async def test_nothing_is_kept_of_a_nack_that_has_been_carried_out(outcome: str) -> None:
    tasks, told = list[asyncio.Task[Any]](), asyncio.Event()

    class Letters(NothingToWrite):
        async def write(self, write: WriteLetter, settle: object = None) -> bool:
            await told.wait()
            if outcome == "refused":
                raise ChannelClosedError("the channel has stopped")
            return False

    def spawn(work: Any, name: str, context: object = None) -> None:
        tasks.append(asyncio.create_task(work()))

    tracker = OffsetTracker(TopicPartition("orders", 0), 0)
    acknowledger, _ = make_acknowledger(Writes(), Letters(), spawn)
    acknowledger.begins(tracker, "orders")
    tracker.deliver(list(range(5)), 5)
    answers = []
    for index in range(5):
        message: Message[bytes] = new_message(b"", record(b"", offset=index), tracker, index)
        answers.append(message.nack(ValueError("bad")))
    await asyncio.sleep(0)
    partition = verdicts_of(tracker)
    assert len(partition.writing) == len(partition.nacks) == 5
    if outcome == "closed":
        tracker.close()
    if outcome == "cancelled":
        for task in tasks:
            task.cancel()
    told.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (partition.writing, partition.nacks) == (set(), {})
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
    tracker = OffsetTracker(TopicPartition("orders", 0), 0)
    nack = Nack(new_message(b"", record(b"", offset=0), tracker, 0), ValueError("bad"), "fail")
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

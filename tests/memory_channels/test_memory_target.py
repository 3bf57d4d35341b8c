"""The sending end of a memory channel: who waits for its values, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from reactive_kafka import ChannelClosedError
from reactive_kafka.memory_channels.memory_target import MemoryRecord, MemoryTarget
from tests.memory_channels.targets import Outcome, in_room_for, sent


async def test_a_flush_does_not_raise_if_the_channel_ends_with_its_last_value_settled() -> None:
    target, taken = in_room_for(10)
    await sent(target, "a")
    stop = asyncio.ensure_future(target.stop(asyncio.get_running_loop().time() + 10))
    await asyncio.sleep(0)
    # It waits behind the stop, which ends the channel before this looks again.
    flush = asyncio.ensure_future(target.flush())
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    await stop
    await flush


async def test_a_flush_raises_if_the_channel_ends_without_one_of_its_values() -> None:
    target, taken = in_room_for(10)
    await sent(target, "a")
    await sent(target, "b")
    flush = asyncio.ensure_future(target.flush())
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    target.leave()
    with pytest.raises(ChannelClosedError, match="memory channel 'stage' has stopped"):
        await flush


async def test_a_stop_waits_for_a_sender_that_has_just_got_room() -> None:
    target, taken = in_room_for(1)
    first = await sent(target, "a")
    second = asyncio.ensure_future(_settled(target, taken, sent(target, "b")))
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    # The place is promised to the second sender, which has not continued yet.
    await target.stop(asyncio.get_running_loop().time() + 10)
    assert (first, await second) == ([None], [None])


async def test_a_stop_does_not_wait_for_a_sender_that_gives_up_the_room_it_got() -> None:
    target, taken = in_room_for(1)
    await sent(target, "a")
    second = asyncio.ensure_future(sent(target, "b"))
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    second.cancel()
    await target.stop(asyncio.get_running_loop().time() + 10)
    assert [value.value for value in taken] == ["a"]


async def test_the_room_of_a_sender_that_gives_up_goes_to_the_next_one() -> None:
    target, taken = in_room_for(1)
    await sent(target, "a")
    second = asyncio.ensure_future(sent(target, "b"))
    third = asyncio.ensure_future(sent(target, "c"))
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    # The place is promised to the second sender, which has not continued yet.
    second.cancel()
    async with asyncio.timeout(5):
        await third
    assert [value.value for value in taken] == ["a", "c"]
    assert not target.has_room
    target.settled(taken[1].offset)
    assert target.has_room


async def test_no_more_values_are_accepted_at_once_than_there_is_unpromised_room() -> None:
    target, taken = in_room_for(2)
    for value in ("a", "b"):
        await sent(target, value)
    third = asyncio.ensure_future(sent(target, "c"))
    await asyncio.sleep(0)
    target.settled(taken[0].offset)
    # The third sender was let in, and has not continued yet.
    assert not target.has_room
    assert target.why_full == ("memory channel 'stage': 2 values are not settled (max_in_flight)")
    await third
    assert not target.has_room


async def test_what_is_told_of_a_memory_channel_counts_each_value_once() -> None:
    target, taken = in_room_for(10)
    for value in "abcd":
        await sent(target, value)
    target.settled(taken[0].offset)
    target.settled(taken[0].offset)
    target.settled(taken[1].offset, ValueError("bad"))
    facts = target.facts()
    assert (facts.in_flight, dict(facts.sent)) == (2, {"ok": 1, "failed": 1})
    assert sum(facts.send_durations.counts) == 2
    target.leave()
    facts = target.facts()
    # What was left has failed, and how long its handler would have taken is not known.
    assert (facts.in_flight, dict(facts.sent)) == (0, {"ok": 1, "failed": 3})
    assert sum(facts.send_durations.counts) == 2


async def _settled(
    target: MemoryTarget, taken: list[MemoryRecord], sending: Awaitable[Outcome]
) -> Outcome:
    """Settle the value that is being sent, once the channel has it; returns its outcome."""
    outcome = await sending
    target.settled(taken[-1].offset)
    return outcome

"""The sending end of a memory channel: who waits for its values, and what ends the wait."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import ChannelClosedError
from tests.memory_channels.targets import in_room_for, sent


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

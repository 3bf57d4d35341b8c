"""What polls return, and when a poll that waits goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from reactive_kafka.broker.client import ByteRoom, Poll
from reactive_kafka.broker.client_metrics import Latencies
from reactive_kafka.broker.consumer.fetching.node_fetcher import NodeFetcher
from reactive_kafka.broker.consumer.fetching.record_poller import RecordPoller
from reactive_kafka.errors import FatalBrokerError
from tests.broker.consumer.fetching.parts import (
    SETTINGS,
    Reads,
    ScriptedNodes,
    TextFormat,
    answer,
    partition,
    says,
    turns,
)

LONG_S = 60.0


class Ground:
    """A consumer of three partitions of one node."""

    def __init__(self) -> None:
        self.reads = Reads(3)
        self.nodes = ScriptedNodes(self.reads)
        self.poller = RecordPoller(self.reads)
        self.fetcher = NodeFetcher(
            self.reads, self.nodes, TextFormat(), SETTINGS, self.poller.records_came, Latencies()
        )

    async def poll(
        self,
        budget: int = 9,
        timeout_s: float = 0.0,
        *,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        budgets = dict.fromkeys(self.reads.states, budget)
        return await self.poller.poll(self.fetcher, budgets, timeout_s, most, byte_room)


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    ground = Ground()
    await turns()
    yield ground
    await ground.fetcher.close()


def taken(poll: Poll) -> dict[int, bytes]:
    return {
        chunk.partition.partition: b"".join(record.value or b"" for record in chunk.records)
        for chunk in poll.chunks
    }


async def test_partitions_take_turns_and_records_come_in_their_order(ground: Ground) -> None:
    rows = (says(0, b"abc"), says(1, b"def"), says(2, b"ghi", end=99))
    await ground.nodes.answers(answer(*rows))
    polls = [await ground.poll(2, most=2) for _ in range(5)]
    assert [taken(poll) for poll in polls] == [
        {0: b"ab"},
        {1: b"de"},
        {2: b"gh"},
        {0: b"c", 1: b"f"},
        {2: b"i"},
    ]
    chunk = polls[2].chunks[0]
    assert (chunk.next_offset, chunk.high_watermark) == (9, 99)
    # The end is not before the position, whatever the broker says.
    assert polls[3].chunks[0].high_watermark == 10
    assert ground.reads.positions() == dict.fromkeys(map(partition, range(3)), 10)


async def test_a_poll_takes_what_has_room(ground: Ground) -> None:
    await ground.nodes.answers(answer(says(0, b"abc"), says(1, b"def")))
    room = ByteRoom({partition(1): 1}, 2)
    assert taken(await ground.poll(byte_room=room)) == {0: b"ab", 1: b"d"}


async def test_paused_and_leaving_partitions_keep_what_was_fetched(ground: Ground) -> None:
    await ground.nodes.answers(answer(says(0, b"a"), says(1, b"b"), says(2, b"c")))
    ground.reads.pause([partition(0)])
    ground.reads.stop_reading([partition(1)])
    assert taken(await ground.poll()) == {2: b"c"}
    ground.reads.resume([partition(0)])
    assert taken(await ground.poll()) == {0: b"a"}


async def test_an_error_is_returned_once_and_the_partition_is_fetched_again(
    ground: Ground,
) -> None:
    await ground.nodes.answers(answer(says(0, error=29), says(1, b"a"), says(2, b"b")))
    poll = await ground.poll()
    assert taken(poll) == {1: b"a", 2: b"b"}
    [(failed, error)] = poll.errors.items()
    assert failed == partition(0)
    assert isinstance(error, FatalBrokerError)
    assert not (await ground.poll()).errors
    await turns()
    assert ground.nodes.asked().keys() == {1, 2}, "it has not paused"
    async with asyncio.timeout(5):
        while 0 not in ground.nodes.asked():
            await ground.nodes.answers(answer())
            await asyncio.sleep(0.01)


async def test_a_poll_goes_on_when_an_answer_with_records_comes(ground: Ground) -> None:
    poll = asyncio.create_task(ground.poll(timeout_s=LONG_S))
    await turns()
    await ground.nodes.answers(answer(says(0, end=8)))
    assert not poll.done()
    await ground.nodes.answers(answer(says(0, b"abc")))
    assert taken(await asyncio.wait_for(poll, 1)) == {0: b"abc"}


@pytest.mark.parametrize("when", ["before", "while it waits"])
async def test_it_ends_if_it_is_woken(ground: Ground, when: str) -> None:
    if when == "before":
        ground.poller.wake()
    poll = asyncio.create_task(ground.poll(timeout_s=LONG_S))
    await turns()
    if when != "before":
        assert not poll.done()
        ground.poller.wake()
    assert not (await asyncio.wait_for(poll, 1)).chunks


async def test_it_ends_with_its_time(ground: Ground) -> None:
    await asyncio.wait_for(ground.poll(timeout_s=0.01), 1)


async def test_it_ends_with_the_fetcher(ground: Ground) -> None:
    poll = asyncio.create_task(ground.poll(timeout_s=LONG_S))
    await turns()
    await ground.fetcher.close()
    await asyncio.wait_for(poll, 1)


async def test_it_can_be_cancelled_and_the_next_one_gets_the_records(ground: Ground) -> None:
    poll = asyncio.create_task(ground.poll(timeout_s=LONG_S))
    await turns()
    poll.cancel()
    await turns()
    await ground.nodes.answers(answer(says(0, b"abc")))
    assert taken(await ground.poll()) == {0: b"abc"}


async def test_if_a_poll_wants_more_than_there_was_the_next_fetch_is_hurried() -> None:
    ground = Ground()
    await turns()
    await ground.nodes.answers(answer(says(0, bytes(99))))
    assert ground.nodes.asked() == {}, "it waits for the held records"
    await ground.poll(50, most=60)
    await turns()
    assert ground.nodes.asked().keys() == {1, 2}
    assert ground.nodes.sent[-1].limits[:2] == (0, 0)
    await ground.fetcher.close()


async def test_while_polls_get_what_they_want_and_much_is_held_no_more_is_fetched() -> None:
    ground = Ground()
    await turns()
    await ground.nodes.answers(answer(says(0, bytes(99))))
    for _ in range(3):
        await ground.poll(5, most=5)
    await turns()
    assert len(ground.nodes.sent) == 1
    await ground.fetcher.close()

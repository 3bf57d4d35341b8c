"""The life of a channel, played: any order of calls, failures and outages follows its state table.

The application runs on the in-memory broker in virtual time. Whatever happens, the channel changes
its state only as the table says, commits no record that is unsettled, and runs in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Channel, Message
from reactive_kafka.channel.status import TRANSITIONS
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.events import ChannelStateChanged
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp, run_in_virtual_time
from tests.app.brokers import CommitEntry
from tests.app.helpers import Recorder, make_app, make_broker, now, tp, until

PARTITIONS = 2
LONGEST_S = 3_600.0


class Story:
    """A running application, what has been done to it, and what came of that."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.broker: MemoryBroker = make_broker(PARTITIONS)
        self.app = make_app(
            self.recorder,
            failure_strategy="fail",
            commit_interval="100ms",
            restart={"max_attempts": 2, "backoff": "1s", "max_backoff": "5s"},
        )
        self.fails = False
        self.handled: dict[int, set[int]] = {0: set(), 1: set()}
        self.ahead: list[object] = []
        self.broker.watch_commits("billing", self.check_commit)

        @self.app.incoming("orders")
        async def handle(message: Message[bytes]) -> None:
            if self.fails:
                raise ValueError("asked to fail")
            # Longer than the commit interval: commits come while a record is with its handler.
            await asyncio.sleep(0.3)
            self.handled[message.partition].add(message.offset)

    @property
    def channel(self) -> Channel:
        return self.app.channel("orders")

    def check_commit(self, commit: CommitEntry) -> None:
        """Note a commit of a position with an unhandled record before it."""
        for partition, stored in commit.offsets.items():
            unhandled = set(range(stored.offset)) - self.handled[partition.partition]
            if unhandled:
                self.ahead.append((partition, stored.offset, unhandled))

    async def send(self) -> None:
        for partition in range(PARTITIONS):
            self.broker.produce("orders", b"1", partition=partition)

    async def stop(self) -> None:
        await self.channel.stop()

    async def start(self) -> None:
        # Refused, unless the channel has been stopped.
        with suppress(ChannelClosedError):
            await self.channel.start()

    async def restart(self) -> None:
        # Refused, unless the channel has failed.
        with suppress(ChannelClosedError):
            await self.channel.restart()

    async def pause(self) -> None:
        self.channel.pause()

    async def resume(self) -> None:
        self.channel.resume()

    async def fail(self) -> None:
        self.fails = True

    async def mend(self) -> None:
        self.fails = False

    async def take_broker_away(self) -> None:
        self.broker.down = True

    async def bring_broker_back(self) -> None:
        self.broker.down = False

    async def rebalance(self) -> None:
        if self.broker.members("billing"):
            self.broker.rebalance("billing")

    async def wait(self) -> None:
        await asyncio.sleep(3.0)

    async def wait_long(self) -> None:
        await asyncio.sleep(90.0)

    def changes(self) -> list[tuple[str, str]]:
        return [(event.old, event.new) for event in self.recorder.of(ChannelStateChanged)]


STEPS: tuple[Callable[[Story], Awaitable[None]], ...] = (
    Story.send,
    Story.stop,
    Story.start,
    Story.restart,
    Story.pause,
    Story.resume,
    Story.fail,
    Story.mend,
    Story.take_broker_away,
    Story.bring_broker_back,
    Story.rebalance,
    Story.wait,
    Story.wait_long,
)


async def play(steps: list[Callable[[Story], Awaitable[None]]]) -> None:
    story = Story()
    calls: list[asyncio.Task[None]] = []
    try:
        async with TestApp(story.app, broker=story.broker):
            for step in steps:
                # Not awaited: a call may wait for a broker that a later step brings back.
                calls.append(asyncio.ensure_future(step(story)))
                await asyncio.sleep(0.05)
            story.broker.down = False
            story.fails = False
            await asyncio.gather(*calls)
            await story.restart()
            await story.start()
            story.channel.resume()
            await story.send()
            ends = [story.broker.end(tp(partition)) for partition in range(PARTITIONS)]

            def all_committed() -> bool:
                stored = story.broker.committed("billing")
                return all(
                    tp(partition) in stored and stored[tp(partition)].offset == end
                    for partition, end in enumerate(ends)
                )

            await until(all_committed, within_s=120.0)
        assert set(story.changes()) <= {
            (old, new) for old, moves in TRANSITIONS.items() for new in moves.values() if old != new
        }
        changes = story.changes()
        assert all(before[1] == after[0] for before, after in pairwise(changes))
        assert changes[-1][1] == "stopped"
        assert story.ahead == []
        assert now() < LONGEST_S
    finally:
        await story.broker.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=4, max_size=16))
def test_whatever_is_done_to_a_channel_it_follows_its_table_and_handles_all_in_the_end(
    steps: list[Callable[[Story], Awaitable[None]]],
) -> None:
    async def main(clock: FakeClock) -> None:
        async with asyncio.timeout(LONGEST_S):
            await play(steps)

    run_in_virtual_time(main)

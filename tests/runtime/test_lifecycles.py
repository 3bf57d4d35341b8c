"""The life of a run, played: any order of starts, stops, failures and outages ends in order.

The application runs on the in-memory broker in virtual time. Whatever happens, a run goes through
its states as the table says, commits no record that is unsettled, and leaves no task behind; and
the application can be started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import Message
from reactive_kafka.runtime.states import TRANSITIONS
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.app.brokers import CommitEntry
from tests.app.helpers import Recorder, make_app, make_broker, now, tasks_left, tp, until

LONGEST_S = 3_600.0

# How often the state is looked at: often while something happens, seldom in a long wait.
OFTEN_S = 0.01
SELDOM_S = 0.5


class StartError(Exception):
    """Raised by the start hook when the story wants it to."""


class Story:
    """An application, what has been done to it, and what came of that."""

    def __init__(self, clock: FakeClock) -> None:
        self.broker: MemoryBroker = make_broker(1)
        self.app = make_app(
            Recorder(),
            auto_offset_reset="earliest",
            commit_interval="100ms",
            drain_timeout="2s",
        )
        self.app._connector = self.broker.connector()
        self.app._clock = clock
        self.app.configure(overrides={"http": {"enabled": False}})
        self.start_fails = False
        self.stop_fails = False
        self.exits = False
        self.look_s = OFTEN_S
        self.handled: set[int] = set()
        self.ahead: list[CommitEntry] = []
        self.calls: list[asyncio.Task[None]] = []
        self.broker.watch_commits("billing", self.check_commit)

        @self.app.on_start
        async def open_pool() -> None:
            await asyncio.sleep(0.2)
            if self.start_fails:
                raise StartError("asked to fail")

        @self.app.before_stop
        async def flush() -> None:
            if self.stop_fails:
                raise ValueError("asked to fail at the stop")

        @self.app.incoming("orders")
        async def handle(message: Message[bytes]) -> None:
            # Longer than the commit interval: commits come while a record is with its handler.
            await asyncio.sleep(0.3)
            if self.exits:
                self.exits = False
                raise SystemExit(3)
            self.handled.add(message.offset)

    def check_commit(self, commit: CommitEntry) -> None:
        """Note a commit of a position with an unhandled record before it."""
        for stored in commit.offsets.values():
            if set(range(stored.offset)) - self.handled:
                self.ahead.append(commit)

    def state(self) -> str:
        """The state of the run, as health tells it."""
        for check in self.app.health().ready.checks:
            if check.name == "application":
                return str(check.data["state"])
        return "running"

    async def send(self) -> None:
        self.broker.produce("orders", b"1", partition=0)

    async def start(self) -> None:
        # Refused while it runs; fails with its hook, or ends with a stop that comes meanwhile.
        with suppress(RuntimeError, StartError):
            await self.app.start()

    async def cancel_the_last_call(self) -> None:
        if self.calls:
            self.calls[-1].cancel()

    async def stop(self) -> None:
        # Raises what the run has failed with.
        with suppress(StartError):
            await self.app.stop()

    async def stop_at_once(self) -> None:
        with suppress(StartError):
            await self.app.stop(drain=False)

    async def fail_starts(self) -> None:
        self.start_fails = True

    async def fail_stops(self) -> None:
        self.stop_fails = True

    async def mend(self) -> None:
        self.start_fails = False
        self.stop_fails = False

    async def exit_from_handler(self) -> None:
        self.exits = True

    async def take_broker_away(self) -> None:
        self.broker.down = True

    async def bring_broker_back(self) -> None:
        self.broker.down = False

    async def wait(self) -> None:
        await asyncio.sleep(3.0)

    async def wait_long(self) -> None:
        await asyncio.sleep(90.0)


STEPS: tuple[Callable[[Story], Awaitable[None]], ...] = (
    Story.send,
    Story.start,
    Story.start,
    Story.cancel_the_last_call,
    Story.stop,
    Story.stop_at_once,
    Story.fail_starts,
    Story.fail_stops,
    Story.mend,
    Story.exit_from_handler,
    Story.take_broker_away,
    Story.bring_broker_back,
    Story.wait,
    Story.wait_long,
)


async def watch(story: Story, seen: list[str]) -> None:
    """Note each state that the run is seen in."""
    while True:
        state = story.state()
        if not seen or seen[-1] != state:
            seen.append(state)
        await asyncio.sleep(story.look_s)


async def play(clock: FakeClock, steps: list[Callable[[Story], Awaitable[None]]]) -> None:
    story = Story(clock)
    seen: list[str] = []
    watching = asyncio.ensure_future(watch(story, seen))
    for step in steps:
        # Not awaited: a call may wait for a broker that a later step brings back.
        story.calls.append(asyncio.ensure_future(step(story)))
        await asyncio.sleep(0.05)
    await story.bring_broker_back()
    await story.mend()
    story.exits = False
    await asyncio.wait(story.calls, timeout=10.0)
    story.look_s = SELDOM_S
    await asyncio.wait(story.calls)
    story.look_s = OFTEN_S
    await story.stop()
    await story.start()
    await story.send()

    def all_committed() -> bool:
        stored = story.broker.committed("billing")
        return tp() in stored and stored[tp()].offset == story.broker.end(tp())

    await until(all_committed, within_s=120.0)
    await story.stop()
    watching.cancel()
    await asyncio.wait([watching])
    assert await tasks_left() == set()
    assert [call for call in story.calls if not call.cancelled() and call.exception()] == []
    assert story.ahead == []
    assert unexpected(seen) == []
    assert now() < LONGEST_S
    await story.broker.close()


def unexpected(seen: list[str]) -> list[tuple[str, str]]:
    """Changes that are neither in the table nor the beginning of the next run.

    States that are left before the next look are not seen.
    """
    order = list(TRANSITIONS)
    return [
        (old, new)
        for old, new in pairwise(seen)
        if new != "starting" and order.index(new) < order.index(old) and old != "ended"
    ]


@settings(max_examples=80, deadline=None)
# A member cannot leave during an outage, and its session is not over when the next one has ended.
@example([Story.start, *[Story.send] * 4, Story.take_broker_away, Story.stop_at_once])
@given(st.lists(st.sampled_from(STEPS), min_size=4, max_size=16))
def test_whatever_is_done_to_a_run_it_ends_in_order_and_the_next_one_handles_all(
    steps: list[Callable[[Story], Awaitable[None]]],
) -> None:
    async def main(clock: FakeClock) -> None:
        async with asyncio.timeout(LONGEST_S):
            await play(clock, steps)

    run_in_virtual_time(main)

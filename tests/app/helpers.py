"""What the tests of running applications share: an application, a broker, and waiting for facts."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from reactive_kafka import App, TopicPartition
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.events import Event
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.testing import (
    FakeClock,
    MemoryBroker,
    TestApp,
    VirtualTimeLoop,
    run_in_virtual_time,
)

E = TypeVar("E", bound=Event)

# Of virtual time: a test that waits for what never comes must end.
LONGEST_S = 600.0


def tp(partition: int = 0, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop whose time jumps: waiting costs nothing, and moments are
    exact.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def main(clock: FakeClock) -> None:
            async with asyncio.timeout(LONGEST_S):
                await test(*arguments, **named)

        run_in_virtual_time(main)

    return run


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def make_app(recorder: Recorder | None = None, **orders: Any) -> App:
    """An application with the incoming channel orders, read from its beginning, and the outgoing
    one invoices.
    """
    return App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest", **orders}
            },
            "outgoing": {"invoices": {}},
        },
        observer=recorder,
    )


@asynccontextmanager
async def running(
    app: App, *, partitions: int = 1, broker: MemoryBroker | None = None
) -> AsyncIterator[TestApp]:
    """The application on an in-memory broker, a new one unless one is given; topics get
    *partitions* partitions.
    """
    own = broker is None
    broker = broker or make_broker(partitions)
    try:
        async with TestApp(app, broker=broker) as test:
            yield test
    finally:
        if own:
            await broker.close()


def make_broker(partitions: int = 1) -> MemoryBroker:
    """A broker on the running loop's time."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        return MemoryBroker(loop.clock, partitions=partitions)
    return MemoryBroker(partitions=partitions)


async def tasks_left() -> set[str]:
    """The names of all other tasks, once those that are ending have ended."""
    for _ in range(20):
        await asyncio.sleep(0)
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def now() -> float:
    """The loop's time, in seconds."""
    return asyncio.get_running_loop().time()


async def until(
    fact: Callable[[], object], within_s: float = 10.0, *, to_the_moment: bool = False
) -> None:
    """Wait until something is true.

    A look comes every 5 ms. After a second looks become rarer, because an hour of virtual time would
    have 720,000 of them: what comes late is seen half a percent later, and at most 50 ms. Where the
    test measures from that moment on, it waits *to_the_moment*.
    """
    began = now()
    while not fact():
        waited_s = now() - began
        assert waited_s < within_s, f"not true within {within_s:g} s"
        look_s = 0.005 if to_the_moment else min(0.05, max(0.005, waited_s / 200))
        await asyncio.sleep(look_s)


async def settle_down() -> None:
    """Let everything run that can, without letting time pass."""
    for _ in range(50):
        await asyncio.sleep(0)


async def send(test: TestApp, *values: object, partition: int = 0) -> None:
    """Send values to the channel orders, in order."""
    for value in values:
        await test.send("orders", value, partition=partition)


def inside(app: App, name: str = "orders") -> ChannelLifecycle:
    """What is behind the channel that users have: for accidents that no user can cause, and what no
    fact tells.
    """
    assert app._run is not None
    assert app._run.channels is not None
    return app._run.channels.incoming[name]


def facts(test: TestApp, name: str = "orders") -> ChannelFacts:
    """What is known about a channel."""
    return test.app.channel(name).facts()


def committed(test: TestApp, partition: int = 0) -> int | None:
    """The group's position of orders in the broker."""
    return test.committed("orders").get(tp(partition))


def positions(broker: MemoryBroker, partition: int = 0) -> list[int]:
    """Every position that was ever committed for orders, in order."""
    entries = broker.commits("billing")
    return [
        entry.offsets[tp(partition)].offset for entry in entries if tp(partition) in entry.offsets
    ]


async def rebalanced(test: TestApp) -> None:
    """Make the group rebalance, and wait until everybody has partitions again."""
    generation = test.broker.generation("billing")
    test.broker.rebalance("billing")
    await until(lambda: test.broker.generation("billing") > generation, 60)
    await until(lambda: test.app.channel("orders").is_ready, 60)

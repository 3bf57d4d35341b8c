"""The same results on each loop, with two members of a group in one loop, and with one in each of
two threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
import uvloop
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, Message
from tests.faults.driver import create_topic, until
from tests.faults.history import Partition
from tests.faults.observer import read_commits, read_records
from tests.faults.scenario import new_topic

pytestmark = pytest.mark.kafka

PARTITIONS, EACH = 4, 100
BAD = b"bad"


class Loop(NamedTuple):
    """A kind of loop; ``module`` is where its class comes from."""

    module: str
    factory: Callable[[], asyncio.AbstractEventLoop]
    is_debugged: bool = False

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=self.factory, debug=self.is_debugged) as runner:
            runner.run(main)


LOOPS = {
    "asyncio": Loop("asyncio", asyncio.new_event_loop),
    "debug": Loop("asyncio", asyncio.new_event_loop, is_debugged=True),
    "uvloop": Loop("uvloop", uvloop.new_event_loop),
    "uvloop debug": Loop("uvloop", uvloop.new_event_loop, is_debugged=True),
}


class Group:
    """Two members of one group, and what they have done; they may be in two threads."""

    def __init__(self, bootstrap: str, topic: str, loop: Loop) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.loop = loop
        self.ready: set[str] = set()
        self.handled: list[tuple[str, int, int]] = []
        self.threads: set[int] = set()
        self.committed: dict[int, int] = {}

    def app(self, name: str) -> App:
        """A member: the one called right has a handler for worker threads, and every tenth record
        fails.
        """
        app = App(
            {
                "kafka": {"bootstrap_servers": self.bootstrap, "heartbeat_interval_ms": 200},
                "incoming": {
                    "orders": {
                        "topic": self.topic,
                        "group_id": self.topic,
                        "auto_offset_reset": "earliest",
                        "commit_interval": "100ms",
                        "failure_strategy": "dead-letter-queue",
                        "dead_letter_queue": {"topic": f"dead-{self.topic}"},
                    }
                },
                "http": {"port": 0},
            }
        )

        def work(message: Message[bytes]) -> None:
            self.handled.append((name, message.partition, message.offset))
            if message.payload == BAD:
                raise ValueError("bad")

        async def handle(message: Message[bytes]) -> None:
            work(message)

        app.incoming("orders")(handle if name == "left" else work)
        return app

    async def member(self, name: str) -> None:
        """Be a member until everything is committed."""
        loop, app = asyncio.get_running_loop(), self.app(name)
        assert (type(loop).__module__.partition(".")[0], loop.get_debug()) == (
            self.loop.module,
            self.loop.is_debugged,
        )
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context))
        self.threads.add(threading.get_ident())
        async with app:
            channel = app.channel("orders")
            await until(
                lambda: len(channel.assignment) == PARTITIONS // 2, 40, f"{name} has its half"
            )
            self.ready.add(name)
            await until(lambda: len(self.ready) == 2, 40, "both have")
            if name == "left":
                await self.produce()
            await until(
                lambda: self.note(app) == PARTITIONS * EACH,
                40,
                f"all is committed: {self.committed}",
            )
            await until(lambda: app.health().status == "UP", 10, "it is well")
        assert errors == []

    async def produce(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(EACH):
                for partition in range(PARTITIONS):
                    await producer.send(
                        self.topic, BAD if number % 10 == 9 else b"good", partition=partition
                    )

    def note(self, app: App) -> int:
        """Keep how far this one's partitions are; returns how much of all of them is committed."""
        for known in app.facts().channels[0].partitions:
            self.committed[known.partition.partition] = known.committed or 0
        return sum(self.committed.values())


def in_one_loop(group: Group) -> None:
    async def both() -> None:
        await asyncio.gather(group.member("left"), group.member("right"))

    group.loop.run(both())


def in_two_threads(group: Group) -> None:
    with ThreadPoolExecutor(2) as pool:
        for running in [
            pool.submit(group.loop.run, group.member(name)) for name in ("left", "right")
        ]:
            running.result()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("where", [in_one_loop, in_two_threads])
def test_two_members_do_the_same_on_each_loop_in_one_thread_or_in_two(
    kafka: str, where: Callable[[Group], None], loop: str
) -> None:
    """Row D12 of the faults."""
    topic, before = new_topic(), set(threading.enumerate())
    asyncio.run(create_topic(kafka, topic, PARTITIONS))
    group = Group(kafka, topic, LOOPS[loop])
    where(group)
    assert len(group.threads) == (1 if where is in_one_loop else 2)
    for thread in set(threading.enumerate()) - before:
        # One that has worked for a loop may end a moment after it.
        thread.join(5)
    assert set(threading.enumerate()) <= before
    places = [(partition, offset) for _, partition, offset in group.handled]
    assert Counter(places) == Counter(
        (partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)
    )
    owners = {partition: name for name, partition, _ in group.handled}
    assert Counter(owners.values()) == {"left": PARTITIONS // 2, "right": PARTITIONS // 2}
    assert all(owners[partition] == name for name, partition, _ in group.handled), (
        "two had one partition"
    )
    asyncio.run(is_stored(group))


async def is_stored(group: Group) -> None:
    """What the broker has: every position at the end, and a letter of each bad record."""
    last: dict[Partition, int] = {}
    for commit in await read_commits(group.bootstrap, group.topic):
        assert commit.offset >= last.get(commit.tp, 0), "a position went back"
        last[commit.tp] = commit.offset
    assert last == {(group.topic, partition): EACH for partition in range(PARTITIONS)}
    dead = [(f"dead-{group.topic}", partition) for partition in range(PARTITIONS)]
    letters = await read_records(group.bootstrap, dead)
    assert sum(map(len, letters.values())) == PARTITIONS * EACH // 10

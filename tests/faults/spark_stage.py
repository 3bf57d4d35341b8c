"""What tests of a Spark service share: its settings, what its tasks and probes show, and a stranger
in its group.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.admin import NewTopic

from tests.faults.driver import Life, Member, create_topics, free_port, until
from tests.faults.history import Event, Partition
from tests.faults.observer import Observer, read_log_ends
from tests.faults.processes import Process, alive

# For what takes seconds: where many tests share the cores a driver may take minutes to start.
WAIT_S = 300.0
GONE_S = 15.0
# Follows a topic's name.
LETTERS = "letters"
# The broker's own time, not the producer's.
STAMPED = {"message.timestamp.type": "LogAppendTime"}

CONFIG = """
[kafka]
bootstrap_servers = "{kafka}"
{channels}
[spark]
master = "local[2]"

[spark.conf]
"spark.driver.memory" = "600m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.sql.shuffle.partitions" = "1"

[http]
port = {port}
"""
CHANNEL = """
[incoming.{name}]
topic = "{topic}"
group_id = "{topic}"
auto_offset_reset = "earliest"
commit_interval = "200ms"
failure_strategy = "dead-letter-queue"
dead_letter_queue.topic = "{topic}-{letters}"
{more}
[incoming.{name}.spark]
batch_max_wait = "200ms"
{spark}
"""


class Settings(NamedTuple):
    """More TOML lines of a channel, and of its ``spark`` table."""

    more: str = ""
    spark: str = ""


async def create(kafka: str, topic: str, partitions: int) -> list[Partition]:
    """Make a topic and its dead-letter topic; returns the former's partitions."""
    letters = NewTopic(f"{topic}-{LETTERS}", 1, 1, topic_configs=STAMPED)
    await create_topics(kafka, [NewTopic(topic, partitions, 1), letters])
    return [(topic, number) for number in range(partitions)]


def letters_of(topic: str) -> list[Partition]:
    """Where the dead letters of a topic are."""
    return [(f"{topic}-{LETTERS}", 0)]


def member(kafka: str, folder: Path, run: str, channels: dict[str, Settings]) -> Member:
    """A service, not started yet. The topic of a channel, and its group, is its name behind
    *run*.
    """
    tables = [
        CHANNEL.format(name=name, topic=run + name, letters=LETTERS, **settings._asdict())
        for name, settings in channels.items()
    ]
    port = free_port()
    config = CONFIG.format(kafka=kafka, channels="".join(tables), port=port)
    options = ("--folder", str(folder), "--channels", *channels)
    return Member("service", folder, config, port, "tests.faults.spark_tasks", options)


async def produce(
    kafka: str, words: Sequence[tuple[Partition, str]]
) -> list[tuple[Partition, int]]:
    """Write records that say what is to be done; where each went."""
    async with AIOKafkaProducer(bootstrap_servers=kafka, linger_ms=5) as producer:
        sends = [
            await producer.send(topic, word.encode(), partition=number)
            for (topic, number), word in words
        ]
        written = await asyncio.gather(*sends)
    return [((one.topic, one.partition), one.offset) for one in written]


async def all_is_committed(kafka: str, *partitions: Partition) -> None:
    """Wait until the group that is called as the topic of these has nothing left to do in them."""
    ends = await read_log_ends(kafka, partitions)
    observer = Observer(kafka, partitions[0][0], partitions)
    async with observer.watching():
        await until(
            lambda: all(observer.committed(tp) >= end for tp, end in ends.items()),
            WAIT_S,
            f"all is committed up to {ends}",
            lambda: str(observer.latest),
        )


# -- calls of the function, and their tasks


class Call(NamedTuple):
    """One call of a channel's function in one process."""

    process: str
    channel: str
    number: int


def call_of(event: Event) -> Call:
    """Which call an event is about."""
    return Call(event.process, *event.tp)


def calls(life: Life, channel: str, kind: str = "begin") -> list[Event]:
    """The calls of a function that have begun (or come to their end) so far."""
    return [event for event in life.events if event.kind == kind and event.tp[0] == channel]


@dataclass
class Tasks:
    """What the tasks of all processes show, and how they are let go.

    Args:
        folder: Where they write.
    """

    folder: Path

    def beats(self) -> dict[Call, list[float]]:
        """call -> when a task of it was alive, ascending."""
        found: dict[Call, list[float]] = defaultdict(list)
        path = self.folder / "beats"
        for line in path.read_text().splitlines() if path.exists() else ():
            t, process, channel, number = line.split()
            found[Call(process, channel, int(number))].append(float(t))
        return found

    def let_go(self) -> None:
        """Let those that are held go on, and those to come pass."""
        (self.folder / "go").touch()

    def hold(self) -> None:
        """Hold those to come."""
        (self.folder / "go").unlink(missing_ok=True)

    async def held(self, life: Life, channel: str, but: Collection[str] = ()) -> Event:
        """The beginning of the latest call of a function, once a task of it beats; not of a batch
        in *but*.
        """

        def find() -> Event | None:
            begun = calls(life, channel)
            ends = {event.tp for event in calls(life, channel, "end")}
            if not begun or begun[-1].id in but or begun[-1].tp in ends:
                return None
            return begun[-1] if len(self.beats()[call_of(begun[-1])]) > 2 else None

        await until(
            lambda: life.exit_code is not None or find(), WAIT_S, f"{channel} is busy", life.tail
        )
        found = find()
        assert found is not None, life.tail()
        return found


async def ended(life: Life, channel: str, id: str) -> None:
    """Wait until a call of the function has written the batch of this id."""
    await until(
        lambda: id in {event.id for event in calls(life, channel, "end")},
        WAIT_S,
        f"{id} is written",
        life.tail,
    )


async def gone(processes: list[Process]) -> None:
    """Wait until none of these runs any more."""
    await until(
        lambda: not alive(processes),
        GONE_S,
        "no process is left behind",
        lambda: str(alive(processes)),
    )


# -- what is seen from outside


class Stranger(ConsumerRebalanceListener):  # type: ignore[misc]
    """Another member of a group, no service: it notes what it is given and when, and reads nothing.

    Attributes:
        assigned: Time and partitions of each assignment.
    """

    def __init__(self) -> None:
        self.assigned: list[tuple[float, frozenset[Partition]]] = []

    async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None: ...

    async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        self.assigned.append(
            (time.time(), frozenset((topic, number) for topic, number in assigned))
        )

    def has(self, partitions: int) -> bool:
        """Whether it holds so many."""
        return bool(self.assigned) and len(self.assigned[-1][1]) == partitions

    @asynccontextmanager
    async def joining(self, kafka: str, topic: str) -> AsyncIterator[None]:
        """Be a member of the group that is called as the topic while the block runs."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka, group_id=topic, enable_auto_commit=False
        )
        consumer.subscribe([topic], listener=self)
        # It returns when there is an assignment.
        joining = asyncio.create_task(consumer.start())
        try:
            yield
            await joining
        finally:
            await asyncio.wait({joining})
            await consumer.stop()

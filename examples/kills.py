"""What the drivers of services share: processes that are killed, and a look at Kafka from outside.

A driver knows its service by its topics, its database and its remote API only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiokafka
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

PARTITIONS = 4
STOPS_S = 60.0
# Share of the kills that do not wait until records are handled again.
AT_ANY_MOMENT = 0.25
# So many records are handled before each of the other kills.
HANDLED = 10
# Several killed processes may each keep their partitions for a session: 45 s is Kafka's default.
WORKS_S = 240.0
NAMED = 5


def options(about: str | None) -> argparse.ArgumentParser:
    """The options of every driver."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--kafka", default="localhost:9092", help="host:port of a Kafka")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    return parser


async def until(
    condition: Callable[[], Awaitable[object]], what: str, seconds: float = WORKS_S
) -> None:
    """Wait until a condition is true, looking ten times a second.

    Raises:
        TimeoutError: It was not, after so many seconds.
    """
    give_up = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.1)


async def until_done(
    is_done: Callable[[], Awaitable[bool]], handled: Callable[[], Awaitable[int]]
) -> None:
    """Wait until all is done, as long as records are handled meanwhile.

    Raises:
        TimeoutError: Nothing was handled for so many seconds.
    """
    while not await is_done():
        before = await handled()

        async def is_further(before: int = before) -> bool:
            return await is_done() or await handled() > before

        await until(is_further, f"more than {before} records are handled, or all is done")


class Service:
    """A process of a service, which is started again after it was killed.

    Args:
        app: What ``reactive-kafka run`` is given.
        folder: Where the service has its files.
        variables: Of the environment.
        log: Where its output goes, that of all its lives.
    """

    def __init__(self, app: str, folder: Path, variables: Mapping[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", "reactive_kafka", "run", app]
        self._folder = folder
        self._environment = {**os.environ, **variables, "REACTIVE_KAFKA__HTTP__PORT": "0"}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its next process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End its process at once.

        Raises:
            RuntimeError: It has ended by itself.
        """
        process = self._running()
        process.send_signal(signal.SIGKILL)
        process.wait(STOPS_S)

    async def stop(self) -> int:
        """Ask its process to stop. Returns the exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(process.wait, STOPS_S)

    @property
    def said(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-3000:]

    def clean_up(self) -> None:
        """Make sure that it runs no more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOPS_S)

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"the service has ended by itself:\n{self.said}")
        return process


@contextmanager
def cleaned_up(services: Iterable[Service]) -> Iterator[None]:
    """Have no service run after the block. Show what they said if something took too long."""
    services = list(services)
    try:
        yield
    except TimeoutError:
        for service in services:
            print(service.said, file=sys.stderr)
        raise
    finally:
        for service in services:
            service.clean_up()


class Traffic:
    """What is sent again and again, also while services are killed.

    Args:
        send: Sends something, and notes what the broker has confirmed.
        per_second: How often, on average.
        draw: Draws the moments.

    Attributes:
        is_over: Whether to stop.
    """

    def __init__(
        self, send: Callable[[], Awaitable[None]], per_second: float, draw: random.Random
    ) -> None:
        self._send = send
        self._per_second = per_second
        self._draw = draw
        self._sending = asyncio.Lock()
        self.is_over = False

    async def keep_sending(self) -> None:
        """Send until it is over."""
        while not self.is_over:
            async with self._sending:
                await self._send()
            await asyncio.sleep(self._draw.expovariate(self._per_second))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Send nothing during the block: all that was sent before it has been confirmed."""
        async with self._sending:
            yield


async def kill_at_random(
    services: Sequence[Service],
    kills: int,
    draw: random.Random,
    handled: Callable[[], Awaitable[int]],
    look: Callable[[], Awaitable[None]],
) -> None:
    """Kill services at random moments, and start each again at once.

    Args:
        services: One of them is chosen for each kill.
        kills: How many.
        draw: Draws services and moments.
        handled: How many records have been handled so far, by all processes.
        look: Looks at what a killed process has left, before the next one starts.
    """
    for _ in range(kills):
        enough = 0
        if draw.random() >= AT_ANY_MOMENT:
            enough = await handled() + HANDLED
        await until(lambda enough=enough: _reached(handled, enough), "records are handled again")  # type: ignore[misc]
        await asyncio.sleep(draw.uniform(0.0, 2.0))
        service = draw.choice(services)
        service.kill()
        await look()
        service.start()


async def _reached(handled: Callable[[], Awaitable[int]], enough: int) -> bool:
    return await handled() >= enough


async def create_topics(kafka: str, topics: Iterable[str]) -> None:
    """Create topics of four partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    finally:
        await admin.close()


async def committed(kafka: str, group: str) -> dict[tuple[str, int], int]:
    """Topic and partition -> the position that the group has in Kafka."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        # A new cluster makes its topic of positions at the first question.
        found = await _answer(lambda: admin.list_consumer_group_offsets(group))
    finally:
        await admin.close()
    return {(tp.topic, tp.partition): position.offset for tp, position in found.items()}


async def _answer(
    ask: Callable[[], Awaitable[dict[TopicPartition, OffsetAndMetadata]]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    give_up = time.monotonic() + WORKS_S
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable or time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.1)


def behind(
    positions: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
) -> list[str]:
    """The partitions whose position is not the end of the log."""
    return [
        f"{topic}-{partition}: {positions.get((topic, partition))} of {end}"
        for (topic, partition), end in ends.items()
        if positions.get((topic, partition)) != end
    ]


async def read_topic(kafka: str, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, partition by partition, in the order of their offsets."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=kafka, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        found = []
        ends = await consumer.end_offsets(list(consumer.assignment()))
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                records = await consumer.getmany(partition, timeout_ms=1000)
                found += records.get(partition, [])
    finally:
        await consumer.stop()
    return found


def letter_place(letter: ConsumerRecord) -> tuple[str, int, int]:
    """Topic, partition and offset of the record that a dead letter was made of."""
    headers = {name: value.decode() for name, value in letter.headers}
    return (
        headers["dead-letter-topic"],
        int(headers["dead-letter-partition"]),
        int(headers["dead-letter-offset"]),
    )


@dataclass
class Checks:
    """What is judged, and how it came out."""

    lines: list[str] = field(default_factory=list)
    failed: int = 0

    def check(self, what: str, wrong: Iterable[object]) -> None:
        """Note a check, and what is wrong, if anything is."""
        problems = list(wrong)
        if not problems:
            self.lines.append(f"ok   {what}")
            return
        self.failed += 1
        named = "; ".join(map(str, problems[:NAMED]))
        self.lines.append(f"BAD  {what}: {len(problems)} are not so: {named}")

    def told(self) -> int:
        """Print all checks. Returns the exit code."""
        with suppress(BrokenPipeError):
            print("\n".join(self.lines), flush=True)
        return 1 if self.failed else 0

"""Starts, kills and watches services as processes, and produces records under them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from reactive_kafka.broker.local_kafka import free_ports
from tests.faults.checker import Place, unfinished
from tests.faults.history import Event, HistoryReader, Partition

REPOSITORY = Path(__file__).parents[2]
SERVICE = "tests.faults.service"
ODD_SERVICE = "tests.faults.odd_service"
NAIVE_SERVICE = "tests.faults.naive"
# Longer than any fault of these tests.
CONFIRM_S = 40.0
SETTLE_S = 10.0


async def until(
    condition: Callable[[], Any],
    deadline_s: float,
    what: str,
    instead: Callable[[], str] = lambda: "",
) -> None:
    """Wait until *condition* is true, looking each 20 ms.

    Raises:
        AssertionError: It was not, after *deadline_s*; the text says *what* was waited for, and
            what is there *instead*.
    """
    give_up = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up, f"not within {deadline_s} s: {what}; {instead()}"
        await asyncio.sleep(0.02)


def free_port() -> int:
    """A TCP port of the loopback on which nobody listens, and which no connection is given by
    itself.

    A member that is killed comes back on its port. One of those that the system gives to
    connections may be taken by then: the HTTP server of a member in a thousand could not bind.
    """
    return free_ports(1)[0]


async def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    replicas: Sequence[Sequence[int]] | None = None,
    config: Mapping[str, str] | None = None,
) -> list[Partition]:
    """Make a new topic; returns its partitions. *replicas* are the nodes of each, its leader
    first.
    """
    if replicas is None:
        made = NewTopic(topic, partitions, 1, topic_configs=config)
    else:
        made = NewTopic(
            topic,
            -1,
            -1,
            replica_assignments=dict(enumerate(map(list, replicas))),
            topic_configs=config,
        )
    await create_topics(bootstrap, [made])
    return [(topic, number) for number in range(partitions)]


async def create_topics(bootstrap: str, topics: list[NewTopic]) -> None:
    """Make new topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics(topics)
    finally:
        await admin.close()


class Process(Protocol):
    """A process as the standard library tells of it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


Launch = Callable[[list[str], Path], Process]


def started_afresh(module: list[str], log: Path) -> Process:
    """A new interpreter that runs a module, given with its arguments."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", *module]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT)


class Life:
    """One process of a member, from its start to its end."""

    def __init__(
        self, name: str, folder: Path, command: list[str], port: int, launch: Launch
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._history = HistoryReader(folder / f"{name}.jsonl")
        self._port = port
        self._process = launch([*command, str(folder / f"{name}.jsonl")], self.log)

    @property
    def events(self) -> list[Event]:
        """Its history up to now."""
        return self._history.refresh()

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    @property
    def in_flight(self) -> list[Event]:
        """What it has begun and not ended, by its own history."""
        return unfinished(self.events, self.name)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal if one killed it."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def send(self, number: signal.Signals) -> float:
        """Send it a signal; returns when."""
        assert self.exit_code is None, (
            f"{self.name} has ended already with {self.exit_code}: {self.tail()}"
        )
        t = time.time()
        os.kill(self._process.pid, number)
        return t

    def freezes_at_work(self) -> bool:
        """Freeze it in the middle of a record. False, and it goes on, if it is not: what was read
        before is past.
        """
        self.send(signal.SIGSTOP)
        if not self.in_flight:
            self.send(signal.SIGCONT)
            return False
        return True

    async def exited(self, deadline_s: float) -> int:
        """Its exit code, once it has ended by itself or by a signal sent before."""
        await until(
            lambda: self.exit_code is not None, deadline_s, f"{self.name} exits: {self.tail()}"
        )
        assert self.exit_code is not None
        return self.exit_code

    @property
    def address(self) -> str:
        """``host:port`` of its metrics and health."""
        return f"127.0.0.1:{self._port}"

    async def health(self, path: str = "/health") -> tuple[int, dict[str, Any]]:
        """Status and body of a health probe; status 0 when nothing answers."""
        async with httpx.AsyncClient(trust_env=False) as client:
            try:
                answer = await client.get(f"http://{self.address}{path}", timeout=2)
            except httpx.TransportError:
                return 0, {}
        return answer.status_code, answer.json()

    async def metrics(self) -> str:
        """What a scrape shows."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://{self.address}/metrics", timeout=5)).text

    async def ready(self, deadline_s: float = 20.0) -> None:
        """Wait until it has joined its group and its readiness probe is UP."""
        await self.probe_shows("/health/started", 200, deadline_s)
        await self.probe_shows("/health/ready", 200, deadline_s)

    async def probe_shows(self, path: str, status: int, deadline_s: float) -> dict[str, Any]:
        """The body of a probe, once it answers with *status*."""
        give_up = time.monotonic() + deadline_s
        while (answer := await self.health(path))[0] != status:
            assert self.exit_code is None, (
                f"{self.name} exited with {self.exit_code}: {self.tail()}"
            )
            assert time.monotonic() < give_up, (
                f"{self.name}: {path} shows {answer}, not {status}: {self.tail()}"
            )
            await asyncio.sleep(0.05)
        return answer[1]

    async def says(self, text: str, deadline_s: float) -> None:
        """Wait until its health has *text* somewhere, and it is not ready."""
        give_up = time.monotonic() + deadline_s
        while (
            text not in json.dumps(answer := await self.health("/health/ready")) or answer[0] != 503
        ):
            assert time.monotonic() < give_up, (
                f"{self.name} does not say {text}, but {answer}: {self.tail()}"
            )
            await asyncio.sleep(0.1)

    def tail(self) -> str:
        """The end of what it printed; nothing where it was killed before it began."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def end(self) -> None:
        """Make sure that it runs no more."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


@dataclass
class Member:
    """A service that is started again under the same configuration after it was stopped or
    killed.
    """

    name: str
    folder: Path
    config: str
    port: int
    module: str = SERVICE
    options: tuple[str, ...] = ()
    launch: Launch = started_afresh
    lives: list[Life] = field(default_factory=list)

    def start(self) -> Life:
        """Start its next process."""
        path = self.folder / f"{self.name}.toml"
        path.write_text(self.config)
        number = len(self.lives) + 1
        command = [self.module, *self.options, "--seed", str(number), str(path)]
        self.lives.append(
            Life(f"{self.name}.{number}", self.folder, command, self.port, self.launch)
        )
        return self.life

    @property
    def life(self) -> Life:
        """Its latest process."""
        return self.lives[-1]

    @property
    def events(self) -> list[Event]:
        """The histories of all its processes."""
        return [event for life in self.lives for event in life.events]


class Parcel(NamedTuple):
    """What one record is made of."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def work(id: str, number: int, tp: Partition) -> Parcel:
    """A record that asks for work."""
    return Parcel(json.dumps({"id": id, "do": "work"}).encode())


class Load:
    """Produces records round-robin over partitions at a steady rate, and knows which ones the
    broker confirmed.

    Attributes:
        sent: Confirmed: place -> id.
        maybe: Ids of sends that were not confirmed.
        is_paused: It sends nothing for now.

    Args:
        make: The record of an id; it is told the round's number, from 0, and the partition.
        confirm_s: How long a confirmation may take: longer than the fault.
    """

    def __init__(
        self,
        bootstrap: str,
        partitions: list[Partition],
        make: Callable[[str, int, Partition], Parcel] = work,
        confirm_s: float = CONFIRM_S,
    ) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            # What waits for a node that is frozen must not hold up the other partitions.
            max_batch_size=500_000,
            request_timeout_ms=int(max(10.0, confirm_s - 30) * 1000),
        )
        self._make = make
        self._confirm_s = confirm_s
        self.is_paused = False
        self._partitions = partitions
        self._numbers = count()
        self._pending: set[asyncio.Task[None]] = set()
        self.sent: dict[Place, str] = {}
        self.maybe: set[str] = set()

    async def __aenter__(self) -> Load:
        await self._producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        # A broker that a failed test has left dead; the producer would wait for ever.
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await asyncio.gather(*self._pending)
                await self._producer.stop()

    def spread_over(self, partitions: list[Partition]) -> None:
        """Go round these from now on; one that is there several times gets more."""
        self._partitions = partitions

    @asynccontextmanager
    async def flowing(self, per_second: float) -> AsyncIterator[Load]:
        """Produce while the block runs; all is confirmed or given up when it has ended."""
        task = asyncio.create_task(self._flow(per_second), name="load")
        try:
            yield self
            if task.done():
                # It never ends by itself: raises why it did.
                task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await asyncio.gather(*self._pending)

    async def _flow(self, per_second: float) -> None:
        started, produced = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - started) * per_second)
            for _ in range(0 if self.is_paused else due - produced):
                number = next(self._numbers)
                where = self._partitions[number % len(self._partitions)]
                id = f"id-{number}"
                await self._send(where, id, self._make(id, number // len(self._partitions), where))
            produced = due
            await asyncio.sleep(0.01)

    async def send(self, partition: Partition, do: str) -> None:
        """Produce one record and wait for its confirmation."""
        id = f"id-{next(self._numbers)}"
        await self._send(partition, id, Parcel(json.dumps({"id": id, "do": do}).encode()))
        await asyncio.gather(*self._pending)

    async def _send(self, tp: Partition, id: str, parcel: Parcel) -> None:
        topic, partition = tp
        confirmation = await self._producer.send(
            topic, parcel.value, parcel.key, partition=partition, headers=list(parcel.headers)
        )
        task = asyncio.create_task(self._confirm(tp, id, confirmation))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _confirm(self, tp: Partition, id: str, confirmation: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(self._confirm_s):
                written = await confirmation
        except (KafkaError, TimeoutError):
            self.maybe.add(id)
        else:
            self.sent[tp, written.offset] = id

"""Kills the service while notices go out, and judges it by what the remote API has seen.

From the root of a checkout: ``python -m examples.notices.drive --kills 20``.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

import uvicorn
from aiokafka import AIOKafkaProducer, ConsumerRecord

from examples.kills import (
    Checks,
    Service,
    Traffic,
    behind,
    cleaned_up,
    committed,
    create_topics,
    kill_at_random,
    letter_place,
    options,
    read_topic,
    until_done,
)

from .remote import Call, Remote, application

FOLDER = Path(__file__).parent
CUSTOMERS = 12
PER_SECOND = 8.0
# One notice of so many has these moods.
MOODS = {"busy": 90, "away": 15, "hang": 25, "lost": 25, "refuse": 20, "hang, away, lost": 60}
# Each so many notices one customer gets a burst of alarms.
BURST_EACH = 40
BURST = 10

# What reactive-kafka.toml promises to the API.
AT_ONCE = 10
STARTS_PER_SECOND = 3
# A call may arrive later than it was sent.
JITTER = 1
# Calls that were under way when the API got busy may arrive so much later.
UNDER_WAY_S = 0.5


class Notice(NamedTuple):
    """A notice that is in a topic; ``once`` is its place there."""

    once: str
    to: str
    text: str

    @property
    def is_refused(self) -> bool:
        return "refuse" in self.text


class Customers:
    """Notices for customers, some of them in bursts, with moods for the API.

    Attributes:
        notices: What the broker has confirmed, in the order of sending.
        traffic: Sends some of them again and again.
    """

    def __init__(
        self, producer: AIOKafkaProducer, alarms: str, digests: str, draw: random.Random
    ) -> None:
        self._producer = producer
        self._alarms = alarms
        self._digests = digests
        self._draw = draw
        self._number = 0
        self.notices: list[Notice] = []
        self.traffic = Traffic(self._send_some, PER_SECOND, draw)

    async def confirmed(self) -> list[Notice]:
        """Every notice that is in a topic."""
        async with self.traffic.held():
            return list(self.notices)

    async def _send_some(self) -> None:
        customer = f"customer-{self._draw.randrange(CUSTOMERS)}"
        if self._number % BURST_EACH == BURST_EACH - 1:
            for _ in range(BURST):
                await self._send(self._alarms, customer)
        else:
            topic = self._draw.choice((self._alarms, self._alarms, self._digests))
            await self._send(topic, customer)

    async def _send(self, topic: str, customer: str) -> None:
        self._number += 1
        moods = [mood for mood, each in MOODS.items() if self._number % each == each // 2]
        text = f"notice {self._number}" + (f" ({moods[0]})" if moods else "")
        value = json.dumps({"to": customer, "text": text}).encode()
        sent = await self._producer.send_and_wait(topic, value, customer.encode())
        self.notices.append(Notice(f"{topic}/{sent.partition}/{sent.offset}", customer, text))


class Drive:
    """One run: groups, topics, a process and an API of its own."""

    def __init__(self, kafka: str, folder: Path, seed: int, remote: Remote, api: str) -> None:
        run = uuid4().hex[:8]
        self._kafka = kafka
        self._draw = random.Random(seed)
        self._remote = remote
        self._topics = {name: f"{name}-{run}" for name in ("alarms", "digests")}
        self._letters = f"notices-refused-{run}"
        variables = {"REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": kafka, "NOTICES_API": api}
        for name, topic in self._topics.items():
            incoming = f"REACTIVE_KAFKA__INCOMING__{name}__".upper()
            variables[f"{incoming}TOPIC"] = topic
            # The group of a topic is called as the topic.
            variables[f"{incoming}GROUP_ID"] = topic
            variables[f"{incoming}DEAD_LETTER_QUEUE__TOPIC"] = self._letters
        self._service = Service("notices:app", FOLDER, variables, folder / "service.log")
        self._checks = Checks()
        self._ahead: list[str] = []
        self._killed_at: list[float] = []

    async def run(self, kills: int) -> int:
        """Play it and judge it. Returns the exit code."""
        await create_topics(self._kafka, [*self._topics.values(), self._letters])
        with cleaned_up([self._service]):
            async with AIOKafkaProducer(bootstrap_servers=self._kafka) as producer:
                customers = Customers(producer, **self._topics, draw=self._draw)
                await self._play(customers, kills)
        await self._judge(customers.notices, kills)
        return self._checks.told()

    async def _play(self, customers: Customers, kills: int) -> None:
        sending = asyncio.create_task(customers.traffic.keep_sending())

        async def handled() -> int:
            return len(self._remote.delivered)

        async def look() -> None:
            self._killed_at.append(asyncio.get_running_loop().time())
            await self._look(customers)

        async def is_done() -> bool:
            refused = sum(notice.is_refused for notice in customers.notices)
            if len(self._remote.delivered) < len(customers.notices) - refused:
                return False
            return len(await self._letter_places()) >= refused

        self._service.start()
        await kill_at_random([self._service], kills, self._draw, handled, look)
        customers.traffic.is_over = True
        await sending
        await until_done(is_done, handled)
        code = await self._service.stop()
        self._checks.check("the process stops when it is asked to", filter(None, [code]))

    async def _look(self, customers: Customers) -> None:
        """Compare the positions with what has been done, just after a kill."""
        positions = await self._positions()
        letters = await self._letter_places()
        for notice in await customers.confirmed():
            topic, partition, offset = notice.once.split("/")
            is_done = notice.once in self._remote.delivered or notice.once in letters
            if int(offset) < positions.get((topic, int(partition)), 0) and not is_done:
                self._ahead.append(notice.once)

    async def _judge(self, notices: list[Notice], kills: int) -> None:
        check, remote = self._checks.check, self._remote
        good = {notice.once: notice.text for notice in notices if not notice.is_refused}
        refused = {notice.once for notice in notices if notice.is_refused}
        calls = len(remote.calls)
        check(f"after each of {kills} kills no position was ahead of the work", self._ahead)
        check(
            f"{len(good)} of {len(notices)} notices were delivered, each once, in {calls} calls",
            good.items() ^ remote.delivered.items(),
        )
        check("each customer got them in order", self._out_of_order(notices))
        letters = await self._letter_places()
        check(f"{len(refused)} refused notices are dead letters", refused ^ letters)
        lives = self._lives()
        starts = [one for life in lives for one in self._starts(life).items()]
        most = max(_most_in_a_second(times) for _, times in starts)
        check(
            f"a customer's alarms kept to {STARTS_PER_SECOND}/s, at most {most} in a second",
            [customer for customer, times in starts if too_fast(times)],
        )
        check(
            f"at most {remote.most_at_once} calls were open at once",
            [remote.most_at_once] if remote.most_at_once > AT_ONCE else [],
        )
        answers = sum(call.status == 429 for call in remote.calls)
        check(
            f"no channel called a busy API before its time: {answers} calls were told to wait",
            [call for life in lives for call in impatient(life)],
        )
        check("the lag is 0", behind(await self._positions(), self._ends(notices)))

    async def _positions(self) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for group in self._topics.values():
            found |= await committed(self._kafka, group)
        return found

    async def _letter_places(self) -> set[str]:
        return {_place(letter) for letter in await read_topic(self._kafka, self._letters)}

    def _ends(self, notices: list[Notice]) -> dict[tuple[str, int], int]:
        ends = {}
        for notice in notices:
            topic, partition, offset = notice.once.split("/")
            ends[topic, int(partition)] = int(offset) + 1
        return ends

    def _out_of_order(self, notices: list[Notice]) -> Iterator[str]:
        customer = {notice.once: notice.to for notice in notices}
        last: dict[tuple[str, str], int] = {}
        for once in self._remote.delivered:
            topic, _, offset = once.split("/")
            line = topic, customer[once]
            if int(offset) < last.get(line, -1):
                yield once
            last[line] = int(offset)

    def _lives(self) -> list[list[Call]]:
        """The calls of each process."""
        bounds = [-inf, *self._killed_at, inf]
        return [
            [call for call in self._remote.calls if start <= call.began < end]
            for start, end in pairwise(bounds)
        ]

    def _starts(self, life: list[Call]) -> dict[str, list[float]]:
        """Customer -> when each of its alarms was sent first by a process."""
        first: dict[str, Call] = {}
        for call in life:
            if call.once.startswith(self._topics["alarms"]):
                first.setdefault(call.once, call)
        starts = defaultdict(list)
        for call in first.values():
            starts[call.to].append(call.began)
        return starts


def too_fast(starts: Iterable[float]) -> bool:
    """Whether more alarms of a customer started within some time than the rate allows."""
    return any(
        len(some) > STARTS_PER_SECOND * (some[-1] - some[0]) + STARTS_PER_SECOND + JITTER
        for some in _runs(list(starts))
    )


def _most_in_a_second(starts: Iterable[float]) -> int:
    return max((len(some) for some in _runs(list(starts)) if some[-1] - some[0] < 1), default=0)


def _runs(starts: list[float]) -> Iterator[list[float]]:
    """Every part of a list without gaps."""
    for first in range(len(starts)):
        for end in range(first + 1, len(starts) + 1):
            yield starts[first:end]


def impatient(life: list[Call]) -> list[Call]:
    """Calls of a channel that had been told to wait for longer."""
    told = [call for call in life if call.retry_after_s is not None]
    return [call for call in life if any(_is_too_early(call, one) for one in told)]


def _is_too_early(call: Call, told: Call) -> bool:
    if call.topic != told.topic or told.ended is None or told.retry_after_s is None:
        return False
    return UNDER_WAY_S < call.began - told.ended < told.retry_after_s


def _place(letter: ConsumerRecord) -> str:
    return "/".join(map(str, letter_place(letter)))


@asynccontextmanager
async def serving(remote: Remote) -> AsyncIterator[str]:
    """The API on a port of the loopback. Yields its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application(remote), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await task


async def main(arguments: list[str]) -> int:
    chosen = options(__doc__).parse_args(arguments)
    remote = Remote()
    with TemporaryDirectory(prefix="notices-") as folder:
        async with serving(remote) as api:
            drive = Drive(chosen.kafka, Path(folder), chosen.seed, remote, api)
            print(f"{chosen.kills} kills of a process, seed {chosen.seed}", flush=True)
            return await drive.run(chosen.kills)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))

"""Exactly once between two topics while members, a broker and a frozen process fail; judged by a
plain aiokafka.

``python -m tests.faults.exactly_once --records 100000 --kills 20`` plays it on three nodes of its
own and prints what happened; ``--at-least-once`` leaves ``transactional_id`` out, and must find
repeats. ``--seed 123`` draws again what another run drew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord

from tests.faults.driver import Life, Member, create_topics, free_port, until
from tests.faults.history import Partition
from tests.faults.observer import Observer
from tests.harness.kafka import KafkaCluster

SERVICE = "tests.faults.exactly_once_service"
PARTITIONS = 8
READ_S = 60.0
# What is open for so long is a dead or frozen process's transaction; others take a few ms.
STUCK_S = 0.6
MOST_FREEZES = 40
CLUSTER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
"""How often brokers look for transactions whose time is over; 10 s by default."""

CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"

[incoming.orders]
topic = "{orders}"
group_id = "{orders}"
auto_offset_reset = "earliest"
commit_interval = "5s"
batch_max_records = 200
batch_max_wait = "50ms"
concurrency = 4
drain_timeout = "15s"
"session.timeout.ms" = {session_ms}
"heartbeat.interval.ms" = 500

[outgoing.results]
topic = "{results}"
{transactional_id}

[http]
port = {port}
"""


class Plan(NamedTuple):
    """What is played.

    Attributes:
        kills: SIGKILLs of members, in turns.
        transactional: With ``transactional_id``; the one line that differs.
        freezes: How often a member is frozen in the middle of a transaction, until another one has
            gone past it.
        outage: The node that coordinates the group is killed, and started again.
    """

    records: int
    kills: int
    seed: int
    transactional: bool = True
    freezes: int = 1
    outage: bool = True
    session_ms: int = 3000


class Written(NamedTuple):
    """A result as it stands in its topic."""

    place: Partition
    offset: int
    id: str
    by: str


class Frozen(NamedTuple):
    """A process that was frozen in a transaction, and woke up when others had gone past it.

    Attributes:
        first: The first result of its transaction.
        tries: How often it was frozen until that hit a transaction.
        told: What it logged from then on.
    """

    first: Written
    tries: int
    told: str


@dataclass
class Outcome:
    """What a run left behind.

    Attributes:
        lost: Ids of orders that no reader of committed results sees.
        repeated: id -> how often such a reader sees it, where that is more than once.
        unknown: Results that belong to no order.
        aborted: process -> how many of its results only a reader of everything sees.
        behind: partition -> committed position and end, where they differ.
        frozen: The processes that were frozen.
        instead: id -> who made its committed results, for the first result of each frozen
            transaction.
    """

    plan: Plan
    seconds: float
    killed: list[str]
    lost: set[str]
    repeated: dict[str, int]
    unknown: set[str]
    aborted: Counter[str]
    behind: dict[Partition, tuple[int, int]]
    outages: list[int]
    frozen: list[Frozen]
    instead: dict[str, list[str]]

    @property
    def is_exact(self) -> bool:
        """Every order has one result, and the group knows that."""
        return not (self.lost or self.repeated or self.unknown or self.behind)

    @property
    def cut_off(self) -> int:
        """Kills that left a transaction open."""
        return sum(
            self.aborted[name] > 0
            for name in {*self.killed} - {one.first.by for one in self.frozen}
        )

    def __str__(self) -> str:
        kind = "exactly once" if self.plan.transactional else "at least once"
        again = sum(self.repeated.values()) - len(self.repeated)
        text = (
            f"{kind}, seed {self.plan.seed}: {self.plan.records} records, {len(self.killed)} kills ({self.cut_off} cut "
            f"a transaction off), {len(self.outages)} outages of the coordinator, {self.seconds:.0f} s; "
            f"{len(self.lost)} lost, {again} duplicates, {len(self.unknown)} unknown, {len(self.behind)} positions not "
            f"at their end; {sum(self.aborted.values())} results of {len(self.aborted)} lives were aborted"
        )
        for first, tries, _ in self.frozen:
            text += (
                f"\n{first.by} was frozen in a transaction (try {tries}); {self.aborted[first.by]} of its results were "
                f"aborted; the one of {first.id} is by {self.instead[first.id]}"
            )
        return text


@dataclass
class Stage:
    """A run under way."""

    cluster: KafkaCluster
    plan: Plan
    run: str
    chance: random.Random
    producer: AIOKafkaProducer
    observer: Observer
    members: list[Member] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    outages: list[int] = field(default_factory=list)
    frozen: list[Frozen] = field(default_factory=list)
    sent: int = 0

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def orders(self) -> list[Partition]:
        return partitions_of(f"orders-{self.run}")

    @property
    def results(self) -> list[Partition]:
        return partitions_of(f"results-{self.run}")

    def member(self, name: str, folder: Path) -> Member:
        """A service, not started yet."""
        port = free_port()
        config = CONFIG.format(
            bootstrap=self.bootstrap,
            orders=f"orders-{self.run}",
            results=f"results-{self.run}",
            session_ms=self.plan.session_ms,
            transactional_id='transactional_id = "pricing"' if self.plan.transactional else "",
            port=port,
        )
        made = Member(name, folder, config, port, SERVICE)
        self.members.append(made)
        return made

    @property
    def share(self) -> int:
        """How many orders are sent for each of the things that happen, and after the last of
        them.
        """
        return self.plan.records // (self.plan.kills + self.plan.freezes + self.plan.outage + 1)

    async def send(self, count: int) -> None:
        """Send so many orders more, as far as the plan has them."""
        upcoming = range(self.sent, min(self.sent + count, self.plan.records))
        self.sent = upcoming.stop
        for start in range(upcoming.start, upcoming.stop, 1000):
            confirmations = [
                await self.producer.send(
                    self.orders[0][0],
                    json.dumps({"id": f"id-{n}"}).encode(),
                    partition=n % PARTITIONS,
                )
                for n in range(start, min(start + 1000, upcoming.stop))
            ]
            await asyncio.gather(*confirmations)

    async def work(self, count: int, *lives: Life, kind: str = "begin") -> None:
        """Send so many orders, and wait until each of these processes has begun, or ended, a batch
        since.
        """
        for life in lives:
            await life.ready(60)
        before = {life: life.count(kind) for life in lives}
        await self.send(count)
        now = time.monotonic()
        give_up, more_at = now + 60, now + 1
        while idle := [life for life in lives if life.count(kind) == before[life]]:
            assert time.monotonic() < give_up, f"{idle[0].name} has no work: {idle[0].tail()}"
            # Another member may have had the partitions, and done it all.
            if time.monotonic() > more_at:
                await self.send(10 * PARTITIONS)
                more_at = time.monotonic() + 1
            # Transactions take some ms, so this looks more often than until() does.
            await asyncio.sleep(0.001)

    async def in_a_transaction(self, count: int, life: Life) -> None:
        """Send so many orders, and wait until a process writes what it made of some; probably."""
        await self.work(count, life, kind="end")
        await asyncio.sleep(self.chance.uniform(0, 0.03))

    async def kill(self, one: Member) -> None:
        """Kill a member and start it again.

        The first one comes in an open transaction, where there are any. Of the others two of three
        come when a handler has returned, which is when its transaction is under way unless this
        machine is busy; the rest whatever it does just then, starting and joining too.
        """
        life = one.life
        if not self.killed and self.plan.transactional:
            await self.freeze(life)
        elif len(self.killed) % 3 < 2:
            await self.in_a_transaction(self.share, life)
        else:
            await self.send(self.share)
            await asyncio.sleep(self.chance.uniform(0, 2.5))
        life.send(signal.SIGKILL)
        assert await life.exited(5) == -signal.SIGKILL
        self.killed.append(life.name)
        one.start()

    async def lose_the_coordinator(self) -> None:
        """Kill the node that coordinates the group, and start it again when the group goes on
        without it.
        """
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            node = await admin.find_coordinator(f"orders-{self.run}")
        finally:
            await admin.close()
        self.outages.append(node)
        await asyncio.to_thread(self.cluster.kill, node)
        await self.work(self.share, *(one.life for one in self.members))
        await asyncio.to_thread(self.cluster.start_node, node)

    async def freeze(self, life: Life) -> tuple[Written, int]:
        """Freeze a process until that hits an open transaction, by the broker's own view.

        Returns the first result of the transaction, and how often it took.
        """
        for number in range(1, MOST_FREEZES + 1):
            await self.in_a_transaction(self.share // MOST_FREEZES, life)
            life.send(signal.SIGSTOP)
            found = await self._open_of(life)
            if found is not None:
                return found, number
            life.send(signal.SIGCONT)
        raise AssertionError(
            f"{life.name} was frozen {MOST_FREEZES} times and never in a transaction: {life.tail()}"
        )

    async def _open_of(self, life: Life) -> Written | None:
        """The result of that process with which a transaction that stays open has begun."""
        first = await self._first_open()
        if first is None or first.by != life.name:
            return None
        # Its end may have been on its way.
        await asyncio.sleep(STUCK_S)
        return first if await self._first_open() == first else None

    async def _first_open(self) -> Written | None:
        """The first result of one of the open transactions."""
        for place, offset in (await self._open()).items():
            return await self._at(place, offset)
        return None

    async def _open(self) -> dict[Partition, int]:
        """partition -> where its first open transaction begins."""
        stable, ends = (
            await ends_of(self.bootstrap, self.results, "read_committed"),
            await self._ends(),
        )
        return {place: offset for place, offset in stable.items() if offset < ends[place]}

    async def _ends(self) -> dict[Partition, int]:
        return await ends_of(self.bootstrap, self.results, "read_uncommitted")

    async def _at(self, place: Partition, offset: int) -> Written:
        async with reader(self.bootstrap, "read_uncommitted") as consumer:
            consumer.assign([TopicPartition(*place)])
            consumer.seek(TopicPartition(*place), offset)
            return written(await asyncio.wait_for(consumer.getone(), READ_S))

    async def wake_up_late(self, life: Life) -> None:
        """Freeze a process in a transaction until another one has gone past it; it is told so when
        it wakes up.
        """
        await life.ready(60)
        await self.caught_up()
        async with asyncio.timeout(30):
            # Of a killed process: it would hide those behind it.
            while await self._open():  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        first, tries = await self.freeze(life)
        at, before = time.time(), len(life.log.read_text(errors="replace"))
        await self.send(50 * PARTITIONS)
        await self.caught_up()
        life.send(signal.SIGCONT)
        await until(
            lambda: any(event.kind == "revoked" and event.t > at for event in life.events),
            30,
            f"{life.name} hears that its partitions are lost",
            life.tail,
        )
        await life.ready(60)
        self.frozen.append(Frozen(first, tries, life.log.read_text(errors="replace")[before:]))

    async def caught_up(self) -> None:
        """Wait until the group has stored that every order is done."""
        ends = await ends_of(self.bootstrap, self.orders, "read_uncommitted")
        await until(
            lambda: all(self.observer.committed(tp) >= end for tp, end in ends.items() if end),
            120,
            f"all is committed up to {ends}",
            lambda: f"{self.observer.latest}: {[one.life.tail() for one in self.members]}",
        )

    async def finish(self) -> None:
        """Wait until everything is done, and stop the members."""
        await self.caught_up()
        for one in self.members:
            one.life.send(signal.SIGTERM)
        for one in self.members:
            assert await one.life.exited(30) == 0, one.life.tail()


async def play(cluster: KafkaCluster, folder: Path, plan: Plan) -> Outcome:
    """Play a plan on a running cluster of three nodes."""
    began = time.monotonic()
    async with staged(cluster, folder, plan) as stage:
        members = [stage.member(name, folder) for name in ("left", "right")]
        for one in members:
            one.start()
        for one in members:
            await one.life.ready(60)
        acts = ["kill"] * plan.kills + ["outage"] * plan.outage + ["freeze"] * plan.freezes
        stage.chance.shuffle(acts)
        for act in acts:
            victim = members[len(stage.killed) % 2]
            if act == "kill":
                await stage.kill(victim)
            elif act == "outage":
                await stage.lose_the_coordinator()
            else:
                await stage.wake_up_late(victim.life)
        await stage.send(plan.records)
        await stage.finish()
        return await judged(stage, time.monotonic() - began)


async def judged(stage: Stage, seconds: float) -> Outcome:
    """Compare what the topics hold with what was sent."""
    wanted = {f"id-{n}" for n in range(stage.plan.records)}
    committed = await read(stage.bootstrap, stage.results, "read_committed")
    everything = await read(stage.bootstrap, stage.results, "read_uncommitted")
    seen = Counter(one.id for one in committed)
    ends = await ends_of(stage.bootstrap, stage.orders, "read_uncommitted")
    assert sum(ends.values()) == stage.plan.records, f"{ends}: orders themselves are there twice"
    positions = {tp: stage.observer.committed(tp) for tp in ends}
    return Outcome(
        plan=stage.plan,
        seconds=seconds,
        killed=stage.killed,
        lost=wanted - seen.keys(),
        repeated={id: times for id, times in seen.items() if times > 1},
        unknown=seen.keys() - wanted,
        aborted=Counter(one.by for one in set(everything) - set(committed)),
        behind={tp: (positions[tp], end) for tp, end in ends.items() if positions[tp] != end},
        outages=stage.outages,
        frozen=stage.frozen,
        instead={
            frozen.first.id: [one.by for one in committed if one.id == frozen.first.id]
            for frozen in stage.frozen
        },
    )


def partitions_of(topic: str) -> list[Partition]:
    return [(topic, number) for number in range(PARTITIONS)]


@asynccontextmanager
async def reader(bootstrap: str, isolation: str) -> AsyncIterator[AIOKafkaConsumer]:
    """aiokafka's own consumer, without a group."""
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        yield consumer


async def ends_of(
    bootstrap: str, places: Iterable[Partition], isolation: str
) -> dict[Partition, int]:
    """partition -> where such a reader comes to its end: with ``read_committed`` at the first open
    transaction.
    """
    async with reader(bootstrap, isolation) as consumer:
        return {
            tuple(tp): end
            for tp, end in (
                await consumer.end_offsets([TopicPartition(*p) for p in places])
            ).items()
        }


async def read(bootstrap: str, places: Iterable[Partition], isolation: str) -> list[Written]:
    """All results that such a reader sees, up to where logs end for a reader of everything."""
    ends = await ends_of(bootstrap, places, "read_uncommitted")
    found: list[Written] = []
    async with reader(bootstrap, isolation) as consumer, asyncio.timeout(READ_S):
        consumer.assign([TopicPartition(*place) for place in places])
        while any(
            [await consumer.position(TopicPartition(*place)) < end for place, end in ends.items()]
        ):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += map(written, records)
    return found


def written(record: ConsumerRecord) -> Written:
    value = json.loads(record.value)
    return Written((record.topic, record.partition), record.offset, value["id"], value["by"])


@asynccontextmanager
async def staged(cluster: KafkaCluster, folder: Path, plan: Plan) -> AsyncIterator[Stage]:
    """New topics, whose group is observed; its processes do not outlive the block."""
    run, bootstrap = uuid4().hex[:8], cluster.bootstrap_servers
    safe: Mapping[str, str] = {"min.insync.replicas": "2"}
    names = [f"orders-{run}", f"results-{run}"]
    await create_topics(
        bootstrap, [NewTopic(name, PARTITIONS, 3, topic_configs=safe) for name in names]
    )
    observer = Observer(bootstrap, names[0], partitions_of(names[0]), every_s=0.3)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(producer)
        await stack.enter_async_context(observer.watching())
        stage = Stage(cluster, plan, run, random.Random(plan.seed), producer, observer)
        try:
            yield stage
        finally:
            for one in stage.members:
                for life in one.lives:
                    life.end()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--freezes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--no-outage", action="store_true")
    parser.add_argument("--at-least-once", action="store_true")
    options = parser.parse_args()
    once = not options.at_least_once
    plan = Plan(
        options.records,
        options.kills,
        options.seed,
        transactional=once,
        freezes=options.freezes * once,
        outage=not options.no_outage,
    )
    with TemporaryDirectory() as folder, KafkaCluster(3, properties=CLUSTER) as cluster:
        outcome = asyncio.run(play(cluster, Path(folder), plan))
    print(outcome)
    return 0 if outcome.is_exact == once and not outcome.lost else 1


if __name__ == "__main__":
    sys.exit(main())

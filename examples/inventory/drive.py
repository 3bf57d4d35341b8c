"""Kills the inventory while hosts report, and judges it by its database and its topics.

From the root of a checkout: ``python -m examples.inventory.drive --kills 20``.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.partitioner import murmur2
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.kills import (
    PARTITIONS,
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
    until,
    until_done,
)

FOLDER = Path(__file__).parent
PROCESSES = 2
HOSTS = 40
PER_SECOND = 40.0
SERVED = ("acme", "globex")
UNREADABLE = (b"{", b'{"name": "no-cores", "os": "linux", "cores": 0}')
# Positions and rows in one statement, so that both are of one moment.
SNAPSHOT = text(
    'SELECT CAST("partition" AS TEXT), NULL, NULL, position, NULL FROM reactive_kafka_checkpoints'
    " UNION ALL SELECT id, name, os, cores, reports FROM hosts"
)
OUTBOX = text("SELECT count(*) FROM reactive_kafka_outbox")

Row = tuple[str, str, int, int]


class Report(NamedTuple):
    """What a host has sent: ``facts`` are name, os and cores, or None for a tombstone."""

    partition: int
    offset: int
    host: str
    facts: tuple[str, str, int] | None
    is_served: bool
    is_readable: bool


@dataclass
class Expected:
    """What the reports up to some positions come to."""

    rows: dict[str, Row] = field(default_factory=dict)
    # host -> what has happened to it, in order
    changes: dict[str, list[str]] = field(default_factory=dict)

    def add(self, report: Report) -> None:
        if not (report.is_served and report.is_readable):
            return
        before = self.rows.pop(report.host, None)
        changes = self.changes.setdefault(report.host, [])
        if report.facts is None:
            if before is not None:
                changes.append("deleted")
            return
        reports = 1 if before is None else before[3] + 1
        self.rows[report.host] = (*report.facts, reports)
        if before is None:
            changes.append("created")
        elif before[:3] != report.facts:
            changes.append("updated")


def expected(reports: Iterable[Report], positions: dict[int, int] | None = None) -> Expected:
    """What must have come of the reports before these positions, or of all."""
    found = Expected()
    for report in reports:
        if positions is None or report.offset < positions.get(report.partition, 0):
            found.add(report)
    return found


class Hosts:
    """Hosts that report, with repeats, deletions, nonsense, and hosts of other tenants.

    Attributes:
        reports: What the broker has confirmed.
        traffic: Has a host report again and again.
    """

    def __init__(self, producer: AIOKafkaProducer, topic: str, draw: random.Random) -> None:
        self._producer = producer
        self._topic = topic
        self._draw = draw
        self._last: dict[str, tuple[str, str, int]] = {}
        self.reports: list[Report] = []
        self.traffic = Traffic(self._report, PER_SECOND, draw)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Topic and partition -> the offset behind the last report."""
        return {(self._topic, one.partition): one.offset + 1 for one in self.reports}

    async def confirmed(self) -> list[Report]:
        """Every report that is in the topic."""
        async with self.traffic.held():
            return list(self.reports)

    async def _report(self) -> None:
        draw = self._draw
        number = draw.randrange(HOSTS)
        host = f"host-{number}"
        # Each tenth host belongs to a tenant that is not served.
        tenant = "initech" if number % 10 == 9 else SERVED[number % 2]
        facts = self._last.get(host)
        luck = draw.random()
        is_readable = luck >= 0.05
        value = None
        if not is_readable:
            value = draw.choice(UNREADABLE)
        elif luck < 0.15:
            facts = None
            self._last.pop(host, None)
        else:
            if facts is None or luck < 0.6:
                facts = (f"web-{number}", draw.choice(("linux", "bsd")), draw.randint(1, 64))
            self._last[host] = facts
            value = json.dumps(dict(zip(("name", "os", "cores"), facts, strict=True))).encode()
        sent = await self._producer.send_and_wait(
            self._topic, value, host.encode(), headers=[("tenant", tenant.encode())]
        )
        self.reports.append(
            Report(sent.partition, sent.offset, host, facts, tenant in SERVED, is_readable)
        )


class Database:
    """The service's database, as seen by somebody else."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def is_ready(self) -> bool:
        """Whether the service has made its tables."""
        try:
            await self.snapshot()
            await self.waiting()
        except DBAPIError:
            return False
        return True

    async def snapshot(self) -> tuple[dict[int, int], dict[str, Row]]:
        """Positions and rows of one moment."""
        positions: dict[int, int] = {}
        rows: dict[str, Row] = {}
        async with self._engine.begin() as connection:
            for key, name, os, number, reports in await connection.execute(SNAPSHOT):
                if name is None:
                    positions[int(key)] = number or 0
                else:
                    rows[key] = (name, os, number, reports)
        return positions, rows

    async def waiting(self) -> int:
        """How many events wait to be sent."""
        async with self._engine.begin() as connection:
            return int((await connection.execute(OUTBOX)).scalar_one())

    async def close(self) -> None:
        """Close its connections."""
        await self._engine.dispose()

    async def handled(self) -> int:
        """How many reports the service is done with."""
        positions, _ = await self.snapshot()
        return sum(positions.values())


class Drive:
    """One run: a group, topics and processes of its own."""

    def __init__(self, kafka: str, database_url: str, folder: Path, seed: int) -> None:
        run = uuid4().hex[:8]
        self._kafka = kafka
        self._draw = random.Random(seed)
        self._group = f"inventory-{run}"
        self._topic = f"hosts-{run}"
        self._events = f"host-events-{run}"
        self._letters = f"hosts-refused-{run}"
        # SQLite waits so long for the lock, asyncpg for a connection.
        engine = create_async_engine(database_url, connect_args={"timeout": 60})
        self.database = Database(engine)
        incoming = "REACTIVE_KAFKA__INCOMING__HOSTS__"
        variables = {
            "DATABASE": database_url,
            "REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": kafka,
            f"{incoming}GROUP_ID": self._group,
            f"{incoming}TOPIC": self._topic,
            f"{incoming}DEAD_LETTER_QUEUE__TOPIC": self._letters,
            f"{incoming}CHECKPOINT__KAFKA_COMMIT_INTERVAL": "1s",
            "REACTIVE_KAFKA__OUTGOING__EVENTS__TOPIC": self._events,
        }
        self._services = [
            Service("inventory:app", FOLDER, variables, folder / f"service-{number}.log")
            for number in range(PROCESSES)
        ]
        self._checks = Checks()
        self._half_done: list[str] = []
        self._ahead: list[str] = []

    async def run(self, kills: int) -> int:
        """Play it and judge it. Returns the exit code."""
        if await self.database.is_ready() and await self.database.handled():
            raise SystemExit("the driver needs an empty database")
        await create_topics(self._kafka, [self._topic, self._events, self._letters])
        with cleaned_up(self._services):
            async with AIOKafkaProducer(bootstrap_servers=self._kafka) as producer:
                hosts = Hosts(producer, self._topic, self._draw)
                await self._play(hosts, kills)
        await self._judge(hosts, kills)
        return self._checks.told()

    async def _play(self, hosts: Hosts, kills: int) -> None:
        reporting = asyncio.create_task(hosts.traffic.keep_sending())

        async def look() -> None:
            await self._look(hosts)

        async def is_done() -> bool:
            positions, _ = await self.database.snapshot()
            stored = {(self._topic, partition): end for partition, end in positions.items()}
            return not behind(stored, hosts.ends) and not await self.database.waiting()

        # The first one makes the tables.
        for service in self._services:
            service.start()
            await until(self.database.is_ready, "the service has made its tables")
        await kill_at_random(self._services, kills, self._draw, self.database.handled, look)
        hosts.traffic.is_over = True
        await reporting
        await until_done(is_done, self.database.handled)
        codes = [await service.stop() for service in self._services]
        self._checks.check("the processes stop when they are asked to", filter(None, codes))

    async def _look(self, hosts: Hosts) -> None:
        """Compare rows with positions, just after a kill."""
        in_kafka = await committed(self._kafka, self._group)
        positions, rows = await self.database.snapshot()
        reports = await hosts.confirmed()
        self._half_done += _differences(rows, expected(reports, positions).rows)
        self._ahead += [
            f"partition {partition}: {position} in Kafka, {positions.get(partition, 0)} stored"
            for (_, partition), position in in_kafka.items()
            if position > positions.get(partition, 0)
        ]

    async def _judge(self, hosts: Hosts, kills: int) -> None:
        check = self._checks.check
        reports = hosts.reports
        all_of_it = expected(reports)
        _, rows = await self.database.snapshot()
        check(f"after each of {kills} kills rows and positions fit together", self._half_done)
        check("no position in Kafka was ahead of the database", self._ahead)
        check(
            f"{len(rows)} rows say what the last of {len(reports)} reports say",
            _differences(rows, all_of_it.rows),
        )
        self._judge_events(await read_topic(self._kafka, self._events), all_of_it)
        unreadable = {
            (one.partition, one.offset) for one in reports if one.is_served and not one.is_readable
        }
        letters = await read_topic(self._kafka, self._letters)
        places = {letter_place(letter)[1:] for letter in letters}
        check(f"{len(unreadable)} unreadable reports are dead letters", unreadable ^ places)
        check("the lag is 0", behind(await committed(self._kafka, self._group), hosts.ends))

    def _judge_events(self, events: list[ConsumerRecord], all_of_it: Expected) -> None:
        check = self._checks.check
        changes: dict[str, list[str]] = {}
        seen = set[bytes]()
        for event in events:
            event_id = dict(event.headers)["reactive-kafka-event-id"]
            if event_id not in seen:
                seen.add(event_id)
                what = json.loads(event.value)
                changes.setdefault(what["host"], []).append(what["change"])
        wanted = {host: found for host, found in all_of_it.changes.items() if found}
        total = Counter(change for found in wanted.values() for change in found)
        shown = ", ".join(f"{number} {change}" for change, number in sorted(total.items()))
        check(f"each change has its event, in order: {shown}", _differences(changes, wanted))
        check(
            f"{len(events) - len(seen)} of {len(events)} events were sent again, with the same id",
            [len(seen)] if len(seen) != total.total() else [],
        )
        check(
            "keys are where Java's producers put them",
            [event.key for event in events if event.partition != _partition_of(event.key)],
        )


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return [
        f"{key}: {found.get(key)} instead of {wanted.get(key)}"
        for key in sorted({*found, *wanted})
        if found.get(key) != wanted.get(key)
    ]


def _partition_of(key: bytes) -> int:
    return int((murmur2(key) & 0x7FFFFFFF) % PARTITIONS)


async def main(arguments: list[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--database", help="URL of an empty database; default: a file of SQLite")
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="inventory-") as folder:
        database = chosen.database or f"sqlite+aiosqlite:///{folder}/inventory.db"
        drive = Drive(chosen.kafka, database, Path(folder), chosen.seed)
        print(f"{chosen.kills} kills of {PROCESSES} processes, seed {chosen.seed}", flush=True)
        try:
            return await drive.run(chosen.kills)
        finally:
            await drive.database.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))

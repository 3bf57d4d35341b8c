"""An outbox in PostgreSQL whose processes are killed: rows and events are the same set."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import aiokafka
import psycopg
import pytest
from aiokafka.admin import NewTopic

from tests.checkpoint.servers import postgres_server as postgres_server
from tests.checkpoint.servers import sql_url
from tests.faults.driver import create_topics, until
from tests.faults.outbox_service import TABLE
from tests.harness.postgres import Postgres

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

PARTITIONS = 4
ORDERS = 1500
SERVICE = "tests.faults.outbox_service"
CONFIG = """
[kafka]
bootstrap_servers = "{bootstrap}"
auto_offset_reset = "earliest"
"session.timeout.ms" = 1500
"heartbeat.interval.ms" = 300
[incoming.orders]
topic = "orders-{name}"
group_id = "{name}"
commit_strategy = "checkpoint"
concurrency = 4
[incoming.orders.checkpoint]
store = "{store}"
[outgoing.events]
topic = "events-{name}"
outbox = true
[http]
enabled = false
"""


class Written(NamedTuple):
    """One event in the topic."""

    event_id: str
    row: str
    kind: str
    place: tuple[int, int]


@pytest.fixture
def chance() -> random.Random:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    return random.Random(seed)


async def read_events(bootstrap: str, topic: str) -> list[Written]:
    """What is in the topic, partition by partition."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        found = []
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                for record in (await consumer.getmany(partition, timeout_ms=1000)).get(
                    partition, []
                ):
                    row = json.loads(record.value)
                    event_id = dict(record.headers)["reactive-kafka-event-id"].decode()
                    place = row["partition"], row["offset"]
                    found.append(Written(event_id, row["id"], row["kind"], place))
    finally:
        await consumer.stop()
    return found


def start(config: Path) -> subprocess.Popen[bytes]:
    with (config.parent / "service.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", SERVICE, str(config)], stdout=log, stderr=log
        )


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long_faults)])
async def test_rows_and_events_are_the_same_set_whenever_a_process_is_killed(
    kafka: str, postgres_server: Postgres, tmp_path: Path, chance: random.Random, kills: int
) -> None:
    """Row G8 of the faults."""
    name = uuid.uuid4().hex[:8]
    config = tmp_path / "service.toml"
    store = sql_url(postgres_server, "asyncpg")
    config.write_text(CONFIG.format(bootstrap=kafka, name=name, store=store))
    await create_topics(
        kafka, [NewTopic(f"orders-{name}", PARTITIONS, 1), NewTopic(f"events-{name}", 2, 1)]
    )
    with psycopg.connect(postgres_server.dsn, autocommit=True) as database:
        database.execute(TABLE)

        def count(table: str) -> int:
            ((found,),) = database.execute(f"SELECT count(*) FROM {table}").fetchall()
            return int(found)

        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for number in range(ORDERS):
                await producer.send(f"orders-{name}", b"%d" % number, partition=number % PARTITIONS)
        running = [start(config), start(config)]
        try:
            for number in range(kills):
                enough = min(count("booked") + 30, ORDERS)
                await until(
                    lambda enough=enough: count("booked") >= enough,  # type: ignore[misc]
                    60,
                    "orders are booked",
                    lambda: (tmp_path / "service.log").read_text()[-3000:],
                )
                await asyncio.sleep(chance.uniform(0, 0.3))
                which = number % 2
                running[which].send_signal(signal.SIGKILL)
                running[which].wait(10)
                running[which] = start(config)
            await until(lambda: count("booked") >= ORDERS, 90, "all orders are booked")
            await until(lambda: count("reactive_kafka_outbox") == 0, 60, "the outbox is empty")
        finally:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait(30)
        rows = database.execute('SELECT id, "partition", "offset" FROM booked').fetchall()
    events = await read_events(kafka, f"events-{name}")
    assert len(rows) == ORDERS
    assert {(row, kind) for row, _, _ in rows for kind in ("sent", "returned")} == {
        (event.row, event.kind) for event in events
    }
    by_id = {event.event_id: event for event in events}
    assert len(by_id) == 2 * ORDERS
    print(f"{len(events) - len(by_id)} events were sent again")
    # Those that are new to a reader come in the order of the orders.
    seen = set[str]()
    last: dict[int, tuple[int, bool]] = {}
    for event in events:
        if event.event_id not in seen:
            seen.add(event.event_id)
            partition, offset = event.place
            at = offset, event.kind == "returned"
            assert last.get(partition, (-1, False)) < at
            last[partition] = at

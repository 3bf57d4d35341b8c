"""A sample of the outages of tests/app/test_outages.py on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from sqlalchemy import text

from reactive_kafka import App, Message
from tests.faults.driver import create_topic, until
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

TOLD_S = 5.0
HEALED_S = 10.0
RECORDS = 40
HANDLED_S = 0.2
VALUES = {b"%d" % number for number in range(RECORDS)}

OUTPUTS = {
    "outputs": "invoices",
    "emits": "emitted",
    "blocks": "from-threads",
    "letters": "dead-letter-topic-letters",
    "exact": "exactly",
}
"""Incoming channel -> the topic that its records lead to."""
INPUTS = (*OUTPUTS, "stored")


class Limits(NamedTuple):
    """An outage, and the limits that are shorter than it.

    Attributes:
        incoming: More keys of each incoming channel.
        outgoing: More keys of each outgoing channel.
    """

    away_s: float
    incoming: Mapping[str, Any] = {}
    outgoing: Mapping[str, Any] = {}


# The session of the tests' Kafka is 6 s.
SHORT = Limits(15.0, {"unprocessed_record_max_age": "10s"}, {"send_timeout": "5s"})
# unprocessed_record_max_age is 60 s, send_timeout 30 s.
DEFAULTS = Limits(75.0)


@pytest.fixture
def broker() -> Iterator[KafkaCluster]:
    """A broker that these tests may kill."""
    with KafkaCluster() as cluster:
        yield cluster


def service(bootstrap: str, folder: Path, limits: Limits) -> App:
    """A channel for each way in which a record may wait for a broker."""
    more = limits.incoming
    app = App(
        {
            "kafka": {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"},
            "incoming": {
                **{name: {"group_id": name, **more} for name in INPUTS},
                "letters": {
                    "group_id": "letters",
                    "failure_strategy": "dead-letter-queue",
                    **more,
                },
                "stored": {
                    "group_id": "stored",
                    **more,
                    "commit_strategy": "checkpoint",
                    "checkpoint": {"store": f"sqlite:///{folder}/rows.db"},
                },
            },
            "outgoing": {
                "invoices": {**limits.outgoing},
                "emitted": {**limits.outgoing},
                "from-threads": {**limits.outgoing},
                "exactly": {"transactional_id": "outages", **limits.outgoing},
            },
        }
    )
    emitted = app.emitter("emitted")
    from_threads = app.emitter("from-threads")

    @app.incoming("outputs")
    @app.outgoing("invoices")
    async def outputs(value: bytes) -> bytes:
        await asyncio.sleep(HANDLED_S)
        return value

    @app.incoming("emits")
    async def emits(value: bytes) -> None:
        await asyncio.sleep(HANDLED_S)
        await emitted.send(value)

    @app.incoming("blocks")
    def blocks(value: bytes) -> None:
        time.sleep(HANDLED_S)
        from_threads.send_nowait(value).result()

    @app.incoming("letters")
    async def letters(value: bytes) -> None:
        await asyncio.sleep(HANDLED_S)
        raise ValueError("no order")

    @app.incoming("exact")
    @app.outgoing("exactly")
    async def exact(value: bytes) -> bytes:
        await asyncio.sleep(HANDLED_S)
        return value

    @app.incoming("stored")
    async def stored(message: Message[bytes]) -> None:
        await asyncio.sleep(HANDLED_S)
        async with message.transaction() as connection:
            await connection.execute(text("CREATE TABLE IF NOT EXISTS rows (value BLOB)"))
            await connection.execute(
                text("INSERT INTO rows VALUES (:value)"), {"value": message.payload}
            )

    return app


async def fill(bootstrap: str) -> None:
    """The same records in each incoming topic."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for topic in INPUTS:
            for number in range(RECORDS):
                await producer.send_and_wait(topic, b"%d" % number)
    finally:
        await producer.stop()


async def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values of a topic that readers of committed records get."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    found: list[bytes | None] = []
    try:
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [record.value for record in records]
    finally:
        await consumer.stop()
    return found


async def is_done(app: App, name: str) -> bool:
    committed = await app.channel(name).committed()
    return sum(position or 0 for position in committed.values()) == RECORDS


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(DEFAULTS, id="defaults", marks=pytest.mark.long_faults),
    ],
)
async def test_an_outage_longer_than_every_limit_stops_nothing_and_loses_nothing(
    broker: KafkaCluster, tmp_path: Path, limits: Limits
) -> None:
    """Row A14 of the faults."""
    bootstrap = broker.bootstrap_servers
    for topic in (*INPUTS, *OUTPUTS.values()):
        await create_topic(bootstrap, topic, 1)
    await fill(bootstrap)
    app = service(bootstrap, tmp_path, limits)
    clock = asyncio.get_running_loop().time
    async with app:
        await until(
            lambda: all(facts.partitions for facts in app.facts().channels),
            30,
            "every channel has its records",
        )
        await until(
            lambda: sum(facts.sent["ok"] for facts in app.facts().outgoing) > 10,
            30,
            "all is under way",
        )
        await asyncio.to_thread(broker.kill)
        gone_at = clock()
        told_after: float | None = None
        while clock() < gone_at + limits.away_s:
            health = app.health()
            assert health.live.status == "UP", health.live
            if health.ready.status == "DOWN":
                told_after = told_after or clock() - gone_at
            else:
                assert clock() - gone_at < TOLD_S, health.ready
            await asyncio.sleep(0.25)
        assert told_after is not None
        await asyncio.to_thread(broker.start_node, 1)
        back_at = clock()
        await until(
            lambda: app.health().status == "UP",
            HEALED_S,
            "it is ready",
            lambda: str(app.health().ready.to_json()),
        )
        healed_s = clock() - back_at
        while not all([await is_done(app, name) for name in INPUTS]):
            # What had not been handled before the outage takes its time, one record after the
            # other.
            assert clock() - back_at < HEALED_S + RECORDS * HANDLED_S + 30, app.health().ready
            await asyncio.sleep(0.25)
        assert app.health().status == "UP"
    print(f"told after {told_after:.1f} s, ready {healed_s:.1f} s after the broker was back")

    for name, topic in OUTPUTS.items():
        found = await values_of(bootstrap, topic)
        assert set(found) == VALUES, name
        if name == "exact":
            assert len(found) == RECORDS

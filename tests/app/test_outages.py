"""Outages that last longer than every limit: whatever is away, and whatever a channel does
meanwhile.

Each combination is a case here, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from reactive_kafka import App, Batch, FatalBrokerError, Message, Record
from reactive_kafka.errors import ClusterError, SessionLostError
from reactive_kafka.events import SchemaAvailable, SchemaUnavailable
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.helpers import (
    Recorder,
    committed,
    in_virtual_time,
    make_broker,
    running,
    send,
    tp,
    until,
)
from tests.app.spark_stage import DEAD, WAITS, spark_app
from tests.app.spark_stage import letters as dead_letters
from tests.app.test_outgoing_outages import two_clusters
from tests.schemas.outage import RegistryOutage

OUTAGE_S = 200.0
"""Longer than the poison limit (60 s), the session (45 s), ``send_timeout`` and ``drain_timeout``
(30 s).
"""
HEALED_S = 10.0
RECORDS = 12

Play = Callable[[], App]


def app_with(*, orders: dict[str, Any] | None = None, **tables: Any) -> App:
    # Handlers take what the deserializer yields: with an override of that the same values come with
    # a schema.
    ours = {"group_id": "billing", "auto_offset_reset": "earliest", "commit_interval": "1s"}
    incoming = {**ours, "value_deserializer": "bytes", **(orders or {})}
    return App({"incoming": {"orders": incoming}, "outgoing": {"invoices": {}}, **tables})


async def busy() -> None:
    """What a handler does by itself: the outage begins while handlers do this."""
    await asyncio.sleep(0.2)


def output(**invoices: Any) -> App:
    app = app_with(outgoing={"invoices": invoices})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(order: Any) -> bytes:
        await busy()
        return order

    return app


def yields() -> App:
    app = app_with(outgoing={"invoices": {"max_in_flight": 2}})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(order: Any) -> AsyncIterator[bytes]:
        await busy()
        yield order

    return app


def emits() -> App:
    app = app_with()
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: Any) -> None:
        await busy()
        await invoices.send(order)

    return app


def emits_from_tasks() -> App:
    app = app_with()
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: Any) -> None:
        await busy()
        await asyncio.gather(invoices.send(order))

    return app


def emits_without_a_timeout() -> App:
    app = app_with()
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: Any) -> None:
        await busy()
        await invoices.send_nowait(order)

    return app


def emits_in_transactions() -> App:
    app = app_with(outgoing={"invoices": {"transactional_id": "billing"}})
    invoices = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: Any) -> None:
        await busy()
        async with invoices.transaction() as transaction:
            await transaction.send(order)

    return app


def exactly_once() -> App:
    return output(transactional_id="billing")


def letters() -> App:
    table = {"topic": "invoices"}
    app = app_with(orders={"failure_strategy": "dead-letter-queue", "dead_letter_queue": table})

    @app.incoming("orders")
    async def handle(order: Any) -> None:
        await busy()
        raise ValueError("no order")

    return app


def delayed_retries() -> App:
    retry = {"topics": ["orders_retry_1000"]}
    app = app_with(orders={"failure_strategy": "delayed-retry-topic", "delayed_retry": retry})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(message: Message[Any]) -> bytes:
        await busy()
        if message.topic == "orders":
            raise ValueError("later")
        return message.payload

    return app


def batches() -> App:
    app = app_with(orders={"batch_max_records": 3, "batch_max_wait": "100ms"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(batch: Batch[Any]) -> list[Record]:
        await busy()
        return [Record(payload) for payload in batch.payloads]

    return app


def manual_acks() -> App:
    """Collects three records, sends them, and acks up to the last one."""
    app = app_with(orders={"ack": "manual"})
    invoices = app.emitter("invoices")
    kept: list[Message[Any]] = []

    @app.on_revoked("orders")
    def forget(partitions: object) -> None:
        kept.clear()

    @app.incoming("orders")
    async def handle(message: Message[Any]) -> None:
        await busy()
        if message.offset not in [one.offset for one in kept]:
            # It is called again with the same message where a send has failed.
            kept.append(message)
        while len(kept) >= 3:
            for one in kept[:3]:
                await invoices.send(one.payload)
            await app.channel("orders").ack_up_to(kept[2])
            del kept[:3]

    return app


def retries() -> App:
    """Sends one record at its third attempt."""
    app = app_with(orders={"retry": {"max_attempts": 4, "backoff": "500ms", "jitter": 0}})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(message: Message[Any]) -> bytes:
        await busy()
        if message.attempt < 3 and message.offset == 1:
            raise ValueError("not yet")
        return message.payload

    return app


def through_memory() -> App:
    app = app_with(memory={"checked": {"max_in_flight": 4}})

    @app.incoming("orders")
    @app.outgoing("checked")
    async def check(order: Any) -> bytes:
        return order

    @app.incoming("checked")
    @app.outgoing("invoices")
    async def handle(order: Any) -> bytes:
        await busy()
        return order

    return app


def by_key() -> App:
    app = app_with(orders={"ordering": "key", "concurrency": 4})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handle(order: Any) -> bytes:
        await busy()
        return order

    return app


def several_handlers() -> App:
    app = app_with(orders={"broadcast": True})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def one(order: Any) -> bytes:
        await busy()
        return order

    @app.incoming("orders")
    async def other(order: Any) -> None:
        await busy()

    return app


PLAYS: dict[str, Play] = {
    "output": output,
    "output, waiting for each write": lambda: output(wait_for_write=True),
    "output, without waiting": lambda: output(wait_for_write=False),
    "output, with little room": lambda: output(wait_for_write=False, max_in_flight=2),
    "yield": yields,
    "emitter": emits,
    "emitter in tasks": emits_from_tasks,
    "emitter, send_nowait": emits_without_a_timeout,
    "emitter, transaction": emits_in_transactions,
    "exactly once": exactly_once,
    "letters": letters,
    "delayed retries": delayed_retries,
    "batch": batches,
    "manual acks": manual_acks,
    "retries": retries,
    "memory channel": through_memory,
    "by key": by_key,
    "several handlers": several_handlers,
}


async def cluster_away(test: TestApp) -> Callable[[], None]:
    test.broker.down = True
    return lambda: setattr(test.broker, "down", False)


async def topic_away(test: TestApp) -> Callable[[], None]:
    test.broker.topic_away("invoices")
    return lambda: test.broker.topic_back("invoices")


async def right_withdrawn(test: TestApp) -> Callable[[], None]:
    test.broker.topic_away("invoices", FatalBrokerError("not authorised to write to 'invoices'"))
    return lambda: test.broker.topic_back("invoices")


AWAY: dict[str, Callable[[TestApp], Coroutine[Any, Any, Callable[[], None]]]] = {
    "the cluster": cluster_away,
    "the outgoing topic": topic_away,
    "the right to write": right_withdrawn,
}
TO_ANOTHER_CLUSTER = [play for play in PLAYS if play not in ("exactly once", "delayed retries")]
"""Positions are committed with the output in one transaction, and retries are read where they are
written.
"""


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("play", PLAYS)
def test_an_outage_longer_than_every_limit_stops_nothing_and_loses_nothing(
    play: str, away: str
) -> None:
    """Row A14 of the faults."""
    in_virtual_time(sits_out)(PLAYS[play](), AWAY[away])


async def sits_out(
    app: App, take_away: Callable[[TestApp], Coroutine[Any, Any, Callable[[], None]]]
) -> None:
    async with running(app) as test:
        await send(test, *(b"%d" % number for number in range(RECORDS)))
        await asyncio.sleep(0.5)
        bring_back = await take_away(test)
        await stays_alive(test, OUTAGE_S)
        bring_back()
        await heals(test)
        written = [record.value for record in test.broker.committed_log(tp(topic="invoices"))]
        assert set(written) == {b"%d" % number for number in range(RECORDS)}


@pytest.mark.parametrize("play", TO_ANOTHER_CLUSTER)
@in_virtual_time
async def test_an_outgoing_cluster_that_is_away_for_longer_than_every_limit_stops_nothing(
    play: str,
) -> None:
    """Row A14 of the faults."""
    app = PLAYS[play]()
    clock = asyncio.get_running_loop().time
    async with two_clusters(app) as (here, there):
        for number in range(RECORDS):
            here.produce("orders", b"%d" % number, partition=0)
        await asyncio.sleep(0.5)
        there.down = True
        began = clock()
        while clock() < began + OUTAGE_S:
            health = app.health()
            assert health.live.status == "UP", health.live
            assert clock() < began + 5 or health.ready.status == "DOWN", health.ready
            assert position_of(here) <= written_to(there)
            await asyncio.sleep(1)
        there.down = False
        await until(lambda: app.health().status == "UP", HEALED_S)
        await until(lambda: position_of(here) == RECORDS, HEALED_S + RECORDS)
        values = {record.value for record in there.committed_log(tp(topic="invoices"))}
        assert values == {b"%d" % number for number in range(RECORDS)}


def position_of(broker: MemoryBroker) -> int:
    committed = broker.committed("billing").get(tp())
    return committed.offset if committed is not None else 0


def written_to(broker: MemoryBroker) -> int:
    return len(broker.committed_log(tp(topic="invoices"))) if "invoices" in broker.topics() else 0


async def stays_alive(test: TestApp, for_s: float, told_after_s: float = 5.0) -> None:
    """It is alive throughout, not ready after a moment, and commits nothing that is not written."""
    loop = asyncio.get_running_loop()
    end = loop.time() + for_s
    told_by = loop.time() + told_after_s
    while loop.time() < end:
        health = test.app.health()
        assert health.live.status == "UP", health.live
        if loop.time() > told_by:
            assert health.ready.status == "DOWN", health.ready
        topics = test.broker.topics()
        # A record is also safe in a retry topic.
        logs = [tp(topic=topic) for topic in ("invoices", "orders_retry_1000") if topic in topics]
        assert (committed(test) or 0) <= sum(len(test.broker.committed_log(log)) for log in logs)
        await asyncio.sleep(1)


async def heals(test: TestApp) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: test.app.health().status == "UP", HEALED_S)
    await test.settled(timeout=60)
    assert loop.time() - began < HEALED_S + RECORDS
    assert committed(test) == RECORDS


def checkpoint_acks(rows: Rows) -> App:
    app = app_on(rows)

    @app.incoming("orders")
    async def handle(message: Message[Any]) -> None:
        await busy()
        message.checkpoint.set((message.checkpoint.get() or 0) + 1)

    return app


def checkpoint_transactions(rows: Rows) -> App:
    app = app_on(rows)

    @app.incoming("orders")
    async def handle(message: Message[Any]) -> None:
        await busy()
        async with message.transaction():
            await busy()

    return app


def checkpoint_batches(rows: Rows) -> App:
    app = app_on(rows, batch_max_records=3, batch_max_wait="100ms")

    @app.incoming("orders")
    async def handle(batch: Batch[Any]) -> None:
        await busy()
        async with batch.transaction():
            await busy()

    return app


STORED: dict[str, Callable[[Rows], App]] = {
    "checkpoint, acks": checkpoint_acks,
    "checkpoint, transaction": checkpoint_transactions,
    "checkpoint, transaction of a batch": checkpoint_batches,
}


@pytest.mark.parametrize("play", STORED)
@in_virtual_time
async def test_a_store_that_is_away_for_longer_than_every_limit_stops_nothing(play: str) -> None:
    """Row A14 of the faults."""
    rows, broker = Rows(), make_broker()
    app = STORED[play](rows)
    async with running(app, broker=broker) as test:
        await send(test, *(b"%d" % number for number in range(RECORDS)))
        await asyncio.sleep(0.5)
        rows.faults.away = True
        began = asyncio.get_running_loop().time()
        while (now := asyncio.get_running_loop().time()) < began + OUTAGE_S:
            health = test.app.health()
            assert health.live.status == "UP", health.live
            if now > began + 7:
                assert health.ready.status == "DOWN"
            await asyncio.sleep(1)
        rows.faults.away = False
        await until(lambda: test.app.health().status == "UP", HEALED_S)
        await test.settled(timeout=60)
        found = rows.row("billing", tp())
        assert found is not None
        assert found.position == RECORDS
    await broker.close()


READS = {"incoming": {"orders": {"value_deserializer": "avro"}}}
WRITES = {"outgoing": {"invoices": {"value_serializer": "avro", "schema": {"register": False}}}}
WITH_REGISTRY = {"schema_registry": {"url": "memory://"}}
FRAMED_BY = 5
"""How many bytes stand before a value: a zero byte and the id of the schema."""

REGISTERED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "the registry, reading": (list(PLAYS), READS),
    # Letters and delayed retries are written as they were read.
    "the registry, writing": ([play for play in PLAYS if play != "letters"], WRITES),
}
"""Column -> the channels that need the registry for that, and what is added to their
configuration.
"""


@pytest.mark.parametrize(
    ("play", "needed_for"),
    [(play, column) for column, (plays, _) in REGISTERED.items() for play in plays],
)
@in_virtual_time
async def test_a_schema_registry_that_is_away_for_longer_than_every_limit_stops_nothing(
    play: str, needed_for: str
) -> None:
    """Rows A14, F17 of the faults."""
    app, broker, recorder = PLAYS[play](), make_broker(), Recorder()
    app.observe(recorder)
    reads = needed_for == "the registry, reading"
    async with TestApp(
        app, broker=broker, overrides=REGISTERED[needed_for][1] | WITH_REGISTRY
    ) as test:
        registry = RegistryOutage(app)
        await registry.register_bytes("orders-value", "invoices-value")
        registry.begin()
        for number in range(RECORDS):
            broker.produce(
                "orders", framed(b"%d" % number) if reads else b"%d" % number, partition=0
            )
        await stays_alive(test, OUTAGE_S, told_after_s=7)
        assert "registry" in str(app.health().ready.to_json())
        told = Counter((event.channel, event.asked) for event in recorder.of(SchemaUnavailable))
        assert set(told.values()) == {1}
        assert (
            broker.committed_log(tp(topic="invoices")) == []
            if "invoices" in broker.topics()
            else True
        )
        registry.end()
        await heals(test)
        written = [record.value for record in broker.committed_log(tp(topic="invoices"))]
        assert {(event.channel, event.asked) for event in recorder.of(SchemaAvailable)} == set(told)
        assert {plain(value) for value in written} == {b"%d" % number for number in range(RECORDS)}
    await broker.close()


def framed(value: bytes) -> bytes:
    """A value with the schema 1, "bytes", as Confluent's serialisers write it."""
    return b"\0" + (1).to_bytes(4, "big") + value


def plain(value: bytes | None) -> bytes:
    assert value is not None
    return value[FRAMED_BY:] if value.startswith(b"\0") else value


SPARK: dict[str, dict[str, Any]] = {
    "Spark, rows": {},
    "Spark, ranges": {"spark": {"mode": "ranges"}},
    "Spark, bisection and letters": {"spark": {"on_failure": "bisect"}, **DEAD},
}


SPARK_AWAY: dict[str, ClusterError] = {
    "Spark's executors": ClusterError("the cluster has given no executors"),
    "Spark's driver": SessionLostError(
        "the Spark driver has died; starting Spark again", was_alone=True
    ),
}


@pytest.mark.parametrize("away", SPARK_AWAY)
@pytest.mark.parametrize("play", SPARK)
@in_virtual_time
async def test_a_spark_that_is_away_for_longer_than_every_limit_stops_nothing(
    play: str, away: str
) -> None:
    """Row A14 of the faults."""
    broker, recorder = make_broker(), Recorder()
    app, engine = spark_app(broker, recorder, **SPARK[play])
    async with running(app, broker=broker) as test:
        await send(test, 0)
        await until(lambda: committed(test) == 1)
        engine.judge = lambda job: WAITS
        await send(test, 1)
        await until(lambda: engine.running)
        engine.go_away(SPARK_AWAY[away])
        engine.judge = lambda job: None
        await send(test, *range(2, RECORDS))
        began = asyncio.get_running_loop().time()
        while (now := asyncio.get_running_loop().time()) < began + OUTAGE_S:
            health = app.health()
            assert health.live.status == "UP", health.live
            if now > began + 7:
                assert health.ready.status == "DOWN", health.ready
            assert committed(test) == 1
            await asyncio.sleep(1)
        engine.come_back()
        await until(lambda: app.health().status == "UP", HEALED_S)
        await until(lambda: committed(test) == RECORDS, HEALED_S)
        assert [value for job in engine.jobs[2:] for value in job.values] == list(range(1, RECORDS))
        assert dead_letters(broker) == []
    await broker.close()

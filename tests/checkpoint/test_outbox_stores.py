"""What every store with an outbox must do with the rows of events."""

from __future__ import annotations

import time

import psycopg
import pytest

from reactive_kafka.checkpoint.outbox import OutboxStore, StoredEvent
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.errors import CheckpointError, CheckpointRefusedError
from reactive_kafka.records import RecordBytes, TopicPartition
from tests.checkpoint.conftest import POSTGRES, Clients
from tests.checkpoint.servers import sql_url
from tests.harness.postgres import Postgres
from tests.verdicts.events import OutboxEvent

STORES = ("memory", "sqlite", *POSTGRES)
TP0 = TopicPartition("orders", 0)
TP1 = TopicPartition("orders", 1)

every_store = pytest.mark.parametrize("clients", STORES, indirect=True)


def opened(clients: Clients) -> OutboxStore:
    store = clients.store()
    assert isinstance(store, OutboxStore)
    return store


def event(name: str, value: bytes | None = b"made", channel: str = "events") -> OutboxEvent:
    headers = (("id", name.encode()), ("empty", None), ("odd\udcff", b"\x00\xff"))
    return OutboxEvent(name, channel, "topic of events", 3, RecordBytes(value, b"key", headers, 17))


async def store_events(
    store: OutboxStore, group: str, source: TopicPartition, token: int, *events: OutboxEvent
) -> None:
    writes = {source: Write(token, Checkpoint(token + 1))}
    async with store.transaction(group, writes) as connection:
        await store.add_events(connection, group, source, events)


async def read(
    store: OutboxStore, group: str, *sources: TopicPartition, channel: str = "events"
) -> list[StoredEvent]:
    found = await store.read_events(group, sources, channel, most=100, most_bytes=1_000_000)
    return list(found)


@every_store
async def test_an_event_is_read_as_it_was_written(clients: Clients, group: str) -> None:
    store = opened(clients)
    assert await store.count_events(group, [TP0]) == {}
    bare = OutboxEvent("b", "events", "t", None, RecordBytes(None))
    await store_events(store, group, TP0, 0, event("a"), bare)
    (first, second) = await read(opened(clients), group, TP0)
    assert first.event == event("a")
    assert second.event == bare
    assert first.source == TP0
    assert first.number < second.number


@every_store
async def test_an_owner_reads_the_rows_of_its_partitions_and_channel_only(
    clients: Clients, group: str
) -> None:
    store = opened(clients)
    await store.count_events(group, [TP0])
    await store_events(store, group, TP0, 0, event("a"), event("b", channel="others"))
    await store_events(store, group, TP1, 0, event("c"))
    assert [row.event.id for row in await read(store, group, TP1)] == ["c"]
    assert [row.event.id for row in await read(store, group, TP0, TP1)] == ["a", "c"]
    assert [row.event.id for row in await read(store, group, TP0, channel="others")] == ["b"]
    assert await read(store, f"not {group}", TP0, TP1) == []
    assert await store.count_events(group, [TP0, TP1]) == {"events": 2, "others": 1}


@every_store
async def test_a_transaction_that_is_rolled_back_or_refused_leaves_no_rows(
    clients: Clients, group: str
) -> None:
    store = opened(clients)
    await store.count_events(group, [TP0])
    with pytest.raises(ZeroDivisionError):
        async with store.transaction(group, {TP0: Write(0, Checkpoint(1))}) as connection:
            await store.add_events(connection, group, TP0, [event("a")])
            raise ZeroDivisionError
    with pytest.raises(CheckpointRefusedError):
        async with store.transaction(group, {TP0: Write(0, Checkpoint(1))}) as connection:
            await store.add_events(connection, group, TP0, [event("b")])
            if clients.kind == "sqlite":
                # Nobody else can write while the transaction of SQLite is open.
                raise CheckpointRefusedError
            await opened(clients).write(group, {TP0: Write(0, Checkpoint(1))})
    assert await store.count_events(group, [TP0]) == {}


@every_store
async def test_a_read_is_bounded_by_rows_and_by_bytes_and_makes_progress(
    clients: Clients, group: str
) -> None:
    store = opened(clients)
    await store.count_events(group, [TP0])
    names = ["a", "b", "c", "d"]
    await store_events(store, group, TP0, 0, *(event(name, b"x" * 100) for name in names))

    async def ids(most: int, most_bytes: int) -> str:
        found = await store.read_events(group, [TP0], "events", most=most, most_bytes=most_bytes)
        return "".join(row.event.id for row in found)

    assert await ids(3, 1000) == "abc"
    assert await ids(100, 200) == "ab"
    assert await ids(100, 201) == "abc"
    assert await ids(100, 1) == "a"


@every_store
async def test_a_number_is_never_used_again(clients: Clients, group: str) -> None:
    # A relay that is late deletes the numbers that it has read.
    store = opened(clients)
    await store.count_events(group, [TP0])
    await store_events(store, group, TP0, 0, event("a"))
    (first,) = await read(store, group, TP0)
    await store.delete_events([first.number])
    assert await read(store, group, TP0) == []
    await store_events(store, group, TP0, 1, event("b"))
    await store.delete_events([first.number])
    assert [row.event.id for row in await read(store, group, TP0)] == ["b"]


@pytest.mark.parametrize("clients", ("sqlite", *POSTGRES), indirect=True)
async def test_without_an_outbox_send_says_what_is_missing(clients: Clients, group: str) -> None:
    store = opened(clients)
    async with store.transaction(group, {TP0: Write(0, Checkpoint(1))}) as connection:
        with pytest.raises(CheckpointError, match="outbox = true"):
            await connection.send(b"x")


@every_store
async def test_a_database_says_when_an_event_was_written(clients: Clients, group: str) -> None:
    store = opened(clients)
    await store.count_events(group, [TP0])
    # Both clocks are of this machine. SQLite's has whole seconds.
    began = int(time.time())
    await store_events(store, group, TP0, 0, event("a"))
    (found,) = await read(store, group, TP0)
    if clients.kind == "memory":
        assert found.created_at is None
    else:
        assert found.created_at is not None
        assert began <= found.created_at <= time.time()


@every_store
async def test_nothing_keeps_events_from_a_store_whose_table_is_made_by_the_question(
    clients: Clients, group: str
) -> None:
    store = opened(clients)
    assert list(await store.event_problems()) == []
    await store_events(store, group, TP0, 0, event("a"))
    assert list(await store.event_problems()) == []
    (found,) = await read(store, group, TP0)
    assert found.event.id == "a"


@pytest.mark.postgres
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_each_right_that_an_outbox_lacks_is_named(
    driver: str, postgres_server: Postgres
) -> None:
    table = "reactive_kafka_outbox"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as admin:
        admin.execute(f"DROP TABLE IF EXISTS {table}")
        admin.execute(f"CREATE ROLE narrow_{driver} LOGIN PASSWORD 'x'")
        url = sql_url(postgres_server, driver)
        clients = Clients(driver, url.replace("postgres@", f"narrow_{driver}:x@"))
        narrow = opened(clients)
        (missing,) = await narrow.event_problems()
        assert missing.startswith(f"the table {table} is missing and was not created: ")
        owner = Clients(driver, url)
        assert list(await opened(owner).event_problems()) == []
        rights = ["INSERT", "SELECT", "DELETE"]
        while rights:
            problems = await narrow.event_problems()
            assert [problem.split(" on the table ")[0] for problem in problems] == rights
            assert all("permission denied" in problem for problem in problems)
            admin.execute(f"GRANT {rights.pop(0)} ON {table} TO narrow_{driver}")
        assert list(await narrow.event_problems()) == []
        await clients.close()
        await owner.close()
        admin.execute(f"DROP OWNED BY narrow_{driver}")
        admin.execute(f"DROP ROLE narrow_{driver}")

"""The user's data and the row come together or not at all: memory, SQLite, PostgreSQL by both
drivers, Redis.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.errors import CheckpointError, CheckpointRefusedError
from tests.checkpoint.conftest import POSTGRES, REDIS, Clients, sql_stores, transactional_stores
from tests.checkpoint.data import UserData

ORDERS = TopicPartition("orders", 0)
FIRST = {ORDERS: Write(0, Checkpoint(1, 5))}
NEXT = {ORDERS: Write(1, Checkpoint(1, 6, "after"), 5)}


async def prepared(clients: Clients) -> UserData:
    data = UserData(clients, f"data_{uuid4().hex[:12]}")
    await data.prepare()
    return data


@transactional_stores
async def test_the_users_data_and_the_row_come_together(clients: Clients, group: str) -> None:
    store, data = clients.transactional(), await prepared(clients)
    async with store.transaction(group, FIRST) as connection:
        await data.add(connection, "a")
    async with store.transaction(group, NEXT) as connection:
        await data.add(connection, "b")
        await data.add(connection, "c")
    assert await data.all() == ["a", "b", "c"]
    assert await clients.store().read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 6, "after")}


@transactional_stores
async def test_what_raises_in_the_block_leaves_neither_and_comes_out_as_it_is(
    clients: Clients, group: str
) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    with pytest.raises(ZeroDivisionError):
        async with store.transaction(group, NEXT) as connection:
            await data.add(connection, "a")
            _ = 1 / 0
    assert await data.all() == []
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 5)}
    async with store.transaction(group, NEXT) as connection:
        await data.add(connection, "a")
    assert await data.all() == ["a"]


@sql_stores
async def test_a_store_that_is_closed_during_a_transaction_leaves_no_connection_open(
    clients: Clients, group: str
) -> None:
    store = clients.transactional()
    await store.write(group, FIRST)
    async with store.transaction(group, NEXT) as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        await store.close()
        assert _is_open(raw)
    assert not _is_open(raw)
    assert await clients.store().read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 6, "after")}


def _is_open(raw: Any) -> bool:
    """Whether a connection of a driver is open: of aiosqlite, asyncpg or psycopg."""
    if hasattr(raw, "is_closed"):
        return not raw.is_closed()
    if hasattr(raw, "closed"):
        return not raw.closed
    return raw._connection is not None


@transactional_stores
async def test_a_block_that_is_cancelled_leaves_neither(clients: Clients, group: str) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    inside = asyncio.Event()

    async def handler() -> None:
        async with store.transaction(group, NEXT) as connection:
            await data.add(connection, "a")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(handler())
    await inside.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert await data.all() == []
    assert not await store.write(group, NEXT)


@transactional_stores
async def test_whoever_was_overtaken_before_is_told_before_the_work(
    clients: Clients, group: str
) -> None:
    store = clients.transactional()
    await store.write(group, FIRST)
    await clients.store().write(group, {ORDERS: Write(1, Checkpoint(2, 5), 5)})
    with pytest.raises(CheckpointRefusedError, match="orders-0"):
        async with store.transaction(group, NEXT):
            pytest.fail("the block was entered")
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(2, 5)}


@pytest.mark.parametrize("clients", ["memory", *POSTGRES, REDIS], indirect=True)
async def test_whoever_is_overtaken_in_the_block_leaves_neither_and_holds_up_nobody(
    clients: Clients, group: str
) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    with pytest.raises(CheckpointRefusedError, match="orders-0"):
        async with store.transaction(group, NEXT) as connection:
            await data.add(connection, "zombie's")
            async with asyncio.timeout(2):
                assert not await clients.store().write(
                    group, {ORDERS: Write(1, Checkpoint(2, 5), 5)}
                )
    async with store.transaction(group, {ORDERS: Write(2, Checkpoint(2, 6), 5)}) as connection:
        await data.add(connection, "owner's")
    assert await data.all() == ["owner's"]
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(2, 6)}


@pytest.mark.parametrize("clients", ["memory", *POSTGRES, REDIS], indirect=True)
async def test_of_several_rows_none_is_written_when_one_is_overtaken_in_the_block(
    clients: Clients, group: str
) -> None:
    store, other = clients.transactional(), TopicPartition("orders", 1)
    await store.write(group, FIRST)
    with pytest.raises(CheckpointRefusedError, match="orders-1"):
        async with store.transaction(group, {**NEXT, other: Write(0, Checkpoint(1, 1))}):
            await clients.store().write(group, {other: Write(0, Checkpoint(4, 2))})
    assert await store.read(group, [ORDERS, other]) == {
        ORDERS: Checkpoint(1, 5),
        other: Checkpoint(4, 2),
    }


@transactional_stores
async def test_of_two_owners_at_once_one_is_refused_and_each_record_is_there_once(
    clients: Clients, group: str
) -> None:
    """Two that believe to own the partition handle the same records at the same time."""
    data, rounds, refused = await prepared(clients), asyncio.Barrier(2), []
    await clients.store().write(group, {ORDERS: Write(0, Checkpoint(1, 0))})

    async def owner(who: str) -> None:
        store = clients.transactional()
        for position in range(6):
            await rounds.wait()
            try:
                async with store.transaction(
                    group, {ORDERS: Write(1, Checkpoint(1, position + 1), position)}
                ) as mine:
                    await data.add(mine, f"{position} {who}")
                    await asyncio.sleep(0)
            except CheckpointRefusedError:
                refused.append(position)
            await rounds.wait()

    await asyncio.gather(owner("a"), owner("b"))
    assert refused == list(range(6))
    assert [value[0] for value in await data.all()] == list("012345")


@transactional_stores
async def test_what_is_to_be_written_may_be_said_in_the_block(clients: Clients, group: str) -> None:
    store = clients.transactional()
    writes = dict(FIRST)
    async with store.transaction(group, writes):
        writes[ORDERS] = Write(0, Checkpoint(1, 5, "set in the block"))
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 5, "set in the block")}


@transactional_stores
async def test_of_several_rows_all_are_written_or_none(clients: Clients, group: str) -> None:
    store, other = clients.transactional(), TopicPartition("orders", 1)
    await store.write(group, FIRST)
    with pytest.raises(CheckpointRefusedError, match="orders-1"):
        async with store.transaction(group, {**NEXT, other: Write(3, Checkpoint(3, 1))}):
            pytest.fail("the block was entered")
    async with store.transaction(group, {**NEXT, other: Write(0, Checkpoint(3, 1))}):
        pass
    both = {ORDERS: Checkpoint(1, 6, "after"), other: Checkpoint(3, 1)}
    assert await store.read(group, [ORDERS, other]) == both


@sql_stores
async def test_the_users_own_errors_pass_as_they_are(clients: Clients, group: str) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    with pytest.raises(DBAPIError, match="no_such_table"):
        async with store.transaction(group, NEXT) as connection:
            await connection.execute(text("SELECT * FROM no_such_table"))
    with pytest.raises(IntegrityError):
        async with store.transaction(group, NEXT) as connection:
            await data.add(connection, "twice")
            await data.add(connection, "twice")
    assert await data.all() == []
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 5)}


@sql_stores
async def test_what_may_fail_fails_alone_in_a_nested_block(clients: Clients, group: str) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    async with store.transaction(group, NEXT) as connection:
        await data.add(connection, "once")
        with pytest.raises(IntegrityError):
            async with connection.begin_nested():
                await data.add(connection, "once")
        await data.add(connection, "more")
    assert await data.all() == ["more", "once"]


@pytest.mark.postgres
@pytest.mark.parametrize("clients", ["asyncpg", "psycopg"], indirect=True)
async def test_an_error_that_the_handler_swallows_is_told_at_the_end(
    clients: Clients, group: str
) -> None:
    store, data = clients.transactional(), await prepared(clients)
    await store.write(group, FIRST)
    with pytest.raises(CheckpointError, match="begin_nested"):
        async with store.transaction(group, NEXT) as connection:
            await data.add(connection, "once")
            with pytest.raises(IntegrityError):
                await data.add(connection, "once")
    assert await data.all() == []


@pytest.mark.postgres
@pytest.mark.parametrize("clients", ["asyncpg", "psycopg"], indirect=True)
async def test_what_only_the_commit_finds_wrong_with_the_users_rows_is_the_users_error(
    clients: Clients, group: str
) -> None:
    store, table = clients.transactional(), f"data_{uuid4().hex[:12]}"
    async with store.transaction(group, FIRST) as connection:
        await connection.execute(
            text(f"CREATE TABLE {table} (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        )
    with pytest.raises(IntegrityError):
        async with store.transaction(group, NEXT) as connection:
            await connection.execute(text(f"INSERT INTO {table} VALUES (1), (1)"))
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 5)}


@sql_stores
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_handler_that_ends_the_transaction_is_told_so(
    clients: Clients, group: str, end: str
) -> None:
    store = clients.transactional()
    with pytest.raises(CheckpointError, match="leave commit and rollback to it"):
        async with store.transaction(group, FIRST) as connection:
            await getattr(connection, end)()
    assert await store.read(group, [ORDERS]) == {}


@pytest.mark.redis
@pytest.mark.parametrize("clients", ["redis"], indirect=True)
@pytest.mark.parametrize("end", ["execute", "reset"])
async def test_a_handler_that_ends_the_pipeline_is_told_so(
    clients: Clients, group: str, end: str
) -> None:
    store, data = clients.transactional(), await prepared(clients)
    with pytest.raises(CheckpointError, match="leave"):
        async with store.transaction(group, FIRST) as pipeline:
            await data.add(pipeline, "a")
            await getattr(pipeline, end)()
    assert await data.all() == []
    assert await store.read(group, [ORDERS]) == {}

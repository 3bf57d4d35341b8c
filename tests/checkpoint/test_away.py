"""Servers that go away, hang, come back, and lose answers; what the operator must mend; secrets."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, TransactionalStore, Write
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.checkpoint.stores.redis import RedisStore
from reactive_kafka.checkpoint.stores.sql import SqlStore
from reactive_kafka.errors import CorruptCheckpointError, FatalBrokerError, StoreAwayError
from tests.checkpoint.servers import sql_url
from tests.harness.postgres import Postgres, running_postgres
from tests.harness.proxy import Proxy
from tests.harness.redis import Redis, running_redis

ORDERS = TopicPartition("orders", 0)
FIRST = {ORDERS: Write(0, Checkpoint(1, 5))}
NEXT = {ORDERS: Write(1, Checkpoint(1, 6), 5)}

drivers = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
servers = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("asyncpg", marks=pytest.mark.postgres),
        pytest.param("psycopg", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """One that these tests may restart."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis() -> Iterator[Redis]:
    """One that these tests may restart."""
    with running_redis(durable=True) as server:
        yield server


Server = Postgres | Redis


@pytest.fixture
def server_of(request: pytest.FixtureRequest) -> Callable[[str], Server]:
    def find(kind: str) -> Server:
        server: Server = request.getfixturevalue("own_redis" if kind == "redis" else "own_postgres")
        return server

    return find


def url_at(server: Server, kind: str) -> str:
    return server.url if isinstance(server, Redis) else sql_url(server, kind)


def store_at(url: str, *, answer_s: float = 10.0) -> TransactionalStore:
    return (
        RedisStore(url, answer_s=answer_s)
        if url.startswith("redis")
        else SqlStore(url, answer_s=answer_s)
    )


@asynccontextmanager
async def behind_a_proxy(
    server: Server, kind: str, answer_s: float
) -> AsyncIterator[tuple[Proxy, TransactionalStore]]:
    async with Proxy(f"127.0.0.1:{server.port}") as proxy:
        store = store_at(
            url_at(server, kind).replace(f"127.0.0.1:{server.port}", proxy.address),
            answer_s=answer_s,
        )
        try:
            yield proxy, store
        finally:
            proxy.release()
            await store.close()


async def work(store: TransactionalStore, group: str, server: Server) -> None:
    """A transaction in which the server is gone before the handler's statement."""
    async with store.transaction(group, NEXT) as connection:
        server.stop()
        if isinstance(server, Redis):
            connection.rpush("work", "lost")
        else:
            await connection.execute(text("SELECT 1"))


@servers
async def test_a_store_that_goes_away_says_so_and_heals_by_itself(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    """Row G4 of the faults."""
    server = server_of(kind)
    store = store_at(url_at(server, kind))
    await store.write(group, FIRST)
    try:
        with pytest.raises(StoreAwayError) as away:
            await work(store, group, server)
        assert away.value.__cause__ is not None
        for call in (store.read(group, [ORDERS]), store.write(group, NEXT)):
            with pytest.raises(StoreAwayError, match=r"\*\*\*@127.0.0.1|redis://127.0.0.1"):
                await call
        with pytest.raises(StoreAwayError):
            async with store.transaction(group, NEXT):
                pytest.fail("the block was entered")
    finally:
        server.start()
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 5)}
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


@servers
async def test_a_store_that_was_restarted_between_two_calls_is_no_error(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    server = server_of(kind)
    store = store_at(url_at(server, kind))
    await store.write(group, FIRST)
    before = server.pid
    await asyncio.to_thread(server.restart)
    assert server.pid != before
    assert await store.write(group, NEXT) == frozenset()
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 6)}
    await store.close()


@servers
async def test_a_store_that_does_not_answer_is_away_at_its_deadline(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    async with behind_a_proxy(server_of(kind), kind, 0.2) as (proxy, store):
        await store.write(group, FIRST)
        proxy.hold()
        # Of a driver that would have it cancelled.
        proxy.is_refusing = True
        async with asyncio.timeout(8):
            for call in (store.read(group, [ORDERS]), store.write(group, NEXT)):
                with pytest.raises(StoreAwayError):
                    await call
        proxy.is_refusing = False
        proxy.release()
        assert (await store.read(group, [ORDERS]))[ORDERS].token == 1


@servers
async def test_a_commit_whose_answer_is_lost_is_away_and_the_row_tells(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    async with behind_a_proxy(server_of(kind), kind, 0.3) as (proxy, store):
        await store.write(group, FIRST)

        def lose_the_answer(piece: bytes) -> None:
            if b"COMMIT" in piece or b"EXEC" in piece:
                proxy.answers.hold()
                # Of a driver that would have it cancelled.
                proxy.is_refusing = True

        with pytest.raises(StoreAwayError):
            async with store.transaction(group, NEXT):
                proxy.requests.watch = lose_the_answer
        assert proxy.is_refusing
        proxy.requests.watch, proxy.is_refusing = None, False
        proxy.release()
        assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 6)}


@servers
async def test_a_connection_that_breaks_at_the_end_is_an_unknown_outcome_and_no_refusal(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    async with behind_a_proxy(server_of(kind), kind, 5) as (proxy, store):
        await store.write(group, FIRST)
        with pytest.raises(StoreAwayError):
            async with store.transaction(group, NEXT):
                assert proxy.reset_all()
        row = (await store.read(group, [ORDERS]))[ORDERS]
        assert row in (Checkpoint(1, 5), Checkpoint(1, 6))


@pytest.mark.postgres
@drivers
async def test_a_server_without_a_connection_to_spare_is_away(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    store = store_at(sql_url(own_postgres, driver))
    await store.write(group, FIRST)
    await store.close()
    with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS narrow")
        admin.execute("CREATE ROLE narrow LOGIN PASSWORD 'x' CONNECTION LIMIT 0")
    narrow = store_at(sql_url(own_postgres, driver).replace("postgres@", "narrow:x@"))
    with pytest.raises(StoreAwayError, match="too many connections"):
        await narrow.read(group, [ORDERS])


@pytest.mark.postgres
@drivers
async def test_a_deadlock_is_told_as_away_and_a_timeout_of_the_users_own_is_not(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    store = store_at(sql_url(own_postgres, driver))
    await store.write(group, FIRST)
    with pytest.raises(StoreAwayError, match="deadlock"):
        async with store.transaction(group, NEXT) as connection:
            await connection.execute(
                text("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")
            )
    with pytest.raises(Exception, match="statement timeout") as timed_out:
        async with store.transaction(group, NEXT) as connection:
            await connection.execute(text("SET LOCAL statement_timeout = 20"))
            await connection.execute(text("SELECT pg_sleep(1)"))
    assert not isinstance(timed_out.value, StoreAwayError)
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


@pytest.mark.postgres
@drivers
async def test_two_serializable_owners_are_no_error_of_the_operator(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS strict")
        admin.execute("CREATE DATABASE strict")
        admin.execute("ALTER DATABASE strict SET default_transaction_isolation = 'serializable'")
    url = sql_url(own_postgres, driver).removesuffix("/postgres") + "/strict"
    store, other = store_at(url), store_at(url)
    await store.write(group, FIRST)
    with pytest.raises(StoreAwayError):
        async with store.transaction(group, NEXT):
            assert not await other.write(group, {ORDERS: Write(1, Checkpoint(2, 5), 5)})
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(2, 5)}
    await store.close()
    await other.close()


@pytest.mark.postgres
@drivers
async def test_an_owner_without_the_right_to_make_tables_uses_the_one_that_is_there(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS reactive_kafka_checkpoints")
        admin.execute("DROP OWNED BY poor") if admin.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = 'poor'"
        ).fetchone() else admin.execute("CREATE ROLE poor LOGIN PASSWORD 'x'")
        url = sql_url(own_postgres, driver)
        poor, owner = store_at(url.replace("postgres@", "poor:x@")), store_at(url)
        with pytest.raises(FatalBrokerError, match="permission denied"):
            await poor.read(group, [ORDERS])
        await owner.write(group, FIRST)
        with pytest.raises(FatalBrokerError, match="permission denied"):
            await poor.read(group, [ORDERS])
        admin.execute("GRANT SELECT, INSERT, UPDATE ON reactive_kafka_checkpoints TO poor")
    assert await poor.write(group, NEXT) == frozenset()
    await poor.close()
    await owner.close()


@pytest.mark.postgres
@drivers
async def test_many_that_make_the_table_at_once_all_get_it(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS reactive_kafka_checkpoints")
    stores = [store_at(sql_url(own_postgres, driver)) for _ in range(6)]
    refused = await asyncio.gather(*(store.write(group, FIRST) for store in stores))
    assert refused.count(frozenset()) == 1
    for store in stores:
        await store.close()


@pytest.mark.postgres
@drivers
async def test_a_table_of_another_shape_is_for_the_operator(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS reactive_kafka_checkpoints")
        admin.execute("CREATE TABLE reactive_kafka_checkpoints (id int)")
        store = store_at(sql_url(own_postgres, driver))
        with pytest.raises(FatalBrokerError, match="topic"):
            await store.read(group, [ORDERS])
        await store.close()
        admin.execute("DROP TABLE reactive_kafka_checkpoints")


@servers
async def test_a_wrong_password_is_for_the_operator_and_shown_nowhere(
    kind: str, server_of: Callable[[str], Server], group: str
) -> None:
    server = server_of(kind)
    if isinstance(server, Redis):
        url = server.url.replace("127.0.0.1", "hidden:s3cr3t@127.0.0.1")
    else:
        url = sql_url(server, kind).replace("postgres@", "hidden:s3cr3t@")
    store = store_at(url)
    with pytest.raises(FatalBrokerError) as fatal:
        await store.read(group, [ORDERS])
    assert "s3cr3t" not in "".join(traceback.format_exception(fatal.value)) + repr(store)
    assert "***@127.0.0.1" in str(fatal.value)
    await store.close()


@pytest.mark.postgres
async def test_statements_that_a_pooler_would_mix_up_are_named_uniquely_and_kept_by_nobody(
    own_postgres: Postgres, group: str
) -> None:
    store = store_at(f"{sql_url(own_postgres, 'asyncpg')}?prepared_statement_cache_size=0")
    await store.write(group, FIRST)
    async with store.transaction(group, NEXT) as connection:
        for _ in range(3):
            await connection.execute(text("SELECT 1"))
        named = await connection.execute(text("SELECT name FROM pg_prepared_statements"))
        names = [row[0] for row in named]
    assert names
    assert all(name.startswith("__reactive_kafka_") for name in names)
    await store.close()


@pytest.mark.redis
async def test_a_redis_that_is_full_is_away_in_a_write_and_in_a_transaction(
    own_redis: Redis, group: str
) -> None:
    store = store_at(own_redis.url)
    await store.write(group, FIRST)
    with own_redis.connect() as admin:
        admin.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreAwayError, match="maxmemory"):
                await store.write(group, NEXT)
            with pytest.raises(StoreAwayError, match="maxmemory"):
                async with store.transaction(group, NEXT):
                    pass
        finally:
            admin.config_set("maxmemory", "0")
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


@pytest.mark.redis
async def test_a_replica_takes_no_writes_and_is_away(own_redis: Redis, group: str) -> None:
    store = store_at(own_redis.url)
    await store.write(group, FIRST)
    with own_redis.connect() as admin:
        admin.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(StoreAwayError, match=r"(?i)read ?only"):
                await store.write(group, NEXT)
        finally:
            admin.replicaof("NO", "ONE")
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


@pytest.mark.redis
async def test_a_frozen_redis_is_away_at_the_deadline(own_redis: Redis, group: str) -> None:
    store = store_at(own_redis.url, answer_s=0.2)
    await store.write(group, FIRST)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreAwayError):
            await store.read(group, [ORDERS])
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


@pytest.mark.redis
async def test_a_command_that_fails_as_it_runs_is_told_and_undoes_nothing(
    own_redis: Redis, group: str
) -> None:
    store = store_at(own_redis.url)
    await store.write(group, FIRST)
    with pytest.raises(Exception, match="WRONGTYPE"):
        async with store.transaction(group, NEXT) as pipeline:
            pipeline.set("text", "a")
            pipeline.rpush("text", "b")
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(1, 6)}
    await store.close()


@pytest.mark.redis
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (("SET", "{key}", "text"), "not one of our hashes"),
        (("HSET", "{key}", "token", "x", "metadata", ""), "its token is 'x'"),
        (("HSET", "{key}", "token", "1", "position", "-3", "metadata", ""), "its position is '-3'"),
        (("HSET", "{key}", "token", "1"), "its metadata is NoneType"),
        (("HSET", "{key}", "token", "1", "metadata", b"\xff"), "codec can't decode"),
    ],
)
async def test_a_damaged_hash_is_named(own_redis: Redis, made: tuple[str, ...], told: str) -> None:
    key = "reactive_kafka:checkpoint:{damaged}:orders:0"
    with own_redis.connect() as admin:
        admin.delete(key)
        admin.execute_command(
            *(part.format(key=key) if isinstance(part, str) else part for part in made)
        )
    store = store_at(own_redis.url)
    with pytest.raises(CorruptCheckpointError, match=told):
        await store.read("damaged", [ORDERS])
    await store.close()


async def test_a_locked_file_of_sqlite_is_away_until_it_is_unlocked(
    tmp_path: Path, group: str
) -> None:
    url = f"sqlite:///{tmp_path / 'offsets.db'}"
    # The table is made with all the time that it needs.
    first = SqlStore(url)
    await first.write(group, FIRST)
    await first.close()
    store = SqlStore(url, answer_s=1.0)
    other = sqlite3.connect(tmp_path / "offsets.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for call in (store.read(group, [ORDERS]), store.write(group, NEXT)):
        with pytest.raises(StoreAwayError, match=r"database is locked|did not answer in time"):
            await call
    other.execute("ROLLBACK")
    other.close()
    assert await store.write(group, NEXT) == frozenset()
    await store.close()


async def test_a_file_that_sqlite_cannot_use_is_told_as_what_it_is(
    tmp_path: Path, group: str
) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    damaged, unreachable = (
        SqlStore(f"sqlite:///{tmp_path}/text"),
        SqlStore(f"sqlite:///{tmp_path}/nowhere/offsets.db"),
    )
    with pytest.raises(CorruptCheckpointError, match=r"text: .*not a database"):
        await damaged.read(group, [ORDERS])
    with pytest.raises(StoreAwayError, match="unable to open"):
        await unreachable.read(group, [ORDERS])
    (tmp_path / "nowhere").mkdir()
    assert await unreachable.write(group, FIRST) == frozenset()
    await damaged.close()
    await unreachable.close()


@pytest.mark.parametrize("column", ["token = 0", "token = 'x'", "position = -1", "state = x'ff'"])
async def test_a_damaged_row_of_sqlite_is_named(
    url_of: Callable[[str], str], group: str, column: str
) -> None:
    store = open_store(url_of("sqlite"))
    assert isinstance(store, SqlStore)
    await store.write(group, FIRST)
    async with store.transaction(group, NEXT) as connection:
        await connection.execute(text("UPDATE reactive_kafka_checkpoints SET position = 5"))
    async with store.transaction("other", {ORDERS: Write(0, Checkpoint(1, 1))}) as connection:
        await connection.execute(text(f"UPDATE reactive_kafka_checkpoints SET {column}"))
    with pytest.raises(
        CorruptCheckpointError,
        match=f"orders-0 in group .* cannot be read: its {column.split()[0]}",
    ):
        await store.read(group, [ORDERS])
    await store.close()


FREEZES = """\
import asyncio, os, signal, sys
import sqlalchemy as sa
from tests.checkpoint.test_away import NEXT, store_at


async def run(url, group):
    async with store_at(url, answer_s=1.0).transaction(group, NEXT) as connection:
        await connection.execute(sa.text("SELECT 1"))
        sa.event.listen(sa.Engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGSTOP))

asyncio.run(run(*sys.argv[1:]))
"""


@drivers
@pytest.mark.postgres
async def test_an_owner_that_freezes_before_its_commit_does_not_keep_the_row_locked(
    driver: str, own_postgres: Postgres, group: str
) -> None:
    """Row C4 of the faults: frozen, or cut off from the network, where the transaction has the lock
    of the row.
    """
    url = url_at(own_postgres, driver)
    store = store_at(url)
    await store.write(group, FIRST)
    # It is waited for by how it has changed, which asyncio cannot.
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", FREEZES, url, group],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
    )
    try:
        _, status = await asyncio.to_thread(os.waitpid, owner.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        began = time.monotonic()
        assert await store.write(group, {ORDERS: Write(1, Checkpoint(2, 5), 5)}) == frozenset()
        assert time.monotonic() - began > 0.3, "the row was not locked"
    finally:
        owner.send_signal(signal.SIGCONT)
        _, told = await asyncio.to_thread(owner.communicate)
    assert b"StoreAwayError" in told
    assert await store.read(group, [ORDERS]) == {ORDERS: Checkpoint(2, 5)}
    await store.close()

"""Each example of checkpoints does what its page says, across restarts, crashes and other
owners.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis as RedisClient

from reactive_kafka import App
from reactive_kafka.records import Committed
from reactive_kafka.testing import MemoryBroker, NotSettledError, TestApp
from tests.harness.postgres import Postgres
from tests.harness.redis import Redis, running_redis

FOLDER = Path(__file__).parents[2] / "examples" / "checkpoint"

Example = Callable[[str], ModuleType]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Example:
    """Imports an example as ``reactive-kafka run`` does; relative files go to a temporary
    folder.
    """
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)
    return importlib.import_module


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with running_redis() as server:
        yield server


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[MemoryBroker]:
    """One that outlives the applications of a test."""
    broker = MemoryBroker()
    yield broker
    await broker.close()


Records = Sequence[tuple[str, object]]


async def life(app: App, broker: MemoryBroker, records: Records, store: str | None = None) -> None:
    """One life of an application, in which these records come, all to partition 0, and are
    settled.
    """
    async with living(app, broker, store) as test:
        for topic, record in records:
            await test.send(topic, record, partition=0)
        await test.settled()


@asynccontextmanager
async def living(
    app: App, broker: MemoryBroker, store: str | None = None
) -> AsyncIterator[TestApp]:
    """The application with its own settings, but for the place of its store."""
    channel = next(iter(app.settings.incoming))
    elsewhere = {"incoming": {channel: {"checkpoint": {"store": store}}}} if store else {}
    async with TestApp(app, broker=broker, overrides=elsewhere) as test:
        yield test


def stored(file: str, column: str = "position") -> dict[tuple[str, int], Any]:
    """Topic, partition -> what a column of an SQLite store says."""
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(
            f'SELECT topic, "partition", {column} FROM reactive_kafka_checkpoints'
        )
        return {(topic, partition): value for topic, partition, value in found if value is not None}


def in_kafka(broker: MemoryBroker, group: str) -> dict[tuple[str, int], int]:
    """Topic, partition -> what the group has committed."""
    return {
        (*place,): kept.offset for place, kept in broker.committed(group).items() if kept.offset
    }


async def set_back(broker: MemoryBroker, group: str) -> None:
    """Have a group's positions in Kafka be 0, as after a loss there."""
    inspector = broker.connector().inspector(properties={})
    await inspector.start()
    await inspector.commit(group, dict.fromkeys(broker.committed(group), Committed(0)))
    await inspector.stop()


async def fails(
    app: App, broker: MemoryBroker, topic: str, record: object, store: str | None = None
) -> None:
    """One life of an application, in which this record comes and stops the channel."""
    async with living(app, broker, store) as test:
        await test.send(topic, record, partition=0)
        with pytest.raises(NotSettledError, match="has failed"):
            await test.settled()


# -- at least once


async def test_the_next_owner_resumes_from_the_store_in_every_topic(
    example: Example, broker: MemoryBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    app = example("resume").app
    await life(
        app,
        broker,
        [("orders", {"total": 1}), ("orders", {"total": 2}), ("returns", {"total": -1})],
    )
    assert capsys.readouterr().out.count("\n") == 3
    # Kafka's word does not count: what the store has is not handled again.
    await set_back(broker, "shop")
    await life(app, broker, [("returns", {"total": -2})])
    assert capsys.readouterr().out == "returns 0/1: -2\n"
    assert stored("offsets.db") == {("orders", 0): 2, ("returns", 0): 2}
    assert in_kafka(broker, "shop") == {("orders", 0): 2, ("returns", 0): 2}


async def test_a_sum_goes_on_where_it_was_and_a_payment_that_failed_is_not_in_it(
    example: Example, broker: MemoryBroker
) -> None:
    app = example("running_sum").app
    await life(app, broker, [("payments", {"cents": cents}) for cents in (100, 200)])
    await life(app, broker, [("payments", {"cents": 300})])
    await fails(app, broker, "payments", {"cents": "four"})
    (state,) = stored("offsets.db", "state").values()
    assert json.loads(state) == {"count": 3, "cents": 600}
    assert stored("offsets.db") == {("payments", 0): 3}


async def test_a_group_moves_to_a_database_without_a_repeat_or_a_gap(
    example: Example, broker: MemoryBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    moving = example("moving")
    await life(moving.before, broker, [("orders", {"id": number}) for number in (1, 2)])
    await life(moving.after, broker, [("orders", {"id": 3})])
    assert capsys.readouterr().out == "1\n2\n3\n"
    assert stored("offsets.db") == {("orders", 0): 3}
    # So it could move back, too.
    assert in_kafka(broker, "billing") == {("orders", 0): 3}


async def test_a_store_of_ones_own_is_found_by_its_entry_point_and_holds_what_the_others_hold(
    example: Example, broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example("own_store")
    installed = tmp_path / "shop-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1\n")
    named = "[reactive_kafka.checkpoint_stores]\nonefile = own_store:OneFileStore\n"
    (installed / "entry_points.txt").write_text(named)
    monkeypatch.syspath_prepend(str(tmp_path))
    app, store = example("running_sum").app, f"onefile://{tmp_path / 'all.json'}"
    await life(app, broker, [("payments", {"cents": 100})], store)
    await life(app, broker, [("payments", {"cents": 200})], store)
    rows = {
        key: row for key, row in json.loads((tmp_path / "all.json").read_text()).items() if row[2]
    }
    assert list(rows) == ["ledger:payments:0"]
    token, position, state, _ = rows["ledger:payments:0"]
    assert (token, position, json.loads(state)) == (2, 2, {"count": 2, "cents": 300})


# -- exactly once


@pytest.mark.postgres
async def test_an_invoice_is_there_once_and_one_that_failed_is_not(
    example: Example, broker: MemoryBroker, postgres: Postgres
) -> None:
    module, store = (
        example("postgres_once"),
        postgres.dsn.replace("postgresql:", "postgresql+asyncpg:"),
    )
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(module.TABLE)
        await life(module.app, broker, [("orders", {"customer": "ada", "cents": 100})], store)
        await life(module.app, broker, [("orders", {"customer": "grace", "cents": 200})], store)
        await fails(module.app, broker, "orders", {"customer": "ada", "cents": "many"}, store)
        assert connection.execute("SELECT * FROM invoices").fetchall() == [
            ("ada", 100),
            ("grace", 200),
        ]
        rows = connection.execute(
            "SELECT position FROM reactive_kafka_checkpoints WHERE group_id = 'billing'"
        )
        assert [position for (position,) in rows if position] == [2]


@pytest.mark.postgres
async def test_a_batch_is_one_transaction_whatever_partitions_it_has(
    example: Example, broker: MemoryBroker, postgres: Postgres
) -> None:
    module, store = (
        example("batch_once"),
        postgres.dsn.replace("postgresql:", "postgresql+psycopg:"),
    )
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(module.TABLE)
        for number in range(40):
            broker.produce("clicks", b'{"page": "home"}', partition=number % 4)
        await life(module.app, broker, [], store)
        await life(module.app, broker, [("clicks", {"page": "cart"})], store)
        pages = Counter(page for (page,) in connection.execute("SELECT page FROM clicks"))
        assert pages == {"home": 40, "cart": 1}
        ((written_by,),) = connection.execute(
            "SELECT count(DISTINCT xmin::text) FROM clicks WHERE page = 'home'"
        )
        assert written_by < 10
        rows = connection.execute(
            "SELECT position FROM reactive_kafka_checkpoints WHERE group_id = 'statistics'"
        )
        assert sorted(position for (position,) in rows) == [10, 10, 10, 11]


@pytest.mark.redis
async def test_the_stock_in_redis_counts_each_order_once(
    example: Example, broker: MemoryBroker, redis: Redis
) -> None:
    app, order = example("redis_once").app, {"article": "tea", "pieces": 2}
    await life(app, broker, [("orders", order)] * 2, redis.url)
    await life(app, broker, [("orders", order)], redis.url)
    await fails(app, broker, "orders", {"article": "tea"}, redis.url)
    async with RedisClient.from_url(redis.url, decode_responses=True) as client:
        assert await client.hgetall("stock") == {"tea": "-6"}
        assert await client.lrange("picking", 0, -1) == ["tea"] * 3

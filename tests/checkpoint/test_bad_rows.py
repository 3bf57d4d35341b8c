"""The recipe for single rows that the database refuses, on SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from sqlalchemy import text

from reactive_kafka.testing import TestApp
from tests import pages
from tests.checkpoint.conftest import Clients, sql_stores

PAGE = pages.ROOT / "docs" / "howto" / "bad-rows-of-a-batch.md"


@sql_stores
async def test_only_the_rows_that_the_database_refuses_become_dead_letters(
    clients: Clients,
) -> None:
    (code,) = pages.blocks(PAGE, "python")
    names: dict[str, Any] = {}
    # The tables of other tests are in the same database.
    table = f"invoices_{uuid4().hex[:12]}"
    exec(code.text.replace("INTO invoices", f"INTO {table}"), names)
    store = clients.transactional()
    create = f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"
    async with store.transaction("other", {}) as connection:
        await connection.execute(text(create))
    orders = {
        "group_id": uuid4().hex,
        "auto_offset_reset": "earliest",
        "commit_strategy": "checkpoint",
        "checkpoint": {"store": clients.url},
        "failure_strategy": "dead-letter-queue",
        "batch_max_records": 5,
    }
    async with TestApp(names["app"], config={"incoming": {"orders": orders}}) as test:
        for number, cents in [(1, 10), (2, 20), (1, 30), (3, None), (4, 40)]:
            await test.send("orders", {"id": number, "cents": cents}, partition=0)
        await test.settled(timeout=20)
        letters = {record.value for record in test.records("dead-letter-topic-orders")}
    assert letters == {b'{"id":1,"cents":30}', b'{"id":3,"cents":null}'}
    async with store.transaction("other", {}) as connection:
        rows = await connection.execute(text(f"SELECT id, cents FROM {table} ORDER BY id"))
        assert [tuple(row) for row in rows] == [(1, 10), (2, 20), (4, 40)]

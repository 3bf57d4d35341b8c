"""Keeps one row for each host, and sends an event for each change. See README.md."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, PositiveInt
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from reactive_kafka import App, Message, Record

DATABASE = os.environ.setdefault("DATABASE", "sqlite+aiosqlite:///inventory.db")
TABLE = text(
    "CREATE TABLE IF NOT EXISTS hosts"
    " (id TEXT PRIMARY KEY, name TEXT, os TEXT, cores INTEGER, reports INTEGER)"
)
FIND = text("SELECT name, os, cores FROM hosts WHERE id = :id")
UPSERT = text(
    "INSERT INTO hosts VALUES (:id, :name, :os, :cores, 1) ON CONFLICT (id) DO UPDATE SET"
    " name = :name, os = :os, cores = :cores, reports = hosts.reports + 1"
)
DELETE = text("DELETE FROM hosts WHERE id = :id")

app = App(Path(__file__).with_name("reactive-kafka.toml"))


class Host(BaseModel):
    name: str
    os: str
    cores: PositiveInt


@app.on_start
async def make_table() -> None:
    """Make the table. A service in production leaves that to its migrations."""
    engine = create_async_engine(DATABASE)
    async with engine.begin() as connection:
        await connection.execute(TABLE)
    await engine.dispose()


@app.incoming("hosts")
@app.outgoing("events")
async def keep(message: Message[Host | None]) -> None:
    """Store what a host says of itself. A record without a value deletes the host."""
    if message.key is None:
        raise ValueError("the key is missing: it is the id of the host")
    id, host = {"id": message.key}, message.payload
    async with message.transaction() as tx:
        found = (await tx.execute(FIND, id)).mappings().first()
        if host is None:
            await tx.execute(DELETE, id)
        else:
            await tx.execute(UPSERT, id | host.model_dump())
        change = change_between(found and Host(**found), host)
        if change is not None:
            await tx.send(Record({"host": message.key, "change": change}, key=message.key))


def change_between(before: Host | None, after: Host | None) -> str | None:
    """Name what has happened to a host; None if it says what it has said before."""
    if before == after:
        return None
    if before is None:
        return "created"
    return "deleted" if after is None else "updated"

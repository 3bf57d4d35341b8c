"""The file of a SQLite store: nobody else may read the positions and states in it."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.checkpoint.stores.sql import SqlStore

ORDERS = TopicPartition("orders", 0)
FIRST, NEXT = {ORDERS: Write(0, Checkpoint(1, 5))}, {ORDERS: Write(1, Checkpoint(1, 6), 5)}


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_only_the_owner_may_read_what_sqlite_writes(journal: str, tmp_path: Path) -> None:
    """Row S11 of the faults."""
    file = tmp_path / "offsets.db"
    before = os.umask(0)
    store = SqlStore(f"sqlite:///{file}")
    try:
        await store.read("g", [ORDERS])
        with sqlite3.connect(file) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.close()
        assert await store.write("g", FIRST) == frozenset()
        # Keeps -wal and -shm.
        reader = sqlite3.connect(file)
        reader.execute("SELECT * FROM reactive_kafka_checkpoints").fetchall()
        async with store.transaction("g", NEXT) as one:
            await one.exec_driver_sql("CREATE TABLE mine (n int)")
            during = modes(tmp_path)
        reader.close()
    finally:
        os.umask(before)
        await store.close()
    beside = {"wal": {"offsets.db-wal", "offsets.db-shm"}, "delete": {"offsets.db-journal"}}[
        journal
    ]
    assert during == dict.fromkeys({"offsets.db"} | beside, 0o600)


async def test_a_file_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    file = tmp_path / "offsets.db"
    file.touch()
    file.chmod(0o640)
    store = SqlStore(f"sqlite:///{file}")
    assert await store.write("g", FIRST) == frozenset()
    await store.close()
    assert modes(tmp_path) == {"offsets.db": 0o640}

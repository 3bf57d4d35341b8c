"""How a store connects to its database: drivers, deadlines, SQLite's transactions."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from reactive_kafka.config.store_urls import shown

CONNECT_S = 5.0
# Connections; transactions of more handlers at once open more, and close them again.
KEPT_OPEN = 5
READS = "reactive_kafka_reads"
"""Execution option of a connection that only reads."""

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


def read_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        # Its text may have the URL in it.
        raise ValueError(f"{shown(url)}: SQLAlchemy cannot read this URL") from None
    return parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))


def make_engine(url: URL, answer_s: float) -> AsyncEngine:
    if url.get_backend_name() == "sqlite":
        # In its thread, for the lock: over before the call is given up.
        waits_s = 0.8 * min(CONNECT_S, answer_s)
        engine = create_async_engine(url, hide_parameters=True, connect_args={"timeout": waits_s})
        _make_it_ours_alone(engine, url)
        _let_us_begin(engine)
        return engine
    given = {
        name: value for name, value in _postgres_arguments(url).items() if name not in url.query
    }
    return create_async_engine(
        url,
        pool_size=KEPT_OPEN,
        max_overflow=-1,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args=given,
    )


def _postgres_arguments(url: URL) -> dict[str, Any]:
    if url.get_driver_name() == "psycopg":
        # A pooler may change the server between.
        return {"connect_timeout": int(CONNECT_S), "prepare_threshold": None}
    # The user says that there is a pooler.
    if url.query.get("prepared_statement_cache_size") == "0":
        unique = {"prepared_statement_name_func": lambda: f"__reactive_kafka_{uuid4()}__"}
        return {"timeout": CONNECT_S, "statement_cache_size": 0, **unique}
    return {"timeout": CONNECT_S}


def _make_it_ours_alone(engine: AsyncEngine, url: URL) -> None:
    """Make the file, if it is missing, with rights for its owner only; SQLite gives those to the
    files beside it.

    SQLite itself leaves the rights to the umask. A file that is there keeps its own: others may use
    it, too.
    """
    path = url.database or ""
    # A URI of SQLite's, which may say how it is opened.
    if path.startswith("file:"):
        return

    @event.listens_for(engine.sync_engine, "do_connect")
    def _connecting(*_: object) -> None:
        # It is there; or it cannot be made, and then SQLite says so.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _let_us_begin(engine: AsyncEngine) -> None:
    """Take SQLite's lock where a transaction begins: one that reads first and then writes could not
    get it later.

    Source: SQLAlchemy's documentation of pysqlite, "Serializable isolation / Savepoints /
    Transactional DDL".
    """

    @event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        # The driver begins nothing by itself.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = EXTRA")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begun(connection: Any) -> None:
        reads = connection.get_execution_options().get(READS, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

"""How a store connects to its database: driver, deadlines, and the transactions of SQLite."""

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
"""How long connecting may take."""
KEPT_OPEN = 5
"""Connections that are kept open. Where more are used at once, the others are closed again."""
READS = "reactive_kafka_reads"
"""Execution option of a connection that only reads."""

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


def read_url(url: str) -> URL:
    """Parse *url*, with an asynchronous driver where it names only the database.

    Raises:
        ValueError: SQLAlchemy cannot read it.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The cause is left out: its text may have the URL in it, with its password.
        raise ValueError(f"{shown(url)}: SQLAlchemy cannot read this URL") from None
    return parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))


def make_engine(url: URL, answer_s: float) -> AsyncEngine:
    """Return the engine for a database. Nothing connects yet.

    Args:
        url: What :func:`read_url` returned.
        answer_s: How long a call may take.
    """
    if url.get_backend_name() == "sqlite":
        # How long SQLite's thread waits for the lock. It is less than the deadline of the call, so
        # that an abandoned call does not write.
        lock_s = 0.8 * min(CONNECT_S, answer_s)
        engine = create_async_engine(url, hide_parameters=True, connect_args={"timeout": lock_s})
        _create_private_file(engine, url)
        _begin_ourselves(engine)
        return engine
    # The URL may set each of them itself.
    arguments = {
        name: value for name, value in _postgres_arguments(url).items() if name not in url.query
    }
    return create_async_engine(
        url,
        pool_size=KEPT_OPEN,
        max_overflow=-1,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args=arguments,
    )


def _postgres_arguments(url: URL) -> dict[str, Any]:
    if url.get_driver_name() == "psycopg":
        # No prepared statements: a pooler may use another server for the next statement.
        return {"connect_timeout": int(CONNECT_S), "prepare_threshold": None}
    # With this parameter the user says that there is a pooler.
    if url.query.get("prepared_statement_cache_size") == "0":
        return {
            "timeout": CONNECT_S,
            "statement_cache_size": 0,
            # Unique, because clients of the pooler share servers, and so the names on them.
            "prepared_statement_name_func": lambda: f"__reactive_kafka_{uuid4()}__",
        }
    return {"timeout": CONNECT_S}


def _create_private_file(engine: AsyncEngine, url: URL) -> None:
    """Create the file of the database, if it is missing, with rights for its owner only.

    SQLite itself leaves the rights to the umask. It gives the rights of this file to its journals.
    An existing file keeps its rights: others may use it, too.
    """
    path = url.database or ""
    # A URI of SQLite may say itself how the file is opened.
    if path.startswith("file:"):
        return

    @event.listens_for(engine.sync_engine, "do_connect")
    def _connecting(*_: object) -> None:
        # The file exists, or it cannot be created. SQLite reports the latter.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _begin_ourselves(engine: AsyncEngine) -> None:
    """Take SQLite's lock when a transaction begins, unless it only reads.

    A transaction that reads first might not get the lock when it writes.

    Source: SQLAlchemy's documentation of pysqlite, "Serializable isolation / Savepoints /
    Transactional DDL".
    """

    @event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        # Now the driver begins no transactions by itself.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = EXTRA")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begun(connection: Any) -> None:
        reads = connection.get_execution_options().get(READS, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

"""A table of a database: SQLite or PostgreSQL, through SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import Executable

from reactive_kafka.checkpoint.store import (
    Checkpoint,
    Write,
    allows,
    checked,
    may_be_allowed,
    refuse,
)
from reactive_kafka.checkpoint.stores.sql_engine import CONNECT_S, READS, make_engine, read_url
from reactive_kafka.checkpoint.stores.sql_errors import (
    advice_for,
    has_failed,
    is_away_for_users,
    meaning_of,
)
from reactive_kafka.config.store_urls import shown
from reactive_kafka.errors import (
    BrokerError,
    CheckpointError,
    CorruptCheckpointError,
    FatalBrokerError,
    ReactiveKafkaError,
    StoreAwayError,
)
from reactive_kafka.records import TopicPartition

ANSWER_S = 10.0
GRACE_S = 1.0

ROWS = sa.Table(
    "reactive_kafka_checkpoints",
    sa.MetaData(),
    sa.Column("group_id", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("position", sa.BigInteger),
    sa.Column("state", sa.Text),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
)

_HAS_FAILED = (
    "a statement of the handler has failed, and the database lets nothing more into this transaction: "
    "let the error out of the block, or put what may fail into `async with connection.begin_nested():`"
)


class SqlStore:
    """The table ``reactive_kafka_checkpoints``, made if it is missing, and one UPDATE or INSERT for
    each row.

    Both databases sync each commit to the disk (PostgreSQL unless ``synchronous_commit`` was turned
    off). A server that was restarted is connected to again. What is rolled back for a deadlock or a
    serialization failure, the user's transaction too, is a :class:`StoreAwayError`: nothing has
    happened, and it may be tried again.

    Behind a pgbouncer in transaction mode: ``postgresql+psycopg``, or ``postgresql+asyncpg`` with
    ``?prepared_statement_cache_size=0`` in the URL.

    The store's own statements may take *answer_s* together; the user's have no deadline. It raises
    ImportError if the driver that the URL names is not installed, ValueError if SQLAlchemy cannot
    read the URL.
    """

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._shown = shown(url)
        self._url = read_url(url)
        self._engine = make_engine(self._url, answer_s)
        sa.event.listen(self._engine.sync_engine, "handle_error", self._on_error)
        self._has_table = False
        has_one_writer = self._engine.dialect.name == "sqlite"
        self._turn: AbstractAsyncContextManager[None] = (
            asyncio.Lock() if has_one_writer else nullcontext()
        )

    def __repr__(self) -> str:
        return f"SqlStore({self._shown!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        with self._told():
            async with self._connected(reads=True) as connection, _deadline(self._answer_s):
                return await self._rows(connection, group, partitions)

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        with self._told():
            async with self._connected() as connection, _deadline(self._answer_s):
                refused = await self._write(connection, group, writes)
                await connection.commit()
                return refused

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[AsyncConnection]:
        """Yields the connection, inside of a transaction; leave its end to this.

        The rows are looked at before, and written after what the user does. In PostgreSQL they are
        not locked in between, so that an owner that hangs in its handler does not keep the next one
        from its partition: whoever was overtaken meanwhile is refused at the end, and all is rolled
        back. SQLite has one writer at a time, so there a transaction begins with the lock of the
        whole file.
        """
        async with self._connected() as connection:
            with self._told():
                async with _deadline(self._answer_s):
                    rows = await self._rows(connection, group, writes)
            refuse(
                group,
                [
                    partition
                    for partition in writes
                    if not allows(rows.get(partition), writes[partition])
                ],
            )
            begun = connection.get_transaction()
            yield connection
            if begun is None or not begun.is_active or connection.get_transaction() is not begun:
                raise CheckpointError(
                    "the handler has ended the transaction: leave commit and rollback to it"
                )
            with self._told(users=True):
                async with _deadline(self._answer_s):
                    refuse(group, await self._write(connection, group, writes))
                    await connection.commit()

    async def close(self) -> None:
        """Close the connections that are not in use. Those of transactions close when these end."""
        try:
            async with _deadline(min(CONNECT_S, self._answer_s)):
                await self._engine.dispose()
        except (TimeoutError, OSError, SQLAlchemyError):
            # Nobody is there to say goodbye to.
            await self._engine.dispose(close=False)

    @asynccontextmanager
    async def _connected(self, *, reads: bool = False) -> AsyncIterator[AsyncConnection]:
        """A connection in which a transaction has begun; what is not committed at the end is rolled
        back.
        """
        async with AsyncExitStack() as opened:
            with self._told(connects=True):
                async with _deadline(self._answer_s):
                    await opened.enter_async_context(nullcontext() if reads else self._turn)
                async with _deadline(min(CONNECT_S, self._answer_s)):
                    connection = await self._engine.connect()
            opened.push_async_callback(self._give_back, connection)
            with self._told():
                async with _deadline(self._answer_s):
                    if not self._has_table:
                        await self._make_table(connection)
                    if reads:
                        await connection.execution_options(**{READS: True})
                    await connection.begin()
            yield connection

    async def _give_back(self, connection: AsyncConnection) -> None:
        """Close it, rolled back; one that does not answer is left to itself."""
        # What was done has its own error, or none.
        with suppress(TimeoutError, OSError, BrokerError, SQLAlchemyError):
            async with _deadline(self._answer_s):
                await connection.close()

    async def _make_table(self, connection: AsyncConnection) -> None:
        """Whoever may not make tables works with one that is there; two processes may make it at
        once.
        """
        if not await connection.run_sync(_has_table):
            try:
                await connection.execute(CreateTable(ROWS, if_not_exists=True))
                await connection.commit()
            except (BrokerError, SQLAlchemyError):
                await connection.rollback()
                if not await connection.run_sync(_has_table):
                    raise
        await connection.rollback()
        self._has_table = True

    async def _rows(
        self, connection: AsyncConnection, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        column = ROWS.c
        wanted = (ROWS.c.token, ROWS.c.position, ROWS.c.state, ROWS.c.metadata)
        found = await connection.execute(
            sa.select(column.topic, column.partition, *wanted).where(
                column.group_id == group,
                column.topic.in_({partition.topic for partition in partitions}),
                column.partition.in_({partition.partition for partition in partitions}),
            )
        )
        rows = {TopicPartition(topic, number): values for topic, number, *values in found}
        return {
            partition: checked(
                f"{self._shown}: the row of {partition} in group {group!r}", *rows[partition]
            )
            for partition in partitions
            if partition in rows
        }

    async def _write(
        self, connection: AsyncConnection, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        stored = set()
        # The one order in which everybody locks them: no two wait for each other.
        for partition in sorted(writes):
            if may_be_allowed(writes[partition]):
                # An INSERT would tell nothing else: -1.
                options = {"preserve_rowcount": True}
                statement = self._statement(group, partition, writes[partition])
                written = await connection.execute(statement, execution_options=options)
                stored |= {partition} if written.rowcount == 1 else set()
        return frozenset(writes.keys() - stored)

    def _statement(self, group: str, partition: TopicPartition, write: Write) -> Executable:
        """The one statement that compares and writes; for what :func:`allows` may let through."""
        values: dict[str, Any] = {
            **write.checkpoint._asdict(),
            "updated_at": sa.func.current_timestamp(),
        }
        key = {"group_id": group, "topic": partition.topic, "partition": partition.partition}
        there = ROWS.c.position.is_not_distinct_from(write.position)
        update = ROWS.update().values(**values).filter_by(**key, token=write.expected).where(there)
        if self._engine.dialect.name == "sqlite":
            return (
                update
                if write.expected
                else sqlite.insert(ROWS).values(**key, **values).on_conflict_do_nothing()
            )
        insert = postgresql.insert(ROWS).values(**key, **values).on_conflict_do_nothing()
        # From here to the COMMIT the row is locked. Whoever freezes there, or is cut off from the
        # network, would keep the next owner waiting for it: so the server ends the transaction
        # after a while. It is told in the same statement, which saves a round trip; and not before,
        # for the user's statements may take as long as they like.
        limit = sa.func.set_config(
            "idle_in_transaction_session_timeout", f"{self._answer_s * 1000:.0f}", True
        )
        return (update if write.expected else insert).returning(limit)

    @contextmanager
    def _told(self, *, users: bool = False, connects: bool = False) -> Iterator[None]:
        """Errors of what we do ourselves; those of *users* alone, told by a COMMIT, pass as they
        are.

        While it *connects* a driver may raise anything: for a parameter of the URL that it does not
        know, TypeError.
        """
        try:
            yield
        except ReactiveKafkaError:
            raise
        except TimeoutError as error:
            raise StoreAwayError(f"{self._shown} did not answer in time") from error
        except Exception as error:
            # Drivers raise their own, unwrapped, while they connect.
            if users and has_failed(error):
                raise CheckpointError(_HAS_FAILED) from error
            if not (connects or _is_of_database(error)) or (users and meaning_of(error) != "away"):
                raise
            raise self._translated(error) from error

    def _translated(self, error: BaseException) -> BrokerError:
        kinds = {
            "away": StoreAwayError,
            "corrupt": CorruptCheckpointError,
            "fatal": FatalBrokerError,
        }
        text = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
        if self._url.password:
            text = text.replace(str(self._url.password), "***")
        return kinds[meaning_of(error)](f"{self._shown}: {text}{advice_for(error)}")

    def _on_error(self, context: sa.ExceptionContext) -> BaseException | None:
        """What the user's statements raise, too, when the database is away; everything else passes
        as it is.
        """
        error = context.sqlalchemy_exception or context.original_exception
        if context.is_pre_ping or not isinstance(error, Exception) or not _is_of_database(error):
            return None
        return self._translated(error) if is_away_for_users(error) else None


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """End what is in the block, and soon after end the driver's own polite ends: psycopg's take ten
    seconds.
    """
    async with asyncio.timeout(seconds + GRACE_S), asyncio.timeout(seconds):
        yield


def _has_table(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(ROWS.name)


def _is_of_database(error: Exception) -> bool:
    return (
        isinstance(error, SQLAlchemyError | OSError)
        or hasattr(error, "sqlstate")
        or hasattr(error, "sqlite_errorname")
    )

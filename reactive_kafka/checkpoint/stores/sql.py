"""Tables of a database: SQLite or PostgreSQL, through SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
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
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import Executable

from reactive_kafka.checkpoint.outbox import StoredEvent
from reactive_kafka.checkpoint.store import (
    Checkpoint,
    Write,
    allows,
    may_be_allowed,
    raise_if_refused,
    validated_row,
)
from reactive_kafka.checkpoint.stores import sql_outbox
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
from reactive_kafka.verdicts.outbox import OutboxEvent

ANSWER_S = 10.0
"""How long the statements of one call may take together."""
GRACE_S = 1.0
"""How long a driver may take to end a call that was cancelled."""

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
    "a statement of the handler has failed, and the database lets nothing more into this "
    "transaction: let the error out of the block, or put what may fail into "
    "`async with connection.begin_nested():`"
)


class StoreConnection(AsyncConnection):
    """What a transaction yields: SQLAlchemy's connection, with ``send`` for events."""

    async def send(self, value: Any) -> None:
        """Make a value an event of the outbox. The call of a handler replaces this method.

        Raises:
            CheckpointError: Always: the handler sends to no outbox.
        """
        raise CheckpointError(
            "tx.send() needs an outbox: decorate the handler with @app.outgoing(NAME), and set "
            "outbox = true in [outgoing.NAME]"
        )


class SqlStore:
    """The table ``reactive_kafka_checkpoints``, which is made if it is missing.

    The events of an outbox are in another table, ``reactive_kafka_outbox``.

    Both databases sync each commit to the disk (PostgreSQL unless ``synchronous_commit`` was turned
    off). After a restart of the server the store connects again. A transaction that is rolled back
    for a deadlock or a serialization failure, also one with the user's statements, raises
    StoreAwayError: nothing was written, and it may be tried again.

    Behind a pgbouncer in transaction mode use ``postgresql+psycopg``, or ``postgresql+asyncpg``
    with ``?prepared_statement_cache_size=0`` in the URL.

    Args:
        url: The URL of the database.
        answer_s: How long the store's own statements of a call may take together. The user's
            statements have no deadline.

    Raises:
        ImportError: The driver that the URL names is not installed.
        ValueError: SQLAlchemy cannot read the URL.
    """

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._shown = shown(url)
        self._url = read_url(url)
        self._engine = make_engine(self._url, answer_s)
        sa.event.listen(self._engine.sync_engine, "handle_error", self._on_error)
        # The tables that are known to exist.
        self._tables = set[str]()
        # SQLite has one writer at a time, so transactions take turns here.
        self._turn: AbstractAsyncContextManager[None] = nullcontext()
        if self._engine.dialect.name == "sqlite":
            self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"SqlStore({self._shown!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        with self._translated_errors():
            async with self._connected(reads=True) as connection, _deadline(self._answer_s):
                return await self._rows(connection, group, partitions)

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        with self._translated_errors():
            async with self._connected() as connection, _deadline(self._answer_s):
                refused = await self._write(connection, group, writes)
                await connection.commit()
                return refused

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[AsyncConnection]:
        """Yield the connection, inside of a transaction that ends here.

        The rows are compared before the user's statements, and written after them. In PostgreSQL
        they are not locked in between: an owner that hangs in its handler must not keep the next
        one from its partition. An owner that lost its row meanwhile is refused at the end, and
        everything is rolled back. SQLite has one writer at a time, so there a transaction begins
        with the lock of the whole file.
        """
        async with self._connected() as connection:
            with self._translated_errors():
                async with _deadline(self._answer_s):
                    rows = await self._rows(connection, group, writes)
            refused = [
                partition
                for partition, write in writes.items()
                if not allows(rows.get(partition), write)
            ]
            raise_if_refused(group, refused)
            begun = connection.get_transaction()
            yield connection
            if begun is None or not begun.is_active or connection.get_transaction() is not begun:
                raise CheckpointError(
                    "the handler has ended the transaction: leave commit and rollback to it"
                )
            with self._translated_errors(users=True):
                async with _deadline(self._answer_s):
                    raise_if_refused(group, await self._write(connection, group, writes))
                    await connection.commit()

    async def add_events(
        self,
        connection: AsyncConnection,
        group: str,
        source: TopicPartition,
        events: Sequence[OutboxEvent],
    ) -> None:
        rows = [sql_outbox.values_of(group, source, event) for event in events]
        await connection.execute(sql_outbox.EVENTS.insert().inline(), rows)

    async def count_events(
        self, group: str, sources: Collection[TopicPartition]
    ) -> Mapping[str, int]:
        found = await self._read_events(sql_outbox.counting(group, sources))
        return {row.channel: row.waiting for row in found}

    async def read_events(
        self,
        group: str,
        sources: Collection[TopicPartition],
        channel: str,
        *,
        most: int,
        most_bytes: int,
    ) -> Sequence[StoredEvent]:
        statement = sql_outbox.reading(group, sources, channel, most=most, most_bytes=most_bytes)
        try:
            rows = await self._read_events(statement)
        except (TypeError, ValueError) as error:
            # SQLAlchemy cannot convert a value, such as a text that is no time.
            raise sql_outbox.unreadable(self._shown, "a row", error) from error
        return sql_outbox.stored_events(self._shown, rows)

    async def _read_events(self, statement: Executable) -> Sequence[sa.Row[Any]]:
        with self._translated_errors():
            async with (
                self._connected(reads=True, table=sql_outbox.EVENTS) as connection,
                _deadline(self._answer_s),
            ):
                return (await connection.execute(statement)).all()

    async def delete_events(self, numbers: Collection[int]) -> None:
        with self._translated_errors():
            async with (
                self._connected(table=sql_outbox.EVENTS) as connection,
                _deadline(self._answer_s),
            ):
                column = sql_outbox.EVENTS.c.id
                await connection.execute(sql_outbox.EVENTS.delete().where(column.in_(numbers)))
                await connection.commit()

    async def event_problems(self) -> Sequence[str]:
        table = sql_outbox.EVENTS
        try:
            async with self._connected(table=table):
                pass
        except FatalBrokerError as error:
            return [f"the table {table.name} is missing and was not created: {error}"]
        problems = []
        for right, statement in sql_outbox.trials():
            try:
                with self._translated_errors():
                    async with (
                        self._connected(table=table) as connection,
                        _deadline(self._answer_s),
                    ):
                        await connection.execute(statement)
            except BrokerError as error:
                problems.append(f"{right} on the table {table.name}: {error}")
        return problems

    async def close(self) -> None:
        """Close the connections that are not in use. The others close when their calls end."""
        try:
            async with _deadline(min(CONNECT_S, self._answer_s)):
                await self._engine.dispose()
        except (TimeoutError, OSError, SQLAlchemyError):
            # The server does not answer, so its connections are dropped.
            await self._engine.dispose(close=False)

    @asynccontextmanager
    async def _connected(
        self, *, reads: bool = False, table: sa.Table = ROWS
    ) -> AsyncIterator[AsyncConnection]:
        """Yield a connection with an open transaction, and roll back what was not committed."""
        async with AsyncExitStack() as opened:
            pool = self._engine.pool
            with self._translated_errors(connects=True):
                async with _deadline(self._answer_s):
                    await opened.enter_async_context(nullcontext() if reads else self._turn)
                async with _deadline(min(CONNECT_S, self._answer_s)):
                    connection = await StoreConnection(self._engine).start()
            opened.push_async_callback(self._give_back, connection, pool)
            with self._translated_errors():
                async with _deadline(self._answer_s):
                    if table.name not in self._tables:
                        await self._make_table(connection, table)
                    if reads:
                        await connection.execution_options(**{READS: True})
                    await connection.begin()
            yield connection

    async def _give_back(self, connection: AsyncConnection, pool: sa.Pool) -> None:
        """Roll back, and give a connection back to its pool. One that does not answer is abandoned.

        If the store was closed meanwhile, it has a new pool, and the old one closes nothing. Then
        the connection is closed here.
        """
        # If the call has failed it has raised its own error already.
        with suppress(TimeoutError, OSError, BrokerError, SQLAlchemyError):
            async with _deadline(self._answer_s):
                if pool is not self._engine.pool:
                    await connection.invalidate()
                await connection.close()

    async def _make_table(self, connection: AsyncConnection, table: sa.Table) -> None:
        """Create a table if it is missing.

        A user without the right to create tables can use an existing one.
        """
        if not await connection.run_sync(_has_table, table):
            try:
                await connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    await connection.execute(CreateIndex(index, if_not_exists=True))
                await connection.commit()
            except (BrokerError, SQLAlchemyError):
                await connection.rollback()
                # Another process may have created it meanwhile.
                if not await connection.run_sync(_has_table, table):
                    raise
        # The check above has begun a transaction.
        await connection.rollback()
        self._tables.add(table.name)

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
            partition: validated_row(
                f"{self._shown}: the row of {partition} in group {group!r}", *rows[partition]
            )
            for partition in partitions
            if partition in rows
        }

    async def _write(
        self, connection: AsyncConnection, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        """Write the rows, and return the partitions that were refused."""
        stored = set()
        # Every owner locks rows in this order, so no two wait for each other.
        for partition in sorted(writes):
            if may_be_allowed(writes[partition]):
                # Without this option an INSERT always reports -1 rows.
                options = {"preserve_rowcount": True}
                statement = self._statement(group, partition, writes[partition])
                result = await connection.execute(statement, execution_options=options)
                if result.rowcount == 1:
                    stored.add(partition)
        return frozenset(writes.keys() - stored)

    def _statement(self, group: str, partition: TopicPartition, write: Write) -> Executable:
        """Return the statement that compares and writes, for a write that may be allowed."""
        values: dict[str, Any] = {
            **write.checkpoint._asdict(),
            "updated_at": sa.func.current_timestamp(),
        }
        key = {"group_id": group, "topic": partition.topic, "partition": partition.partition}
        has_position = ROWS.c.position.is_not_distinct_from(write.position)
        update = ROWS.update().values(**values).filter_by(**key, token=write.expected)
        update = update.where(has_position)
        if self._engine.dialect.name == "sqlite":
            if write.expected:
                return update
            return sqlite.insert(ROWS).values(**key, **values).on_conflict_do_nothing()
        # From here to the COMMIT the row is locked. An owner that freezes there, or is cut off from
        # the network, would keep the next owner waiting. So the server ends such a transaction
        # after a while. It learns the limit in the same statement, which saves a round trip, and
        # not before, because the user's statements have no deadline.
        limit = sa.func.set_config(
            "idle_in_transaction_session_timeout", f"{self._answer_s * 1000:.0f}", True
        )
        if write.expected:
            return update.returning(limit)
        insert = postgresql.insert(ROWS).values(**key, **values).on_conflict_do_nothing()
        return insert.returning(limit)

    @contextmanager
    def _translated_errors(self, *, users: bool = False, connects: bool = False) -> Iterator[None]:
        """Translate the errors of our own statements.

        Args:
            users: The block also commits the user's statements. Their errors, unless the database
                is away, are raised as they are.
            connects: The block connects. A driver may raise anything then, such as TypeError for an
                unknown parameter of the URL.
        """
        try:
            yield
        except ReactiveKafkaError:
            raise
        except TimeoutError as error:
            raise StoreAwayError(f"{self._shown} did not answer in time") from error
        except Exception as error:
            # All of them: while drivers connect they raise their own errors, which SQLAlchemy does
            # not wrap.
            if users and has_failed(error):
                raise CheckpointError(_HAS_FAILED) from error
            if not connects and not _is_of_database(error):
                raise
            if users and meaning_of(error) != "away":
                raise
            raise self._translated(error) from error

    def _translated(self, error: BaseException) -> BrokerError:
        kinds = {
            "away": StoreAwayError,
            "corrupt": CorruptCheckpointError,
            "fatal": FatalBrokerError,
        }
        kind = kinds[meaning_of(error)]
        text = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
        if self._url.password:
            text = text.replace(str(self._url.password), "***")
        return kind(f"{self._shown}: {text}{advice_for(error)}")

    def _on_error(self, context: sa.ExceptionContext) -> BaseException | None:
        """Return the error to raise if the database is away; None leaves the error as it is.

        SQLAlchemy calls it for every statement, also for those of the user.
        """
        error = context.sqlalchemy_exception or context.original_exception
        if context.is_pre_ping or not isinstance(error, Exception) or not _is_of_database(error):
            return None
        if not is_away_for_users(error):
            return None
        return self._translated(error)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after *seconds*, and the driver's clean-up soon after.

    The clean-up of psycopg alone would take ten seconds.
    """
    async with asyncio.timeout(seconds + GRACE_S), asyncio.timeout(seconds):
        yield


def _has_table(connection: sa.Connection, table: sa.Table) -> bool:
    return sa.inspect(connection).has_table(table.name)


def _is_of_database(error: Exception) -> bool:
    return (
        isinstance(error, SQLAlchemyError | OSError)
        or hasattr(error, "sqlstate")
        or hasattr(error, "sqlite_errorname")
    )

"""The user's own data in a store that has transactions: one list of texts, whatever the store."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from reactive_kafka.checkpoint.stores.memory_store import MemoryStore
from tests.checkpoint.conftest import Clients


class UserData:
    """Texts that a handler writes.

    Args:
        name: Of the table, or of the key.
    """

    def __init__(self, clients: Clients, name: str) -> None:
        self._kind = clients.kind
        self._url = clients.url.replace("sqlite://", "sqlite+aiosqlite://")
        self._name = name

    async def prepare(self) -> None:
        """Make the table, where there are tables."""
        await self._sql(f'CREATE TABLE "{self._name}" (text VARCHAR(20) PRIMARY KEY)')

    async def add(self, connection: Any, value: str) -> None:
        """What a handler does with what the transaction yields."""
        if self._kind == "memory":
            connection[self._name, value] = True
        elif self._kind == "redis":
            connection.rpush(self._name, value)
        else:
            await connection.execute(
                text(f'INSERT INTO "{self._name}" VALUES (:value)'), {"value": value}
            )

    async def all(self) -> list[str]:
        """What everybody else sees, sorted."""
        if self._kind == "memory":
            rows = MemoryStore.named(self._url.partition("://")[2]).rows
            return sorted(value for name, value in rows.data if name == self._name)
        if self._kind == "redis":
            async with Redis.from_url(self._url, decode_responses=True) as client:
                return sorted(await client.lrange(self._name, 0, -1))  # type: ignore[misc]
        return sorted(await self._sql(f'SELECT text FROM "{self._name}"'))

    async def _sql(self, statement: str) -> list[str]:
        if self._kind in ("memory", "redis"):
            return []
        engine = create_async_engine(self._url)
        try:
            async with engine.begin() as connection:
                result = await connection.execute(text(statement))
                return [row[0] for row in result] if result.returns_rows else []
        finally:
            await engine.dispose()

"""A hash of Redis for each partition. The only import of redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn, cast
from urllib.parse import quote

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError, WatchError

from reactive_kafka.checkpoint.store import (
    Checkpoint,
    Write,
    allows,
    may_be_allowed,
    raise_if_refused,
    validated_row,
)
from reactive_kafka.config.store_urls import shown
from reactive_kafka.errors import (
    CheckpointError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
)
from reactive_kafka.records import TopicPartition

CONNECT_S = 5.0
ANSWER_S = 10.0

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
_AWAY = (*_LOST, exceptions.BusyLoadingError, exceptions.OutOfMemoryError, exceptions.ReadOnlyError)
_RIGHTS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_AWAY_WORDS = (
    "OOM",
    "READONLY",
    "LOADING",
    "MISCONF",
    "MASTERDOWN",
    "NOREPLICAS",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "BUSY ",
)

COMPARE_AND_SET = """
local refused = {}
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 7
  local stored = redis.call('HMGET', key, 'token', 'position')
  if (stored[1] or '0') == ARGV[at + 1] and (stored[2] or '') == ARGV[at + 2] then
    redis.call('HSET', key, 'token', ARGV[at + 3], 'position', ARGV[at + 4],
      'state', ARGV[at + 6], 'metadata', ARGV[at + 7])
    if ARGV[at + 4] == '' then redis.call('HDEL', key, 'position') end
    if ARGV[at + 5] == '' then redis.call('HDEL', key, 'state') end
  else
    refused[#refused + 1] = i
  end
end
return refused
"""
"""The script that compares and writes, which Redis runs as one step.

It has seven arguments for each key: the expected token and position ('' for none), then the new
token, position, '1' if there is a state, the state, and the metadata. It returns the numbers of the
refused keys. HSET is the first write of the script, because a full Redis refuses only that one."""


class _HandlersPipeline(Pipeline):
    """The pipeline that the handler gets. Only the end of the transaction executes it."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        raise CheckpointError(
            "the transaction executes the pipeline at its end: leave execute() to it"
        )

    async def run(self) -> None:
        """Execute the commands of the handler and the rows."""
        await super().execute()


class RedisStore:
    """Hashes ``reactive_kafka:checkpoint:{group}:topic:partition``, with percent-encoded names.

    One script writes them.

    Redis gives weaker guarantees than a database. It confirms a write before it is on the disk,
    unless ``appendonly`` is on with ``appendfsync always``. A failover loses what the replica had
    not received, the rows together with what the same MULTI wrote. Then the position goes back, and
    records are delivered again: at least once, not exactly once. With a ``maxmemory-policy`` that
    evicts keys, rows may vanish: use ``noeviction`` or ``volatile-*``.

    Args:
        url: The URL of the server.
        answer_s: How long a call may take.
    """

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._shown = shown(url)
        self._redis: Redis = Redis.from_url(
            url,
            decode_responses=True,
            # With protocol 3, redis-py 8 does not notice that an idle connection was closed.
            protocol=2,
            socket_connect_timeout=min(CONNECT_S, answer_s),
            # With a timeout redis-py uses wait_for, which in Python 3.11 loses cancellations.
            socket_timeout=None,
            # No retries here: the request may have arrived, and only the caller knows what to do.
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._redis.connection_pool
        try:
            # An unconnected connection finds wrong parameters of the URL now. Otherwise each call
            # would raise TypeError.
            pool.connection_class(**pool.connection_kwargs)
        except TypeError as error:
            raise ValueError(f"{self._shown}: {error}") from error
        self._compare_and_set = self._redis.register_script(COMPARE_AND_SET)

    def __repr__(self) -> str:
        return f"RedisStore({self._shown!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        async with self._translated_errors():
            return await self._rows(self._redis, group, partitions)

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        partitions = [
            partition for partition in sorted(writes) if may_be_allowed(writes[partition])
        ]
        if not partitions:
            return frozenset(writes)
        keys = [_key(group, partition) for partition in partitions]
        arguments = [
            argument for partition in partitions for argument in _arguments(writes[partition])
        ]
        async with self._translated_errors():
            refused = await self._compare_and_set(keys=keys, args=arguments)
        stored = set(partitions) - {partitions[number - 1] for number in refused}
        return frozenset(writes.keys() - stored)

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[Pipeline]:
        """Yield a pipeline after WATCH and MULTI.

        The handler's commands are queued, and run at the end with the rows, so nothing can be read
        through the pipeline. A command may fail only when it runs, say because a key has another
        type. Redis does not undo the other commands then, and the position is stored; the error is
        raised.
        """
        pool = self._redis.connection_pool
        callbacks = self._redis.response_callbacks
        pipeline = _HandlersPipeline(pool, callbacks, transaction=True, shard_hint=None)
        try:
            async with self._translated_errors():
                await pipeline.watch(*(_key(group, partition) for partition in writes))
                rows = await self._rows(pipeline, group, writes)
            refused = [
                partition
                for partition, write in writes.items()
                if not allows(rows.get(partition), write)
            ]
            raise_if_refused(group, refused)
            pipeline.multi()  # type: ignore[no-untyped-call]
            yield pipeline
            if not (pipeline.watching and pipeline.explicit_transaction):
                raise CheckpointError(
                    "the handler has reset the pipeline: leave its end to the transaction"
                )
            for partition, write in sorted(writes.items()):
                row = write.checkpoint._asdict()
                fields: dict[Any, Any] = {
                    name: value for name, value in row.items() if value is not None
                }
                pipeline.delete(_key(group, partition))
                pipeline.hset(_key(group, partition), mapping=fields)
            await self._execute(pipeline, group, writes)
        finally:
            # This returns the connection to the pool. A connection that does not answer is
            # abandoned: the transaction is over, or has raised its own error.
            with suppress(*_AWAY):
                async with asyncio.timeout(self._answer_s):
                    await pipeline.reset()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connections."""
        # The server may be away, and then there is nothing to close properly.
        with suppress(*_AWAY):
            async with asyncio.timeout(CONNECT_S):
                await self._redis.aclose()
                await self._redis.connection_pool.disconnect()

    async def _execute(
        self, pipeline: _HandlersPipeline, group: str, writes: Mapping[TopicPartition, Write]
    ) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                await pipeline.run()
        except WatchError as error:
            # Redis-py raises it also when the connection breaks at EXEC.
            if isinstance(error.__context__, _LOST):
                self._raise(error.__context__)
            raise_if_refused(group, writes)
        except _AWAY as error:
            self._raise(error)
        except ResponseError as error:
            # One of the handler's commands has failed, or all of them.
            if _is_away(error):
                self._raise(error)
            raise

    async def _rows(
        self, client: Redis | Pipeline, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Checkpoint]:
        found = {}
        for partition in partitions:
            key = _key(group, partition)
            try:
                row = await cast("Awaitable[dict[str, str]]", client.hgetall(key))
            except ResponseError as error:
                if "WRONGTYPE" not in str(error):
                    raise
                raise CorruptCheckpointError(
                    f"{self._shown}: the key {key} is not one of our hashes"
                ) from error
            if row:
                found[partition] = validated_row(
                    f"{self._shown}: the hash {key}",
                    _number(row.get("token")),
                    _number(row.get("position")),
                    row.get("state"),
                    row.get("metadata"),
                )
        return found

    @asynccontextmanager
    async def _translated_errors(self) -> AsyncIterator[None]:
        """Give a call its deadline, and translate its errors."""
        try:
            async with asyncio.timeout(self._answer_s):
                yield
        except WatchError as error:
            # Before EXEC redis-py raises it only when the connection breaks.
            raise StoreAwayError(f"{self._shown}: {error}") from error
        except (exceptions.RedisError, OSError, TimeoutError, UnicodeDecodeError) as error:
            self._raise(error)

    def _raise(self, error: BaseException) -> NoReturn:
        text = f"{self._shown}: {str(error) or 'it did not answer in time'}"
        if isinstance(error, UnicodeDecodeError) or "WRONGTYPE" in text:
            raise CorruptCheckpointError(text) from error
        if _is_away(error):
            raise StoreAwayError(text) from error
        raise FatalBrokerError(text) from error


def _key(group: str, partition: TopicPartition) -> str:
    """Return the key of a partition's row.

    The braces put the rows of a group into one slot of a cluster, and with them what the user
    writes under keys with the same braces.
    """
    quoted_group = quote(group, safe="")
    topic = quote(partition.topic, safe="")
    return f"reactive_kafka:checkpoint:{{{quoted_group}}}:{topic}:{partition.partition}"


def _arguments(write: Write) -> tuple[str, ...]:
    """Return the script's arguments for one key."""
    token, position, state, metadata = write.checkpoint
    return (
        str(write.expected),
        _text(write.position),
        str(token),
        _text(position),
        "" if state is None else "1",
        state or "",
        metadata,
    )


def _text(position: int | None) -> str:
    return "" if position is None else str(position)


def _number(text: str | None) -> int | str | None:
    """Return the number that *text* is. Other text is returned as it is, and refused later."""
    if text is not None and text.isascii() and text.isdigit():
        return int(text)
    return text


def _is_away(error: BaseException) -> bool:
    if isinstance(error, _RIGHTS):
        return False
    if isinstance(error, _AWAY):
        return True
    return isinstance(error, ResponseError) and str(error).startswith(_AWAY_WORDS)

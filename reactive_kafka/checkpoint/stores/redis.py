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
    checked,
    may_be_allowed,
    refuse,
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
"""One step for Redis. For each key: token and position (or '') expected; token, position, '1' with
a state, the state, metadata. HSET comes first: it is what a full Redis refuses, and after another
write of the script it would not."""


class _Multi(Pipeline):
    """The user's part of a transaction: what they execute themselves would come without the row."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        raise CheckpointError(
            "the transaction executes the pipeline at its end: leave execute() to it"
        )

    async def run(self) -> None:
        """The end of the transaction."""
        await super().execute()


class RedisStore:
    """Hashes ``reactive_kafka:checkpoint:{group}:topic:partition``, names percent-encoded; written
    by one script.

    What Redis cannot promise: it confirms a write before it is on the disk, unless ``appendonly``
    is on with ``appendfsync always``; and a failover loses what the replica had not got yet, the
    rows together with what the same MULTI wrote. Then the position goes back, and records come
    again: at least once, not exactly once. Where ``maxmemory-policy`` evicts keys, rows may vanish:
    use ``noeviction`` or ``volatile-*``. A call may take *answer_s*.
    """

    def __init__(self, url: str, *, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._shown = shown(url)
        self._redis: Redis = Redis.from_url(
            url,
            decode_responses=True,
            # With the newer one redis-py 8 does not notice that a waiting connection was closed.
            protocol=2,
            socket_connect_timeout=min(CONNECT_S, answer_s),
            # With one, redis-py waits by wait_for, which in Python 3.11 loses cancellations.
            socket_timeout=None,
            # What was sent may have arrived: whoever has asked knows what to do then.
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._redis.connection_pool
        try:
            # Which connects to nothing.
            pool.connection_class(**pool.connection_kwargs)
        except TypeError as error:
            # Else each call would raise it.
            raise ValueError(f"{self._shown}: {error}") from error
        self._compare_and_set = self._redis.register_script(COMPARE_AND_SET)

    def __repr__(self) -> str:
        return f"RedisStore({self._shown!r})"

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        async with self._told():
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
        async with self._told():
            refused = await self._compare_and_set(keys=keys, args=arguments)
        stored = set(partitions) - {partitions[number - 1] for number in refused}
        return frozenset(writes.keys() - stored)

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[Pipeline]:
        """Yields a pipeline after WATCH and MULTI: the user's commands are queued, and run at the
        end with the rows.

        Nothing can be read through it. A command that Redis takes and that fails when it runs (of a
        wrong type, say) does not undo the others, the position among them: its error is raised all
        the same.
        """
        pool = self._redis.connection_pool
        callbacks = self._redis.response_callbacks
        pipeline = _Multi(pool, callbacks, transaction=True, shard_hint=None)
        try:
            async with self._told():
                await pipeline.watch(*(_key(group, partition) for partition in writes))
                rows = await self._rows(pipeline, group, writes)
            refuse(
                group,
                [
                    partition
                    for partition in writes
                    if not allows(rows.get(partition), writes[partition])
                ],
            )
            pipeline.multi()  # type: ignore[no-untyped-call]
            yield pipeline
            if not (pipeline.watching and pipeline.explicit_transaction):
                raise CheckpointError(
                    "the handler has reset the pipeline: leave its end to the transaction"
                )
            for partition, write in sorted(writes.items()):
                values = write.checkpoint._asdict().items()
                fields: dict[Any, Any] = {
                    name: value for name, value in values if value is not None
                }
                pipeline.delete(_key(group, partition))
                pipeline.hset(_key(group, partition), mapping=fields)
            await self._execute(pipeline, group, writes)
        finally:
            # Its connection goes to the pool. One that does not answer is left to itself: what was
            # done has ended, or has its own error.
            with suppress(*_AWAY):
                async with asyncio.timeout(self._answer_s):
                    await pipeline.reset()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close the connections."""
        # Nobody is there to say goodbye to.
        with suppress(*_AWAY):
            async with asyncio.timeout(CONNECT_S):
                await self._redis.aclose()
                await self._redis.connection_pool.disconnect()

    async def _execute(
        self, pipeline: _Multi, group: str, writes: Mapping[TopicPartition, Write]
    ) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                await pipeline.run()
        except WatchError as error:
            # Redis-py says this, too, when the connection breaks at EXEC.
            if isinstance(error.__context__, _LOST):
                self._raise(error.__context__)
            refuse(group, writes)
        except _AWAY as error:
            self._raise(error)
        except ResponseError as error:
            # Of one of the user's commands, or of all of them.
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
                    f"{self._shown}: the key {key} is no hash of ours"
                ) from error
            if row:
                token = row.get("token")
                position = row.get("position")
                place = f"{self._shown}: the hash {key}"
                rest = row.get("state"), row.get("metadata")
                found[partition] = checked(place, _number(token), _number(position), *rest)
        return found

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """A call with its deadline, and its errors as ours."""
        try:
            async with asyncio.timeout(self._answer_s):
                yield
        except WatchError as error:
            # Before EXEC redis-py says so when the connection breaks, and only then.
            raise StoreAwayError(f"{self._shown}: {error}") from error
        except (exceptions.RedisError, OSError, TimeoutError, UnicodeDecodeError) as error:
            self._raise(error)

    def _raise(self, error: BaseException) -> NoReturn:
        text = f"{self._shown}: {str(error) or 'it did not answer in time'}"
        if isinstance(error, UnicodeDecodeError) or "WRONGTYPE" in text:
            raise CorruptCheckpointError(text) from error
        raise (StoreAwayError if _is_away(error) else FatalBrokerError)(text) from error


def _key(group: str, partition: TopicPartition) -> str:
    """The braces keep the rows of a group, and what a user writes beside them, in one slot of a
    cluster.
    """
    return f"reactive_kafka:checkpoint:{{{quote(group, safe='')}}}:{quote(partition.topic, safe='')}:{partition.partition}"


def _arguments(write: Write) -> tuple[str, ...]:
    token, position, state, metadata = write.checkpoint
    has_state = "" if state is None else "1"
    return (
        str(write.expected),
        _text(write.position),
        str(token),
        _text(position),
        has_state,
        state or "",
        metadata,
    )


def _text(position: int | None) -> str:
    return "" if position is None else str(position)


def _number(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def _is_away(error: BaseException) -> bool:
    if isinstance(error, _RIGHTS):
        return False
    return isinstance(error, _AWAY) or (
        isinstance(error, ResponseError) and str(error).startswith(_AWAY_WORDS)
    )

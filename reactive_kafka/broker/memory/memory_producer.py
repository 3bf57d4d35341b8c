"""The in-memory broker's producer of single records and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from reactive_kafka.broker.client import Written, WrittenBatch
from reactive_kafka.broker.memory.memory_state import MemoryState, key_hash
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import HeaderPairs, RecordBytes, RecordFields, TopicPartition
from reactive_kafka.wire import fields_problem, record_problem, topic_problem

_MAX_REQUEST_SIZE = 1_048_576
_MAX_BATCH_SIZE = 262_144
# The size of a batch with one empty record, about as in Kafka.
_RECORD_OVERHEAD_BYTES = 70
_FLUSH_TIMEOUT_S = 10.0

T = TypeVar("T")


class MemoryWriter:
    """Writes batches into the in-memory broker, each in one call that a fault may hit.

    Batches of one partition keep their order, unless a fault holds one up.
    """

    def __init__(self, state: MemoryState, properties: Mapping[str, object]) -> None:
        self._state = state
        self._max_bytes = int_property(properties, "max_request_size", _MAX_REQUEST_SIZE)
        self._max_batch_bytes = min(
            self._max_bytes, int_property(properties, "max_batch_size", _MAX_BATCH_SIZE)
        )
        # Topics whose number of partitions was asked for.
        self._known_topics: set[str] = set()
        self._sending: dict[asyncio.Task[Any], None] = {}

    async def check(self) -> None:
        await self._state.faults.ask("check", lambda: None)

    def key_hash(self, key: bytes) -> int:
        return key_hash(key)

    async def partitions(self, topic: str) -> int:
        if problem := topic_problem(topic):
            raise RejectedRecordError(f"{topic}: {problem}")
        known = self.known_partitions(topic)
        if not known:
            known = await self._state.faults.ask("partitions", lambda: self._use(topic), topic)
            self._known_topics.add(topic)
        return known

    def known_partitions(self, topic: str) -> int:
        return len(self._state.logs.get(topic, ())) if topic in self._known_topics else 0

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        # Copies, because a fault may store them after the sender was told that they have failed.
        copies = [
            RecordBytes(record.value, record.key, record.headers, record.timestamp_ms)
            for record in records
        ]
        value, key, headers, timestamp_ms = copies[0]
        if problem := record_problem(to.topic, value, key, headers, to.partition, timestamp_ms):
            _reject(to.topic, problem)
        batch = self._batch(copies)
        answer = self._store(to, batch, lambda stored: WrittenBatch(stored[0].offset, len(stored)))
        # Retrieves the error, also if this call is cancelled.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await answer

    def _batch(self, records: Sequence[RecordBytes]) -> list[RecordBytes]:
        """Return the first of *records* that fit into a batch, at least one."""
        batch = [records[0]]
        size = _size_of(records[0])
        for record in records[1:]:
            value, key, headers, timestamp_ms = record
            if fields_problem(value, key, headers, None, timestamp_ms):
                break
            size += _size_of(record)
            if size > self._max_batch_bytes:
                break
            batch.append(record)
        return batch

    def _store(
        self,
        target: TopicPartition,
        records: Sequence[RecordBytes],
        make_answer: Callable[[list[Written]], T],
    ) -> asyncio.Future[T]:
        """Store records at once, in one call that a fault may hit."""
        # Bound to the transaction of this moment, whenever the call arrives.
        append = self._appender(target)

        def store() -> T:
            if max(map(_size_of, records)) > self._max_bytes:
                raise RejectedRecordError(
                    f"a record for {target} is larger than {self._max_bytes} bytes"
                )
            self._use(target.topic)
            if self._state.log(target) is None:
                raise RejectedRecordError(f"{target} does not exist")
            if target in self._state.faults.leaders_away:
                raise TransientBrokerError(f"the leader of {target} does not answer")
            return make_answer(append(records))

        if self._state.faults.is_quiet("send", target.topic):
            # Stored now, so that the order does not depend on the event loop.
            return _answer_soon(store)
        sending = self._state.faults.ask("send", store, target.topic)
        task = asyncio.create_task(sending, name=f"memory-send-{target}")
        self._sending[task] = None
        task.add_done_callback(self._sending.pop)
        return task

    def _appender(self, target: TopicPartition) -> Callable[[Sequence[RecordBytes]], list[Written]]:
        """Return a function that stores the records of a batch in an existing partition."""
        return lambda records: [self._state.append(target, record) for record in records]

    def _use(self, topic: str) -> int:
        if (partitions := self._state.use(topic)) == 0:
            raise FatalBrokerError(
                f"topic {topic!r} does not exist, and the broker does not create it"
            )
        return partitions

    async def stop(self) -> None:
        if self._sending:
            await asyncio.wait(self._sending, timeout=_FLUSH_TIMEOUT_S)
            for late in self._sending:
                late.cancel()


class MemoryProducer(MemoryWriter):
    """Writes single records, too."""

    def __init__(self, state: MemoryState, properties: Mapping[str, object]) -> None:
        super().__init__(state, properties)
        self._turn = count()

    async def start(self) -> None:
        await self._state.faults.ask("start", lambda: None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Written]:
        if problem := record_problem(topic, value, key, headers, partition, timestamp_ms):
            return _answer_soon(lambda: _reject(topic, problem))
        target = TopicPartition(
            topic, self._state.spread(topic, key, self._turn) if partition is None else partition
        )
        return self._store(
            target, [RecordBytes(value, key, headers, timestamp_ms)], lambda stored: stored[0]
        )


def int_property(properties: Mapping[str, object], name: str, default: int) -> int:
    """Return a client property as int, or the default."""
    given = properties.get(name, default)
    return int(given) if isinstance(given, int | str) else default


def _size_of(record: RecordBytes) -> int:
    return len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES


def _reject(topic: str, problem: str) -> Written:
    raise RejectedRecordError(f"{topic}: {problem}")


def _answer_soon(write: Callable[[], T]) -> asyncio.Future[T]:
    """Call *write* now, and return its result as a future that completes in the next turn."""
    loop = asyncio.get_running_loop()
    confirmed: asyncio.Future[T] = loop.create_future()
    try:
        loop.call_soon(_settle, confirmed, confirmed.set_result, write())
    except BrokerError as error:
        loop.call_soon(_settle, confirmed, confirmed.set_exception, error)
    return confirmed


def _settle(confirmed: asyncio.Future[Any], settle: Callable[[Any], None], outcome: object) -> None:
    # The caller may have cancelled it.
    if not confirmed.done():
        settle(outcome)

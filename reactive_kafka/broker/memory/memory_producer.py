"""The producer of the in-memory broker."""

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
# Of a batch with one record, about as in Kafka.
_RECORD_OVERHEAD_BYTES = 70
_FLUSH_TIMEOUT_S = 10.0

T = TypeVar("T")


class MemoryWriter:
    """Writes batches into the in-memory broker, each in one call that faults may meet.

    Those of one partition keep their order, unless a fault holds one up.
    """

    def __init__(self, state: MemoryState, properties: Mapping[str, object]) -> None:
        self._state = state
        self._max_bytes = number_of(properties, "max_request_size", _MAX_REQUEST_SIZE)
        self._max_batch_bytes = min(
            self._max_bytes, number_of(properties, "max_batch_size", _MAX_BATCH_SIZE)
        )
        # Topics whose partitions were asked for.
        self._known: set[str] = set()
        self._writing: dict[asyncio.Task[Any], None] = {}

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
            self._known.add(topic)
        return known

    def known_partitions(self, topic: str) -> int:
        return len(self._state.logs.get(topic, ())) if topic in self._known else 0

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        # As they are now: a fault may store them when they have failed for whoever sends them.
        held = [RecordBytes(one.value, one.key, one.headers, one.timestamp_ms) for one in records]
        value, key, headers, timestamp_ms = held[0]
        if problem := record_problem(to.topic, value, key, headers, to.partition, timestamp_ms):
            _reject(to.topic, problem)
        batch = self._batch(held)
        answer = self._hand_over(
            to, batch, lambda stored: WrittenBatch(stored[0].offset, len(stored))
        )
        # Looked at, also if cancelled now.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await answer

    def _batch(self, records: Sequence[RecordBytes]) -> list[RecordBytes]:
        """The first of them that fit into a batch, and one at least."""
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

    def _hand_over(
        self,
        target: TopicPartition,
        records: Sequence[RecordBytes],
        answer: Callable[[list[Written]], T],
    ) -> asyncio.Future[T]:
        """Store them at once, in one call that faults may meet."""
        # As things are now, whenever it arrives.
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
            return answer(append(records))

        if self._state.faults.is_quiet("send", target.topic):
            # Stored now, so that the order is kept whatever the loop does.
            return _settled_soon(store)
        sending = self._state.faults.ask("send", store, target.topic)
        task = asyncio.create_task(sending, name=f"memory-send-{target}")
        self._writing[task] = None
        task.add_done_callback(self._writing.pop)
        return task

    def _appender(self, target: TopicPartition) -> Callable[[Sequence[RecordBytes]], list[Written]]:
        """What stores the records of one batch in a partition that exists."""
        return lambda records: [self._state.append(target, one) for one in records]

    def _use(self, topic: str) -> int:
        if (partitions := self._state.use(topic)) == 0:
            raise FatalBrokerError(
                f"topic {topic!r} does not exist, and the broker does not create it"
            )
        return partitions

    async def stop(self) -> None:
        if self._writing:
            await asyncio.wait(self._writing, timeout=_FLUSH_TIMEOUT_S)
            for late in self._writing:
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
            return _settled_soon(lambda: _reject(topic, problem))
        target = TopicPartition(
            topic, self._state.spread(topic, key, self._turn) if partition is None else partition
        )
        return self._hand_over(
            target, [RecordBytes(value, key, headers, timestamp_ms)], lambda stored: stored[0]
        )


def number_of(properties: Mapping[str, object], name: str, default: int) -> int:
    given = properties.get(name, default)
    return int(given) if isinstance(given, int | str) else default


def _size_of(record: RecordBytes) -> int:
    return len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES


def _reject(topic: str, problem: str) -> Written:
    raise RejectedRecordError(f"{topic}: {problem}")


def _settled_soon(write: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    confirmed: asyncio.Future[T] = loop.create_future()
    try:
        loop.call_soon(_settle, confirmed, confirmed.set_result, write())
    except BrokerError as error:
        loop.call_soon(_settle, confirmed, confirmed.set_exception, error)
    return confirmed


def _settle(confirmed: asyncio.Future[Any], settle: Callable[[Any], None], outcome: object) -> None:
    # Else its caller has cancelled it.
    if not confirmed.done():
        settle(outcome)

"""The producer of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from reactive_kafka.broker.client import Written
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.errors import BrokerError, FatalBrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.wire import record_problem

_MAX_REQUEST_SIZE = 1_048_576
_RECORD_OVERHEAD_BYTES = 70  # of a batch with one record, about as in Kafka
_FLUSH_TIMEOUT_S = 10.0


class MemoryProducer:
    """Writes into the in-memory broker. Records of one partition keep their order, unless a fault holds one up."""

    def __init__(self, state: MemoryState, properties: Mapping[str, object]) -> None:
        self._state = state
        limit = properties.get("max_request_size", _MAX_REQUEST_SIZE)
        self._max_bytes = int(limit) if isinstance(limit, int | str) else _MAX_REQUEST_SIZE
        self._turn = count()
        self._writing: dict[asyncio.Task[Written], None] = {}

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
        target = TopicPartition(topic, self._state.spread(topic, key, self._turn) if partition is None else partition)

        def write() -> Written:
            if len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES > self._max_bytes:
                raise RejectedRecordError(f"a record for {target} is larger than {self._max_bytes} bytes")
            if self._state.use(topic) == 0:
                raise FatalBrokerError(f"topic {topic!r} does not exist, and the broker does not create it")
            if self._state.log(target) is None:
                raise RejectedRecordError(f"{target} does not exist")
            if target in self._state.faults.leaders_away:
                raise TransientBrokerError(f"the leader of {target} does not answer")
            return self._state.append(target, timestamp_ms, key, value, headers)

        if self._state.faults.is_quiet("send", topic):
            return _settled_soon(write)  # stored now, so that the order is kept whatever the loop does
        task = asyncio.create_task(self._state.faults.ask("send", write, topic), name=f"memory-send-{target}")
        self._writing[task] = None
        task.add_done_callback(self._writing.pop)
        return task

    async def stop(self) -> None:
        if self._writing:
            await asyncio.wait(self._writing, timeout=_FLUSH_TIMEOUT_S)
            for late in self._writing:
                late.cancel()


def _reject(topic: str, problem: str) -> Written:
    raise RejectedRecordError(f"{topic}: {problem}")


def _settled_soon(write: Callable[[], Written]) -> asyncio.Future[Written]:
    loop = asyncio.get_running_loop()
    confirmed: asyncio.Future[Written] = loop.create_future()
    try:
        loop.call_soon(_settle, confirmed, confirmed.set_result, write())
    except BrokerError as error:
        loop.call_soon(_settle, confirmed, confirmed.set_exception, error)
    return confirmed


def _settle(confirmed: asyncio.Future[Written], settle: Callable[[Any], None], outcome: object) -> None:
    if not confirmed.done():  # else its caller has cancelled it
        settle(outcome)

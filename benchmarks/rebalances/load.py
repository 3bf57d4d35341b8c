"""The load of the group: one record after the other, to each partition in its turn."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaProducer

from benchmarks.rebalances.diary import value
from benchmarks.rebalances.judge import Sent

_TICK_S = 0.01


class SteadyLoad:
    """Writes to a topic that nobody else writes to, so that a record's number in its partition is
    its offset.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._next: Counter[int] = Counter()
        self._under_way: deque[asyncio.Future[object]] = deque()
        self.sent: list[Sent] = []
        """Every record, in the order of the sends."""

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Write until the context ends, which waits for the last confirmation."""
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True)
        await producer.start()
        over = asyncio.Event()
        try:
            writing = asyncio.create_task(self._write(producer, over), name="load")
            try:
                yield
            finally:
                over.set()
                await writing
        finally:
            await producer.stop()

    async def _write(self, producer: AIOKafkaProducer, over: asyncio.Event) -> None:
        began = time.monotonic()
        number = 0
        while not over.is_set():
            while number <= (time.monotonic() - began) * self._per_second:
                await self._send(producer, number % self._partitions)
                number += 1
            while self._under_way and self._under_way[0].done():
                await self._under_way.popleft()
            await asyncio.sleep(_TICK_S)
        for confirmation in self._under_way:
            await confirmation

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        offset = self._next[partition]
        self._next[partition] += 1
        now_ns = time.time_ns()
        self.sent.append(Sent(now_ns, partition, offset))
        self._under_way.append(
            await producer.send(self._topic, value(now_ns, partition, offset), partition=partition)
        )

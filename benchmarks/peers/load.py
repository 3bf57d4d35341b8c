"""The load of a group that is killed: so many records a second, alike to each partition, each of
which names itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaProducer

from benchmarks.peers.journal import value
from benchmarks.topic import PARTITIONS

_TICK_S = 0.02


class Load:
    """Writes to a topic that nobody else writes to, so that a record's number in its partition is
    its offset.
    """

    def __init__(self, bootstrap: str, topic: str, per_second: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._per_second = per_second
        self.sent: Counter[int] = Counter()
        """Partition -> records that the broker has confirmed."""

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Write until the context ends, which waits for the last confirmation."""
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True)
        await producer.start()
        over = asyncio.Event()
        try:
            # No task group, which would wrap what goes wrong meanwhile.
            writing = asyncio.create_task(self._write(producer, over))
            try:
                yield
            finally:
                over.set()
                await writing
        finally:
            await producer.stop()

    async def _write(self, producer: AIOKafkaProducer, over: asyncio.Event) -> None:
        began = time.monotonic()
        while not over.is_set():
            due = int((time.monotonic() - began) * self._per_second) // PARTITIONS
            confirmed = []
            for partition in range(PARTITIONS):
                batch = producer.create_batch()
                more = due - self.sent[partition]
                for offset in range(self.sent[partition], due):
                    if (
                        batch.append(key=None, value=value(partition, offset), timestamp=None)
                        is None
                    ):
                        # The rest goes with the next one.
                        more = offset - self.sent[partition]
                        break
                if more:
                    confirmed.append(
                        await producer.send_batch(batch, self._topic, partition=partition)
                    )
                    self.sent[partition] += more
            for one in confirmed:
                await one
            await asyncio.sleep(_TICK_S)

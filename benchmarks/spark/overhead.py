"""A batch through a channel beside ``createDataFrame`` and the same job by hand: one session, in
turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from benchmarks.spark.figures import Overhead
from benchmarks.spark.plan import PARTITIONS
from benchmarks.spark.throughput import settings
from benchmarks.spark.work import Given, click, count_pages
from benchmarks.topic import BATCH_BYTES, write_partition
from reactive_kafka import App, SparkBatch
from reactive_kafka.broker.client import Poll
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.spark.batches.columns import record_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The first one waits for Spark.
BATCH_TIMEOUT_S = 240.0
# A setting, not a cost: else the wait for the next tick would be measured.
COMMIT_INTERVAL = "5ms"


@dataclass(slots=True)
class Watch:
    """When things happened to the batch that is on its way: seconds of ``perf_counter``.

    Args:
        total: Records that the topic holds with this batch.
    """

    total: int = 0
    arrived: int = 0
    complete_at: float = 0.0
    called_at: float = 0.0
    returned_at: float = 0.0
    committed_at: float = 0.0


class WatchedConsumer:
    """A consumer that notes when the batch is complete, and when the group has the position behind
    it.
    """

    def __init__(self, inner: Any, watch: Watch, committed: Callable[[], None]) -> None:
        self._inner = inner
        self._watch = watch
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        """What the inner one has; the clock is read when that has made the batch complete."""
        found: Poll = await self._inner.poll(budgets, timeout_s, most)
        self._watch.arrived += sum(len(chunk.records) for chunk in found.chunks)
        if found.chunks and self._watch.arrived == self._watch.total:
            # after the channel has made columns of these, as of all before; before anybody is woken
            # by it
            asyncio.get_running_loop().call_soon(self._complete)
        return found

    def _complete(self) -> None:
        self._watch.complete_at = time.perf_counter()

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Commit; the clock is read when that has covered the batch."""
        await self._inner.commit(offsets, generation)
        self._positions.update((partition, kept.offset) for partition, kept in offsets.items())
        if sum(self._positions.values()) == self._watch.total and not self._watch.committed_at:
            self._watch.committed_at = time.perf_counter()
            self._committed()


class WatchedConnector(KafkaConnector):
    """Makes consumers that are watched."""

    def __init__(self, bootstrap_servers: str, watch: Watch, committed: Callable[[], None]) -> None:
        super().__init__(bootstrap_servers)
        self._watch = watch
        self._committed = committed

    def consumer(self, **how: Any) -> Any:
        """A watched consumer."""
        return WatchedConsumer(super().consumer(**how), self._watch, self._committed)


@dataclass(frozen=True, slots=True)
class Record:
    """One that never saw a broker."""

    offset: int
    value: bytes
    timestamp: int = 1_700_000_000_000
    key: None = None
    headers: Sequence[tuple[str, bytes]] = ()


def table(count: int) -> Any:
    """An Arrow table of *count* records of all partitions, with the columns that a channel
    ships.
    """
    import pyarrow as pa

    share = count // PARTITIONS
    pieces = [
        record_batch(
            TopicPartition("bench", number),
            [Record(offset, click(offset)) for offset in range(share)],
        )
        for number in range(PARTITIONS)
    ]
    return pa.Table.from_batches(pieces).combine_chunks()


def overhead(given: Given) -> Overhead:
    """Measure batches of the given size, the turns alternating."""
    return asyncio.run(_overhead(given))


async def _overhead(given: Given) -> Overhead:
    watch = Watch()
    is_committed = asyncio.Event()
    conf = settings(given, "records")
    conf["kafka"]["commit_interval"] = COMMIT_INTERVAL
    app = App(conf)
    app._connector = WatchedConnector(given.bootstrap, watch, is_committed.set)
    spark: Any = None

    @app.spark("bench")
    def job(df: DataFrame, batch: SparkBatch) -> None:
        nonlocal spark
        spark = batch.spark
        watch.called_at = time.perf_counter()
        count_pages(df)
        watch.returned_at = time.perf_counter()

    rows = table(given.batch_records)
    share = given.batch_records // PARTITIONS
    found = Overhead(records=share * PARTITIONS, ours_s=[], by_hand_s=[], before_s=[], after_s=[])

    def by_hand() -> float:
        began = time.perf_counter()
        count_pages(spark.createDataFrame(rows))
        return time.perf_counter() - began

    async with (
        app,
        AIOKafkaProducer(bootstrap_servers=given.bootstrap, max_batch_size=BATCH_BYTES) as producer,
    ):

        async def ours() -> Watch:
            watch.committed_at = 0.0
            is_committed.clear()
            watch.total += found.records
            writing = [
                write_partition(producer, given.topic, number, share, click)
                for number in range(PARTITIONS)
            ]
            await asyncio.gather(*writing)
            async with asyncio.timeout(BATCH_TIMEOUT_S):
                await is_committed.wait()
            return watch

        for number in range(given.warm + given.batches):
            # And the next turn the other way round.
            is_first = number % 2 == 0
            hand_s = 0.0 if is_first else await asyncio.to_thread(by_hand)
            seen = await ours()
            hand_s = await asyncio.to_thread(by_hand) if is_first else hand_s
            if number >= given.warm:
                found.ours_s.append(seen.committed_at - seen.complete_at)
                found.before_s.append(seen.called_at - seen.complete_at)
                found.after_s.append(seen.committed_at - seen.returned_at)
                found.by_hand_s.append(hand_s)
    return found

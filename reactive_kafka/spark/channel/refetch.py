"""Returns single records of a run with their bytes: from the columns, or by reading them again.

Executors read the records of a channel with ``mode = "ranges"``, so this process has only offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer, start_without_group
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.lanes.lane import LaneSlice
from reactive_kafka.errors import CorruptRecordError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.observe.events import Observer, UnreadableSkipped
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark.batches import columns
from reactive_kafka.spark.batches.runs import RecordRun, end_of
from reactive_kafka.subscription import Partitions

Fetch = Callable[[TopicPartition, Collection[int]], AsyncGenerator[Sequence[RawRecord]]]
"""Reads records by their offsets, in pieces, in ascending order. Records that the log does not have
any more are left out.
"""

# At most so many records are in memory at once, in addition to those of one fetch.
PIECE_RECORDS = 500
# So many unwanted offsets in a row are read and dropped. A longer gap is skipped by a seek.
SKIP_OFFSETS = 100
PATIENCE_S = 30.0
POLL_S = 0.5
BACKOFF = Backoff(0.25, 5.0)
# Settings for members of a group. This client belongs to none.
_GROUP_PROPERTIES = ("group_instance_id", "enable_auto_commit", "auto_commit_interval_ms")


async def raw_records(
    run: RecordRun, indexes: Collection[int], fetch: Fetch
) -> AsyncGenerator[list[tuple[int, RawRecord]]]:
    """Yield records of a run with their arrival numbers, in pieces; those in columns come first.

    Args:
        run: The run.
        indexes: The arrival numbers of the wanted records.
        fetch: Reads the records that only executors have read.
    """
    # None: all records are wanted.
    wanted = None if len(indexes) == run.records else set(indexes)
    # Offset -> arrival number, of the records to be fetched.
    index_of: dict[int, int] = {}
    for part in run.slices:
        if isinstance(part.records, range):
            for index, offset in enumerate(part.records, part.first):
                if wanted is None or index in wanted:
                    index_of[offset] = index
        else:
            for piece in _from_columns(part, wanted):
                yield piece
    if index_of:
        async with aclosing(fetch(run.tracker.partition, index_of.keys())) as fetched:
            async for records in fetched:
                yield [
                    (index_of[record.offset], record)
                    for record in records
                    if record.offset in index_of
                ]


def _from_columns(
    part: LaneSlice, wanted: set[int] | None
) -> Iterator[list[tuple[int, RawRecord]]]:
    """Yield the wanted records of a slice: whole pieces if all are wanted, else row by row."""
    table: Any = part.records
    if wanted is None:
        for row in range(0, len(table), PIECE_RECORDS):
            records = columns.records(table[row : row + PIECE_RECORDS])
            yield list(enumerate(records, part.first + row))
        return
    indexes = sorted(wanted.intersection(range(part.first, end_of(part))))
    for start in range(0, len(indexes), PIECE_RECORDS):
        piece: list[tuple[int, RawRecord]] = []
        for index in indexes[start : start + PIECE_RECORDS]:
            row = index - part.first
            piece += [(index, record) for record in columns.records(table[row : row + 1])]
        yield piece


async def records_of(
    connector: Connector,
    settings: IncomingSettings,
    partition: TopicPartition,
    offsets: Collection[int],
    *,
    patience_s: float = PATIENCE_S,
    observer: Observer | None = None,
) -> AsyncGenerator[Sequence[RawRecord], None]:
    """Read the records with these offsets, in ascending order.

    Pieces have at most ``PIECE_RECORDS`` records and are never empty. Records that are not in the
    log, or that the channel's isolation level hides, are left out. The client belongs to no group.
    It is closed with the iterator: use ``contextlib.aclosing`` to leave that early.

    Unreadable records are skipped and reported to the *observer* with ``on_unreadable = "skip"``,
    and read again and again with ``"wait"``.

    Raises:
        TransientBrokerError: There was no progress for *patience_s*. The cause is the last error.
        CorruptRecordError: A record cannot be read, with ``on_unreadable = "fail"``.
        BrokerError: Any other error of the broker.
    """
    reader = _RefetchReader(connector, settings, partition, patience_s, observer)
    wanted = offsets if isinstance(offsets, range) else frozenset(offsets)
    try:
        for stretch in stretches(wanted):
            position = stretch.start
            while position < stretch.stop:
                records, position = await reader.take(position, stretch.stop)
                piece = [
                    record
                    for record in records
                    if record.offset in stretch and record.offset in wanted
                ]
                if piece:
                    yield piece
    finally:
        await reader.close()


def stretches(offsets: Iterable[int]) -> list[range]:
    """Return the stretches of the log to read, in ascending order.

    A stretch ends at the last wanted offset before a gap that is worth a seek.
    """
    if isinstance(offsets, range) and offsets.step == 1:
        return [offsets] if offsets else []
    result: list[range] = []
    for offset in sorted(offsets):
        if result and offset - result[-1].stop <= SKIP_OFFSETS:
            result[-1] = range(result[-1].start, offset + 1)
        else:
            result.append(range(offset, offset + 1))
    return result


@dataclass(eq=False)
class _RefetchReader:
    """Reads one partition. After an error it makes a new client."""

    connector: Connector
    settings: IncomingSettings
    partition: TopicPartition
    patience_s: float
    observer: Observer | None
    consumer: Consumer | None = None
    # The client's position. None: it must seek first.
    position: int | None = None
    # End of the log when the client last had to seek.
    end: int = 0

    async def take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        """Return records from *position* on, and the position behind them.

        That position is *until* if there are no more records before it.
        """
        waits = Waits(BACKOFF)
        reason: TransientBrokerError | None = None
        try:
            async with asyncio.timeout(self.patience_s):
                while True:
                    try:
                        records, reached = await self._take(position, until)
                    except TransientBrokerError as error:
                        reason = error
                        await self.close()
                        await asyncio.sleep(waits.next_s())
                        continue
                    if records or reached > position:
                        return records, reached
        except TimeoutError:
            raise TransientBrokerError(
                f"{self.partition} could not be read from offset {position}"
                f" within {self.patience_s:g} s: {reason or 'no records came'}"
            ) from reason

    async def _take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        consumer = await self._connected()
        partition = self.partition
        if self.position != position:
            start = (await consumer.beginning_offsets([partition]))[partition]
            self.end = (await consumer.end_offsets([partition]))[partition]
            position = max(position, start)
            if position >= min(until, self.end):
                return (), until
            consumer.start_at({partition: position})
        self.position = position
        poll = await consumer.poll({partition: min(PIECE_RECORDS, until - position)}, POLL_S)
        error = poll.errors.get(partition)
        if error is not None:
            self.position = None
            if isinstance(error, OffsetOutOfRangeError):
                # The log has been truncated meanwhile. The next attempt looks where it starts now.
                raise TransientBrokerError(str(error)) from error
            if isinstance(error, CorruptRecordError) and self.settings.on_unreadable != "fail":
                return (), self._behind_unreadable(error)
            raise error
        self.position = consumer.positions()[partition]
        records = [record for chunk in poll.chunks for record in chunk.records]
        if self.position < min(until, self.end):
            return records, self.position
        return records, until

    def _behind_unreadable(self, error: CorruptRecordError) -> int:
        """Return the position behind an unreadable record.

        Raises:
            TransientBrokerError: ``on_unreadable`` is ``"wait"``.
        """
        if self.settings.on_unreadable == "wait":
            raise TransientBrokerError(str(error)) from error
        # If the end of the unreadable batch is unknown, skip one offset at a time.
        until = error.until or error.offset + 1
        if self.observer is not None:
            self.observer.on(
                UnreadableSkipped(
                    channel=self.settings.name,
                    partition=self.partition,
                    offset=error.offset,
                    until=until,
                    reason=error.reason,
                )
            )
        return until

    async def _connected(self) -> Consumer:
        if self.consumer is None:
            properties = {
                name: value
                for name, value in self.settings.client.items()
                if name not in _GROUP_PROPERTIES
            }
            self.consumer = self.connector.consumer(
                name=f"{self.settings.name}-again",
                subscription=Partitions((self.partition,)),
                group_id=None,
                properties=properties,
            )
            await start_without_group(self.consumer)
        return self.consumer

    async def close(self) -> None:
        """Close the client. The next read makes a new one."""
        consumer = self.consumer
        self.consumer = None
        self.position = None
        if consumer is not None:
            await consumer.stop()

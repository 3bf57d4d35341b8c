"""Single records of a run with their bytes: out of the columns, or read again where executors have
read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer, start_without_group
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lanes.lane import LaneSlice
from reactive_kafka.errors import CorruptRecordError, OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.observe.events import Observer, UnreadableSkipped
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark.batches import columns
from reactive_kafka.spark.batches.runs import RecordRun, end_of
from reactive_kafka.subscription import Partitions

Fetch = Callable[[TopicPartition, Collection[int]], AsyncGenerator[Sequence[RawRecord]]]
"""Reads records by their offsets, in pieces, ascending, without those that are not in the log any
more.
"""

# The most records in memory at once, in addition to those of one fetch.
PIECE_RECORDS = 500
# Unwanted records in a row that are read and dropped; a longer gap is skipped by a seek.
SKIP_OFFSETS = 100
PATIENCE_S = 30.0
POLL_S = 0.5
BACKOFF = Backoff(0.25, 5.0)
_OF_A_MEMBER = ("group_instance_id", "enable_auto_commit", "auto_commit_interval_ms")


async def raw_records(
    run: RecordRun, indexes: Collection[int], fetch: Fetch
) -> AsyncGenerator[list[tuple[int, RawRecord]]]:
    """Some records of a run with their arrival numbers (*indexes*), in pieces; those in columns
    first.
    """
    wanted = None if len(indexes) == run.records else set(indexes)
    # Offset -> arrival number, of the records to be fetched.
    at: dict[int, int] = {}
    for part in run.slices:
        if isinstance(part.records, range):
            offsets = enumerate(part.records, part.first)
            at.update(
                (offset, index) for index, offset in offsets if wanted is None or index in wanted
            )
        else:
            for piece in _of_columns(part, wanted):
                yield piece
    if at:
        async with aclosing(fetch(run.tracker.partition, at.keys())) as pieces:
            async for records in pieces:
                yield [(at[record.offset], record) for record in records if record.offset in at]


def _of_columns(part: LaneSlice, wanted: set[int] | None) -> Iterator[list[tuple[int, RawRecord]]]:
    """Whole pieces if all are wanted, else row by row."""
    kept: Any = part.records
    if wanted is None:
        for at in range(0, len(kept), PIECE_RECORDS):
            yield list(enumerate(columns.records(kept[at : at + PIECE_RECORDS]), part.first + at))
        return
    found = [at - part.first for at in sorted(wanted.intersection(range(part.first, end_of(part))))]
    for begin in range(0, len(found), PIECE_RECORDS):
        piece = found[begin : begin + PIECE_RECORDS]
        yield [
            (part.first + at, record)
            for at in piece
            for record in columns.records(kept[at : at + 1])
        ]


async def records_of(
    connector: Connector,
    settings: IncomingSettings,
    partition: TopicPartition,
    offsets: Collection[int],
    *,
    patience_s: float = PATIENCE_S,
    observer: Observer | None = None,
) -> AsyncGenerator[Sequence[RawRecord], None]:
    """Read the records with these offsets, ascending, in pieces of at most ``PIECE_RECORDS``, none
    empty.

    Those that are not in the log (any more), or that the channel's isolation level hides, are left
    out. The client belongs to no group. It is closed with the iterator: leave it early through
    ``contextlib.aclosing``. Raises TransientBrokerError, caused by the last error, if there was no
    progress for *patience_s*, or another BrokerError. What cannot be read is passed over with
    ``on_unreadable = "skip"``, which the *observer* is told, waited for with ``"wait"``, and raised
    as CorruptRecordError with ``"fail"``.
    """
    reader = _Reader(connector, settings, partition, patience_s, observer)
    wanted = offsets if isinstance(offsets, range) else frozenset(offsets)
    try:
        for stretch in stretches(wanted):
            position = stretch.start
            while position < stretch.stop:
                records, position = await reader.take(position, stretch.stop)
                found = [
                    record
                    for record in records
                    if record.offset in stretch and record.offset in wanted
                ]
                if found:
                    yield found
    finally:
        await reader.close()


def stretches(offsets: Iterable[int]) -> list[range]:
    """The stretches to read, ascending, each from a wanted offset to the last one before a gap that
    is skipped.
    """
    if isinstance(offsets, range) and offsets.step == 1:
        return [offsets] if offsets else []
    found: list[range] = []
    for offset in sorted(offsets):
        if found and offset - found[-1].stop <= SKIP_OFFSETS:
            found[-1] = range(found[-1].start, offset + 1)
        else:
            found.append(range(offset, offset + 1))
    return found


@dataclass(eq=False)
class _Reader:
    """Reads one partition; after an error with a new client."""

    connector: Connector
    settings: IncomingSettings
    partition: TopicPartition
    patience_s: float
    observer: Observer | None
    consumer: Consumer | None = None
    # The client's position.
    at: int | None = None
    # Of the log, as it was at the last seek.
    end: int = 0

    async def take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        """Some records from *position* on, and the position after them; *until* if there are no
        more before that.
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
            text = f"{self.partition} could not be read from offset {position} within {self.patience_s:g} s"
            raise TransientBrokerError(f"{text}: {reason or 'no records came'}") from reason

    async def _take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        consumer = await self._connected()
        partition = self.partition
        if self.at != position:
            begin = (await consumer.beginning_offsets([partition]))[partition]
            self.end = (await consumer.end_offsets([partition]))[partition]
            position = max(position, begin)
            if position >= min(until, self.end):
                return (), until
            consumer.start_at({partition: position})
        self.at = position
        poll = await consumer.poll({partition: min(PIECE_RECORDS, until - position)}, POLL_S)
        if (error := poll.errors.get(partition)) is not None:
            self.at = None
            # Deleted meanwhile: look where the log begins now.
            if isinstance(error, OffsetOutOfRangeError):
                raise TransientBrokerError(str(error)) from error
            if isinstance(error, CorruptRecordError) and self.settings.on_unreadable != "fail":
                return (), self._passed(error)
            raise error
        self.at = consumer.positions()[partition]
        records = [record for chunk in poll.chunks for record in chunk.records]
        return records, self.at if self.at < min(until, self.end) else until

    def _passed(self, error: CorruptRecordError) -> int:
        """The position behind what cannot be read; where it is waited for, TransientBrokerError."""
        if self.settings.on_unreadable == "wait":
            raise TransientBrokerError(str(error)) from error
        # Without an end it is passed over offset by offset.
        until = error.until or error.offset + 1
        if self.observer is not None:
            channel = self.settings.name
            partition = self.partition
            told = UnreadableSkipped(
                channel=channel,
                partition=partition,
                offset=error.offset,
                until=until,
                reason=error.reason,
            )
            self.observer.on(told)
        return until

    async def _connected(self) -> Consumer:
        if self.consumer is None:
            properties = {
                name: value
                for name, value in self.settings.client.items()
                if name not in _OF_A_MEMBER
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
        """Close the client; the next read makes a new one."""
        consumer = self.consumer
        self.consumer = None
        self.at = None
        if consumer is not None:
            await consumer.stop()

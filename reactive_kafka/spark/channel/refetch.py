"""Single records of a run with their bytes: out of the columns, or read again where executors have read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import Slice
from reactive_kafka.errors import OffsetOutOfRangeError, TransientBrokerError
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.spark.batches import columns
from reactive_kafka.spark.batches.runs import RecordRun, end_of
from reactive_kafka.subscription import Partitions

Fetch = Callable[[TopicPartition, Collection[int]], AsyncGenerator[Sequence[RawRecord]]]
"""Reads records by their offsets, in pieces, ascending, without those that are not in the log any more."""

PIECE_RECORDS = 500
"""The most records in memory at once, in addition to those of one fetch."""

SKIP_OFFSETS = 100
"""Unwanted records in a row that are read and dropped; a longer gap is skipped by a seek."""

PATIENCE_S = 30.0
POLL_S = 0.5
BACKOFF = Backoff(0.25, 5.0)

_OF_A_MEMBER = ("group_instance_id", "enable_auto_commit", "auto_commit_interval_ms")


async def raw_records(
    run: RecordRun, indexes: Collection[int], fetch: Fetch
) -> AsyncGenerator[list[tuple[int, RawRecord]]]:
    """Some records of a run with their arrival numbers, in pieces; those in columns first.

    Args:
        indexes: The arrival numbers.
        fetch: Reads the records that executors have read.
    """
    wanted = None if len(indexes) == run.records else set(indexes)
    at: dict[int, int] = {}  # offset -> arrival number, of the records to be fetched
    for part in run.slices:
        if isinstance(part.records, range):
            offsets = enumerate(part.records, part.first)
            at.update((offset, index) for index, offset in offsets if wanted is None or index in wanted)
        else:
            for piece in _of_columns(part, wanted):
                yield piece
    if at:
        async with aclosing(fetch(run.tracker.partition, at.keys())) as pieces:
            async for records in pieces:
                yield [(at[record.offset], record) for record in records if record.offset in at]


def _of_columns(part: Slice, wanted: set[int] | None) -> Iterator[list[tuple[int, RawRecord]]]:
    kept: Any = part.records
    if wanted is None:
        for at in range(0, len(kept), PIECE_RECORDS):
            yield list(enumerate(columns.records(kept[at : at + PIECE_RECORDS]), part.first + at))
        return
    found = [at - part.first for at in sorted(wanted.intersection(range(part.first, end_of(part))))]
    for begin in range(0, len(found), PIECE_RECORDS):
        piece = found[begin : begin + PIECE_RECORDS]
        yield [(part.first + at, record) for at in piece for record in columns.records(kept[at : at + 1])]


async def records_of(
    connector: Connector,
    settings: IncomingSettings,
    partition: TopicPartition,
    offsets: Collection[int],
    *,
    patience_s: float = PATIENCE_S,
) -> AsyncGenerator[Sequence[RawRecord], None]:
    """Read the records with these offsets, ascending, in pieces of at most ``PIECE_RECORDS``, none empty.

    Those that are not in the log (any more), or that the channel's isolation level hides, are left out. The client
    belongs to no group. It is closed with the iterator: leave it early through ``contextlib.aclosing``.

    Args:
        settings: The channel's, for its connection and isolation level.
        patience_s: How long reading is tried without progress.

    Raises:
        TransientBrokerError: That time is over; the last error is ``__cause__``.
        BrokerError: Rights are missing, or the log cannot be read there.
    """
    reader = _Reader(connector, settings, partition, patience_s)
    wanted = offsets if isinstance(offsets, range) else frozenset(offsets)
    try:
        for stretch in stretches(wanted):
            position = stretch.start
            while position < stretch.stop:
                records, position = await reader.take(position, stretch.stop)
                found = [record for record in records if record.offset in stretch and record.offset in wanted]
                if found:
                    yield found
    finally:
        await reader.close()


def stretches(offsets: Iterable[int]) -> list[range]:
    """The stretches to read, ascending, each from a wanted offset to the last one before a gap that is skipped."""
    if isinstance(offsets, range) and offsets.step == 1:
        return [offsets] if offsets else []
    found: list[range] = []
    for offset in sorted(offsets):
        if found and offset - found[-1].stop <= SKIP_OFFSETS:
            found[-1] = range(found[-1].start, offset + 1)
        else:
            found.append(range(offset, offset + 1))
    return found


class _Reader:
    """Reads one partition; after an error with a new client."""

    def __init__(
        self, connector: Connector, settings: IncomingSettings, partition: TopicPartition, patience_s: float
    ) -> None:
        self._connector = connector
        self._settings = settings
        self._partition = partition
        self._patience_s = patience_s
        self._consumer: Consumer | None = None
        self._at: int | None = None
        self._end = 0

    async def take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        """Some records from *position* on, and the position after them; *until* if there are no more before that."""
        deadline = asyncio.get_running_loop().time() + self._patience_s
        waits = Waits(BACKOFF)
        reason: TransientBrokerError | None = None
        try:
            async with asyncio.timeout_at(deadline):
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
            text = f"{self._partition} could not be read from offset {position} within {self._patience_s:g} s"
            raise TransientBrokerError(f"{text}: {reason or 'no records came'}") from reason

    async def _take(self, position: int, until: int) -> tuple[Sequence[RawRecord], int]:
        consumer = await self._connected()
        partition = self._partition
        if self._at != position:
            begin = (await consumer.beginning_offsets([partition]))[partition]
            self._end = (await consumer.end_offsets([partition]))[partition]
            position = max(position, begin)
            if position >= min(until, self._end):
                return (), until
            consumer.start_at({partition: position})
        self._at = position
        poll = await consumer.poll({partition: min(PIECE_RECORDS, until - position)}, POLL_S)
        if (error := poll.errors.get(partition)) is not None:
            self._at = None
            if isinstance(error, OffsetOutOfRangeError):  # deleted meanwhile: look where the log begins now
                raise TransientBrokerError(str(error)) from error
            raise error
        self._at = consumer.positions()[partition]
        records = [record for chunk in poll.chunks for record in chunk.records]
        return records, self._at if self._at < min(until, self._end) else until

    async def _connected(self) -> Consumer:
        if self._consumer is None:
            properties = {name: value for name, value in self._settings.client.items() if name not in _OF_A_MEMBER}
            self._consumer = self._connector.consumer(
                name=f"{self._settings.name}-again", subscription=Partitions((self._partition,)), group_id=None,
                properties=properties,
            )  # fmt: skip
            assigned = _Assigned()
            await self._consumer.start(assigned)
            await assigned.event.wait()
        return self._consumer

    async def close(self) -> None:
        """Close the client; the next read makes a new one."""
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            await consumer.stop()


class _Assigned:
    """Waits for the one assignment of a client without a group."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Never."""

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        """It may be read."""
        self.event.set()

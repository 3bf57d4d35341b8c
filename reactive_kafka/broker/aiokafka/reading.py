"""Takes fetched records out of an aiokafka client, one partition at a time.

The client's ``getmany`` makes a dataclass of eleven fields for each record, which is most of what it costs.
Underneath lie compiled record batches; their records already have every attribute of
:class:`reactive_kafka.records.RawRecord`, so they are handed out as they are. What the client's own reader does
stays done: checksums, aborted transactions, control batches, records below the wanted offset, the batch's own end.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords

from reactive_kafka.broker.aiokafka.membership import Assignment
from reactive_kafka.broker.aiokafka.setup import theirs, translate
from reactive_kafka.broker.client import Chunk, Poll
from reactive_kafka.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError
from reactive_kafka.records import RawRecord, TopicPartition


class BatchReader:
    """Takes records, as many as wanted at a time, out of one fetched piece of one partition.

    The piece is the client's ``PartitionRecords``, of which nothing has been read. With *read_committed* records of
    aborted transactions are passed over.
    """

    def __init__(self, partition: TopicPartition, piece: Any, *, read_committed: bool) -> None:
        self.next_offset: int = piece.next_fetch_offset
        self.is_exhausted = False
        self._partition = partition
        self._piece = piece
        self._batches = piece._records
        self._read_committed = read_committed
        self._batch: Any = None
        self._broken: Exception | None = None  # why the next batch cannot be read
        # A generator of the client's that refers back to the piece. We read underneath it; left in place, it would keep
        # each piece, with all its bytes, until the cyclic collector comes along.
        piece._records_iterator = None
        self._records: Iterator[RawRecord] | None = None

    def take(self, count: int) -> list[RawRecord]:
        """Up to *count* records; fewer only at the end of the piece. ``next_offset`` goes along.

        Before a batch that cannot be read it stays: with nothing taken first, CorruptRecordError says so.
        """
        taken: list[RawRecord] = []
        try:
            while len(taken) < count:
                if self._records is None and not self._open_next():
                    self.is_exhausted = True
                    break
                self._take_from_batch(taken, count - len(taken))
        except Exception as error:  # whatever the decoder meets in broken bytes: checksum, codec, struct, index
            self._records = None
            if not taken:
                self.is_exhausted = True
                raise CorruptRecordError(self._partition, self.next_offset, _reason(error)) from error
            self._broken = error
        return taken

    def _take_from_batch(self, taken: list[RawRecord], wanted: int) -> None:
        records = list(islice(self._records or (), wanted))
        is_end = len(records) < wanted
        if records and records[0].offset < self.next_offset:  # a compressed batch starts where it was written
            records = [record for record in records if record.offset >= self.next_offset]
        if records:
            taken.extend(records)
            self.next_offset = records[-1].offset + 1
        if is_end:
            self.next_offset = max(self.next_offset, self._batch.next_offset)
            self._batch = self._records = None

    def _open_next(self) -> bool:
        """Go to the next batch with records for us; False at the end of the piece."""
        if self._broken is not None:
            raise self._broken
        while self._batches.has_next():
            batch = self._batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("the checksum is wrong")
            if not self._is_passed_over(batch):
                self._batch = batch
                self._records = chain(batch)  # a batch refuses to be asked for its iterator twice, as islice does
                return True
            self.next_offset = max(self.next_offset, batch.next_offset)
        return False

    def _is_passed_over(self, batch: Any) -> bool:
        piece = self._piece
        if self._read_committed and batch.producer_id is not None:
            piece._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch:
                if piece._contains_abort_marker(batch):
                    piece._aborted_producers.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in piece._aborted_producers:
                return True
        return bool(batch.is_control_batch)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if type(error).__name__ == "UnsupportedCodecError":
        return f"{text} (pip install 'reactive-kafka[compression]')"
    return text


class Reader:
    """Polls the client of an assignment."""

    def __init__(self, assignment: Assignment) -> None:
        self.is_fast = False  # taking records past the client's own reader, see :func:`has_expected_internals`
        self._assignment = assignment
        self._waiter: Future[None] | None = None
        self._is_woken = False

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None) -> Poll:
        poll = await self._take(budgets, most)
        if not poll.chunks and not poll.errors and not self._is_woken and timeout_s > 0:
            await self._wait(timeout_s)
            if not self._assignment.is_closed:
                poll = await self._take(budgets, most)
        self._is_woken = False
        return poll

    def wake(self) -> None:
        self._is_woken = True
        if self._waiter is not None:
            _complete(self._waiter)

    async def _wait(self, timeout_s: float) -> None:
        self._waiter = waiter = self._assignment.client._fetcher._create_fetch_waiter()
        timer = asyncio.get_running_loop().call_later(timeout_s, _complete, waiter)
        try:
            await waiter
        except kafka_errors.KafkaError:
            pass  # told to all waiters; the coordinator keeps it, and the next poll raises it
        finally:
            timer.cancel()
            self._waiter = None

    async def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll = Poll()
        client = self._assignment.client
        if client._subscription.reassignment_in_progress:  # H13: getmany would wait for its end without bound
            return poll
        fetched = client._fetcher._records
        left = sum(budgets.values()) if most is None else most
        for partition in list(fetched):
            if left <= 0:
                break
            budget = min(budgets.get(partition, 0), left)
            if budget <= 0 or partition not in self._assignment.started:
                continue
            ours = TopicPartition(partition.topic, partition.partition)
            try:
                if self.is_fast and isinstance(fetched[partition], FetchResult):
                    chunk = self._take_records(ours, fetched[partition], budget)
                else:
                    chunk = await self._take_slowly(ours, budget)
            except BrokerError as error:
                poll.errors[ours] = error
                continue
            if chunk is not None:
                poll.chunks.append(chunk)
                left -= len(chunk.records)
            if partition in fetched:
                fetched.move_to_end(partition)  # partitions take turns
        return poll

    def _take_records(self, partition: TopicPartition, result: Any, budget: int) -> Chunk | None:
        """Take from one partition alone, so that an error of another can never cost its records (H1)."""
        if not result.check_assignment(partition) or not result.has_more():
            self._drop(partition)
            return None
        piece = result._partition_records
        reader = result.__dict__.get("reader")
        if reader is None:
            reader = result.reader = BatchReader(partition, piece, read_committed=self._assignment.read_committed)
        before = reader.next_offset
        try:
            records = reader.take(budget)
        finally:
            # Also where the batch after these records is broken: the next poll must meet it again, at its offset.
            state = result._assignment.state_value(partition)
            piece.next_fetch_offset = reader.next_offset
            state.consumed_to(reader.next_offset)
            if reader.is_exhausted:
                self._drop(partition)
        if reader.next_offset == before:
            return None
        return self._chunk(partition, records, reader.next_offset, state)

    def _drop(self, partition: TopicPartition) -> None:
        fetcher = self._assignment.client._fetcher
        fetcher._records.pop(partition, None)
        fetcher._notify(fetcher._wait_consume_future)

    async def _take_slowly(self, partition: TopicPartition, budget: int) -> Chunk | None:
        """The client's own way, for errors it has kept for a partition, and where its internals are not as expected."""
        client, before = self._assignment.client, self._assignment.positions()[partition]
        try:
            # Not getmany: where it raises, the client takes itself to be polled from then on for ever (H3).
            taken = await client._fetcher.fetched_records(theirs([partition]), 0, max_records=budget)
        except kafka_errors.OffsetOutOfRangeError as error:
            raise OffsetOutOfRangeError(partition, int(next(iter(error.args[0].values())))) from error
        except kafka_errors.RecordTooLargeError as error:
            # The client raises it with (text, partition, offset, fetch size) as its arguments, and has set its position
            # to offset + 1 already. Without the seek the record would be skipped, unread and untold, at the next poll.
            offset = int(error.args[2])
            client._subscription.seek(partition, offset)
            reason = "a batch is cut short, or larger than max_partition_fetch_bytes"
            raise CorruptRecordError(partition, offset, reason) from error
        except kafka_errors.CorruptRecordException as error:
            raise CorruptRecordError(partition, before, str(error)) from error
        except kafka_errors.KafkaError as error:
            raise translate(error) from error
        records: list[Any] = next(iter(taken.values()), [])
        state = self._assignment.states().get(partition)
        if state is None or state.position == before:
            return None
        return self._chunk(partition, records, state.position, state)

    def _chunk(self, partition: TopicPartition, records: list[Any], next_offset: int, state: Any) -> Chunk:
        # A broker that is too old for a stable end, or does not track one (the embedded one answers -1), leaves the
        # end unknown although records have come. It is at next_offset or behind it: so much is certain, and it makes
        # the lag of the partition 0 until somebody asks for the end.
        return Chunk(partition, records, next_offset, self._assignment.end_of(state) or next_offset)


def has_expected_internals(client: Any) -> bool:
    """Whether what the fast way in reads is where it is expected; else the client's own way does it."""
    expected = (client._fetcher, ("_records", "_wait_consume_future", "_notify"))
    read = (PartitionRecords, ("_consume_aborted_up_to", "_contains_abort_marker"))
    return all(hasattr(where, name) for where, names in (expected, read) for name in names)


def _complete(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

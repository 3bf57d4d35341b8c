"""Takes fetched records out of an aiokafka client, one partition at a time."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords

from reactive_kafka.broker.aiokafka.assignment import Assignment
from reactive_kafka.broker.aiokafka.record_batches import BatchReader
from reactive_kafka.broker.aiokafka.setup import theirs, translate
from reactive_kafka.broker.client import Chunk, Poll
from reactive_kafka.errors import BrokerError, CorruptRecordError, OffsetOutOfRangeError
from reactive_kafka.records import TopicPartition


class Reader:
    """Polls the client of an assignment.

    Attributes:
        is_fast: Whether records are taken past the client's own reader, see :func:`has_expected_internals`.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.is_fast = False
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

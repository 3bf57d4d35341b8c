"""Takes fetched records out of an aiokafka client, one partition at a time."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.consumer.fetcher import FetchError, FetchResult, PartitionRecords

from reactive_kafka.broker.aiokafka.fetched.ahead import hurry, runs_low
from reactive_kafka.broker.aiokafka.fetched.batch_reader import BatchReader
from reactive_kafka.broker.aiokafka.fetched.noted import Answers
from reactive_kafka.broker.aiokafka.fetched.unpacking import Unpacker
from reactive_kafka.broker.aiokafka.membership import Assignment
from reactive_kafka.broker.aiokafka.setup import theirs, translate
from reactive_kafka.broker.client import Chunk, Poll
from reactive_kafka.errors import (
    BrokerError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    without_frames,
)
from reactive_kafka.records import TopicPartition

# Of the partitions whose records came last, for a look at when those came.
SOME = 8
# Where nobody has said how much.
MOST_UNPACKED_BYTES = 256 << 20


class Reader:
    """Polls the client of an assignment."""

    def __init__(
        self, assignment: Assignment, most_unpacked_bytes: int = MOST_UNPACKED_BYTES
    ) -> None:
        # Taking records past the client's own reader, see :func:`has_expected_internals`
        self.is_fast = False
        self.answers = Answers(self.wake, self._look)
        self._assignment = assignment
        self._unpacker = Unpacker(most_unpacked_bytes)
        # A large batch, in a thread; one after the other.
        self._unpacking: Future[memoryview] | None = None
        self._waiter: Future[None] | None = None
        self._is_woken = False

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None
    ) -> Poll:
        poll = await self._take(budgets, most)
        if not poll.chunks and not poll.errors and not self._is_woken and timeout_s > 0:
            await self._wait(timeout_s)
            if not self._assignment.is_closed:
                poll = await self._take(budgets, most)
        self._is_woken = False
        return poll

    def wake(self) -> None:
        self._is_woken = True
        self._look()

    def _look(self) -> None:
        """There may be records for a poll that waits."""
        if self._waiter is not None:
            _complete(self._waiter)

    async def _wait(self, timeout_s: float) -> None:
        """Wait for records, at most so many seconds, unless somebody wakes the poll."""
        fetcher = self._assignment.client._fetcher
        timer = asyncio.get_running_loop().call_later(timeout_s, self.wake)
        try:
            # We look when an answer comes. The client tells of it three turns of the loop later: by
            # then another poll may wait, for which there is nothing.
            while not (self._is_woken or fetcher._closed):
                self._waiter = fetcher._create_fetch_waiter()
                await self._waiter
                if fetcher._records:
                    break
        except kafka_errors.KafkaError:
            # Told to all waiters; the coordinator keeps it, and the next poll raises it.
            pass
        finally:
            timer.cancel()
            self._waiter = None

    async def _take(self, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        poll = Poll()
        client = self._assignment.client
        # H13: getmany would wait for its end without bound.
        if client._subscription.reassignment_in_progress:
            self.answers.clear()
            return poll
        answers = self.answers
        fetcher = client._fetcher
        fetched = fetcher._records
        # The positions of all partitions are too much to look up for each poll.
        if answers.has_errors:
            poll.errors.update(answers.errors(self._assignment.positions()))
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
                poll.errors[ours] = without_frames(error)
                continue
            if chunk is not None:
                poll.chunks.append(chunk)
                left -= len(chunk.records)
            if partition in fetched:
                # Partitions take turns.
                fetched.move_to_end(partition)
        if answers.has_more and (
            left > 0 or (answers.are_begun and runs_low(fetcher, len(self._assignment.started)))
        ):
            nodes = hurry(fetcher)
            fetcher._client.hurried.update(nodes)
            answers.has_more = not nodes
        return poll

    def _take_records(self, partition: TopicPartition, result: Any, budget: int) -> Chunk | None:
        """Take from one partition alone, so that an error of another can never cost its records
        (H1).
        """
        if not result.check_assignment(partition) or not result.has_more():
            self._drop(partition)
            return None
        piece = result._partition_records
        reader = result.__dict__.get("reader")
        if reader is None:
            content = self.answers.content(partition, piece._records.size_in_bytes())
            # It is fetched again.
            if content is None:
                self._drop(partition)
                return None
            is_committed = self._assignment.read_committed
            reader = result.reader = BatchReader(
                partition, piece, content, self._unpacker, read_committed=is_committed
            )
        before = reader.next_offset
        try:
            records = reader.take(budget)
        finally:
            # Also where the batch after these records is broken: the next poll must meet it again,
            # at its offset.
            state = result._assignment.state_value(partition)
            piece.next_fetch_offset = reader.next_offset
            state.consumed_to(reader.next_offset)
            if reader.is_exhausted:
                self._drop(partition)
        if reader.work is not None and self._unpacking is None:
            self._unpack(reader, reader.work)
        if reader.next_offset == before:
            return None
        return self._chunk(partition, records, reader.next_offset, state)

    def _unpack(self, reader: BatchReader, work: Callable[[], memoryview]) -> None:
        """Have a thread unpack a large batch; the other partitions go on meanwhile.

        One at a time: each may take as much memory as a batch may unpack to. It is never cancelled:
        it takes less than a second, and nobody waits for what a seek or a rebalance has made void.
        """

        def is_done(done: Future[memoryview]) -> None:
            self._unpacking = None
            # By the end of the loop.
            if not done.cancelled():
                reader.go_on(done)
            self.wake()

        self._unpacking = asyncio.get_running_loop().run_in_executor(None, work)
        self._unpacking.add_done_callback(is_done)

    def _drop(self, partition: TopicPartition) -> None:
        fetcher = self._assignment.client._fetcher
        fetcher._records.pop(partition, None)
        if not has_to_wait(fetcher, partition):
            fetcher._notify(fetcher._wait_consume_future)

    async def _take_slowly(self, partition: TopicPartition, budget: int) -> Chunk | None:
        """The client's own way, for errors it has kept for a partition, and where its internals are
        not as expected.
        """
        client = self._assignment.client
        before = self._assignment.positions()[partition]
        try:
            # Not getmany: where it raises, the client takes itself to be polled from then on for
            # ever (H3).
            taken = await client._fetcher.fetched_records(
                theirs([partition]), 0, max_records=budget
            )
        except kafka_errors.OffsetOutOfRangeError as error:
            raise OffsetOutOfRangeError(
                partition, int(next(iter(error.args[0].values())))
            ) from error
        except kafka_errors.CorruptRecordException as error:
            raise CorruptRecordError(partition, before, str(error)) from error
        except kafka_errors.KafkaError as error:
            raise translate(error) from error
        records: list[Any] = next(iter(taken.values()), [])
        state = self._assignment.states().get(partition)
        if state is None or state.position == before:
            return None
        return self._chunk(partition, records, state.position, state)

    def _chunk(
        self, partition: TopicPartition, records: list[Any], next_offset: int, state: Any
    ) -> Chunk:
        # The end is at next_offset or behind it, whatever the broker says. It looks the end up
        # before it reads, so what was written in between is behind that one. One that is too old
        # for a stable end, or does not track one (the embedded one answers -1), says nothing: then
        # this makes the lag 0 until somebody asks for the end.
        end = self._assignment.end_of(state)
        return Chunk(
            partition,
            records,
            next_offset,
            next_offset if end is None or end < next_offset else end,
        )


def has_expected_internals(client: Any) -> bool:
    """Whether what the fast way in reads is where it is expected; else the client's own way does
    it.
    """
    names = (
        "_records",
        "_wait_consume_future",
        "_notify",
        "_in_flight",
        "_select_read_replica",
        "_prefetch_backoff",
    )
    asked = ("_fetch_max_bytes", "_fetch_max_wait_ms", "_subscriptions", "_client_rack")
    read = (PartitionRecords, ("_consume_aborted_up_to", "_contains_abort_marker"))
    result = FetchResult(None, assignment=None, partition_records=None, backoff=0)
    held = [(one, ("_created", "_backoff")) for one in (result, FetchError(error=None, backoff=0))]
    expected = [(client._fetcher, (*names, *asked)), read, *held]
    return all(hasattr(where, name) for where, names in expected for name in names)


def has_to_wait(fetcher: Any, partition: TopicPartition) -> bool:
    """Whether the client would not fetch a partition now, and will look by itself when it may.

    For each look it goes through all partitions. It fetches from a node when the answer of that has
    come, and all of it was taken or is a tenth of a second old. Only some of what is there is
    looked at here: that is as good as all.
    """
    node = fetcher._select_read_replica(partition)
    if node in fetcher._in_flight:
        return True
    some = islice(reversed(fetcher._records.items()), SOME)
    return any(
        fetcher._select_read_replica(one) == node and held.calculate_backoff() for one, held in some
    )


def _complete(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

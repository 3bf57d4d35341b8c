"""Takes fetched records out of an aiokafka client, one partition at a time."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.consumer.fetcher import FetchError, FetchResult, PartitionRecords

from reactive_kafka.broker.aiokafka.client_calls import as_aiokafka
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.fetched.batch_reader import BatchReader
from reactive_kafka.broker.aiokafka.fetched.fetch_responses import FetchResponses
from reactive_kafka.broker.aiokafka.fetched.prefetch import fetch_others_now, runs_low
from reactive_kafka.broker.aiokafka.fetched.unpacking import Unpacker
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.broker.client import ByteRoom, Chunk, Poll
from reactive_kafka.errors import (
    BrokerError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    without_frames,
)
from reactive_kafka.records import TopicPartition

# How many of the last answers has_to_wait() looks at.
SOME = 8
# The default of max_unpacked_bytes.
MOST_UNPACKED_BYTES = 256 << 20


class RecordPoller:
    """Polls the client of a consumer for records of its partitions.

    Args:
        owned: The consumer's partitions.
        most_unpacked_bytes: A batch that is larger than this after decompression cannot be read.
    """

    def __init__(
        self, owned: OwnedPartitions, most_unpacked_bytes: int = MOST_UNPACKED_BYTES
    ) -> None:
        # True: records are taken from aiokafka's internals, see has_expected_internals().
        self.is_fast = False
        self.responses = FetchResponses(self.wake, self._end_wait)
        self._owned = owned
        self._unpacker = Unpacker(most_unpacked_bytes)
        # Decompresses a large batch in a thread, one at a time.
        self._unpacking: Future[memoryview] | None = None
        self._waiter: Future[None] | None = None
        self._is_woken = False

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        """Return records that are there, or wait up to *timeout_s* for the first ones."""
        poll = await self._take(budgets, most, byte_room)
        if not poll.chunks and not poll.errors and not self._is_woken and timeout_s > 0:
            await self._wait(timeout_s)
            if not self._owned.is_closed:
                poll = await self._take(budgets, most, byte_room)
        self._is_woken = False
        return poll

    def wake(self) -> None:
        """End a poll that waits, or keep the next one from waiting."""
        self._is_woken = True
        self._end_wait()

    def _end_wait(self) -> None:
        """Let a waiting poll look for records again."""
        if self._waiter is not None:
            _complete(self._waiter)

    async def _wait(self, timeout_s: float) -> None:
        """Wait for records, at most *timeout_s*, unless :meth:`wake` is called."""
        fetcher = self._owned.client._fetcher
        timer = asyncio.get_running_loop().call_later(timeout_s, self.wake)
        try:
            # The waiter ends as soon as an answer comes. The client would end it three turns of the
            # loop later: by then another poll may wait, and find nothing.
            while not (self._is_woken or fetcher._closed):
                self._waiter = fetcher._create_fetch_waiter()
                await self._waiter
                if fetcher._records:
                    break
        finally:
            timer.cancel()
            self._waiter = None

    async def _take(
        self, budgets: Mapping[TopicPartition, int], most: int | None, byte_room: ByteRoom | None
    ) -> Poll:
        poll = Poll()
        client = self._owned.client
        responses = self.responses
        fetcher = client._fetcher
        fetched = fetcher._records
        # Only with errors: looking up the positions of all partitions at each poll is too slow.
        if responses.has_errors:
            poll.errors.update(responses.take_errors(self._owned.positions()))
        left = sum(budgets.values()) if most is None else most
        started = self._owned.started
        leaving = self._owned.leaving
        for partition in list(fetched):
            if left <= 0:
                break
            budget = min(budgets.get(partition, 0), left)
            if budget <= 0 or partition not in started or partition in leaving:
                continue
            our_partition = TopicPartition(partition.topic, partition.partition)
            most_bytes = None
            if byte_room is not None:
                most_bytes = byte_room.left(our_partition)
                if most_bytes <= 0:
                    continue
            try:
                if self.is_fast and isinstance(fetched[partition], FetchResult):
                    result = fetched[partition]
                    chunk = self._take_records(our_partition, result, budget, most_bytes)
                else:
                    # The client's own method knows no bound in bytes.
                    slow_budget = budget if most_bytes is None else 1
                    chunk = await self._take_slowly(our_partition, slow_budget)
            except BrokerError as error:
                poll.errors[our_partition] = without_frames(error)
                continue
            if chunk is not None:
                poll.chunks.append(chunk)
                left -= len(chunk.records)
                if byte_room is not None:
                    byte_room.take(our_partition, chunk.records)
            if partition in fetched:
                # Partitions take turns: this one comes last at the next poll.
                fetched.move_to_end(partition)
        # The last answer was full, so the brokers have more. Fetch it now if the caller wants more
        # than there was, or if little is left. runs_low() is not cheap, so it is asked last.
        if responses.has_more and (
            left > 0 or (responses.all_are_begun and runs_low(fetcher, len(self._owned.started)))
        ):
            nodes = fetch_others_now(fetcher)
            fetcher._client.hurried.update(nodes)
            responses.has_more = not nodes
        return poll

    def _take_records(
        self, partition: TopicPartition, result: Any, budget: int, most_bytes: int | None
    ) -> Chunk | None:
        """Take up to *budget* records of one partition that was fetched, and about *most_bytes*.

        The client's own getmany takes several partitions, and an error in one of them loses what it
        took of the others (H1 in docs/internals.md). Here a partition is taken alone.

        Returns:
            None if there is nothing to take now.
        """
        if not result.check_assignment(partition) or not result.has_more():
            self._drop(partition)
            return None
        fetched_piece = result._partition_records
        # Our reader of this result is kept on it, so that it goes when the client drops the result.
        reader = result.__dict__.get("reader")
        if reader is None:
            content = self.responses.take_content(partition, fetched_piece._records.size_in_bytes())
            # Another reader, or a rebalance, has dropped the bytes: fetch the partition again.
            if content is None:
                self._drop(partition)
                return None
            read_committed = self._owned.read_committed
            reader = result.reader = BatchReader(
                partition, fetched_piece, content, self._unpacker, read_committed=read_committed
            )
        before = reader.next_offset
        try:
            if most_bytes is None:
                records = reader.take(budget)
            else:
                records = reader.take_bytes(budget, most_bytes)
        finally:
            # Also if the next batch is broken: the next poll has to find it at its offset.
            state = result._assignment.state_value(partition)
            fetched_piece.next_fetch_offset = reader.next_offset
            state.consumed_to(reader.next_offset)
            if reader.is_exhausted:
                self._drop(partition)
        if reader.pending_unpack is not None and self._unpacking is None:
            self._unpack(reader, reader.pending_unpack)
        if reader.next_offset == before:
            return None
        return self._chunk(partition, records, reader.next_offset, state)

    def _unpack(self, reader: BatchReader, work: Callable[[], memoryview]) -> None:
        """Have a thread decompress a large batch. Other partitions are read meanwhile.

        One batch at a time, because each may need as much memory as a batch may have. The thread is
        never cancelled: it takes less than a second, and no poll waits for a batch that a seek or
        a rebalance made useless.
        """

        def finish(done: Future[memoryview]) -> None:
            self._unpacking = None
            # It is cancelled only when the loop ends.
            if not done.cancelled():
                reader.finish_unpack(done)
            self.wake()

        self._unpacking = asyncio.get_running_loop().run_in_executor(None, work)
        self._unpacking.add_done_callback(finish)

    def _drop(self, partition: TopicPartition) -> None:
        """Drop what was fetched of a partition, and have the client fetch the next records."""
        fetcher = self._owned.client._fetcher
        fetcher._records.pop(partition, None)
        if not has_to_wait(fetcher, partition):
            fetcher._notify(fetcher._wait_consume_future)

    async def _take_slowly(self, partition: TopicPartition, budget: int) -> Chunk | None:
        """Take records with the client's own method.

        It is used for errors that the client keeps for a partition, and if its internals are not as
        expected.
        """
        client = self._owned.client
        before = self._owned.positions()[partition]
        try:
            # Not getmany(): after it has raised, the client believes that it is being polled, for
            # ever (H3).
            taken = await client._fetcher.fetched_records(
                as_aiokafka([partition]), 0, max_records=budget
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
        state = self._owned.states().get(partition)
        if state is None or state.position == before:
            return None
        return self._chunk(partition, records, state.position, state)

    def _chunk(
        self, partition: TopicPartition, records: list[Any], next_offset: int, state: Any
    ) -> Chunk:
        # The end of the log is never before next_offset, whatever the broker says. A broker looks
        # up the end before it reads, so records may have been written in between. An old broker
        # knows no stable end, and the embedded one tracks none and answers -1. Then the lag is 0
        # until the end is asked for.
        end = self._owned.end_of(state)
        if end is None or end < next_offset:
            end = next_offset
        return Chunk(partition, records, next_offset, end)


def has_expected_internals(client: Any) -> bool:
    """True if aiokafka has all private names that the fast way of reading uses."""
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
    held = [
        (kind, ("_created", "_backoff")) for kind in (result, FetchError(error=None, backoff=0))
    ]
    expected = [(client._fetcher, (*names, *asked)), read, *held]
    return all(hasattr(where, name) for where, names in expected for name in names)


def has_to_wait(fetcher: Any, partition: TopicPartition) -> bool:
    """True if the client would not fetch a partition now, and will look again by itself.

    Waking the client makes it go through all partitions. It fetches from a node when the last
    answer of the node has come, and all of its records are taken or are a tenth of a second old.
    Only the last answers are looked at here, which is good enough.
    """
    node = fetcher._select_read_replica(partition)
    if node in fetcher._in_flight:
        return True
    last_results = islice(reversed(fetcher._records.items()), SOME)
    return any(
        fetcher._select_read_replica(held_partition) == node and held.calculate_backoff()
        for held_partition, held in last_results
    )


def _complete(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

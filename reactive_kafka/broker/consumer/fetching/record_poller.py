"""Takes fetched records for polls, one partition at a time."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping

from reactive_kafka.broker.client import ByteRoom, Chunk, Poll
from reactive_kafka.broker.consumer.fetching.fetch_answers import RETRY_S
from reactive_kafka.broker.consumer.fetching.node_fetcher import NodeFetcher
from reactive_kafka.broker.consumer.fetching.prefetch import runs_low
from reactive_kafka.broker.consumer.fetching.read_partition import (
    FetchedPiece,
    ReadPartition,
    RecordReader,
)
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.errors import BrokerError, without_frames
from reactive_kafka.records import RawRecord, TopicPartition


class RecordPoller:
    """Polls the partitions of a consumer for what was fetched.

    Args:
        reads: The partitions.
    """

    def __init__(self, reads: ReadPartitions) -> None:
        self._reads = reads
        # Decompresses a large batch in a thread, one at a time.
        self._unpacking: Future[memoryview] | None = None
        self._waiter: Future[None] | None = None
        self._is_woken = False

    async def poll(
        self,
        fetcher: NodeFetcher,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        """Return records that are there, or wait up to *timeout_s* for the first ones."""
        poll = self._take(fetcher, budgets, most, byte_room)
        if not poll.chunks and not poll.errors and not self._is_woken and timeout_s > 0:
            await self._wait(timeout_s)
            poll = self._take(fetcher, budgets, most, byte_room)
        self._is_woken = False
        return poll

    def wake(self) -> None:
        """End a poll that waits, or keep the next one from waiting."""
        self._is_woken = True
        self.records_came()

    def records_came(self) -> None:
        """End a poll that waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, timeout_s: float) -> None:
        """Wait for records, at most *timeout_s*, unless :meth:`wake` is called."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self.records_came)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _take(
        self,
        fetcher: NodeFetcher,
        budgets: Mapping[TopicPartition, int],
        most: int | None,
        byte_room: ByteRoom | None,
    ) -> Poll:
        poll = Poll()
        reads = self._reads
        if reads.failed:
            poll.errors.update(self._take_errors(fetcher))
        left = sum(budgets.values()) if most is None else most
        for partition, state in list(reads.held.items()):
            if left <= 0:
                break
            budget = min(budgets.get(partition, 0), left)
            if budget <= 0 or state.piece is None or not state.is_flowing:
                continue
            most_bytes = None
            if byte_room is not None:
                most_bytes = byte_room.left(partition)
                if most_bytes <= 0:
                    continue
            try:
                chunk = self._take_records(fetcher, state, state.piece, budget, most_bytes)
            except BrokerError as error:
                poll.errors[partition] = without_frames(error)
                continue
            if chunk is not None:
                poll.chunks.append(chunk)
                left -= len(chunk.records)
                if byte_room is not None:
                    byte_room.take(partition, chunk.records)
            if partition in reads.held:
                # Partitions take turns: this one comes last at the next poll.
                reads.held.move_to_end(partition)
        # The last answer was full, so the brokers have more. Fetch it now if the caller wants more
        # than there was, or if little is left.
        if fetcher.answers.has_more and (
            left > 0 or runs_low(reads, fetcher.settings.fetch_max_bytes)
        ):
            fetcher.hurry()
        return poll

    def _take_errors(self, fetcher: NodeFetcher) -> dict[TopicPartition, BrokerError]:
        """Return partition -> why it could not be fetched, each error once."""
        errors: dict[TopicPartition, BrokerError] = {}
        for partition, state in list(self._reads.failed.items()):
            if state.error is not None and not state.is_leaving:
                errors[partition] = state.error
                self._reads.drop(state)
        if errors:
            fetcher.changed()
        return errors

    def _take_records(
        self,
        fetcher: NodeFetcher,
        state: ReadPartition,
        piece: FetchedPiece,
        budget: int,
        most_bytes: int | None,
    ) -> Chunk | None:
        """Take up to *budget* records of one partition, and about *most_bytes*.

        Returns:
            None if there is nothing to take now.
        """
        reader = piece.reader
        before = reader.next_offset
        try:
            if most_bytes is None:
                records = reader.take(budget)
            else:
                records = reader.take_bytes(budget, most_bytes)
        except BrokerError:
            # It is fetched again, unless a seek moves the position.
            state.retry_at = asyncio.get_running_loop().time() + RETRY_S
            raise
        finally:
            # Also if the next batch is broken: the next poll has to find it at its offset.
            state.position = reader.next_offset
            self._reads.note_taken(piece)
            if reader.is_exhausted:
                self._reads.drop(state)
                fetcher.taken(state.partition)
        if reader.pending_unpack is not None and self._unpacking is None:
            self._unpack(reader, reader.pending_unpack)
        if reader.next_offset == before:
            return None
        return self._chunk(fetcher, state, records, reader.next_offset)

    def _unpack(self, reader: RecordReader, work: Callable[[], memoryview]) -> None:
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

    def _chunk(
        self, fetcher: NodeFetcher, state: ReadPartition, records: list[RawRecord], next_offset: int
    ) -> Chunk:
        # The end of the log is never before next_offset, whatever the broker says. A broker looks
        # up the end before it reads, so records may have been written in between. An old broker
        # knows no stable end, and the embedded one tracks none and answers -1. Then the lag is 0
        # until the end is asked for.
        end = state.end(read_committed=fetcher.settings.read_committed)
        if end is None or end < next_offset:
            end = next_offset
        return Chunk(state.partition, records, next_offset, end)

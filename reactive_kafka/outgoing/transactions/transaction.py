"""One transaction of a transactional producer: records of channels, and positions of groups."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import BatchRefusedError, TransactionalProducer, TransactionId
from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.errors import (
    BrokerError,
    OutcomeUnknownError,
    TransientBrokerError,
    text_of,
)
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.outgoing.queue.receipt import Receipt
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.queue.send_queue import Partitioner, PartitionQueue, SendQueue
from reactive_kafka.records import TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.outgoing.transactions.producers import (
        BorrowedProducer,
        TransactionalProducers,
    )

COLLECTED = 10_000
"""So many records of a transaction are collected before any is written.

Most transactions are written whole at their end. So they last no longer than the write, however
long their handler runs, and a handler that raises has written nothing.
"""


class Sender:
    """Who the records of a transaction belong to: a channel, or the dead letters of a channel."""

    def __init__(self, partitioner: KeyHash | Partitioner | None = None) -> None:
        self.partitioner = partitioner
        # Numbers the transactions. Each has its own queue. If every queue began with partition 0,
        # all records without a key would go there.
        self.turns = itertools.count()
        self.sent = {"ok": 0, "failed": 0}
        self.durations = DurationHistogram()

    def committed(self, records: int, seconds: float) -> None:
        """Count records that were committed, *seconds* after their transaction began."""
        self.sent["ok"] += records
        self.durations.observe(seconds, records)


class _FirstProblem(Receipt):
    """Keeps what is wrong with a record, which fails the whole transaction; and the last offset."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def report(self, error: BaseException | None) -> None:
        self.error = error

    def written(self, at: TopicPartition, offset: int) -> None:
        self.at = at
        self.offset = offset


class Transaction:
    """Records of channels, and positions of groups, committed together or not at all.

    Its steps raise as those of :class:`TransactionalProducer` do. After an error only :meth:`close`
    and :meth:`settle_doubt` may follow.
    """

    def __init__(self, producers: TransactionalProducers) -> None:
        # It is the only transaction of some partitions. Others may wait for its end.
        self.has_partitions = False
        self._producers = producers
        self._producer: BorrowedProducer | None = None
        self._queues: dict[Sender, SendQueue] = {}
        self._collected: list[tuple[Sender, OutgoingRecord]] = []
        self._is_begun = False
        self._is_closed = False
        # Collected records may be lost: nothing may be committed.
        self._has_failed = False
        # The brokers have records or positions of it, which are not kept here. Until then it can be
        # repeated as another transaction.
        self._has_written = False
        # Several tasks may send within one block of an emitter.
        self._one_at_a_time = asyncio.Lock()
        self._began_at = 0.0
        self._records = Counter[Sender]()
        # Where the last record was written.
        self.at: TopicPartition | None = None
        self.offset = -1

    @property
    def is_empty(self) -> bool:
        """Whether no record was put into it."""
        return not self._records

    async def put(self, records: Iterable[tuple[Sender, OutgoingRecord]]) -> None:
        """Take records; they are written at once if many were collected, else with later ones."""
        is_enough = False
        for sender, outgoing in records:
            is_enough = self.collect(sender, outgoing)
        if is_enough:
            await self.write()

    def collect(self, sender: Sender, outgoing: OutgoingRecord) -> bool:
        """Take a record; True if there are now so many that :meth:`write` should be called."""
        self._collected.append((sender, outgoing))
        self._records[sender] += 1
        return len(self._collected) >= COLLECTED

    async def write(self) -> None:
        """Write the collected records; returns when the brokers have them.

        Raises:
            RejectedRecordError, EncodeError: One of the records can never be written.
        """
        try:
            async with self._one_at_a_time:
                if self._collected or self._has_failed:
                    producer = await self._begun()
                    # It counts as failed until the write has returned.
                    self._has_failed = True
                    await self._write_collected(producer)
                    self._has_failed = self._is_closed
        finally:
            self._give_back()

    async def _write_collected(self, producer: BorrowedProducer) -> None:
        """Write the collected records, in a new transaction if a batch of them is refused.

        Raises:
            RejectedRecordError: One of them can never be written.
            BatchRefusedError: A batch is refused, and what was written before is not kept here.
        """
        records = self._collected
        self._collected = []
        while True:
            try:
                await self._write_records(records, producer.client)
            except BatchRefusedError:
                if self._has_written or self._is_closed:
                    raise
            else:
                self._has_written = True
                return
            # The whole transaction is still here, so it can be written again without another call
            # of the handler. The client makes its batches smaller after each refusal. So this loop
            # ends: all of them fit, or a record that is alone in its batch is refused, which is a
            # RejectedRecordError.
            #
            # Claiming the id again aborts the transaction that was refused.
            await producer.claim()
            with producer.calling():
                producer.client.begin()
            # The queues still hold what was refused.
            self._queues.clear()

    async def _write_records(
        self, records: Sequence[tuple[Sender, OutgoingRecord]], client: TransactionalProducer
    ) -> None:
        problem = _FirstProblem()
        partitions = dict[PartitionQueue, None]()
        for sender, outgoing in records:
            queue = self._queue_of(sender, client)
            partition = queue.add(outgoing, problem)
            if partition is not None:
                partitions[partition] = None
            elif queue.awaits_partitions(outgoing.topic):
                count = await client.partitions(outgoing.topic)
                found = queue.partitions_found(outgoing.topic, count)
                partitions.update(dict.fromkeys(found))
            if problem.error is not None:
                raise problem.error
        await self._write_partitions(client, list(partitions))
        self.at = problem.at
        self.offset = problem.offset

    def _queue_of(self, sender: Sender, client: TransactionalProducer) -> SendQueue:
        if sender not in self._queues:
            # It needs no limit: COLLECTED bounds what waits.
            self._queues[sender] = SendQueue(
                0, client.key_hash, lambda: None, sender.partitioner, first=next(sender.turns)
            )
        return self._queues[sender]

    async def _write_partitions(
        self, client: TransactionalProducer, partitions: list[PartitionQueue]
    ) -> None:
        # It was begun.
        assert self._producer is not None  # noqa: S101
        with self._producer.calling():
            if len(partitions) == 1:
                await _write_partition(client, partitions[0])
                return
            # Wait for all of them, whatever one raises: no write may be on its way when the
            # transaction is ended.
            ends = await asyncio.gather(
                *(_write_partition(client, partition) for partition in partitions),
                return_exceptions=True,
            )
            errors = [end for end in ends if isinstance(end, BaseException)]
            if errors:
                raise min(errors, key=_says_little)

    async def _begun(self) -> BorrowedProducer:
        """Return the producer, borrowed and with a transaction that was begun."""
        producer = self._producer
        is_in_doubt = self._is_begun and producer is not None and not producer.is_sound
        if self._has_failed or self._is_closed or is_in_doubt:
            raise TransientBrokerError(
                f"the transaction of {self._producers.prefix!r} has failed already"
            )
        if producer is None:
            producer = await self._producers.take(has_partitions=self.has_partitions)
            self._producer = producer
        if not self._is_begun:
            await producer.claim()
            with producer.calling():
                producer.client.begin()
            self._is_begun = True
            self._began_at = self._producers.clock.monotonic()
        return producer

    async def join(self, group_id: str) -> TransactionId:
        """Add positions of a group; its consumer sends them, within :meth:`joining`."""
        producer = await self._begun()
        self._has_written = True
        with producer.calling():
            return await producer.client.add_group(group_id)

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Wrap a request of a consumer: if it does not return, it may still be on its way."""
        # It was begun.
        assert self._producer is not None  # noqa: S101
        self._producer.is_sound = False
        yield
        self._producer.is_sound = True

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            OutcomeUnknownError: It may or may not be committed: see :meth:`settle_doubt`.
        """
        if not (self._is_begun or self._has_failed):
            return
        producer = await self._begun()
        try:
            with producer.calling():
                await producer.client.commit()
        except OutcomeUnknownError:
            raise
        except BrokerError as error:
            # Whatever the error says, the request was sent.
            raise OutcomeUnknownError(text_of(error)) from error
        self.is_committed()

    def is_committed(self) -> None:
        """Note that the transaction is known to be committed."""
        self._is_begun = False
        self._producers.error = None
        seconds = self._producers.clock.monotonic() - self._began_at
        for sender, records in self._records.items():
            sender.committed(records, seconds)

    async def settle_doubt(self) -> None:
        """Claim the id again: once this returns, the transaction has ended one way or the other.

        Requests of the transaction that arrive later have no effect.

        Raises:
            BrokerError: Try again.
        """
        if self._producer is not None and self._is_begun:
            with self._producer.calling():
                await self._producer.client.claim()
            self._is_begun = False

    async def close(self) -> None:
        """Abort the transaction unless it was committed."""
        self._is_closed = True
        try:
            # A task may still write for a block that has ended.
            async with self._one_at_a_time:
                if self._producer is not None and self._is_begun and self._producer.is_sound:
                    with self._producer.calling():
                        await self._producer.client.abort()
                    self._is_begun = False
        except BrokerError:
            # The next claim of the id aborts it, or the broker does after its timeout.
            pass
        finally:
            self._give_back()

    def _give_back(self) -> None:
        """Give the producer back if the transaction is closed and no task writes any more."""
        if not self._is_closed or self._one_at_a_time.locked():
            return
        producer = self._producer
        self._producer = None
        if producer is not None:
            producer.is_sound = producer.is_sound and not self._is_begun
            self._producers.give_back(producer)
        self._producers.closed(self)


def _says_little(error: BaseException) -> int:
    """Sort key: the error that says best why the transaction has failed comes first.

    The first refusal ends the transaction for every partition, and the others only learn that it
    has failed. A refused batch says less than a refused record: the record is refused in smaller
    batches, too.
    """
    if isinstance(error, BatchRefusedError):
        return 1
    if isinstance(error, TransientBrokerError):
        return 2
    return 0


async def _write_partition(client: TransactionalProducer, queue: PartitionQueue) -> None:
    while records := queue.next_batch():
        written = await client.write(queue.partition, records)
        queue.written(written.offset, written.count)

"""Transactions that commit positions: send the positions, commit, then settle the records."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import TransactionId
from reactive_kafka.errors import (
    BrokerError,
    MetadataTooLargeError,
    OutcomeUnknownError,
    RejectedRecordError,
    TransactionAbortedError,
    text_of,
)
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.outgoing.transactions.transaction import Sender, Transaction
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery, is_open

LOOK_S = 0.1
"""How often to look whether a rebalance is over, or the records before a letter are settled."""

BACKOFF = Backoff(0.1, 2.0)
"""Between two questions what became of a transaction, and two attempts to write a letter."""


class TransactionClient(Protocol):
    """What a transaction needs from a Kafka client of the channel."""

    @property
    def group_id(self) -> str | None: ...

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or may keep its partition in a rebalance."""

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Whether it owns the partition, and reads on where the tracker is."""

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """Return what to store for a position."""

    def stored(self, pending: PendingCommit) -> None:
        """Note that it is stored, which counts as a commit."""

    def takes_less(self, pending: Collection[PendingCommit]) -> None:
        """Note that the metadata of these positions is too long for the broker."""

    async def commit_in(
        self, transaction: TransactionId, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """As :meth:`Consumer.commit_in`."""

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        """As :meth:`Consumer.committed`."""


@dataclass(eq=False, slots=True)
class Letter:
    """A dead letter (or retry) that is written in the transaction that commits past its record."""

    delivery: Delivery
    outgoing: OutgoingRecord
    done: Future[None]
    # A transaction that contained it with other letters was refused: it is written alone now.
    is_alone: bool = False


@dataclass(eq=False, slots=True)
class PartitionRecords:
    """The records of a transaction that come from one partition."""

    tracker: OffsetTracker
    # Open; by offset.
    deliveries: list[Delivery]
    # Of nacked records before the last delivery.
    letters: list[Letter] = field(default_factory=list)
    client: TransactionClient | None = None
    due: PendingCommit | None = None
    # The position of the group before the transaction; None: it had none.
    before: int | None = None

    @property
    def last(self) -> Delivery:
        """The record that the position follows."""
        deliveries = (*self.deliveries, *(letter.delivery for letter in self.letters))
        return max(deliveries, key=lambda delivery: delivery.index)


class TransactionPositions:
    """Ends the transactions of one session; a partition is in one of them at a time."""

    def __init__(self, clients: Callable[[], Iterable[TransactionClient]]) -> None:
        self._clients = clients
        self._locks: dict[TopicPartition, asyncio.Lock] = {}
        # Partition -> the tracker of its last transaction, and the position of the group before
        # the first transaction with that tracker.
        self._before: dict[TopicPartition, tuple[OffsetTracker, int | None]] = {}
        self._letter_sender = Sender()

    def is_held(self, partition: TopicPartition) -> bool:
        """Whether a partition is in a transaction."""
        lock = self._locks.get(partition)
        return lock is not None and lock.locked()

    @asynccontextmanager
    async def holding(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """Have the only transaction of these partitions."""
        async with AsyncExitStack() as held:
            # In a fixed order, so that no two transactions wait for each other.
            for partition in sorted(partitions):
                await held.enter_async_context(self._locks.setdefault(partition, asyncio.Lock()))
            yield

    async def until_read(self, tracker: OffsetTracker) -> None:
        """Wait while a rebalance decides whether we keep the partition."""
        while any(  # noqa: ASYNC110
            client.knows(tracker) and not client.reads_with(tracker) for client in self._clients()
        ):
            await asyncio.sleep(LOOK_S)

    async def end(self, transaction: Transaction, partitions: list[PartitionRecords]) -> None:
        """Write the records, send the positions, commit, and settle the records.

        Raises:
            RejectedRecordError: A record can never be written; nothing is stored.
            TransactionAbortedError: Nothing is stored, and the records may be handled again.
        """
        letters = [letter for records in partitions for letter in records.letters]
        transaction.has_partitions = True
        try:
            await transaction.write()
            await self._write_letters(transaction, letters)
            await self._send_positions(transaction, partitions)
        except (RejectedRecordError, TransactionAbortedError):
            raise
        except BrokerError as error:
            raise aborted(text_of(error)) from error
        try:
            await transaction.commit()
        except OutcomeUnknownError as error:
            if not await self._is_committed(transaction, partitions):
                raise aborted(text_of(error)) from error
            transaction.is_committed()
        except BrokerError as error:
            raise aborted(text_of(error)) from error
        for records in partitions:
            self._settle(records)

    async def _write_letters(self, transaction: Transaction, letters: list[Letter]) -> None:
        """Write the letters, separately from what the handler sent: a refused letter is no failure
        of the handler's call.

        The broker does not say which of several letters it refuses. After a refusal each of them is
        written alone in the next transaction, which shows it.
        """
        together = [letter for letter in letters if not letter.is_alone]
        alone = [[letter] for letter in letters if letter.is_alone]
        for batch in (together, *alone):
            try:
                await transaction.put((self._letter_sender, letter.outgoing) for letter in batch)
                await transaction.write()
            except RejectedRecordError as error:
                for letter in batch:
                    letter.is_alone = True
                if len(batch) == 1 and not batch[0].done.done():
                    batch[0].done.set_exception(error)
                raise aborted(f"a dead letter was refused: {text_of(error)}") from error

    async def _send_positions(
        self, transaction: Transaction, partitions: list[PartitionRecords]
    ) -> None:
        """Add the positions to the transaction, for the members that own the partitions."""
        by_client: dict[TransactionClient, list[PartitionRecords]] = {}
        for records in partitions:
            check_open(records)
            # A client that only knows the partition may have been assigned it again, without the
            # committed position yet: another member may have moved it in the meantime.
            owners = (client for client in self._clients() if client.reads_with(records.tracker))
            records.client = next(owners, None)
            if records.client is None:
                raise aborted(f"{records.tracker.partition} is not ours any more")
            by_client.setdefault(records.client, []).append(records)
        for client, owned in by_client.items():
            await self._send_positions_of(client, transaction, owned)
        for records in partitions:
            # A seek or a rebalance in the meantime makes the positions void.
            check_open(records)

    async def _send_positions_of(
        self, client: TransactionClient, transaction: Transaction, owned: list[PartitionRecords]
    ) -> None:
        # Start-up refuses exactly once without a group.
        assert client.group_id is not None  # noqa: S101
        await self._look_up_positions(client, owned)
        joined = await transaction.join(client.group_id)
        due: list[PendingCommit] = []
        for records in owned:
            check_open(records)
            position = records.last.offset + 1
            records.due = client.due(records.tracker, position)
            records.before = self._position_before(records.tracker)
            # The next assignment may find this position, even if the outcome stays unknown.
            records.tracker.attempted = max(records.tracker.attempted, position)
            due.append(records.due)
        try:
            with transaction.joining():
                offsets = {pending.partition: pending.stored for pending in due}
                await client.commit_in(joined, offsets)
        except MetadataTooLargeError:
            client.takes_less(due)
            raise

    async def _look_up_positions(
        self, client: TransactionClient, owned: list[PartitionRecords]
    ) -> None:
        """Ask for the positions of partitions that had no transaction with their tracker yet.

        What the client believes may be outdated: a transaction that ended during a seek, or whose
        outcome is unknown, has moved the position.
        """
        unknown: dict[TopicPartition, OffsetTracker] = {}
        for records in owned:
            partition = records.tracker.partition
            known = self._before.get(partition)
            if known is None or known[0] is not records.tracker:
                unknown[partition] = records.tracker
        if not unknown:
            return
        found = await client.committed(frozenset(unknown))
        self._before = {
            partition: known for partition, known in self._before.items() if not known[0].is_closed
        }
        for partition, tracker in unknown.items():
            stored = found[partition]
            self._before[partition] = (tracker, None if stored is None else stored.offset)

    def _position_before(self, tracker: OffsetTracker) -> int | None:
        """The position of the group before the next transaction; None: it has none."""
        # Commits with one tracker only move forward. So after the first of them the group is before
        # the position of the next one, whatever became of the commits in between.
        if tracker.uncommitted_from > tracker.start:
            return tracker.uncommitted_from
        return self._before[tracker.partition][1]

    async def _is_committed(
        self, transaction: Transaction, partitions: list[PartitionRecords]
    ) -> bool:
        """Find out whether a transaction whose commit was not answered is committed.

        False also if all its partitions were lost: then the answer is not needed.
        """
        waits = Waits(BACKOFF)
        while not all(records.tracker.is_closed for records in partitions):
            try:
                await transaction.settle_doubt()
                return await self._are_stored(partitions)
            except BrokerError:
                await asyncio.sleep(waits.next_s())
        return False

    async def _are_stored(self, partitions: list[PartitionRecords]) -> bool:
        # A transaction stores all of its positions or none, and no other one had its partitions. So
        # one position tells: the group has either that of the transaction or the one before. Where
        # both are the same, as after a seek back by one record, nothing can be told. Then the
        # records are handled again: that may double their effects, but loses nothing.
        for records in partitions:
            if records.client is None or records.due is None or records.tracker.is_closed:
                continue
            if records.before == records.due.position:
                continue
            partition = records.tracker.partition
            stored = (await records.client.committed([partition]))[partition]
            return stored is not None and stored.offset == records.due.position
        return False

    def _settle(self, records: PartitionRecords) -> None:
        for delivery in records.deliveries:
            records.tracker.settle(delivery.index)
        for letter in records.letters:
            records.tracker.settle_nacked(letter.delivery.index)
            if not letter.done.done():
                letter.done.set_result(None)
        if records.client is not None and records.due is not None:
            records.client.stored(records.due)
            verdicts_of(records.tracker).committed_by_transaction(records.due.position)


def check_open(records: PartitionRecords) -> None:
    """Check that the records are still ours and have no verdict.

    Raises:
        TransactionAbortedError: The partition was lost, or a record was acked or nacked.
    """
    if records.tracker.is_closed:
        raise aborted(f"{records.tracker.partition} is not ours any more")
    for delivery in records.deliveries:
        if not is_open(delivery):
            raise aborted(f"{delivery!r} has got its verdict meanwhile")


def aborted(why: str) -> TransactionAbortedError:
    """Return the error for a transaction that has stored nothing."""
    return TransactionAbortedError(f"the transaction was aborted: {why}")

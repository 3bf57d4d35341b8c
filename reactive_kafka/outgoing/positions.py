"""The end of a transaction that has positions: they are sent, all of it is committed, and its
records are settled.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.transactional import TransactionId
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    BrokerError,
    MetadataTooLargeError,
    OutcomeUnknownError,
    RejectedRecordError,
    TransactionAbortedError,
    text_of,
)
from reactive_kafka.outgoing.outbox import Outbound
from reactive_kafka.outgoing.transactions import Sender, Transaction
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery, is_open

LOOK_S = 0.1
"""How soon it is seen that a partition was retained, or that a record before a dead letter is
settled.
"""
BACKOFF = Backoff(0.1, 2.0)
"""How soon the brokers are asked again what became of a transaction, and a dead letter is tried
again.
"""


class TransactionClient(Protocol):
    """What a transaction needs of a channel's client."""

    @property
    def group_id(self) -> str | None: ...

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or may retain its partition."""

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker: the partition is its own, and goes on where the
        tracker stands.
        """

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What is to be stored for a position."""

    def stored(self, pending: PendingCommit) -> None:
        """It is stored, which counts as a commit."""

    def takes_less(self, pending: Collection[PendingCommit]) -> None:
        """What was to stand beside these positions is too long for the broker."""

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
    """A record that a failure strategy has written: in the transaction that stores the position
    behind its own.
    """

    delivery: Delivery
    outbound: Outbound
    done: Future[None]
    # A transaction with others was refused for a record of it.
    is_alone: bool = False


@dataclass(eq=False, slots=True)
class Part:
    """The records of a transaction in one partition."""

    tracker: OffsetTracker
    # Ascending; open.
    deliveries: list[Delivery]
    # Those of nacked records before the last one.
    letters: list[Letter] = field(default_factory=list)
    client: TransactionClient | None = None
    due: PendingCommit | None = None
    # Where the group stood; None: it had no position.
    before: int | None = None

    @property
    def last(self) -> Delivery:
        """The record that the position is to be behind of."""
        return max(
            (*self.deliveries, *(one.delivery for one in self.letters)), key=lambda one: one.index
        )


class Positions:
    """Ends the transactions of one session of a channel. A partition is in one of them at a
    time.
    """

    def __init__(self, clients: Callable[[], Iterable[TransactionClient]]) -> None:
        self._clients = clients
        self._locks: dict[TopicPartition, asyncio.Lock] = {}
        # partition -> the tracker of its last transaction, and where the group stood before the
        # first one of that
        self._before: dict[TopicPartition, tuple[OffsetTracker, int | None]] = {}
        self._of_letters = Sender()

    def is_held(self, partition: TopicPartition) -> bool:
        """Whether a partition is in a transaction."""
        lock = self._locks.get(partition)
        return lock is not None and lock.locked()

    @asynccontextmanager
    async def holding(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """Have the only transaction of these partitions. Taken in their order, so that no two wait
        for each other.
        """
        async with AsyncExitStack() as held:
            for partition in sorted(partitions):
                await held.enter_async_context(self._locks.setdefault(partition, asyncio.Lock()))
            yield

    async def until_read(self, tracker: OffsetTracker) -> None:
        """Wait while it is not known whether a partition is retained: in a rebalance nothing can be
        committed.
        """
        while any(one.knows(tracker) and not one.reads_with(tracker) for one in self._clients()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def end(self, transaction: Transaction, parts: list[Part]) -> None:
        """Write, send the positions, and commit; then settle the records. Raises as :meth:`run`."""
        try:
            await transaction.write()
            await self._write_letters(transaction, [one for part in parts for one in part.letters])
            await self._join(transaction, parts)
        except (RejectedRecordError, TransactionAbortedError):
            raise
        except BrokerError as error:
            raise aborted(text_of(error)) from error
        try:
            await transaction.commit()
        except OutcomeUnknownError as error:
            if not await self._is_committed(transaction, parts):
                raise aborted(text_of(error)) from error
            transaction.is_committed()
        except BrokerError as error:
            raise aborted(text_of(error)) from error
        for part in parts:
            self._settle(part)

    async def _write_letters(self, transaction: Transaction, letters: list[Letter]) -> None:
        """Write letters apart from what a call has made, for a refused one is no failure of that.

        Which one of several is refused is seen the next time, when each is written by itself.
        """
        together = [one for one in letters if not one.is_alone]
        for run in (together, *([one] for one in letters if one.is_alone)):
            try:
                await transaction.put((self._of_letters, one.outbound) for one in run)
                await transaction.write()
            except RejectedRecordError as error:
                for one in run:
                    one.is_alone = True
                if len(run) == 1 and not run[0].done.done():
                    run[0].done.set_exception(error)
                raise aborted(f"a dead letter was refused: {text_of(error)}") from error

    async def _join(self, transaction: Transaction, parts: list[Part]) -> None:
        """Have the positions take part, in the name of the members that read the partitions."""
        of_clients: dict[TransactionClient, list[Part]] = {}
        for part in parts:
            check_open(part)
            # A client that only knows it may have been given its partition again, and not yet have
            # heard where the group stands: another member may have gone on from there meanwhile.
            part.client = next(
                (one for one in self._clients() if one.reads_with(part.tracker)), None
            )
            if part.client is None:
                raise aborted(f"{part.tracker.partition} is not ours any more")
            of_clients.setdefault(part.client, []).append(part)
        for client, its in of_clients.items():
            # Start-up has seen to it.
            assert client.group_id is not None  # noqa: S101
            await self._look_up(client, its)
            joined = await transaction.join(client.group_id)
            for part in its:
                check_open(part)
                position = part.last.offset + 1
                part.due = client.due(part.tracker, position)
                part.before = self._stood_at(part.tracker)
                # If the next assignment finds it.
                part.tracker.attempted = max(part.tracker.attempted, position)
            due = [part.due for part in its if part.due is not None]
            try:
                with transaction.joining():
                    await client.commit_in(joined, {one.partition: one.stored for one in due})
            except MetadataTooLargeError:
                client.takes_less(due)
                raise
        for part in parts:
            # A seek or a rebalance has come meanwhile: the positions are void.
            check_open(part)

    async def _look_up(self, client: TransactionClient, parts: list[Part]) -> None:
        """Ask where the group stands in partitions that are read with another tracker than in their
        last transaction.

        What the client believes may be wrong by then: a transaction that ended while somebody
        sought, or whose end nobody knows, has moved the position.
        """
        trackers = {part.tracker.partition: part.tracker for part in parts}
        unknown = {
            partition: tracker
            for partition, tracker in trackers.items()
            if partition not in self._before or self._before[partition][0] is not tracker
        }
        if not unknown:
            return
        found = await client.committed(frozenset(unknown))
        self._before = {
            partition: known for partition, known in self._before.items() if not known[0].is_closed
        }
        for partition, tracker in unknown.items():
            stored = found[partition]
            self._before[partition] = tracker, None if stored is None else stored.offset

    def _stood_at(self, tracker: OffsetTracker) -> int | None:
        """Where the group stands before the next transaction; None: it has no position."""
        # What is committed with one tracker only moves on. From its first commit on the group
        # stands before the position of the next one, whatever has become of commits in between.
        if tracker.uncommitted_from > tracker.start:
            return tracker.uncommitted_from
        return self._before[tracker.partition][1]

    async def _is_committed(self, transaction: Transaction, parts: list[Part]) -> bool:
        """What has become of a transaction whose end was not answered; False also where nobody
        needs to know.
        """
        waits = Waits(BACKOFF)
        while not all(part.tracker.is_closed for part in parts):
            try:
                await transaction.settle_doubt()
                return await self._are_stored(parts)
            except BrokerError:
                await asyncio.sleep(waits.next_s())
        return False

    async def _are_stored(self, parts: list[Part]) -> bool:
        # A transaction stores all of its positions, or none. It had the partitions to itself, so
        # what stands there is its own, or what stood there before. Where these are the same, as
        # after a seek back by one record, nothing can be told: to handle the records again may
        # double what they led to, and not to would lose it.
        for part in parts:
            if (
                part.client is None
                or part.due is None
                or part.tracker.is_closed
                or part.before == part.due.position
            ):
                continue
            partition = part.tracker.partition
            stored = (await part.client.committed([partition]))[partition]
            return stored is not None and stored.offset == part.due.position
        return False

    def _settle(self, part: Part) -> None:
        for delivery in part.deliveries:
            part.tracker.settle(delivery.index)
        for letter in part.letters:
            part.tracker.settle_nacked(letter.delivery.index)
            if not letter.done.done():
                letter.done.set_result(None)
        if part.client is not None and part.due is not None:
            part.client.stored(part.due)
            verdicts_of(part.tracker).committed_by_transaction(part.due.position)


def check_open(part: Part) -> None:
    """Raise TransactionAbortedError where the records of a part are another's by now, or have their
    verdict.
    """
    if part.tracker.is_closed:
        raise aborted(f"{part.tracker.partition} is not ours any more")
    for delivery in part.deliveries:
        if not is_open(delivery):
            raise aborted(f"{delivery!r} has got its verdict meanwhile")


def aborted(why: str) -> TransactionAbortedError:
    """The error for a transaction of which nothing counts."""
    return TransactionAbortedError(f"the transaction was aborted: {why}")

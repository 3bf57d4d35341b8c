"""Transactions of the user's rows and the position after a record: both are stored, or neither.

The row decides, whatever becomes of the request. Each write names the token and the position that
it expects in the row. So an earlier transaction that arrives late is refused and rolled back, and
so is one of another owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal

from reactive_kafka.backoff import Waits
from reactive_kafka.checkpoint.channel_rows import CheckpointRows
from reactive_kafka.checkpoint.open_transactions import OpenTransactions, PartitionTransaction
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.checkpoint.store import TransactionalStore, Write
from reactive_kafka.checkpoint.transaction_outcomes import BACKOFF, TransactionOutcomes
from reactive_kafka.errors import (
    CheckpointError,
    CheckpointRefusedError,
    CheckpointStoreError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import not_working
from reactive_kafka.verdicts.attempt_time import not_counted
from reactive_kafka.verdicts.delivery import Delivery, is_open

StoreTransaction = AbstractAsyncContextManager[Any]


ROOM_S = 0.2
"""How often a transaction looks whether the outbox has room."""


class StoreTransactions:
    """Makes the transactions of one channel's messages.

    Args:
        rows: The channel's rows. Their store may be one without transactions.
        fail: Stops the channel, for the reason given.
        duplicates: Counts records that the store already had.
    """

    def __init__(
        self,
        rows: CheckpointRows,
        fail: Callable[[BaseException], object],
        duplicates: Callable[[int], None],
    ) -> None:
        self.open = OpenTransactions(rows.channel)
        self._rows = rows
        self._name = rows.channel
        self._fail = fail
        self._outcomes = TransactionOutcomes(rows, duplicates)

    def of(
        self,
        deliveries: Sequence[Delivery],
        *,
        is_batch: bool = False,
        why_full: Callable[[], str | None] | None = None,
    ) -> StoreTransaction:
        """Return a transaction that settles these deliveries, except those with a verdict.

        It begins when *why_full* returns None, and takes no lock before that.

        In that of a batch a single record may be nacked. Its failure strategy is carried out when
        the block ends, and the others are stored.
        """
        store = self._rows.store
        if not isinstance(store, TransactionalStore):
            raise CheckpointError(
                f"channel {self._name!r}: its checkpoint store ({type(store).__name__}) has no "
                "transactions; SQLite, PostgreSQL and Redis have"
            )
        return self._run(store, deliveries, is_batch=is_batch, why_full=why_full)

    @asynccontextmanager
    async def _run(
        self,
        store: TransactionalStore,
        deliveries: Sequence[Delivery],
        *,
        is_batch: bool,
        why_full: Callable[[], str | None] | None,
    ) -> AsyncIterator[Any]:
        parts = self._parts(deliveries)
        while why_full is not None and (reason := why_full()) is not None:
            full = StoreAwayError(f"channel {self._name!r}: {reason}")
            full.by_store = True
            with self._waiting(parts):
                await self._outcomes.wait(ROOM_S, parts, full)
        for part in parts:
            part.is_batch = is_batch
        with self.open.opened(parts):
            await self._hold(parts)
            for part in parts:
                part.owned.transaction = part.tracker
            self._check_entry(parts)
            # The store reads this mapping again at the end of its transaction.
            writes: dict[TopicPartition, Write] = {}
            with self._waiting(parts):
                transaction, connection = await self._enter(store, parts, writes)
            try:
                yield connection
                self._check_open(parts)
                await self._carry_out_nacks(parts)
            except BaseException as error:
                try:
                    await transaction.__aexit__(type(error), error, error.__traceback__)
                finally:
                    # Nacks count, whatever becomes of the other records, and of the rollback.
                    _begin_nacks(parts)
                raise
            with self._waiting(parts):
                await self._end(transaction, parts, writes)

    @contextmanager
    def _waiting(self, parts: list[PartitionTransaction]) -> Iterator[None]:
        """Stop the records' clocks while their handler waits for the store.

        If the store needs its operator, the channel stops, and the records are left for the next
        owner.
        """
        since = self._rows.clock.monotonic()
        for part in parts:
            part.tracker.stop_clock([delivery.index for delivery in part.deliveries], since)
        try:
            with not_counted(), not_working():
                yield
        except (FatalBrokerError, CorruptCheckpointError) as error:
            failure = CheckpointStoreError(f"channel {self._name!r}: its checkpoint store: {error}")
            failure.__cause__ = error
            # They are nacked and never settled. So whatever the handler does with this error, it is
            # not counted as a failure of the records.
            for part in parts:
                for delivery in part.deliveries:
                    part.tracker.nack(delivery.index)
            self._fail(failure)
            raise failure from error
        finally:
            now = self._rows.clock.monotonic()
            for part in parts:
                part.tracker.start_clock([delivery.index for delivery in part.deliveries], now)

    def _parts(self, deliveries: Sequence[Delivery]) -> list[PartitionTransaction]:
        """Return the deliveries without a verdict, by partition."""
        by_tracker: dict[OffsetTracker, list[Delivery]] = {}
        for delivery in deliveries:
            # Also for a delivery that has its verdict: raise if its partition is not ours.
            self._owned_row(delivery.tracker)
            if is_open(delivery):
                by_tracker.setdefault(delivery.tracker, []).append(delivery)
        if not by_tracker:
            raise CheckpointError(
                f"{deliveries[0]!r} has its verdict: there is nothing to store with a transaction"
            )
        parts = [
            PartitionTransaction(self._owned_row(tracker), tracker, of_partition)
            for tracker, of_partition in by_tracker.items()
        ]
        # Every transaction takes its locks in this order, so that no two wait for each other.
        return sorted(parts, key=lambda part: part.tracker.partition)

    def _owned_row(self, tracker: OffsetTracker) -> OwnedRow:
        owned = self._rows.of(tracker)
        if tracker.is_closed or owned is None:
            raise self._outcomes.lost_error(tracker)
        return owned

    def _check_open(self, parts: list[PartitionTransaction]) -> None:
        """Raise if a delivery got its verdict meanwhile: it is poison, or its handler failed."""
        self._outcomes.check_ours(parts)
        for part in parts:
            for delivery in part.deliveries:
                if part.is_refused or not (is_open(delivery) or delivery.index in part.failed):
                    raise CheckpointError(
                        f"{delivery!r} has got its verdict meanwhile: nothing is stored"
                    )

    async def _carry_out_nacks(self, parts: list[PartitionTransaction]) -> None:
        """Carry out the nacks of the block, before a position passes their records.

        After a crash in between they are carried out once more.

        Raises:
            CheckpointError: The failure strategy has not settled one of the records.
        """
        nacks = _begin_nacks(parts)
        if not nacks:
            return
        with self._waiting(parts):
            await asyncio.wait(nacks)
        for part in parts:
            for delivery in part.deliveries:
                if delivery.index in part.failed and not part.tracker.is_settled(delivery.index):
                    raise CheckpointError(
                        f"{delivery!r} was nacked and stays unsettled: nothing is stored"
                    )
        self._check_open(parts)

    def nack_at_end(
        self, delivery: Delivery, carry_out: Callable[[], asyncio.Future[bool]]
    ) -> Literal["taken", "twice"] | None:
        """Call *carry_out* when the block of the delivery's batch transaction ends.

        Returns:
            None if the delivery is in no transaction that can do so; ``twice`` if it has been
            nacked there before.
        """
        part = self.open.of(delivery.tracker, delivery.index)
        if part is None or not part.is_batch or part.is_ending or part.is_refused:
            return None
        if delivery.index in part.nacks or delivery.index in part.failed:
            return "twice"
        part.nacks[delivery.index] = carry_out
        return "taken"

    def _check_entry(self, parts: list[PartitionTransaction]) -> None:
        """Raise if a delivery has a verdict, or a record before the deliveries is unsettled."""
        self._check_open(parts)
        for part in parts:
            if part.tracker.unsettled_up_to(part.deliveries[-1].index) != len(part.deliveries):
                raise CheckpointError(
                    f"channel {self._name!r}: {part.tracker.partition} has an unsettled record "
                    f"before offset {part.last_offset}, which a position behind it would pass: "
                    "settle the records of a partition in order"
                )

    async def _hold(self, parts: list[PartitionTransaction]) -> None:
        """Take the locks of the partitions, once the nacks of earlier records are carried out."""
        # A nack may need the lock itself, to ask the store whether its record is stored. So no lock
        # is held while nacks are awaited, and all are released if another nack came while they were
        # being taken.
        while True:
            for part in parts:
                while True:
                    nacks = _nacks_before(part)
                    if not nacks:
                        break
                    with self._waiting([part]):
                        await asyncio.wait(nacks)
            with self._waiting(parts):
                for part in parts:
                    await part.acquire()
            if not any(_nacks_before(part) for part in parts):
                return
            for part in parts:
                part.release()

    async def _enter(
        self,
        store: TransactionalStore,
        parts: list[PartitionTransaction],
        writes: dict[TopicPartition, Write],
    ) -> tuple[StoreTransaction, Any]:
        """Open the store's transaction, however long the store is unavailable.

        Args:
            writes: Is filled with the write of each partition, which the store makes at the end.

        Returns:
            The transaction, and what it yields.

        Raises:
            AlreadyStoredError: The store has some of the records already; they are settled.
            CheckpointRefusedError: A partition is not ours any more.
            StoreAwayError: The store is unavailable, and a partition is being released; or the
                handler has to be called again, because it may have seen an old state.
        """
        waits = Waits(BACKOFF)
        was_refused = False
        while True:
            unsure = [part for part in parts if part.owned.is_unsure]
            if unsure:
                await self._outcomes.until_answered(unsure, self._outcomes.look)
            self._check_states(parts)
            try:
                self._outcomes.refuse_stored(parts)
                for part in parts:
                    writes[part.owned.partition] = part.pending_write().write
                transaction = store.transaction(self._rows.group, writes)
                # Nothing is written yet: whatever becomes of this request, no position is in doubt.
                connection = await self._rows.ask(transaction.__aenter__(), is_write=False)
                return transaction, connection
            except CheckpointRefusedError as error:
                # As far as this process knows, they are still ours.
                self._outcomes.check_ours(parts)
                for part in parts:
                    # The next round reads the rows, which says whose they are.
                    part.owned.is_unsure = True
                # After the first refusal the rows are read at once.
                if was_refused:
                    await self._outcomes.wait(waits.next_s(), parts, error)
                was_refused = True
            except StoreAwayError as error:
                await self._outcomes.wait(waits.next_s(), parts, error)

    def _check_states(self, parts: list[PartitionTransaction]) -> None:
        """Raise if the store turned out to have a later state than the one before the block."""
        for part in parts:
            if part.owned.states.is_outdated:
                # Once is enough: an application that iterates reads the state again itself.
                part.owned.states.is_outdated = False
                again = StoreAwayError(
                    f"channel {self._name!r}: the store has a later state of "
                    f"{part.tracker.partition}: its records are handled again"
                )
                again.by_store = True
                raise again

    async def _end(
        self,
        transaction: StoreTransaction,
        parts: list[PartitionTransaction],
        writes: dict[TopicPartition, Write],
    ) -> None:
        """Store everything and settle the deliveries. Returns or raises once the outcome is known.

        Raises:
            AlreadyStoredError: An earlier transaction had stored it after all; this one was rolled
                back.
            CheckpointRefusedError: Another owner has a partition; nothing was stored.
            StoreAwayError: Nothing was stored, or it cannot be known yet: the records are handled
                again.
        """
        for part in parts:
            part.is_ending = True
            # Also for a partition that was released: its row is ours until another owner claims it.
            client = self._rows.client_of(part.tracker)
            part.due = None if client is None else client.due(part.tracker, part.last_offset + 1)
        pending = {part: part.final_write(writes[part.owned.partition]) for part in parts}
        for part, final in pending.items():
            writes[part.owned.partition] = final.write
        for part, final in pending.items():
            part.owned.sent(final)
            # The next assignment may find this position in the store.
            part.tracker.attempted = max(part.tracker.attempted, part.last_offset + 1)
        try:
            await self._rows.ask(transaction.__aexit__(None, None, None))
        except CheckpointRefusedError as error:
            await self._outcomes.until_answered(parts, self._outcomes.look)
            again = StoreAwayError(f"{error}: nothing was stored, the records are handled again")
            again.by_store = True
            raise again from error
        except StoreAwayError:
            await self._outcomes.until_answered(parts, self._outcomes.look_after_end)
            if not all(part.is_stored for part in parts):
                raise
        else:
            for part, final in pending.items():
                part.owned.confirmed(final)
        for part in parts:
            self._outcomes.settle(part, part.deliveries)

    def refuse(self, delivery: Delivery) -> None:
        """Have the open transaction of a delivery that fails, if it has one, store nothing."""
        part = self.open.of(delivery.tracker, delivery.index)
        if part is not None and not part.is_ending:
            part.is_refused = True
            # Others must not wait for the lock: the block may never end.
            part.release()

    def may_have_stored(self, delivery: Delivery) -> bool:
        """Return whether a transaction has tried to store a delivery that has no verdict."""
        owned = self._rows.of(delivery.tracker)
        return owned is not None and owned.has_sent(delivery.offset)

    async def find_out(self, delivery: Delivery) -> None:
        """Return once it is known whether the store has a delivery. If so, it is settled."""
        owned = self._owned_row(delivery.tracker)
        part = PartitionTransaction(owned, delivery.tracker, [delivery])
        # A transaction of the partition holds the lock until its commit is answered.
        async with owned.lock:
            with self._waiting([part]):
                await self._outcomes.find_out(part)


def _begin_nacks(parts: list[PartitionTransaction]) -> list[asyncio.Future[bool]]:
    """Begin to carry out the nacks that were given in the block."""
    begun = []
    for part in parts:
        while part.nacks:
            index, carry_out = part.nacks.popitem()
            part.failed.add(index)
            begun.append(carry_out())
    return begun


def _nacks_before(part: PartitionTransaction) -> list[asyncio.Future[bool]]:
    return verdicts_of(part.tracker).nacks_up_to(part.deliveries[-1].index)

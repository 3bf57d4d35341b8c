"""One transaction of the user's rows and the position behind a record: both are stored, or neither
is.

The row decides, whatever happens to the request: it names its owner and its position, and each
write names both as it expects them. So an earlier transaction that arrives late is rejected and
rolled back, and so is one of another owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal

from reactive_kafka.backoff import Waits
from reactive_kafka.checkpoint.open_transactions import BACKOFF, OpenTransactions, Outcomes, Part
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import TransactionalStore, Write
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    CheckpointError,
    CheckpointRefusedError,
    CheckpointStoreError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery, is_open

Opened = AbstractAsyncContextManager[Any]


class Transactions:
    """Makes the transactions of one channel's messages; ``open`` has those that are open."""

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
        self._outcomes = Outcomes(rows, duplicates)

    def of(self, deliveries: Sequence[Delivery], *, is_batch: bool = False) -> Opened:
        """A transaction that settles these deliveries, except those with a verdict.

        In that of a batch a single record may be nacked: it meets its failure strategy when the
        block ends, and the others are stored.
        """
        store = self._rows.store
        if not isinstance(store, TransactionalStore):
            raise CheckpointError(
                f"channel {self._name!r}: its checkpoint store ({type(store).__name__}) has no transactions; "
                "SQLite, PostgreSQL and Redis have"
            )
        return self._run(store, deliveries, is_batch=is_batch)

    @asynccontextmanager
    async def _run(
        self, store: TransactionalStore, deliveries: Sequence[Delivery], *, is_batch: bool
    ) -> AsyncIterator[Any]:
        parts = self._parts(deliveries)
        for part in parts:
            part.is_batch = is_batch
        with self.open.opened(parts):
            await self._hold(parts)
            for part in parts:
                part.claim.transaction = part.tracker
            self._check_entry(parts)
            writes: dict[TopicPartition, Write] = {}
            with self._waiting(parts):
                opened, connection = await self._enter(store, parts, writes)
            try:
                yield connection
                self._check_open(parts)
                await self._carry_out_nacks(parts)
            except BaseException as error:
                await opened.__aexit__(type(error), error, error.__traceback__)
                # These verdicts stand, whatever becomes of the others.
                _begin_nacks(parts)
                raise
            with self._waiting(parts):
                await self._end(opened, parts, writes)

    @contextmanager
    def _waiting(self, parts: list[Part]) -> Iterator[None]:
        """The records do not age meanwhile: their handler waits for the store.

        If the store needs its operator, the channel stops, and the records are left for the next
        owner.
        """
        since = self._rows.clock.monotonic()
        for part in parts:
            part.tracker.stop_clock([delivery.index for delivery in part.deliveries], since)
        try:
            yield
        except (FatalBrokerError, CorruptCheckpointError) as error:
            failure = CheckpointStoreError(f"channel {self._name!r}: its checkpoint store: {error}")
            failure.__cause__ = error
            # Nacked and never settled: whatever the handler makes of this error, it is no failure
            # of the records.
            for part in parts:
                for delivery in part.deliveries:
                    part.tracker.nack(delivery.index)
            self._fail(failure)
            raise failure from error
        finally:
            now = self._rows.clock.monotonic()
            for part in parts:
                part.tracker.start_clock([delivery.index for delivery in part.deliveries], now)

    def _parts(self, deliveries: Sequence[Delivery]) -> list[Part]:
        found: dict[OffsetTracker, list[Delivery]] = {}
        for delivery in deliveries:
            self._claim_of(delivery.tracker)
            if is_open(delivery):
                found.setdefault(delivery.tracker, []).append(delivery)
        if not found:
            raise CheckpointError(
                f"{deliveries[0]!r} has its verdict: there is nothing to store with a transaction"
            )
        parts = [Part(self._claim_of(tracker), tracker, its) for tracker, its in found.items()]
        return sorted(parts, key=lambda part: part.tracker.partition)

    def _claim_of(self, tracker: OffsetTracker) -> OwnedRow:
        claim = self._rows.of(tracker)
        if tracker.is_closed or claim is None:
            raise self._outcomes.gone(tracker)
        return claim

    def _check_open(self, parts: list[Part]) -> None:
        """Raise if a delivery got its verdict meanwhile: it became poison, or its handler
        failed.
        """
        self._outcomes.check_ours(parts)
        for part in parts:
            for delivery in part.deliveries:
                if part.is_refused or not (is_open(delivery) or delivery.index in part.failed):
                    raise CheckpointError(
                        f"{delivery!r} has got its verdict meanwhile: nothing is stored"
                    )

    async def _carry_out_nacks(self, parts: list[Part]) -> None:
        """Have the records that were nacked in the block meet their failure strategy, before the
        position passes them.

        After a crash in between they meet it once more. CheckpointError: one of them is not settled
        by it.
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
        part = self.open.of(delivery.tracker, delivery.index)
        if part is None or not part.is_batch or part.is_ending or part.is_refused:
            return None
        if delivery.index in part.nacks or delivery.index in part.failed:
            return "twice"
        part.nacks[delivery.index] = carry_out
        return "taken"

    def _check_entry(self, parts: list[Part]) -> None:
        """The same before the block, and raise if a record before the deliveries is unsettled."""
        self._check_open(parts)
        for part in parts:
            if part.tracker.unsettled_up_to(part.deliveries[-1].index) != len(part.deliveries):
                raise CheckpointError(
                    f"channel {self._name!r}: {part.tracker.partition} has an unsettled record before offset "
                    f"{part.last}, which a position behind it would pass: settle the records of a partition in order"
                )

    async def _hold(self, parts: list[Part]) -> None:
        """Take the locks of the partitions, once the nacks of earlier records are carried out."""
        # In this order: a nack may need the lock itself, to ask the store whether its record is
        # stored. So nothing is held while nacks are awaited, and all is released if another nack
        # came while the locks were.
        while True:
            for part in parts:
                while nacks := _nacks_before(part):
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
        self, store: TransactionalStore, parts: list[Part], writes: dict[TopicPartition, Write]
    ) -> tuple[Opened, Any]:
        """Open it, however long the store is unavailable."""
        waits = Waits(BACKOFF)
        is_refused_again = False
        while True:
            try:
                if unsure := [part for part in parts if part.claim.is_unsure]:
                    await self._outcomes.look(unsure)
                self._outcomes.refuse_stored(parts)
                writes.update({part.claim.partition: part.sending().write for part in parts})
                opened = store.transaction(self._rows.group, writes)
                return opened, await self._rows.ask(opened.__aenter__(), is_write=False)
            except CheckpointRefusedError as error:
                self._outcomes.check_ours(parts)
                for part in parts:
                    # The row tells.
                    part.claim.is_unsure = True
                if is_refused_again:
                    await self._outcomes.wait(waits.next_s(), parts, error)
                is_refused_again = True
            except StoreAwayError as error:
                await self._outcomes.wait(waits.next_s(), parts, error)

    async def _end(
        self, opened: Opened, parts: list[Part], writes: dict[TopicPartition, Write]
    ) -> None:
        """Store everything and settle the deliveries. Returns or raises once the outcome is known.

        Raises:
            AlreadyStoredError: An earlier transaction had stored it after all; this one was rolled
                back.
            CheckpointRefusedError: Another owner has a partition; nothing was stored.
            StoreAwayError: Nothing was stored, or it cannot be known as yet: the records are
                handled again.
        """
        for part in parts:
            part.is_ending = True
            # Also for a partition that was released: its row is ours until somebody else claims it.
            client = self._rows.client_of(part.tracker)
            part.due = None if client is None else client.due(part.tracker, part.last + 1)
        sending = {part: part.sending_over(writes[part.claim.partition]) for part in parts}
        writes.update({part.claim.partition: one.write for part, one in sending.items()})
        for part, one in sending.items():
            part.claim.sent(one)
            # If the next assignment finds it.
            part.tracker.attempted = max(part.tracker.attempted, part.last + 1)
        try:
            await self._rows.ask(opened.__aexit__(None, None, None))
        except CheckpointRefusedError as error:
            await self._outcomes.until_told(parts, self._outcomes.look)
            again = StoreAwayError(f"{error}: nothing was stored, the records are handled again")
            again.by_store = True
            raise again from error
        except StoreAwayError:
            await self._outcomes.until_told(parts, self._outcomes.look_after_end)
            if not all(part.is_stored for part in parts):
                raise
        else:
            for part, one in sending.items():
                part.claim.confirmed(one)
        for part in parts:
            self._outcomes.settle(part, part.deliveries)

    def refuse(self, delivery: Delivery) -> None:
        part = self.open.of(delivery.tracker, delivery.index)
        if part is not None and not part.is_ending:
            part.is_refused = True
            # Its block may never end, so nothing waits for that.
            part.release()

    def may_have_stored(self, delivery: Delivery) -> bool:
        claim = self._rows.of(delivery.tracker)
        return claim is not None and claim.has_sent(delivery.offset)

    async def find_out(self, delivery: Delivery) -> None:
        part = Part(self._claim_of(delivery.tracker), delivery.tracker, [delivery])
        # A transaction of the partition holds it until its commit is answered.
        async with part.claim.lock:
            with self._waiting([part]):
                await self._outcomes.find_out(part)


def _begin_nacks(parts: list[Part]) -> list[asyncio.Future[bool]]:
    """Begin to carry out the nacks that were given in the block."""
    begun = []
    for part in parts:
        while part.nacks:
            index, carry_out = part.nacks.popitem()
            part.failed.add(index)
            begun.append(carry_out())
    return begun


def _nacks_before(part: Part) -> list[asyncio.Future[bool]]:
    return verdicts_of(part.tracker).nacks_up_to(part.deliveries[-1].index)

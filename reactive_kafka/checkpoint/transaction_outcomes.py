"""Finds out whether the store has what a transaction wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.channel_rows import CheckpointRows
from reactive_kafka.checkpoint.open_transactions import PartitionTransaction
from reactive_kafka.errors import AlreadyStoredError, CheckpointRefusedError, StoreAwayError
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery

BACKOFF = Backoff(0.1, 2.0)
"""How soon an unavailable store is tried again."""

LOOK_S = 0.1
"""How soon a transaction that waits for the store notices that its partition is released."""


class TransactionOutcomes:
    """Asks the store what became of transactions.

    Each ends in one of three ways: its records are settled, they are handled again, or their
    partition is lost.

    Args:
        rows: The channel's rows.
        duplicates: Counts records that the store already had.
    """

    def __init__(self, rows: CheckpointRows, duplicates: Callable[[int], None]) -> None:
        self._rows = rows
        self._duplicates = duplicates

    def check_ours(self, parts: Sequence[PartitionTransaction]) -> None:
        """Raise CheckpointRefusedError unless all partitions are still ours."""
        for part in parts:
            if part.tracker.is_closed or part.owned.is_lost:
                raise self.lost_error(part.tracker)

    def lost_error(self, tracker: OffsetTracker) -> CheckpointRefusedError:
        """Return the error for a partition that is not ours any more."""
        return CheckpointRefusedError(
            f"channel {self._rows.channel!r}: {tracker.partition} is not ours any more"
        )

    async def look(self, parts: Sequence[PartitionTransaction]) -> None:
        """Read the rows, settle what an earlier request has stored, and raise if it stored any.

        Raises:
            AlreadyStoredError: The store has some of the records.
            CheckpointRefusedError: A partition is not ours any more.
        """
        await self._rows.read_again_or_fence([part.owned for part in parts])
        try:
            self.refuse_stored([part for part in parts if not part.owned.is_lost])
        finally:
            self._check_rows(parts)

    async def look_after_end(self, parts: Sequence[PartitionTransaction]) -> None:
        """Read the rows after the end of a transaction, and settle what it has stored."""
        await self._rows.read_again_or_fence([part.owned for part in parts])
        for part in parts:
            if part.is_stored and not part.owned.is_lost:
                self.settle(part, part.deliveries)
        self._check_rows(parts)

    def _check_rows(self, parts: Sequence[PartitionTransaction]) -> None:
        for part in parts:
            if part.owned.is_lost:
                raise self.lost_error(part.tracker)

    def refuse_stored(self, parts: Sequence[PartitionTransaction]) -> None:
        """Settle the records that the store is known to have, and raise if there are any.

        Another owner may have read the rows before, and found them.
        """
        count = 0
        for part in parts:
            stored = [
                delivery for delivery in part.deliveries if part.owned.has_stored(delivery.offset)
            ]
            count += len(stored)
            if stored:
                self.settle(part, stored)
        if count:
            self._duplicates(count)
            raise AlreadyStoredError(
                f"channel {self._rows.channel!r}: the checkpoint store has these records already: "
                "they are settled"
            )

    def settle(self, part: PartitionTransaction, deliveries: Sequence[Delivery]) -> None:
        """Settle records that the store has, and count the row's position as committed."""
        row = part.owned.checkpoint
        for delivery in deliveries:
            part.tracker.settle(delivery.index)
        if row.position is not None and part.owned.tracker is part.tracker:
            part.owned.states.found(row.position, row.state)
            due = part.due
            if due is None or due.position != row.position:
                due = PendingCommit(part.tracker, row.position, is_new=True, text=row.metadata)
            client = self._rows.client_of(part.tracker)
            if client is not None:
                client.stored(due)
            verdicts_of(part.tracker).committed_by_transaction(due.position)

    async def until_answered(
        self,
        parts: Sequence[PartitionTransaction],
        look: Callable[[Sequence[PartitionTransaction]], Awaitable[None]],
    ) -> None:
        """Call *look* until the store answers. Raises what it and :meth:`wait` raise."""
        waits = Waits(BACKOFF)
        while True:
            try:
                await look(parts)
                return
            except StoreAwayError as error:
                await self.wait(waits.next_s(), parts, error)

    async def wait(
        self,
        wait_s: float,
        parts: Sequence[PartitionTransaction],
        error: StoreAwayError | CheckpointRefusedError,
    ) -> None:
        """Wait before the store is tried again.

        It waits a little even if it raises: an application that iterates may try again at once.

        Raises:
            CheckpointRefusedError: A partition is not ours any more.
            StoreAwayError: A partition is being released, or the channel stops: *error* is raised.
        """
        monotonic = self._rows.clock.monotonic
        until = monotonic() + wait_s
        # Short sleeps instead of an event: nothing signals a single transaction that its partition
        # is being released.
        while (left_s := until - monotonic()) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))
            if not self._are_kept(parts):
                break
        self.check_ours(parts)
        if not self._are_kept(parts):
            raise error

    def _are_kept(self, parts: Sequence[PartitionTransaction]) -> bool:
        return all(self._rows.is_kept(part.tracker) for part in parts)

    async def find_out(self, part: PartitionTransaction) -> None:
        """Settle the records if the store has them; else make sure that it never gets them.

        The caller holds the lock of the row.
        """
        while True:
            self.check_ours([part])
            try:
                # A partition that is being released may be retained: wait until that is known.
                if self._rows.is_kept(part.tracker):
                    await self.until_answered([part], self._look_or_renew)
                    return
            except StoreAwayError:
                # The partition is being released.
                pass
            await asyncio.sleep(LOOK_S)

    async def _look_or_renew(self, parts: Sequence[PartitionTransaction]) -> None:
        # A row that was read without our position proves nothing: the request may still arrive.
        # Writing the row again under a new token proves it: a request that arrives after that
        # expects the old token, and is refused.
        (part,) = parts
        owned = part.owned
        while owned.has_sent(part.last_offset):
            if owned.is_unsure:
                await self.look_after_end(parts)
            if part.is_stored:
                self.settle(part, part.deliveries)
                return
            renewal = owned.renewal()
            rows = self._rows
            owned.sent(renewal)
            if await rows.ask(rows.store.write(rows.group, {owned.partition: renewal.write})):
                # Refused: the row has changed, and is read again.
                continue
            owned.confirmed(renewal)
            if not owned.is_unsure:
                owned.renewed()

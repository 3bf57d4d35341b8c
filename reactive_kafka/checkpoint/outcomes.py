"""What the store has of a transaction, and what follows: settled records, another attempt, or a lost partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.open_transactions import Part
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import AlreadyStoredError, CheckpointRefusedError, StoreAwayError
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.partition import verdicts_of

BACKOFF = Backoff(0.1, 2.0)
"""How soon an unavailable store is tried again."""

LOOK_S = 0.1
"""How soon a transaction that waits for the store notices that its partition goes."""


class Outcomes:
    """Asks the store what became of transactions.

    Args:
        duplicates: Counts records that the store already had.
    """

    def __init__(self, rows: CheckpointRows, duplicates: Callable[[int], None]) -> None:
        self._rows = rows
        self._duplicates = duplicates

    def check_ours(self, parts: Sequence[Part]) -> None:
        """Raise CheckpointRefusedError unless all partitions are still ours."""
        for part in parts:
            if part.tracker.is_closed or part.claim.is_lost:
                raise self.gone(part.tracker)

    def gone(self, tracker: OffsetTracker) -> CheckpointRefusedError:
        """The error for a partition that is not ours any more."""
        return CheckpointRefusedError(f"channel {self._rows.channel!r}: {tracker.partition} is not ours any more")

    async def look(self, parts: Sequence[Part]) -> None:
        """Read the rows, and settle what an earlier request has stored.

        Raises:
            AlreadyStoredError: Something was stored.
            CheckpointRefusedError: Another owner has a partition: its tracker is closed.
        """
        await self._rows.look_again([part.claim for part in parts])
        try:
            self.refuse_stored([part for part in parts if not part.claim.is_lost])
        finally:
            self._check_claims(parts)

    async def look_after_end(self, parts: Sequence[Part]) -> None:
        """The same after the end, without an error for what that has stored."""
        await self._rows.look_again([part.claim for part in parts])
        for part in parts:
            if part.is_stored and not part.claim.is_lost:
                self.settle(part, part.deliveries)
        self._check_claims(parts)

    def _check_claims(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.claim.is_lost:
                raise self.gone(part.tracker)

    def refuse_stored(self, parts: Sequence[Part]) -> None:
        """Settle what the store is known to have, and raise if that is any: others read the rows, too."""
        found = {part: [one for one in part.deliveries if part.claim.has_stored(one.offset)] for part in parts}
        for part, stored in found.items():
            if stored:
                self.settle(part, stored)
        if duplicates := sum(map(len, found.values())):
            self._duplicates(duplicates)
            raise AlreadyStoredError(
                f"channel {self._rows.channel!r}: the checkpoint store has these records already: they are settled"
            )

    def settle(self, part: Part, deliveries: Sequence[Delivery]) -> None:
        """The store has these: settle them, and count what the row says as committed."""
        row = part.claim.row
        for delivery in deliveries:
            part.tracker.settle(delivery.index)
        if row.position is not None and part.claim.tracker is part.tracker:
            part.claim.states.found(row.position, row.state)
            due = part.due
            if due is None or due.position != row.position:
                due = PendingCommit(part.tracker, row.position, is_new=True, text=row.metadata)
            if (client := self._rows.client_of(part.tracker)) is not None:
                client.stored(due)
            verdicts_of(part.tracker).committed_by_transaction(due.position)

    async def until_told(self, parts: Sequence[Part], look: Callable[[Sequence[Part]], Awaitable[None]]) -> None:
        """Call *look* until the store answers. Raises what it and :meth:`wait` raise."""
        waits = Waits(BACKOFF)
        while True:
            try:
                await look(parts)
                return
            except StoreAwayError as error:
                await self.wait(waits.next_s(), parts, error)

    async def wait(self, wait_s: float, parts: Sequence[Part], error: StoreAwayError) -> None:
        """Wait before the store is tried again.

        Raises:
            StoreAwayError: A partition is being released, or the channel stops: *error* itself.
            CheckpointRefusedError: A partition has gone.
        """
        monotonic, is_kept = self._rows.clock.monotonic, self._rows.is_kept
        until = monotonic() + wait_s
        # Short sleeps instead of an event: no one signals a single transaction that its partition is being released.
        while (left_s := until - monotonic()) > 0 and all(is_kept(part.tracker) for part in parts):  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, LOOK_S))
        self.check_ours(parts)
        if not all(is_kept(part.tracker) for part in parts):
            raise error

    async def find_out(self, part: Part) -> None:
        """Settle a part that the store has. If it has not, make sure that no late request can still store it.

        The caller holds the lock of the row.

        Raises:
            CheckpointRefusedError: The partition has gone, or the channel has stopped.
        """
        while True:
            self.check_ours([part])
            try:
                if self._rows.is_kept(part.tracker):  # else it may be retained: wait for that
                    await self.until_told([part], self._look_or_renew)
                    return
            except StoreAwayError:
                pass  # it is being released
            await asyncio.sleep(LOOK_S)

    async def _look_or_renew(self, parts: Sequence[Part]) -> None:
        # A row that was read without our position proves nothing: the request may still be on its way. A write of
        # another token over that row does: whatever arrives later expects the old token, and is refused.
        (part,) = parts
        while part.claim.has_sent(part.last):
            if part.claim.is_unsure:
                await self.look_after_end(parts)
            if part.is_stored:
                self.settle(part, part.deliveries)
                return
            claim, sending, rows = part.claim, part.claim.renew(), self._rows
            claim.sent(sending)
            if await rows.ask(rows.store.write(rows.group, {claim.partition: sending.write})):
                continue  # the row has changed: it is read again
            claim.confirmed(sending)
            if not claim.is_unsure:
                claim.renewed()

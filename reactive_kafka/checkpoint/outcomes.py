"""What the store has of a transaction, and what follows: settled records, another attempt, or a lost partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.open_transactions import OpenTransaction
from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import Write
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import AlreadyStoredError, CheckpointRefusedError, StoreAwayError
from reactive_kafka.records import Committed
from reactive_kafka.verdicts.delivery import Delivery

BACKOFF = Backoff(0.1, 2.0)
"""How soon an unavailable store is tried again."""

LOOK_S = 0.1
"""How soon a transaction that waits for the store notices that its partition goes."""


@dataclass(slots=True, eq=False)
class Part:
    """One partition of a transaction.

    Attributes:
        deliveries: Ascending; all without a verdict when the transaction begins.
        due: What is stored for the partition, once the block has ended.
    """

    claim: OwnedRow
    tracker: OffsetTracker
    deliveries: list[Delivery]
    block: OpenTransaction
    due: PendingCommit | None = None

    @property
    def last(self) -> int:
        """The highest offset."""
        return self.deliveries[-1].offset

    @property
    def is_stored(self) -> bool:
        """Whether the store is known to have all of it."""
        return self.claim.has_stored(self.last)

    def sending(self) -> Sending:
        """The write that stores the position behind it."""
        return self.claim.write(Committed(self.last + 1) if self.due is None else self.due.stored)

    def sending_over(self, entered: Write) -> Sending:
        """The same with the state and metadata of now, over the row as it was when the transaction was entered."""
        checkpoint = self.sending().write.checkpoint._replace(token=entered.checkpoint.token)
        return Sending(entered._replace(checkpoint=checkpoint), self.tracker)

    def end(self) -> None:
        """The transaction is over. A refused one has let go of the row before, which may be another one's by now."""
        if self.claim.transaction is self.tracker and not self.block.is_refused:
            self.claim.transaction = None


class Outcomes:
    """Asks the store what became of transactions.

    Args:
        duplicates: Counts records that the store already had.
    """

    def __init__(self, rows: CheckpointRows, duplicates: Callable[[int], None]) -> None:
        self._rows = rows
        self._duplicates = duplicates

    def check_ours(self, parts: Sequence[Part]) -> None:
        """Raise unless all partitions are still ours.

        Raises:
            CheckpointRefusedError: One is not.
        """
        for part in parts:
            if part.tracker.is_closed or self._rows.partitions.claim(part.tracker.partition) is not part.claim:
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
        ours = await self._rows.look_again([part.claim for part in parts])
        try:
            self.refuse_stored([part for part in parts if part.claim in ours])
        finally:
            self._check_claims(parts, ours)

    async def look_after_end(self, parts: Sequence[Part]) -> None:
        """Read the rows after a request without an answer, and settle what it has stored.

        Raises:
            CheckpointRefusedError: Another owner has a partition: its tracker is closed.
        """
        ours = await self._rows.look_again([part.claim for part in parts])
        for part in parts:
            if part.claim in ours and part.is_stored:
                self.settle(part, part.deliveries)
        self._check_claims(parts, ours)

    def _check_claims(self, parts: Sequence[Part], ours: Sequence[OwnedRow]) -> None:
        for part in parts:
            if part.claim not in ours:
                raise self.gone(part.tracker)

    def refuse_stored(self, parts: Sequence[Part]) -> None:
        """Settle what the store is known to have: others read the rows, too.

        Raises:
            AlreadyStoredError: It has some of it.
        """
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
            self._rows.clients.stored(due)

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
        monotonic, keep = self._rows.clock.monotonic, self._rows.clients.keep
        until = monotonic() + wait_s
        # Short sleeps instead of an event: no one signals a single transaction that its partition is being released.
        while (left_s := until - monotonic()) > 0 and all(keep(part.tracker) for part in parts):  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, LOOK_S))
        self.check_ours(parts)
        if not all(keep(part.tracker) for part in parts):
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
                if self._rows.clients.keep(part.tracker):  # else it may be retained: wait for that
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
            await self._renew(part.claim)

    async def _renew(self, claim: OwnedRow) -> None:
        sending, rows = claim.renew(), self._rows
        claim.sent(sending)
        if await rows.ask(rows.store.write(rows.group, {claim.partition: sending.write})):
            return  # the row has changed: it is read again
        claim.confirmed(sending)
        if not claim.is_unsure:
            claim.renewed()

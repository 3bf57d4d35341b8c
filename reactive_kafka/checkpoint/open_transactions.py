"""The open transactions of one channel, and what the store has of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import Write
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    AlreadyStoredError,
    CheckpointError,
    CheckpointRefusedError,
    StoreAwayError,
)
from reactive_kafka.records import Committed
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.delivery import Delivery

BACKOFF = Backoff(0.1, 2.0)
"""How soon an unavailable store is tried again."""

LOOK_S = 0.1
"""How soon a transaction that waits for the store notices that its partition goes."""

_NO_VERDICT = (
    ": its end acks what it has stored, and a verdict inside of it would stand without that. To have the record fail, "
    "raise an error in the block"
)


class Part:
    """The records of one transaction in one partition. Made by the task that runs the block."""

    def __init__(
        self, claim: OwnedRow, tracker: OffsetTracker, deliveries: Sequence[Delivery]
    ) -> None:
        self.claim = claim
        self.tracker = tracker
        # Ascending; all without a verdict when the transaction begins.
        self.deliveries = deliveries
        self.indexes = frozenset(delivery.index for delivery in deliveries)
        self.last = deliveries[-1].offset
        self.task = asyncio.current_task()
        # The row's, while it is held.
        self.lock: asyncio.Lock | None = None
        # Its commit has been sent.
        self.is_ending = False
        # One of its records got another verdict: it stores nothing.
        self.is_refused = False
        # Of a batch: index -> what carries out the nack that was given to one of its records in the
        # block.
        self.nacks: dict[int, Callable[[], asyncio.Future[bool]]] = {}
        # The records whose nack has been carried out, or is being so.
        self.failed: set[int] = set()
        self.is_batch = False
        # What is stored for the partition, once the block has ended.
        self.due: PendingCommit | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the store is known to have all of it."""
        return self.claim.has_stored(self.last)

    def sending(self) -> Sending:
        """The write that stores the position behind it."""
        return self.claim.write(Committed(self.last + 1) if self.due is None else self.due.stored)

    def sending_over(self, entered: Write) -> Sending:
        """The same with the state and metadata of now, over the row as it was when the transaction
        was entered.
        """
        checkpoint = self.sending().write.checkpoint._replace(token=entered.checkpoint.token)
        return Sending(entered._replace(checkpoint=checkpoint), self.tracker)

    async def acquire(self) -> None:
        """Take the row's lock."""
        # Of now: another tracker brings another lock.
        lock = self.claim.lock
        await lock.acquire()
        self.lock = lock

    def release(self) -> None:
        """Let go of the row, if its lock is held; else it may be another transaction's."""
        lock = self.lock
        self.lock = None
        if lock is not None:
            if self.claim.transaction is self.tracker:
                self.claim.transaction = None
            lock.release()


class OpenTransactions:
    """The open transactions of one channel. Only a transaction gives its records their verdict."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        # As many as there are handlers at most.
        self._open: list[Part] = []

    @contextmanager
    def opened(self, parts: Sequence[Part]) -> Iterator[None]:
        """A transaction of these begins, if it would not wait for itself. Its partitions' locks may
        still be held.
        """
        for part in parts:
            for other in self._open:
                if other.task is part.task:
                    raise CheckpointError(
                        f"channel {self._channel!r}: a transaction of {other.tracker.partition} is open here: one "
                        "inside of another cannot be; batch.transaction() is one for many messages"
                    )
                if other.tracker is part.tracker and (both := part.indexes & other.indexes):
                    raise self._is_open(part.tracker, min(both), "")
        self._open += parts
        try:
            yield
        finally:
            for part in parts:
                self._open.remove(part)
                part.release()

    def of(self, tracker: OffsetTracker, index: int) -> Part | None:
        """The transaction that a record is in."""
        return next(
            (part for part in self._open if part.tracker is tracker and index in part.indexes), None
        )

    def check(self, tracker: OffsetTracker, index: int) -> None:
        if self.of(tracker, index) is not None:
            raise self._is_open(tracker, index, _NO_VERDICT)

    def check_up_to(self, tracker: OffsetTracker, index: int) -> None:
        for part in self._open:
            if part.tracker is tracker and (first := min(part.indexes)) <= index:
                raise self._is_open(tracker, first, _NO_VERDICT)

    def _is_open(self, tracker: OffsetTracker, index: int, advice: str) -> CheckpointError:
        where = f" offset {tracker.offset_of(index)}" if tracker.is_open(index) else ""
        return CheckpointError(
            f"channel {self._channel!r}: a transaction of {tracker.partition}{where} is open{advice}"
        )


class Outcomes:
    """Asks the store what became of transactions: settled records, another attempt, or a lost
    partition.
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
        return CheckpointRefusedError(
            f"channel {self._rows.channel!r}: {tracker.partition} is not ours any more"
        )

    async def look(self, parts: Sequence[Part]) -> None:
        """Read the rows, settle what an earlier request has stored, and raise if that is any."""
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
        """Settle what the store is known to have, and raise if that is any: others read the rows,
        too.
        """
        found = {
            part: [one for one in part.deliveries if part.claim.has_stored(one.offset)]
            for part in parts
        }
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

    async def until_told(
        self, parts: Sequence[Part], look: Callable[[Sequence[Part]], Awaitable[None]]
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
        self, wait_s: float, parts: Sequence[Part], error: StoreAwayError | CheckpointRefusedError
    ) -> None:
        """Wait before the store is tried again. *error* is raised if a partition is released, or
        the channel stops.
        """
        monotonic = self._rows.clock.monotonic
        is_kept = self._rows.is_kept
        until = monotonic() + wait_s
        # Short sleeps instead of an event: no one signals a single transaction that its partition
        # is being released.
        while (left_s := until - monotonic()) > 0 and all(is_kept(part.tracker) for part in parts):  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, LOOK_S))
        self.check_ours(parts)
        if not all(is_kept(part.tracker) for part in parts):
            raise error

    async def find_out(self, part: Part) -> None:
        """Settle a part that the store has. If it has not, make sure that no late request can still
        store it.

        The caller holds the lock of the row.
        """
        while True:
            self.check_ours([part])
            try:
                # Else it may be retained: wait for that.
                if self._rows.is_kept(part.tracker):
                    await self.until_told([part], self._look_or_renew)
                    return
            except StoreAwayError:
                # It is being released.
                pass
            await asyncio.sleep(LOOK_S)

    async def _look_or_renew(self, parts: Sequence[Part]) -> None:
        # A row that was read without our position proves nothing: the request may still be on its
        # way. A write of another token over that row does: whatever arrives later expects the old
        # token, and is refused.
        (part,) = parts
        while part.claim.has_sent(part.last):
            if part.claim.is_unsure:
                await self.look_after_end(parts)
            if part.is_stored:
                self.settle(part, part.deliveries)
                return
            claim = part.claim
            sending = part.claim.renew()
            rows = self._rows
            claim.sent(sending)
            if await rows.ask(rows.store.write(rows.group, {claim.partition: sending.write})):
                # The row has changed: it is read again.
                continue
            claim.confirmed(sending)
            if not claim.is_unsure:
                claim.renewed()

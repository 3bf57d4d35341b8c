"""One transaction of the user's rows and the position behind a record: both are stored, or neither is.

Whatever becomes of the request, the row tells: it names its owner and its position, and is compared with both where it
is written. So a transaction of before, which lands late, and one of an owner of before are refused, and rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.open_transactions import OpenTransaction, OpenTransactions
from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import TransactionalStore, Write
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import (
    AlreadyStoredError,
    CheckpointError,
    CheckpointRefusedError,
    CheckpointStoreError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
)
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.partition import verdicts_of

BACKOFF = Backoff(0.1, 2.0)
"""How soon a store that is away is tried again: doubling, from the first up to the second."""

LOOK_S = 0.1
"""How soon a transaction that waits for the store sees that its partition goes."""


@dataclass(slots=True, eq=False)
class _Part:
    """The messages of one partition, ascending and all without a verdict when the transaction begins."""

    claim: OwnedRow
    tracker: OffsetTracker
    messages: list[Delivery]
    block: OpenTransaction
    due: PendingCommit | None = None

    @property
    def last(self) -> int:
        return self.messages[-1].offset

    @property
    def is_stored(self) -> bool:
        """Whether a request of ours has stored all of it."""
        return self.claim.has_stored(self.last)


class Transactions:
    """Makes the transactions of one channel's messages.

    Args:
        fail: Stops the channel, for the reason given.
        duplicates: Counts records that the store already had.

    Attributes:
        open: Those that are open.
    """

    def __init__(
        self, rows: CheckpointRows, fail: Callable[[BaseException], object], duplicates: Callable[[int], None]
    ) -> None:
        self.open = OpenTransactions(rows.channel)
        self._rows = rows
        self._name = rows.channel
        self._fail = fail
        self._duplicates = duplicates

    def of(self, messages: Sequence[Delivery]) -> AbstractAsyncContextManager[Any]:
        """A transaction that settles these messages, those with a verdict aside.

        Raises:
            CheckpointError: The store has none.
        """
        store = self._rows.store
        if not isinstance(store, TransactionalStore):
            raise CheckpointError(
                f"channel {self._name!r}: its checkpoint store ({type(store).__name__}) has no transactions; "
                "SQLite, PostgreSQL and Redis have"
            )
        return self._run(store, messages)

    @asynccontextmanager
    async def _run(self, store: TransactionalStore, messages: Sequence[Delivery]) -> AsyncIterator[Any]:
        with ExitStack() as ends:
            parts = self._parts(messages)
            self.open.begin(part.block for part in parts)
            for part in parts:
                ends.callback(self.open.end, part.block)
            await self._hold(parts)
            for part in parts:
                part.claim.transaction = part.tracker
                ends.callback(_over, part)
            self._still_ours(parts)
            self._still_open(parts)
            self._in_order(parts)
            writes: dict[TopicPartition, Write] = {}
            with self._clock_stopped(parts), self._failing(parts):
                opened, connection = await self._enter(store, parts, writes)
            try:
                yield connection
                self._still_ours(parts)
                self._still_open(parts)
            except BaseException as error:
                await opened.__aexit__(type(error), error, error.__traceback__)
                raise
            with self._clock_stopped(parts), self._failing(parts):
                await self._end(opened, parts, writes)

    @contextmanager
    def _failing(self, parts: list[_Part]) -> Iterator[None]:
        """Where the store cannot go on before somebody has acted the channel stops, and the records are left.

        They take no verdict from here on: whatever the handler makes of the error, they are not its failures.

        Raises:
            CheckpointStoreError: It cannot.
        """
        try:
            yield
        except (FatalBrokerError, CorruptCheckpointError) as error:
            failure = CheckpointStoreError(f"channel {self._name!r}: its checkpoint store: {error}")
            failure.__cause__ = error
            for part in parts:
                for message in part.messages:
                    part.tracker.nack(message.index)
            self._fail(failure)
            raise failure from error

    # -- before

    def _parts(self, messages: Sequence[Delivery]) -> list[_Part]:
        found: dict[OffsetTracker, list[Delivery]] = {}
        for message in messages:
            tracker = message.tracker
            claim = self._rows.partitions.claim(tracker.partition)
            if tracker.is_closed or claim is None or claim.tracker is not tracker:
                raise self._gone(tracker)
            if tracker.is_open(message.index):
                found.setdefault(tracker, []).append(message)
        if not found:
            raise CheckpointError(f"{messages[0]!r} has its verdict: there is nothing to store with a transaction")
        parts = [self._part(tracker, messages) for tracker, messages in found.items()]
        return sorted(parts, key=lambda part: part.tracker.partition)

    def _part(self, tracker: OffsetTracker, messages: list[Delivery]) -> _Part:
        claim = self._rows.partitions.claim(tracker.partition)
        if tracker.is_closed or claim is None or claim.tracker is not tracker:
            raise self._gone(tracker)
        indexes = [message.index for message in messages]
        return _Part(claim, tracker, messages, OpenTransaction(tracker, indexes, asyncio.current_task()))

    def _still_open(self, parts: list[_Part]) -> None:
        """Nobody has settled a message, or given it over to the failure strategy, since its transaction began.

        Raises:
            CheckpointError: Somebody has: as poison, or because its handler failed beside the transaction.
        """
        for part in parts:
            for message in part.messages:
                if part.block.is_refused or not part.tracker.is_open(message.index):
                    raise CheckpointError(f"{message!r} has got its verdict meanwhile: nothing is stored")

    async def _hold(self, parts: list[_Part]) -> None:
        """Take the locks of the partitions, when the nacks of records before the messages are carried out.

        Letters may be on their way, and failures that need the lock themselves to ask the store.
        """
        while True:
            for part in parts:
                while nacks := self._nacks_before(part):
                    with self._clock_stopped([part]):
                        await asyncio.wait(nacks)
            for part in parts:
                lock = part.claim.lock
                await lock.acquire()
                part.block.lock = lock
            if not any(self._nacks_before(part) for part in parts):
                return
            for part in parts:
                part.block.release()

    def _nacks_before(self, part: _Part) -> list[asyncio.Future[bool]]:
        return verdicts_of(part.tracker).nacks_up_to(part.messages[-1].index)

    def _in_order(self, parts: list[_Part]) -> None:
        """The position behind the last message may pass no record that is unsettled, those of the transaction aside.

        Raises:
            CheckpointError: It would.
        """
        for part in parts:
            if part.tracker.unsettled_up_to(part.messages[-1].index) != len(part.messages):
                raise CheckpointError(
                    f"channel {self._name!r}: {part.tracker.partition} has an unsettled record before offset "
                    f"{part.last}, which a position behind it would pass: settle the records of a partition in order"
                )

    async def _enter(
        self, store: TransactionalStore, parts: list[_Part], writes: dict[TopicPartition, Write]
    ) -> tuple[AbstractAsyncContextManager[Any], Any]:
        """Open it, however long the store is away; the poison clock stands still meanwhile."""
        waits = Waits(BACKOFF)
        while True:
            try:
                await self._look_where_unsure(parts)
                self._refuse_stored(parts)
                writes.update({part.claim.partition: _sending(part).write for part in parts})
                opened = store.transaction(self._rows.group, writes)
                return opened, await self._rows.ask(opened.__aenter__())
            except CheckpointRefusedError:
                self._still_ours(parts)
                for part in parts:
                    part.claim.is_unsure = True  # the row tells
            except StoreAwayError as error:
                await self._wait(waits.next_s(), parts, error)

    async def _wait(self, wait_s: float, parts: list[_Part], error: StoreAwayError) -> None:
        """Wait before the store is tried again.

        Raises:
            StoreAwayError: A partition is being let go, or the channel stops.
            CheckpointRefusedError: A partition has gone.
        """
        monotonic, is_ours = self._rows.clock.monotonic, self._rows.clients.keep
        until = monotonic() + wait_s
        while (left_s := until - monotonic()) > 0 and all(is_ours(one.tracker) for one in parts):  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, LOOK_S))  # nobody tells a single transaction
        self._still_ours(parts)
        if not all(is_ours(part.tracker) for part in parts):
            raise error

    @contextmanager
    def _clock_stopped(self, parts: list[_Part]) -> Iterator[None]:
        """Nobody's handler is at fault meanwhile: the records do not age."""
        indexes = {part.tracker: [message.index for message in part.messages] for part in parts}
        stopped = self._rows.clock.monotonic()
        since = {tracker: tracker.stop_clock(its) for tracker, its in indexes.items()}
        try:
            yield
        finally:
            lost_s = self._rows.clock.monotonic() - stopped
            for tracker, its in indexes.items():
                for index, at in zip(its, since[tracker], strict=True):
                    tracker.start_clock((index,), at + lost_s)

    def _still_ours(self, parts: list[_Part]) -> None:
        for part in parts:
            if part.tracker.is_closed or self._rows.partitions.claim(part.tracker.partition) is not part.claim:
                raise self._gone(part.tracker)

    def _gone(self, tracker: OffsetTracker) -> CheckpointRefusedError:
        return CheckpointRefusedError(f"channel {self._name!r}: {tracker.partition} is not ours any more")

    # -- what the store has

    async def _look_where_unsure(self, parts: list[_Part]) -> None:
        unsure = [part for part in parts if part.claim.is_unsure]
        if unsure:
            await self._look(unsure)

    async def _look(self, parts: list[_Part]) -> None:
        """Read the rows; what a request of before has stored is settled.

        Raises:
            AlreadyStoredError: Something was.
            CheckpointRefusedError: Another owner has a partition: its tracker is closed.
        """
        ours = await self._rows.look_again([part.claim for part in parts])
        try:
            self._refuse_stored([part for part in parts if part.claim in ours])
        finally:
            for part in parts:
                if part.claim not in ours:
                    raise self._gone(part.tracker)

    def _refuse_stored(self, parts: list[_Part]) -> None:
        """Settle what a request of before has stored, as far as is known: somebody else may have read the rows.

        Raises:
            AlreadyStoredError: Something was.
        """
        duplicates = sum(self._settle_stored(part) for part in parts)
        if duplicates:
            self._duplicates(duplicates)
            raise AlreadyStoredError(
                f"channel {self._name!r}: the checkpoint store has these records already: they are settled"
            )

    def _settle_stored(self, part: _Part) -> int:
        stored = [message for message in part.messages if part.claim.has_stored(message.offset)]
        if stored:
            self._settle(part, stored)
        return len(stored)

    def _settle(self, part: _Part, messages: list[Delivery]) -> None:
        row = part.claim.row
        for message in messages:
            part.tracker.settle(message.index)
        if row.position is not None and part.claim.tracker is part.tracker:
            part.claim.states.found(row.position, row.state)
            due = part.due
            if due is None or due.position != row.position:
                due = PendingCommit(part.tracker, row.position, is_new=True, text=row.metadata)
            self._rows.clients.stored(due)

    # -- the end

    async def _end(
        self, opened: AbstractAsyncContextManager[Any], parts: list[_Part], writes: dict[TopicPartition, Write]
    ) -> None:
        """Store everything, and settle the messages; it tells what became of it, however long that takes.

        Raises:
            AlreadyStoredError: An earlier transaction had stored it after all; this one was rolled back.
            CheckpointRefusedError: Another owner has a partition; nothing was stored.
            StoreAwayError: Nothing was stored, or nobody can tell as yet: the records are handled again.
        """
        for part in parts:
            part.block.is_ending = True
            part.due = self._rows.clients.due(part.tracker, part.last + 1)
        sending = {part: _sending(part, writes) for part in parts}
        writes.update({part.claim.partition: one.write for part, one in sending.items()})
        for part, one in sending.items():
            part.claim.sent(one)
            part.tracker.attempted = max(part.tracker.attempted, part.last + 1)  # if the next assignment finds it
        try:
            await self._rows.ask(opened.__aexit__(None, None, None))
        except CheckpointRefusedError as error:
            await self._until_told(parts, self._look)
            again = StoreAwayError(f"{error}: nothing was stored, the records are handled again")
            again.by_store = True
            raise again from error
        except StoreAwayError:
            await self._until_told(parts, self._look_at_outcome)
            if not all(part.is_stored for part in parts):
                raise
        else:
            for part, one in sending.items():
                part.claim.confirmed(one)
        for part in parts:
            self._settle(part, part.messages)

    async def _look_at_outcome(self, parts: list[_Part]) -> None:
        """Read the rows after a request whose answer was lost; a partition that is another's by now was stored, too.

        Raises:
            CheckpointRefusedError: Another owner has a partition: its tracker is closed.
        """
        ours = await self._rows.look_again([part.claim for part in parts])
        for part in parts:
            if part.claim in ours and part.is_stored:
                self._settle(part, part.messages)
        for part in parts:
            if part.claim not in ours:
                raise self._gone(part.tracker)

    async def _until_told(self, parts: list[_Part], look: Callable[[list[_Part]], Awaitable[None]]) -> None:
        """Read the rows until the store answers."""
        waits = Waits(BACKOFF)
        while True:
            try:
                await look(parts)
                return
            except StoreAwayError as error:
                await self._wait(waits.next_s(), parts, error)

    # -- before a failure strategy

    def refuse(self, message: Delivery) -> None:
        """A message gets another verdict: its transaction, unless its commit is on its way, ends in nothing.

        Nobody waits for its block, which may never end.
        """
        tracker = message.tracker
        block, claim = self.open.of(tracker, message.index), self._rows.partitions.claim(tracker.partition)
        if block is None or block.is_ending:
            return
        block.is_refused = True
        if block.lock is not None and claim is not None and claim.transaction is tracker:
            claim.transaction = None
        block.release()

    def may_have_stored(self, message: Delivery) -> bool:
        """Whether a transaction has tried to store a message that is without a verdict."""
        claim = self._rows.partitions.claim(message.tracker.partition)
        return claim is not None and claim.tracker is message.tracker and claim.has_sent(message.offset)

    async def find_out(self, message: Delivery) -> None:
        """Have it told whether a message was stored: it is settled then. If not, it cannot be any more.

        Raises:
            CheckpointRefusedError: The partition has gone, or the channel has stopped.
            CheckpointStoreError: As of the end of a transaction.
        """
        part = self._part(message.tracker, [message])
        async with part.claim.lock:  # which a transaction of it has as long as its commit is on its way
            with self._clock_stopped([part]), self._failing([part]):
                while True:
                    self._still_ours([part])
                    try:
                        if self._rows.clients.keep(part.tracker):  # else it may come straight back
                            await self._until_told([part], self._look_or_renew)
                            return
                    except StoreAwayError:
                        pass  # it is being let go
                    await asyncio.sleep(LOOK_S)

    async def _look_or_renew(self, parts: list[_Part]) -> None:
        """Settle what is stored; over the row of what is not write another token, so that it cannot be any more."""
        (part,) = parts
        while part.claim.has_sent(part.last):
            if part.claim.is_unsure:
                await self._look_at_outcome(parts)
            if part.is_stored:
                self._settle(part, part.messages)
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


def _sending(part: _Part, writes: dict[TopicPartition, Write] | None = None) -> Sending:
    """What stores the position behind a part; with *writes*: as it is by now, over the row that the entry has seen."""
    sending = part.claim.write(Committed(part.last + 1) if part.due is None else part.due.stored)
    if writes is None:
        return sending
    before = writes[part.claim.partition]
    checkpoint = sending.write.checkpoint._replace(token=before.checkpoint.token)
    return Sending(before._replace(checkpoint=checkpoint), part.tracker)


def _over(part: _Part) -> None:
    if part.claim.transaction is part.tracker and not part.block.is_refused:  # else it is that of another one by now
        part.claim.transaction = None

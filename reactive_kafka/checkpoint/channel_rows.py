"""One channel's rows in the checkpoint store: who owns each, and how they are written."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Protocol, TypeVar

from reactive_kafka.checkpoint.owned_row import ClientPartition, OwnedRow, PendingWrite
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import (
    BrokerError,
    CheckpointRefusedError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
    TransientBrokerError,
)
from reactive_kafka.observe.events import (
    CheckpointFenced,
    Observer,
    StateDropped,
    StoreAvailable,
    StoreUnavailable,
)
from reactive_kafka.observe.wording import and_more
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.pending import PendingCommit
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of

T = TypeVar("T")

LOOK_S = 2.0
"""A store that has answered nothing for this long is asked whether it is there."""
LOOK_DEADLINE_S = 4.0
"""How long that answer may take. With LOOK_S it is less than the 7 s within which readiness has to
report an outage.
"""
NO_WRITE_S = 20.0
"""After a failed write, a read proves that the store is back only this much later.

A waiting write is repeated every 5 s and takes 10 s at most. So after this time none is tried.
"""
ROWS_AT_ONCE = 100
"""How many rows one call reads or writes, at most.

A store may take some ms for each row, and has a deadline for each call. A call for all the rows of
a client with thousands of partitions would miss that each time, and begin with the first row again.
"""
ATTEMPTS = 5
"""How often a row is read again and written, if unanswered requests of ours keep changing it."""


class Client(Protocol):
    """What the rows ask of one client of their channel."""

    # Rows are claimed under this name.
    name: str
    # The client reads retry topics, whose positions are not in the store.
    is_for_retries: bool

    def knows(self, tracker: OffsetTracker) -> bool:
        """Return whether the client reads with the tracker, or may retain its partition."""

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Return whether the tracker is that of a partition of the present assignment."""

    def keeps(self, tracker: OffsetTracker) -> bool:
        """Return whether the client reads with the tracker, and is not releasing its partition."""

    def start_over(self, partition: TopicPartition) -> None:
        """Discard a partition that another owner has taken; locate it again if still assigned."""

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a partition of the last assignment: another owner may have had its row."""

    def retains(self, partition: TopicPartition, position: int | None) -> bool:
        """Return whether a partition of the last assignment is retained.

        Args:
            partition: The partition.
            position: Its position in the store.
        """

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """Return what to store for a position."""

    def stored(self, commit: PendingCommit) -> None:
        """Note that the commit is stored."""


@dataclass(slots=True)
class StoreOutage:
    """The outage of a channel's store that was reported. It is kept through restarts."""

    # When it began, by the monotonic clock, in seconds. None: the store answers.
    since: float | None = None


class CheckpointRows:
    """The rows of one channel, for all of its clients."""

    def __init__(
        self,
        settings: IncomingSettings,
        store: CheckpointStore,
        clients: Callable[[], Iterable[Client]],
        clock: Clock,
        observer: Observer,
        outage: StoreOutage,
    ) -> None:
        self.store = store
        # The key of the rows in the store.
        self.group = settings.group_id or settings.name
        self.channel = settings.name
        self.clock = clock
        self.observer = observer
        # A callable, because the clients are made after the rows.
        self.clients = clients
        # Why the last call to the store failed; None: it did not.
        self.away: str | None = None
        self._answered_at = clock.monotonic()
        self._write_failed_at = -inf
        # The rows of partitions that are ours, or were until lately.
        self.owned: dict[TopicPartition, OwnedRow] = {}
        # By the client's name: a client that is made again under its name keeps what it has there.
        self.client_partitions: defaultdict[str, dict[TopicPartition, ClientPartition]] = (
            defaultdict(dict)
        )
        self._outage = outage
        self._unsynced_max_age_s = 0.0
        if settings.checkpoint is not None:
            self._unsynced_max_age_s = settings.checkpoint.unsynced_max_age_s

    def of(self, tracker: OffsetTracker) -> OwnedRow | None:
        """Return the row for the records of a tracker; None: they have none, or it is not ours."""
        owned: OwnedRow | None = verdicts_of(tracker).row
        if owned is None or owned.is_lost or owned.tracker is not tracker:
            return None
        return owned

    def client_of(self, tracker: OffsetTracker) -> Client | None:
        """Return the client that reads with a tracker, or may retain its partition."""
        return next((client for client in self.clients() if client.knows(tracker)), None)

    def is_read_with(self, tracker: OffsetTracker) -> bool:
        """Return whether the tracker is that of a partition of a present assignment."""
        return any(client.reads_with(tracker) for client in self.clients())

    def is_kept(self, tracker: OffsetTracker) -> bool:
        """Return whether a client reads with the tracker, and is not releasing its partition."""
        return any(client.keeps(tracker) for client in self.clients())

    def claimed(
        self, partition: TopicPartition, owner: ClientPartition, checkpoint: Checkpoint
    ) -> None:
        """Note that a client has claimed a row. Another client that still reads it has lost it."""
        earlier = self.owned.get(partition)
        if earlier is not None:
            self._lose(earlier)
            if earlier.tracker is not None and self.is_read_with(earlier.tracker):
                # At once: the other client may never send a write whose refusal would tell it.
                self.overtaken(partition, earlier.owner)
        for client in self.clients():
            client.give_up(partition)
        owner.row = OwnedRow(partition, owner, checkpoint)
        self.owned[partition] = owner.row

    def _lose(self, owned: OwnedRow) -> None:
        owned.is_lost = True
        owned.owner.row = None
        del self.owned[owned.partition]

    def begin(self, tracker: OffsetTracker, owner: str) -> None:
        """Note that the client named *owner* reads a partition with this tracker from now on."""
        owned = self.owned.get(tracker.partition)
        if owned is None or owned.owner.client != owner:
            return
        verdicts_of(tracker).row = owned
        stored = owned.checkpoint.position
        if owned.begin(tracker) and stored is not None:
            event = StateDropped(
                channel=self.channel,
                partition=tracker.partition,
                from_offset=stored,
                to_offset=tracker.start,
            )
            self.observer.on(event)

    def fence(self, owned: OwnedRow, found: Checkpoint | None) -> None:
        """Discard the partition: another owner has its row.

        Args:
            owned: The row as we know it.
            found: The row that the store has.
        """
        # The tracker is closed before the caller gets its error. So no nack, retry or dead letter
        # comes of that error.
        if not owned.is_lost:
            self._lose(owned)
            self.overtaken(owned.partition, owned.owner)
        event = CheckpointFenced(
            channel=self.channel,
            partition=owned.partition,
            token=owned.checkpoint.token,
            found=None if found is None else found.token,
        )
        self.observer.on(event)

    def overtaken(self, partition: TopicPartition, owner: ClientPartition) -> None:
        """Have a client discard a partition that another owner has; it may claim it again later."""
        owner.fence(self.clock.monotonic())
        for client in self.clients():
            if client.name == owner.client:
                client.start_over(partition)

    async def ask(self, call: Awaitable[T], *, is_write: bool = True) -> T:
        """Make a call to the store, and note whether the store is available.

        A store that is full still answers reads. So after a failed write only another write says
        that the store is back, unless no write is tried any more.
        """
        try:
            answer = await call
        except StoreAwayError as error:
            self.away = str(error) or "it does not answer"
            error.by_store = True
            if is_write:
                self._write_failed_at = self.clock.monotonic()
            self._report_unavailable(self.away)
            raise
        except (FatalBrokerError, CorruptCheckpointError) as error:
            # The operator has to act.
            self._report_unavailable(str(error))
            raise
        self._answered_at = self.clock.monotonic()
        if not is_write and self._answered_at - self._write_failed_at < NO_WRITE_S:
            return answer
        self.away = None
        self._write_failed_at = -inf
        if self._outage.since is not None:
            away_s = self.clock.monotonic() - self._outage.since
            self._outage.since = None
            self.observer.on(StoreAvailable(channel=self.channel, away_s=away_s))
        return answer

    async def look(self) -> None:
        """Read a row if the store has answered nothing for a while. Readiness shows the result."""
        used = [owned for owned in self.owned.values() if _is_read(owned)]
        if used and self.clock.monotonic() - self._answered_at >= LOOK_S:
            # ask() records the error, and readiness names it.
            with suppress(BrokerError, CorruptCheckpointError):
                await self.ask(self._read_with_deadline(used[0].partition), is_write=False)

    async def _read_with_deadline(self, partition: TopicPartition) -> None:
        try:
            async with asyncio.timeout(LOOK_DEADLINE_S):
                await self.store.read(self.group, [partition])
        except TimeoutError as error:
            raise StoreAwayError(f"no answer within {LOOK_DEADLINE_S:g} s") from error

    def _report_unavailable(self, reason: str) -> None:
        # Once per outage.
        if self._outage.since is None:
            self._outage.since = self.clock.monotonic()
            self.observer.on(StoreUnavailable(channel=self.channel, reason=reason))

    async def read(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """Return partition -> the row that the store has."""
        found: dict[TopicPartition, Checkpoint] = {}
        for some in pieces_of(partitions):
            found |= await self.ask(self.store.read(self.group, some), is_write=False)
        return found

    async def write(self, wanted: Mapping[OwnedRow, Committed]) -> None:
        """Store positions with their states. Partitions that another owner has are discarded.

        Raises:
            CheckpointRefusedError: Another owner has every one of the partitions.
            StoreAwayError: The positions may have been stored.
        """
        trackers = {owned: owned.tracker for owned in wanted}
        async with AsyncExitStack() as locks:
            for owned in sorted(wanted, key=lambda owned: owned.partition):
                # A transaction holds the lock of its partition. The committer leaves such a
                # partition alone, except for the last commit of an assignment. That one must not
                # wait: it is written first, and the transaction comes too late.
                if not owned.is_in_transaction:
                    await locks.enter_async_context(owned.lock)
            fenced: set[TopicPartition] = set()
            for some in pieces_of(wanted):
                fenced |= await self._write({owned: wanted[owned] for owned in some}, trackers)
        if fenced and len(fenced) == len(wanted):
            raise CheckpointRefusedError(f"another owner has {', '.join(map(str, sorted(fenced)))}")

    async def _write(
        self,
        wanted: Mapping[OwnedRow, Committed],
        trackers: Mapping[OwnedRow, OffsetTracker | None],
    ) -> set[TopicPartition]:
        """Write the rows, and return the partitions that another owner has.

        A row whose tracker was replaced by a seek while this waited is left out.
        """
        unsure = [owned for owned in wanted if owned.is_unsure]
        ours = await self.read_again_or_fence(unsure) if unsure else []
        fenced = {owned.partition for owned in unsure if owned not in ours}
        attempts = 0
        while pending := _pending_writes(wanted, trackers):
            if attempts == ATTEMPTS:
                names = ", ".join(str(owned.partition) for owned in pending)
                raise TransientBrokerError(f"the rows of {names} keep changing")
            attempts += 1
            refused = await self._send(pending)
            if not refused:
                break
            # A request that is refused for one partition may be stored for the others. So a refused
            # row is read again first. If it is not ours, it is fenced, which closes its tracker.
            ours = await self.read_again_or_fence(refused)
            fenced.update(owned.partition for owned in refused if owned not in ours)
            wanted = {owned: wanted[owned] for owned in ours}
        return fenced

    async def _send(self, pending: Mapping[OwnedRow, PendingWrite]) -> list[OwnedRow]:
        """Send the writes, and return the rows that were refused."""
        for owned, row_write in pending.items():
            owned.sent(row_write)
        writes = {owned.partition: row_write.write for owned, row_write in pending.items()}
        refused = await self.ask(self.store.write(self.group, writes))
        for owned, row_write in pending.items():
            if owned.partition not in refused:
                owned.confirmed(row_write)
                owned.owner.unfence()
        return [owned for owned in pending if owned.partition in refused]

    async def read_again_or_fence(self, rows: Collection[OwnedRow]) -> list[OwnedRow]:
        """Read rows again, fence those that another owner has, and return those that are ours."""
        stored_rows = await self.read([owned.partition for owned in rows])
        ours = []
        for owned in rows:
            stored = stored_rows.get(owned.partition)
            if stored is not None and owned.is_ours(stored):
                owned.found(stored)
                ours.append(owned)
            else:
                self.fence(owned, stored)
        return ours

    def unstored(
        self, trackers: Callable[[], Iterable[OffsetTracker]]
    ) -> Mapping[TopicPartition, int]:
        """Return partition -> its records that take up room while the store is away; else nothing.

        Settled records that are not stored count, too.
        """
        # Only for its side effect: it notes since when each row is behind.
        self.behind_s()
        if self.away is None:
            return {}
        unstored = {}
        for tracker in trackers():
            first = max(tracker.start, tracker.uncommitted_from)
            unstored[tracker.partition] = max(tracker.unsettled, tracker.position - first)
        return unstored

    def behind_s(self) -> float | None:
        """Return for how long a settled record has not been stored; None: all are stored.

        It is exact only to the interval at which it is called.
        """
        now = self.clock.monotonic()
        oldest = None
        for owned in self.owned.values():
            since = owned.note_behind(now)
            if since is not None and (oldest is None or since < oldest):
                oldest = since
        return None if oldest is None else now - oldest

    def not_ready(self) -> list[str]:
        """Return why positions are not being stored; empty: they are."""
        reasons = []
        if self.away is not None and any(map(_is_read, self.owned.values())):
            reasons.append(f"the checkpoint store is away: {self.away}")
        now = self.clock.monotonic()
        max_age_s = self._unsynced_max_age_s
        too_old: list[tuple[float, OwnedRow]] = []
        for owned in self.owned.values():
            since = owned.note_behind(now)
            if max_age_s and since is not None and now - since > max_age_s:
                too_old.append((since, owned))
        if too_old:
            since, oldest = min(too_old, key=itemgetter(0))
            stored = "nothing"
            if oldest.checkpoint.position is not None:
                stored = f"position {oldest.checkpoint.position}"
            reason = (
                f"{oldest.partition}: settled records are not stored for {now - since:.0f} s "
                f"(unsynced_max_age is {max_age_s:g} s); the store has {stored}"
            )
            reasons.append(and_more(reason, len(too_old) - 1))
        return reasons


def pieces_of(items: Collection[T]) -> Iterator[list[T]]:
    """Yield the items in pieces, each for one call to the store."""
    all_items = list(items)
    for first in range(0, len(all_items), ROWS_AT_ONCE):
        yield all_items[first : first + ROWS_AT_ONCE]


def _pending_writes(
    wanted: Mapping[OwnedRow, Committed], trackers: Mapping[OwnedRow, OffsetTracker | None]
) -> dict[OwnedRow, PendingWrite]:
    """Return what still has to be written of the wanted positions."""
    return {
        owned: owned.pending_write(committed)
        for owned, committed in wanted.items()
        if not owned.is_lost and owned.tracker is trackers[owned] and owned.is_due(committed)
    }


def _is_read(owned: OwnedRow) -> bool:
    return owned.tracker is not None and not owned.tracker.is_closed

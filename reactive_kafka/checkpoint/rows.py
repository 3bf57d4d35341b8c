"""A channel's rows in the checkpoint store: who owns each row, and how positions and states are
written.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from math import inf
from typing import Protocol, TypeVar

from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending, Share
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
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
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.verdicts.acknowledger import verdicts_of

T = TypeVar("T")

LOOK_S = 2.0
"""How long the store may have had nothing to answer before it is asked whether it is there."""
LOOK_DEADLINE_S = 4.0
"""How long that answer may take: together with LOOK_S less than the 7 s within which readiness
tells an outage.
"""
NO_WRITE_S = 20.0
"""After that long without another failed write none is tried: what waits is tried every 5 s, for 10
s at most.
"""
ATTEMPTS = 5
"""How often a row is read again and written, if requests of ours without an answer keep changing
it.
"""


class Client(Protocol):
    """What the rows ask of one client of their channel."""

    # Rows are claimed under it.
    name: str
    # It reads retry topics, whose positions are not in the store.
    is_for_retries: bool

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or did so in the last assignment and may retain the
        partition.
        """

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker is that of a partition of the present assignment."""

    def keeps(self, tracker: OffsetTracker) -> bool:
        """The same, and the partition is not being released."""

    def start_over(self, partition: TopicPartition) -> None:
        """Discard a partition that another owner has taken over. Locate it again if it is still
        assigned.
        """

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a partition of the last assignment instead of retaining it: another owner may
        have had its row.
        """

    def retains(self, partition: TopicPartition, position: int | None) -> bool:
        """Whether a partition of the last assignment goes on where it stood, given this position in
        the store.
        """

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What to store for a position."""

    def stored(self, commit: PendingCommit) -> None:
        """It is stored, which counts as a commit."""


class CheckpointRows:
    """The rows of one channel, for all of its clients."""

    def __init__(
        self,
        settings: IncomingSettings,
        store: CheckpointStore,
        clients: Callable[[], Iterable[Client]],
        clock: Clock,
        observer: Observer,
    ) -> None:
        self.store = store
        # Their key in the store.
        self.group = settings.group_id or settings.name
        self.channel = settings.name
        self.clock = clock
        self.observer = observer
        # Asked at each use, because the store is made first.
        self.clients = clients
        # Why the store could not be used the last time.
        self.away: str | None = None
        self._answered_at = clock.monotonic()
        self._write_failed_at = -inf
        # Those that are ours, or were until lately; one a partition.
        self.claims: list[OwnedRow] = []
        # By client; one that is built anew under its name goes on with what it has there.
        self.shares: defaultdict[str, dict[TopicPartition, Share]] = defaultdict(dict)
        self._missed_since: float | None = None
        self._unsynced_max_age_s = (
            settings.checkpoint.unsynced_max_age_s if settings.checkpoint is not None else 0.0
        )

    def of(self, tracker: OffsetTracker) -> OwnedRow | None:
        """The row of the records of a tracker; None: they have none, or it is not ours any more."""
        claim: OwnedRow | None = verdicts_of(tracker).row
        return (
            claim if claim is not None and claim.tracker is tracker and not claim.is_lost else None
        )

    def client_of(self, tracker: OffsetTracker) -> Client | None:
        """The client that reads with a tracker, or may retain its partition."""
        return next((client for client in self.clients() if client.knows(tracker)), None)

    def is_read_with(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker is that of a partition of a present assignment."""
        return any(client.reads_with(tracker) for client in self.clients())

    def is_kept(self, tracker: OffsetTracker) -> bool:
        """The same, and the partition is not being released."""
        return any(client.keeps(tracker) for client in self.clients())

    def claimed(self, partition: TopicPartition, owner: Share, row: Checkpoint) -> None:
        """A client has claimed a row. If another client of this channel still reads the partition,
        it has lost it.
        """
        for before in [claim for claim in self.claims if claim.partition == partition]:
            self._lose(before)
            if before.tracker is not None and self.is_read_with(before.tracker):
                # At once: it may get no answer that tells.
                self.overtaken(partition, before.owner)
        for client in self.clients():
            client.give_up(partition)
        owner.row = OwnedRow(partition, owner, row)
        self.claims.append(owner.row)

    def _lose(self, claim: OwnedRow) -> None:
        claim.is_lost = True
        claim.owner.row = None
        self.claims.remove(claim)

    def begin(self, tracker: OffsetTracker, owner: str) -> None:
        for claim in self.claims:
            if claim.partition == tracker.partition and claim.owner.client == owner:
                verdicts_of(tracker).row = claim
                before = claim.row.position
                if claim.begin(tracker) and before is not None:
                    where = {"from_offset": before, "to_offset": tracker.start}
                    self.observer.on(
                        StateDropped(channel=self.channel, partition=tracker.partition, **where)
                    )

    def fence(self, claim: OwnedRow, row: Checkpoint | None) -> None:
        """Another owner has a row: discard the partition."""
        if not claim.is_lost:
            self._lose(claim)
            self.overtaken(claim.partition, claim.owner)
        token = claim.row.token
        found = None if row is None else row.token
        self.observer.on(
            CheckpointFenced(
                channel=self.channel, partition=claim.partition, token=token, found=found
            )
        )

    def overtaken(self, partition: TopicPartition, owner: Share) -> None:
        """Another owner has a client's partition: the client discards it, and may claim it again
        after a while.
        """
        owner.fence(self.clock.monotonic())
        for client in self.clients():
            if client.name == owner.client:
                client.start_over(partition)

    async def ask(self, call: Awaitable[T], *, is_write: bool = True) -> T:
        """Make a call to the store, and note whether it is available.

        A store that is full answers reads all the same: after a write that failed, only another
        write says that it is back, unless none is tried any more.
        """
        try:
            answer = await call
        except StoreAwayError as error:
            self.away = str(error) or "it does not answer"
            error.by_store = True
            if is_write:
                self._write_failed_at = self.clock.monotonic()
            self._is_missed(self.away)
            raise
        except (FatalBrokerError, CorruptCheckpointError) as error:
            # The operator has to act.
            self._is_missed(str(error))
            raise
        self._answered_at = self.clock.monotonic()
        if not is_write and self._answered_at - self._write_failed_at < NO_WRITE_S:
            return answer
        self.away = None
        self._write_failed_at = -inf
        if self._missed_since is not None:
            away_s = self.clock.monotonic() - self._missed_since
            self._missed_since = None
            self.observer.on(StoreAvailable(channel=self.channel, away_s=away_s))
        return answer

    async def look(self) -> None:
        """Ask the store for a row, if it has had nothing to answer for a while; readiness tells
        what comes of it.
        """
        used = [
            claim
            for claim in self.claims
            if claim.tracker is not None and not claim.tracker.is_closed
        ]
        if used and self.clock.monotonic() - self._answered_at >= LOOK_S:
            # ask() has recorded the error, and readiness names it.
            with suppress(BrokerError, CorruptCheckpointError):
                await self.ask(self._answer(used[0].partition), is_write=False)

    async def _answer(self, partition: TopicPartition) -> None:
        try:
            async with asyncio.timeout(LOOK_DEADLINE_S):
                await self.store.read(self.group, [partition])
        except TimeoutError as error:
            raise StoreAwayError(f"no answer within {LOOK_DEADLINE_S:g} s") from error

    def _is_missed(self, reason: str) -> None:
        # Else it was told, and is told again when the store has been back.
        if self._missed_since is None:
            self._missed_since = self.clock.monotonic()
            self.observer.on(StoreUnavailable(channel=self.channel, reason=reason))

    async def read(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its present row."""
        return await self.ask(self.store.read(self.group, partitions), is_write=False)

    async def write(self, wanted: Mapping[OwnedRow, Committed]) -> None:
        """Store positions with their states. Partitions that another owner has by now are
        discarded.

        After a StoreAwayError they may have been stored.
        """
        trackers = {claim: claim.tracker for claim in wanted}
        async with AsyncExitStack() as locks:
            for claim in sorted(wanted, key=lambda one: one.partition):
                # A transaction holds the lock. The committer leaves its partition alone but for the
                # last commit of an assignment, which must not wait: it goes ahead, and the
                # transaction is too late.
                if not claim.is_in_transaction:
                    await locks.enter_async_context(claim.lock)
            fenced = await self._write(wanted, trackers)
        if fenced and len(fenced) == len(wanted):
            raise CheckpointRefusedError(f"another owner has {', '.join(map(str, sorted(fenced)))}")

    async def _write(
        self,
        wanted: Mapping[OwnedRow, Committed],
        trackers: Mapping[OwnedRow, OffsetTracker | None],
    ) -> set[TopicPartition]:
        """The partitions that another owner has. One that was moved by a seek while this waited is
        left out.
        """
        unsure = [claim for claim in wanted if claim.is_unsure]
        ours = await self.look_again(unsure) if unsure else []
        fenced = {claim.partition for claim in unsure if claim not in ours}
        for _ in range(ATTEMPTS):
            sending = {
                claim: claim.write(at)
                for claim, at in wanted.items()
                if not claim.is_lost and claim.tracker is trackers[claim] and claim.is_due(at)
            }
            refused = await self._send(sending) if sending else []
            if not refused:
                return fenced
            ours = await self.look_again(refused)
            fenced.update(claim.partition for claim in refused if claim not in ours)
            wanted = {claim: wanted[claim] for claim in ours}
        raise TransientBrokerError(
            f"the rows of {', '.join(str(claim.partition) for claim in wanted)} keep changing"
        )

    async def _send(self, sending: Mapping[OwnedRow, Sending]) -> list[OwnedRow]:
        """Write; returns the rows that were rejected."""
        for claim, one in sending.items():
            claim.sent(one)
        writes = {claim.partition: one.write for claim, one in sending.items()}
        refused = await self.ask(self.store.write(self.group, writes))
        for claim, one in sending.items():
            if claim.partition not in refused:
                claim.confirmed(one)
                claim.owner.unfence()
        return [claim for claim in sending if claim.partition in refused]

    async def look_again(self, every: Collection[OwnedRow]) -> list[OwnedRow]:
        """Read rows after a request without an answer. Returns those that are still ours; the
        others are fenced.
        """
        rows = await self.read([claim.partition for claim in every])
        ours = []
        for claim in every:
            row = rows.get(claim.partition)
            if row is not None and claim.is_ours(row):
                claim.found(row)
                ours.append(claim)
            else:
                self.fence(claim, row)
        return ours

    def unstored(
        self, trackers: Callable[[], Iterable[OffsetTracker]]
    ) -> Mapping[TopicPartition, int]:
        self.behind_s()
        if self.away is None:
            return {}
        return {
            tracker.partition: max(
                tracker.unsettled, tracker.position - max(tracker.start, tracker.uncommitted_from)
            )
            for tracker in trackers()
        }

    def behind_s(self) -> float | None:
        """For how long a settled record has not been stored; None: all are. It has to be asked now
        and then.
        """
        now = self.clock.monotonic()
        found = [since for claim in self.claims if (since := claim.look(now)) is not None]
        return now - min(found) if found else None

    def not_ready(self) -> list[str]:
        is_needed = any(
            claim.tracker is not None and not claim.tracker.is_closed for claim in self.claims
        )
        reasons = (
            [f"the checkpoint store is away: {self.away}"]
            if self.away is not None and is_needed
            else []
        )
        now = self.clock.monotonic()
        most_s = self._unsynced_max_age_s
        for claim in self.claims:
            since = claim.look(now)
            if most_s and since is not None and now - since > most_s:
                stored = (
                    "nothing" if claim.row.position is None else f"position {claim.row.position}"
                )
                reasons.append(
                    f"{claim.partition}: settled records are not stored for {now - since:.0f} s "
                    f"(unsynced_max_age is {most_s:g} s); the store has {stored}"
                )
        return reasons

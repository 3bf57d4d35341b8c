"""What one life of a channel has in its checkpoint store: whose rows they are, how positions and states get there."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar

from reactive_kafka.checkpoint.clients import Clients
from reactive_kafka.checkpoint.owned_row import OwnedRow, Sending
from reactive_kafka.checkpoint.partition import StoredPartitions
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import (
    CheckpointRefusedError,
    CorruptCheckpointError,
    FatalBrokerError,
    StoreAwayError,
    TransientBrokerError,
)
from reactive_kafka.observe.events import CheckpointFenced, Observer, StateDropped, StoreAvailable, StoreUnavailable
from reactive_kafka.records import Committed, TopicPartition

T = TypeVar("T")

ATTEMPTS = 5
"""How often a row of ours is read again and written, when requests of ours with lost answers have changed it."""


class CheckpointRows:
    """The rows of one channel's partitions, of all of its clients.

    Attributes:
        partitions: What is known of each partition.
        store: Where the rows are.
        group: What they stand under: the group's name, or without one the channel's.
        away: Why the store could not be used the last time; None: it could.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        store: CheckpointStore,
        clients: Clients,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self.store = store
        self.group = settings.group_id or settings.name
        self.channel = settings.name
        self.clock = clock
        self.observer = observer
        self.clients = clients
        self.away: str | None = None
        self._missed_since: float | None = None
        self._unsynced_max_age_s = settings.checkpoint.unsynced_max_age_s if settings.checkpoint is not None else 0.0
        self.partitions = StoredPartitions()

    # -- whose it is

    def claimed(self, partition: TopicPartition, owner: str, row: Checkpoint) -> None:
        """A client has taken a row over; where another one of this channel reads on it has lost the partition."""
        before = self.partitions.claim(partition)
        if before is not None and before.tracker is not None and self.clients.read_with(before.tracker):
            self.overtaken(partition, before.owner)  # now: no answer on its way tells it, if others are stored by that
        self.clients.give_up(partition)
        self.partitions.set_claim(partition, OwnedRow(partition, owner, row))

    def begin(self, tracker: OffsetTracker, owner: str) -> None:
        """A client's reading begins, or goes on from somewhere else: the tracker is the partition's from here on."""
        claim = self.partitions.claim(tracker.partition)
        if claim is None or claim.owner != owner:
            return
        if claim.begin(tracker) and claim.row.position is not None:
            self.observer.on(
                StateDropped(
                    channel=self.channel,
                    partition=tracker.partition,
                    from_offset=claim.row.position,
                    to_offset=tracker.start,
                )
            )

    def fence(self, claim: OwnedRow, row: Checkpoint | None) -> None:
        """Another owner has taken a row over: nothing more of the partition counts."""
        if self.partitions.claim(claim.partition) is claim:
            self.partitions.set_claim(claim.partition, None)
            self.overtaken(claim.partition, claim.owner)
        found = None if row is None else row.token
        self.observer.on(
            CheckpointFenced(channel=self.channel, partition=claim.partition, token=claim.row.token, found=found)
        )

    def overtaken(self, partition: TopicPartition, owner: str) -> None:
        """A client's partition is another owner's: it gives it up, and claims it again only after a while."""
        self.partitions.share(partition, owner).fence(self.clock.monotonic())
        self.clients.fenced(partition, owner)

    # -- what is stored

    async def ask(self, call: Awaitable[T]) -> T:
        """Make a call of the store's, and note whether it is there.

        Raises:
            StoreAwayError: It is not.
        """
        try:
            answer = await call
        except StoreAwayError as error:
            self.away = str(error) or "it does not answer"
            error.by_store = True
            self._is_missed(self.away)
            raise
        except (FatalBrokerError, CorruptCheckpointError) as error:  # of whoever operates the store, not of the records
            self._is_missed(str(error))
            raise
        self.away = None
        if self._missed_since is not None:
            away_s = self.clock.monotonic() - self._missed_since
            self._missed_since = None
            self.observer.on(StoreAvailable(channel=self.channel, away_s=away_s))
        return answer

    def _is_missed(self, reason: str) -> None:
        """Tell it once, until the store is back."""
        if self._missed_since is None:
            self._missed_since = self.clock.monotonic()
            self.observer.on(StoreUnavailable(channel=self.channel, reason=reason))

    async def read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Checkpoint]:
        """partition -> its row as it is now."""
        return await self.ask(self.store.read(self.group, partitions))

    async def write(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Store positions with their states; those of partitions that another owner has by now are given up.

        Raises:
            StoreAwayError: It may have been stored.
            CheckpointRefusedError: Another owner has all of them.
            TransientBrokerError: Rows of ours change all the time.
        """
        wanted = {claim: at for one, at in offsets.items() if (claim := self.partitions.claim(one)) is not None}
        trackers = {claim: claim.tracker for claim in wanted}
        async with AsyncExitStack() as locks:
            for claim in sorted(wanted, key=lambda one: one.partition):
                if not self.is_in_transaction(claim.partition):  # else it is the last one, and that transaction is late
                    await locks.enter_async_context(claim.lock)
            fenced = await self._write(wanted, trackers)
        if fenced and len(fenced) == len(offsets):
            raise CheckpointRefusedError(f"another owner has {', '.join(map(str, sorted(fenced)))}")

    async def _write(
        self, wanted: Mapping[OwnedRow, Committed], trackers: Mapping[OwnedRow, OffsetTracker | None]
    ) -> set[TopicPartition]:
        """Those that another owner has. What a seek has left while this waited is none of the partition's any more."""
        unsure = [claim for claim in wanted if claim.is_unsure]
        ours = await self.look_again(unsure) if unsure else []
        fenced = {claim.partition for claim in unsure if claim not in ours}
        for _ in range(ATTEMPTS):
            sending = {
                claim: claim.write(at)
                for claim, at in wanted.items()
                if self.partitions.claim(claim.partition) is claim
                and claim.tracker is trackers[claim]
                and claim.is_due(at)
            }
            if not sending:
                return fenced
            refused = await self._send(sending)
            if not refused:
                return fenced
            ours = await self.look_again(refused)
            fenced.update(claim.partition for claim in refused if claim not in ours)
            wanted = {claim: wanted[claim] for claim in ours}
        raise TransientBrokerError(f"the rows of {', '.join(str(claim.partition) for claim in wanted)} keep changing")

    async def _send(self, sending: Mapping[OwnedRow, Sending]) -> list[OwnedRow]:
        """Those that were refused."""
        for claim, one in sending.items():
            claim.sent(one)
        writes = {claim.partition: one.write for claim, one in sending.items()}
        refused = await self.ask(self.store.write(self.group, writes))
        for claim, one in sending.items():
            if claim.partition not in refused:
                claim.confirmed(one)
                self.partitions.share(claim.partition, claim.owner).unfence()
        return [claim for claim in sending if claim.partition in refused]

    async def look_again(self, every: Collection[OwnedRow]) -> list[OwnedRow]:
        """Read rows of which it is not known what became of them; those that are still ours. The others are fenced."""
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

    # -- how far it is behind

    def unstored(self, trackers: Iterable[OffsetTracker]) -> Mapping[TopicPartition, int]:
        """partition -> its records that take up room while the store is away, also settled ones; else empty."""
        self.behind_s()
        if self.away is None:
            return {}
        return {
            tracker.partition: max(tracker.unsettled, tracker.position - max(tracker.start, tracker.uncommitted_from))
            for tracker in trackers
        }

    def behind_s(self) -> float | None:
        """For how long a settled record has not been stored; None: all are. It has to be asked now and then."""
        now = self.clock.monotonic()
        found = [since for claim in self.partitions.claims() if (since := claim.look(now)) is not None]
        return now - min(found) if found else None

    def not_ready(self) -> list[str]:
        """What keeps positions from being stored."""
        is_needed = any(claim.tracker is not None and not claim.tracker.is_closed for claim in self.partitions.claims())
        reasons = [f"the checkpoint store is away: {self.away}"] if self.away is not None and is_needed else []
        now, most_s = self.clock.monotonic(), self._unsynced_max_age_s
        for claim in self.partitions.claims():
            since = claim.look(now)
            if most_s and since is not None and now - since > most_s:
                stored = "nothing" if claim.row.position is None else f"position {claim.row.position}"
                reasons.append(
                    f"{claim.partition}: settled records are not stored for {now - since:.0f} s "
                    f"(unsynced_max_age is {most_s:g} s); the store has {stored}"
                )
        return reasons

    def is_in_transaction(self, partition: TopicPartition) -> bool:
        """Whether the position of a partition is to come with a transaction that is open."""
        claim = self.partitions.claim(partition)
        return claim is not None and claim.transaction is not None and claim.transaction is claim.tracker

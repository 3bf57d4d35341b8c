"""A consumer that gets its partitions from a group and keeps their positions in a checkpoint store.

Its committed positions are those of the store's rows, which it claims when it is asked for them;
its commits go there. Kafka gets the same positions from time to time, never ahead of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.auto_commit import CommittingConsumer
from reactive_kafka.broker.client import Connector, Consumer, SomePositionsUnknownError
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.checkpoint.owned_row import Share, committed_of
from reactive_kafka.checkpoint.rows import CheckpointRows
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.commit.metadata.codec import as_in_kafka
from reactive_kafka.errors import (
    BrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
    PositionsRefusedError,
    StoreAwayError,
    TransientBrokerError,
)
from reactive_kafka.observe.events import CheckpointFound, KafkaCommitFailed
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Subscription

BACKOFF = Backoff(0.25, 5.0)
"""How soon a store that was away is asked again for where reading begins: doubling, from the first
up to the second.
"""

KAFKA_DEADLINE_S = 5.0
"""How long a commit to Kafka may take."""


class CheckpointConsumer(CommittingConsumer):
    """Reads with *inner*, and keeps positions in a store: its rows are claimed under the client's
    *name*.

    Every *interval_s* it commits to Kafka as well, for tools that look there and for a way back.
    Nothing depends on it. With *group_id* None Kafka keeps no positions of this channel.
    """

    def __init__(
        self,
        inner: Consumer,
        rows: CheckpointRows,
        name: str,
        group_id: str | None,
        interval_s: float,
    ) -> None:
        super().__init__(
            inner, None if group_id is None else interval_s, f"commits to Kafka of {name}"
        )
        self._rows = rows
        self._name = name
        self._shares = rows.shares[name]
        # Why commits to Kafka do; each failure is told once.
        self._failing: str | None = None
        self._has_group = group_id is not None
        # Or two claims of ours would reject each other.
        self._one_at_a_time = asyncio.Lock()
        self._again_at = 0.0
        self._waits = Waits(BACKOFF)
        self._away: str | None = None

    async def check(self) -> None:
        await self._inner.check()
        await self._rows.look()

    def _share(self, partition: TopicPartition) -> Share:
        return self._shares.setdefault(partition, Share(self._name))

    async def stop(self) -> None:
        # What it has is still written, and nothing is claimed.
        for share in self._shares.values():
            share.may_claim = False
        await super().stop()

    def _is_leaving(self) -> None:
        # Its successor has the same name: what this one still sends must not pass for that.
        self._generation = -1
        for share in self._shares.values():
            share.revoke()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        shares = [self._share(partition) for partition in partitions]
        # As above.
        for share in shares:
            share.may_claim = False
        try:
            # Which writes to the store; then Kafka gets what the store has.
            await super().on_revoked(partitions)
        finally:
            for share in shares:
                share.revoke()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        # Rows are claimed when they are asked for.
        for partition in partitions:
            self._share(partition).assign()
        self._again_at = 0.0
        self._away = None
        self._waits.progressed()
        await super().on_assigned(partitions, generation)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        """partition -> what the store has, or Kafka if the store has nothing. Rows that are not
        ours are claimed.
        """
        async with self._one_at_a_time:
            if self._away is not None and self._rows.clock.monotonic() < self._again_at:
                raise StoreAwayError(self._away)
            try:
                return await self._committed(partitions)
            except StoreAwayError as error:
                self._away = str(error)
                self._again_at = self._rows.clock.monotonic() + self._waits.next_s()
                raise

    async def _committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        self._check_fenced(partitions)
        rows = await self._rows.read(partitions)
        self._away = None
        self._waits.progressed()
        found: dict[TopicPartition, Committed | None] = {}
        for partition in partitions:
            row = rows.get(partition)
            if self._is_ours_still(partition, row):
                found[partition] = None if row is None else committed_of(row)
        fresh = [partition for partition in partitions if partition not in found]
        if fresh:
            found |= await self._claim(fresh, rows)
        for partition in found:
            self._share(partition).is_ours = True
        return found

    def _check_fenced(self, partitions: Collection[TopicPartition]) -> None:
        now = self._rows.clock.monotonic()
        waiting = {
            one: left_s for one in partitions if (left_s := self._share(one).fenced_for(now))
        }
        if waiting:
            wait_s = max(waiting.values())
            which = ", ".join(map(str, sorted(waiting)))
            raise TransientBrokerError(
                f"another owner has taken {which} over in the checkpoint store; claimed again in {wait_s:.1f} s"
            )

    def _is_ours_still(self, partition: TopicPartition, row: Checkpoint | None) -> bool:
        """Whether no other owner can have had the row since this client claimed it."""
        claim = self._share(partition).row
        if claim is None:
            return False
        if claim.tracker is None:
            # Claimed for a caller who only asked: nothing was read or written under it.
            return claim.row == row
        if claim.tracker.is_closed:
            return False
        if self._rows.is_read_with(claim.tracker):
            # A caller only asks; if it is not ours, the next write finds out.
            return True
        # What is not retained is read again under a new token, so that no earlier request can land.
        if row is None or not claim.is_ours(row):
            return False
        if not any(client.retains(partition, row.position) for client in self._rows.clients()):
            return False
        claim.found(row)
        return True

    async def _claim(
        self, partitions: Collection[TopicPartition], rows: Mapping[TopicPartition, Checkpoint]
    ) -> dict[TopicPartition, Committed | None]:
        """Claim rows exactly as they were read, so that nothing an earlier owner stores meanwhile
        is overwritten.
        """
        in_kafka = await self._in_kafka(partitions) if self._has_group else {}
        # Before a row is taken back from another owner, the group is asked whether its partition is
        # still ours.
        now = self._rows.clock.monotonic()
        fenced = [
            one
            for one in partitions
            if one in rows and self._share(one).fenced_for(now) is not None
        ]
        stored = {one: at for one in fenced if (at := committed_of(rows[one])) is not None}
        if stored and self._has_group:
            await self._send(stored)
        writes = {one: _taken(rows.get(one), in_kafka.get(one)) for one in partitions}
        if not all(self._share(one).may_claim for one in partitions):
            raise NotOwnerError("the assignment is over")
        refused = await self._rows.ask(self._rows.store.write(self._rows.group, writes))
        found: dict[TopicPartition, Committed | None] = {}
        for partition, write in writes.items():
            if partition in refused:
                continue
            self._rows.claimed(partition, self._share(partition), write.checkpoint)
            found[partition] = committed_of(write.checkpoint)
            if (there := in_kafka.get(partition)) is not None:
                self._found_in_kafka(partition, there, write.checkpoint.position)
        if refused:
            which = ", ".join(map(str, sorted(refused)))
            raise TransientBrokerError(
                f"another owner has written to the checkpoint store for {which} just now"
            )
        return found

    async def _in_kafka(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        try:
            return await self._inner.committed(partitions)
        except SomePositionsUnknownError as error:
            # What Kafka has told are no positions of the store, and must not pass for them.
            raise TransientBrokerError(str(error)) from error

    def _found_in_kafka(
        self, partition: TopicPartition, there: Committed, position: int | None
    ) -> None:
        self._share(partition).in_kafka = there
        if position is not None and position != there.offset:
            where = {"position": position, "in_kafka": there.offset}
            self._rows.observer.on(
                CheckpointFound(channel=self._rows.channel, partition=partition, **where)
            )

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions and states."""
        shares = {partition: self._share(partition) for partition in offsets}
        if generation != self._generation or not all(
            share.is_assigned for share in shares.values()
        ):
            raise NotOwnerError(f"generation {generation} is over")
        wanted = {share.row: offsets[one] for one, share in shares.items() if share.row is not None}
        lost = [partition for partition, share in shares.items() if share.row is None]
        # To another client of this channel, which the group gave it to.
        for partition in lost:
            self._rows.overtaken(partition, shares[partition])
        if lost:
            raise NotOwnerError(f"{', '.join(map(str, lost))}: not ours in the checkpoint store")
        try:
            await self._rows.write(wanted)
        except StoreAwayError as error:
            raise OutcomeUnknownError(str(error)) from error

    async def _commit_moved(self) -> None:
        moved = {
            one: at for one, share in self._shares.items() if (at := share.not_in_kafka) is not None
        }
        if not moved:
            return
        try:
            async with asyncio.timeout(KAFKA_DEADLINE_S):
                await self._send(moved)
        except NotOwnerError:
            # The assignment is over: the next owner commits.
            return
        except PositionsRefusedError as error:
            self._tell_failing(str(error))
            refused: Collection[TopicPartition] = error.refused.keys()
        except (BrokerError, TimeoutError) as error:
            self._tell_failing(str(error) or "no answer in time")
            return
        else:
            self._failing = None
            refused = ()
        for partition, at in moved.items():
            if partition not in refused:
                self._shares[partition].in_kafka = at

    def _tell_failing(self, reason: str) -> None:
        if reason != self._failing:
            self._failing = reason
            self._rows.observer.on(KafkaCommitFailed(channel=self._rows.channel, reason=reason))

    async def _send(self, moved: Mapping[TopicPartition, Committed]) -> None:
        told = {
            one: Committed(at.offset, as_in_kafka(at.metadata, at.offset))
            for one, at in moved.items()
        }
        try:
            await self._inner.commit(told, self._generation)
        except MetadataTooLargeError:
            # The store has the string; Kafka needs only the position.
            plain = {partition: Committed(at.offset) for partition, at in moved.items()}
            await self._inner.commit(plain, self._generation)


def _taken(row: Checkpoint | None, in_kafka: Committed | None) -> Write:
    """The claim of a row as it is. Without a position it gets the one that Kafka has."""
    if row is not None and row.position is not None:
        return Write(row.token, row._replace(token=row.token + 1), row.position)
    token, state = (0, None) if row is None else (row.token, row.state)
    position, metadata = (None, "") if in_kafka is None else in_kafka
    return Write(token, Checkpoint(token + 1, position, state, metadata))


class CheckpointConnector(ClientWrapper[Connector]):
    """Makes :class:`CheckpointConsumer`; producers and inspectors are those of *inner*."""

    def __init__(self, inner: Connector, rows: CheckpointRows, interval_s: float) -> None:
        super().__init__(inner)
        self._rows = rows
        self._interval_s = interval_s

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        inner = self._inner.consumer(
            name=name, subscription=subscription, group_id=group_id, properties=properties
        )
        return CheckpointConsumer(inner, self._rows, name, group_id, self._interval_s)

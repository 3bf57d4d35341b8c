"""A consumer that gets partitions from a group and keeps positions in a checkpoint store.

Its committed positions are those of the store's rows. It claims the rows when it is asked for the
positions, and its commits go to them. Kafka gets the same positions from time to time, never before
the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.auto_commit import CommittingConsumer
from reactive_kafka.broker.client import Connector, Consumer, SomePositionsUnknownError
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.checkpoint.channel_rows import CheckpointRows, pieces_of
from reactive_kafka.checkpoint.owned_row import ClientPartition, committed_of
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.errors import (
    BrokerError,
    CheckpointRefusedError,
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
from reactive_kafka.tracking.metadata.codec import as_in_kafka

BACKOFF = Backoff(0.25, 5.0)
"""How soon a store that was away is asked again where reading begins."""

CLAIMING_S = 10.0
"""After so long no further rows are claimed for one question. The next one claims the others.

A rebalance waits for the first question of an assignment.
"""

KAFKA_DEADLINE_S = 5.0
"""How long a commit to Kafka may take."""


class CheckpointConsumer(CommittingConsumer):
    """Reads with *inner*, and keeps positions in a store.

    It also commits to Kafka from time to time, for tools that look there, and so that a channel can
    go back to Kafka's positions. Nothing depends on these commits.

    Args:
        inner: The consumer that reads.
        rows: The channel's rows in the store.
        name: The client's name. Rows are claimed under it.
        group_id: The group; None: Kafka keeps no positions of this channel.
        interval_s: Seconds between two commits to Kafka.
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
        self._partitions = rows.client_partitions[name]
        # Why the last commit to Kafka failed. A reason is reported once.
        self._failing: str | None = None
        self._has_group = group_id is not None
        # One claim at a time: two claims of ours would make the store refuse one of them.
        self._claiming = asyncio.Lock()
        # Until when no claim is tried, because the store was away for this reason.
        self._away: str | None = None
        self._again_at = 0.0
        self._waits = Waits(BACKOFF)

    async def check(self) -> None:
        await self._inner.check()
        await self._rows.look()

    def _partition(self, partition: TopicPartition) -> ClientPartition:
        known = self._partitions.get(partition)
        if known is None:
            known = ClientPartition(self._name)
            self._partitions[partition] = known
        return known

    async def stop(self) -> None:
        # The rows it has are still written, but it claims none any more.
        for client_partition in self._partitions.values():
            client_partition.may_claim = False
        await super().stop()

    def _is_leaving(self) -> None:
        # The next consumer has the same name. What this one still sends must not pass for a request
        # of the next one.
        self._generation = -1
        for client_partition in self._partitions.values():
            client_partition.revoke()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        revoked = [self._partition(partition) for partition in partitions]
        # The rows are still written below, but not claimed.
        for client_partition in revoked:
            client_partition.may_claim = False
        try:
            # This writes to the store, and then commits to Kafka what the store has.
            await super().on_revoked(partitions)
        finally:
            for client_partition in revoked:
                client_partition.revoke()

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        # Rows are claimed later, by committed().
        for partition in partitions:
            self._partition(partition).assign()
        self._again_at = 0.0
        self._away = None
        self._waits.progressed()
        await super().on_assigned(partitions, generation)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        """Claim rows that are not ours, and return partition -> its position in the store.

        Where the store has none, the position is Kafka's.
        """
        async with self._claiming:
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
            if self._is_still_ours(partition, row):
                found[partition] = None if row is None else committed_of(row)
        to_claim = [partition for partition in partitions if partition not in found]
        if to_claim:
            found |= await self._claim(to_claim, rows)
        for partition in found:
            self._partition(partition).is_ours = True
        return found

    def _check_fenced(self, partitions: Collection[TopicPartition]) -> None:
        """Raise if another owner has taken a row so lately that it must not be claimed yet."""
        now = self._rows.clock.monotonic()
        waits = {}
        for partition in partitions:
            left_s = self._partition(partition).fenced_for(now)
            if left_s:
                waits[partition] = left_s
        if waits:
            names = ", ".join(map(str, sorted(waits)))
            raise TransientBrokerError(
                f"another owner has taken {names} over in the checkpoint store; claimed again in "
                f"{max(waits.values()):.1f} s"
            )

    def _is_still_ours(self, partition: TopicPartition, row: Checkpoint | None) -> bool:
        """Return whether no other owner can have had the row since this client claimed it."""
        owned = self._partition(partition).row
        if owned is None:
            return False
        if owned.tracker is None:
            # It was claimed for a caller who only asked: nothing was read or written under it.
            return owned.checkpoint == row
        if owned.tracker.is_closed:
            return False
        if self._rows.is_read_with(owned.tracker):
            # The caller only asks. If the row is not ours any more, the next write finds out.
            return True
        # The partition of the last assignment. Unless it is retained it is read from the row, under
        # a new token, so that no request of the last assignment can be stored later.
        if row is None or not owned.is_ours(row):
            return False
        if not any(client.retains(partition, row.position) for client in self._rows.clients()):
            return False
        owned.found(row)
        return True

    async def _claim(
        self, partitions: Collection[TopicPartition], rows: Mapping[TopicPartition, Checkpoint]
    ) -> dict[TopicPartition, Committed | None]:
        """Claim rows exactly as they were read, so that no write of an earlier owner gets lost.

        A claim counts only if the store has answered it: two owners may have sent the same one.
        """
        in_kafka = await self._in_kafka(partitions) if self._has_group else {}
        if self._has_group:
            await self._check_group_membership(partitions, rows)
        found: dict[TopicPartition, Committed | None] = {}
        refused: set[TopicPartition] = set()
        until = self._rows.clock.monotonic() + CLAIMING_S
        for some in pieces_of(partitions):
            if self._rows.clock.monotonic() >= until:
                raise TransientBrokerError(
                    f"the rows of {len(found)} of {len(partitions)} partitions are claimed in the "
                    f"checkpoint store after {CLAIMING_S:g} s, and the others follow"
                )
            writes = {
                partition: _claiming_write(rows.get(partition), in_kafka.get(partition))
                for partition in some
            }
            if not all(self._partition(partition).may_claim for partition in some):
                raise NotOwnerError("the assignment is over")
            refused |= await self._rows.ask(self._rows.store.write(self._rows.group, writes))
            for partition, write in writes.items():
                if partition in refused:
                    continue
                # It counts even if a later piece fails.
                self._rows.claimed(partition, self._partition(partition), write.checkpoint)
                found[partition] = committed_of(write.checkpoint)
                kafka_position = in_kafka.get(partition)
                if kafka_position is not None:
                    self._found_in_kafka(partition, kafka_position, write.checkpoint.position)
        if refused:
            names = ", ".join(map(str, sorted(refused)))
            raise TransientBrokerError(
                f"another owner has written to the checkpoint store for {names} just now"
            )
        return found

    async def _check_group_membership(
        self, partitions: Collection[TopicPartition], rows: Mapping[TopicPartition, Checkpoint]
    ) -> None:
        """Commit to Kafka before rows are taken back from another owner.

        The group refuses that commit if the partitions are not ours any more.
        """
        now = self._rows.clock.monotonic()
        stored = {}
        for partition in partitions:
            row = rows.get(partition)
            if row is None or self._partition(partition).fenced_for(now) is None:
                continue
            committed = committed_of(row)
            if committed is not None:
                stored[partition] = committed
        if stored:
            await self._send(stored)

    async def _in_kafka(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        try:
            return await self._inner.committed(partitions)
        except SomePositionsUnknownError as error:
            # The error carries positions that Kafka did return. The caller would take them for
            # positions of the store.
            raise TransientBrokerError(str(error)) from error

    def _found_in_kafka(
        self, partition: TopicPartition, in_kafka: Committed, position: int | None
    ) -> None:
        self._partition(partition).in_kafka = in_kafka
        if position is not None and position != in_kafka.offset:
            event = CheckpointFound(
                channel=self._rows.channel,
                partition=partition,
                position=position,
                in_kafka=in_kafka.offset,
            )
            self._rows.observer.on(event)

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        """Store positions and states."""
        client_partitions = {partition: self._partition(partition) for partition in offsets}
        is_assigned = all(
            client_partition.is_assigned for client_partition in client_partitions.values()
        )
        if generation != self._generation or not is_assigned:
            raise NotOwnerError(f"generation {generation} is over")
        wanted = {}
        lost = []
        for partition, client_partition in client_partitions.items():
            if client_partition.row is None:
                # The group gave it to another client of this channel, which has claimed the row.
                lost.append(partition)
            else:
                wanted[client_partition.row] = offsets[partition]
        for partition in lost:
            self._rows.overtaken(partition, client_partitions[partition])
        if lost:
            raise CheckpointRefusedError(
                f"{', '.join(map(str, lost))}: not ours in the checkpoint store"
            )
        try:
            await self._rows.write(wanted)
        except StoreAwayError as error:
            raise OutcomeUnknownError(str(error)) from error

    async def _commit_moved(self) -> bool:
        """Commit to Kafka the positions that only the store has."""
        moved = {}
        for partition, client_partition in self._partitions.items():
            committed = client_partition.not_in_kafka
            if committed is not None:
                moved[partition] = committed
        if not moved:
            return True
        try:
            async with asyncio.timeout(KAFKA_DEADLINE_S):
                await self._send(moved)
        except NotOwnerError:
            # The assignment is over: the next owner commits.
            return True
        except PositionsRefusedError as error:
            self._report_failing(str(error))
            refused: Collection[TopicPartition] = error.refused.keys()
        except (BrokerError, TimeoutError) as error:
            self._report_failing(str(error) or "no answer in time")
            return not isinstance(error, TransientBrokerError)
        else:
            self._failing = None
            refused = ()
        for partition, committed in moved.items():
            if partition not in refused:
                self._partitions[partition].in_kafka = committed
        return True

    def _report_failing(self, reason: str) -> None:
        if reason != self._failing:
            self._failing = reason
            self._rows.observer.on(KafkaCommitFailed(channel=self._rows.channel, reason=reason))

    async def _send(self, moved: Mapping[TopicPartition, Committed]) -> None:
        """Commit positions to Kafka, with their metadata unless the broker finds it too large."""
        offsets = {
            partition: Committed(
                committed.offset, as_in_kafka(committed.metadata, committed.offset)
            )
            for partition, committed in moved.items()
        }
        try:
            await self._inner.commit(offsets, self._generation)
        except MetadataTooLargeError:
            # The store has the metadata; Kafka needs only the position.
            plain = {
                partition: Committed(committed.offset) for partition, committed in moved.items()
            }
            await self._inner.commit(plain, self._generation)


def _claiming_write(row: Checkpoint | None, in_kafka: Committed | None) -> Write:
    """Return the claim of *row* as it was read. A row without a position gets the one of Kafka."""
    if row is not None and row.position is not None:
        return Write(row.token, row._replace(token=row.token + 1), row.position)
    token = 0
    state = None
    if row is not None:
        token = row.token
        state = row.state
    position = None
    metadata = ""
    if in_kafka is not None:
        position, metadata = in_kafka
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

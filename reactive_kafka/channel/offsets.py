"""What users ask and do with a channel's offsets: what is committed, the lag, metadata, seeks and
commits by hand.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reactive_kafka.broker.client import Consumer
from reactive_kafka.channel.clients import ChannelClients, ChannelConsumer
from reactive_kafka.channel.functions import MetadataReader
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.commit.metadata.codec import decode
from reactive_kafka.commit.metadata.user import check_metadata
from reactive_kafka.errors import BrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.partitions.partition import lag_begins
from reactive_kafka.partitions.start import Where, check_where
from reactive_kafka.records import PartitionLike, TopicPartition, as_partition
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.message import Message


class ChannelOffsets:
    """The offsets of a channel: what a :class:`~reactive_kafka.Channel` can do with them."""

    def __init__(self, lifecycle: ChannelLifecycle) -> None:
        self._lifecycle = lifecycle
        self._settings = lifecycle.settings
        self._reader = MetadataReader(lifecycle.settings)
        self._home = HomeLoop()

    @property
    def name(self) -> str:
        """The name of its ``[incoming.NAME]`` table."""
        return self._settings.name

    async def commit(self, positions: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit now instead of at the next tick: everything that is settled, or exactly these
        positions.

        A position is the offset of the next record to read. It may pass settled records only, and
        never moves back (use :meth:`seek`). Committing settles nothing: unsettled records below the
        position can still be acked.

        Args:
            positions: partition -> position; None: everything that may be committed (nothing with
                ``commit_strategy = "ignore"``).

        Raises:
            CommitRefusedError: A position would pass an unsettled record, or move back; nothing was
                sent.
            NotOwnerError: A partition is not assigned to this application, as in a rebalance;
                nothing was sent for it.
            BrokerError: The commit failed, or its outcome is unknown; what is settled is committed
                later all the same.
            CommitStrategyError: A custom strategy raised, or returned no position; the channel
                stops.
        """
        with self._failure_as_cause():
            await (self._commit_all() if positions is None else self._commit_positions(positions))

    async def _commit_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        if not isinstance(positions, Mapping):
            raise TypeError(f"commit() takes a dict of partition to position, not {positions!r}")
        wanted = {as_partition(partition): position for partition, position in positions.items()}
        shares: dict[ChannelConsumer, dict[TopicPartition, int]] = {}
        for partition, position in wanted.items():
            client = self._client(partition)
            if client is None:
                raise self._not_ours(partition)
            shares.setdefault(client, {})[partition] = position
        for client, share in shares.items():
            client.engine.check_positions(share)
        for client, share in shares.items():
            await client.committer.commit_positions(share)

    async def _commit_all(self) -> None:
        """Each client commits what it can; then the first error is raised."""
        errors: list[BrokerError] = []
        for client in self._clients:
            try:
                await client.committer.commit_now()
            except BrokerError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def committed(self) -> dict[TopicPartition, int | None]:
        """partition -> the group's committed position, asked of the broker; None if nothing is
        committed.

        With ``commit_strategy = "checkpoint"``: the position that the store has confirmed.

        Raises:
            BrokerError: The broker did not answer.
        """
        found: dict[TopicPartition, int | None] = {}
        for client, partitions in self._shares():
            asked = [partition for partition in partitions if self._asks(client, partition)]
            found.update({one.id: one.stored for one in client.table if one.id in partitions})
            if asked:
                stored = await self._consumer(client).committed(asked)
                found.update({one: None if at is None else at.offset for one, at in stored.items()})
        return found

    async def lag(self) -> dict[TopicPartition, int]:
        """partition -> records between the committed position and the log end, both asked of the
        broker.

        Without a committed position it is counted from where reading started, and with
        ``commit_strategy = "ignore"`` from the first record that is not settled. Partitions in
        which reading has not started are left out.

        Raises:
            BrokerError: The broker did not answer.
        """
        commits = self._settings.commit_strategy != "ignore"
        committed = await self.committed() if commits else {}
        found: dict[TopicPartition, int] = {}
        for client, partitions in self._shares():
            ends = await self._consumer(client).end_offsets(partitions)
            for partition, end in ends.items():
                tracker = client.table.trackers.get(partition)
                position = committed.get(partition)
                behind = (
                    position if tracker is None else lag_begins(tracker, position, commits=commits)
                )
                if behind is not None:
                    found[partition] = max(0, end - behind)
        return found

    def ack_up_to(self, message: Message[Any], metadata: str | None = None) -> Future[bool]:
        """Ack a message, and every message delivered before it in its partition.

        Nacked messages stay with their failure strategy. With ``ordering = "key"`` or
        ``"unordered"`` earlier records may still be queued: they are handled as usual. Callable
        from any thread.

        Args:
            metadata: As for :meth:`reactive_kafka.Message.ack`.

        Returns:
            An awaitable as of ``ack``, which may be ignored: True if the call settled at least one
                record.

        Raises:
            TypeError: *message* is not a message.
            ValueError: It is a message of another channel, or the metadata is too long.
        """
        if not isinstance(message, Message):
            raise TypeError(
                f"ack_up_to() takes a message of this channel, not {type(message).__name__}"
            )
        if message.channel != self.name:
            raise ValueError(
                f"a message of channel {message.channel!r} cannot be acked by {self.name!r}"
            )
        return verdicts_of(message.tracker).ack_up_to(message.index, metadata)

    def store_offset_metadata(self, partition: PartitionLike, metadata: str) -> bool:
        """Commit a string with the next new position of a partition; the newest string counts.

        Callable from any thread.

        Returns:
            False if the partition is not assigned to this application.

        Raises:
            ValueError: The string is longer than 4,096 UTF-16 units, or contains NUL.
        """
        place = as_partition(partition)

        def store() -> bool:
            check_metadata(metadata)
            client = self._client(place)
            one = None if client is None else client.table.get(place)
            return one is not None and one.store_metadata(metadata)

        return self._home.call(store, lambda: False)

    async def offset_metadata(self, partition: PartitionLike) -> Any:
        """The string committed with the position, decoded by ``offset_metadata_deserializer``.

        Cached until the next rebalance and updated by this application's commits; with
        ``offset_metadata_cache = false`` it is asked of the broker each time.

        Returns:
            ``""`` if nothing is stored, None if the partition is not assigned to this application.

        Raises:
            DecodeError: The deserializer cannot read it.
            BrokerError: The broker did not answer.
        """
        partition = as_partition(partition)
        client = self._client(partition)
        if client is None:
            return None
        asks = self._asks(client, partition)
        settings = self._settings
        is_stale = asks and (not settings.offset_metadata_cache or settings.enable_auto_commit)
        one = client.table.get(partition)
        known = None if is_stale or one is None else one.user_metadata
        if known is not None:
            return self._reader.value(partition, known.metadata)
        stored = None
        if asks or client.starts.keeps_positions:
            stored = (await self._consumer(client).committed([partition]))[partition]
            if self._client(partition) is not client:
                # It was revoked meanwhile.
                return None
        text = "" if stored is None else decode(stored.metadata, stored.offset).user
        return self._reader.value(partition, text)

    async def seek(self, partition: PartitionLike, where: Where) -> None:
        """Continue reading a partition from elsewhere; late acks of its in-flight records have no
        effect.

        The committed position does not move with the seek, but with the next settled record, also
        backwards. In a hook of ``on_assigned``, *where* is where reading starts.

        Args:
            where: An offset, ``"beginning"``, ``"end"``, ``by(-100)``: so many records from the
                position, limited to the log; or a time: the first record at or after it, else the
                end. For an offset that the log does not have, ``auto_offset_reset`` applies.

        Raises:
            NotOwnerError: The partition is not assigned to this application.
            ValueError: A naive datetime, a negative offset, or an unknown word.
            BrokerError: The broker did not answer.
        """
        partition = as_partition(partition)
        check_where(where)
        with self._failure_as_cause():
            for client in self._clients:
                if client.assignment.has(partition):
                    await client.starts.seek(partition, where)
                    client.progress()
                    return
            raise self._not_ours(partition)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned now, without those of retry topics."""
        return frozenset(
            partition for client in self._clients.consumers for partition in client.table.ours
        )

    @property
    def _clients(self) -> ChannelClients:
        return self._lifecycle.session.clients

    def _client(self, partition: TopicPartition) -> ChannelConsumer | None:
        """The client that has a partition, also while reading has not started, or is being
        ended.
        """
        return next((client for client in self._clients if partition in client.table.ours), None)

    def _shares(self) -> list[tuple[ChannelConsumer, list[TopicPartition]]]:
        shares = [(client, sorted(client.table.ours)) for client in self._clients.consumers]
        return [(client, partitions) for client, partitions in shares if partitions]

    def _consumer(self, client: ChannelConsumer) -> Consumer:
        consumer = client.committer.consumer
        if consumer is None:
            raise TransientBrokerError(f"channel {self.name!r} is connecting")
        return consumer

    def _asks(self, client: ChannelConsumer, partition: TopicPartition) -> bool:
        """Whether the group is asked. A store is only before reading starts: its answer claims rows
        of others.
        """
        if client.starts.keeps_positions:
            return partition not in client.table.trackers
        return self._settings.group_id is not None

    def _not_ours(self, partition: TopicPartition) -> NotOwnerError:
        return NotOwnerError(f"channel {self.name!r}: {partition} is not ours")

    @contextmanager
    def _failure_as_cause(self) -> Iterator[None]:
        """An error without a cause gets the failure of the channel, if it has failed."""
        try:
            yield
        except BrokerError as error:
            if error.__cause__ is None:
                error.__cause__ = self._lifecycle.status.failure
            raise

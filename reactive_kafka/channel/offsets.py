"""What users ask and do with a channel's offsets: what is committed, the lag, metadata, seeks and commits by hand."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from reactive_kafka.broker.client import Consumer
from reactive_kafka.channel.clients import ChannelClients
from reactive_kafka.channel.consumer import ChannelConsumer, owner_of
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.offset_metadata import MetadataReader
from reactive_kafka.commit.metadata.codec import decode
from reactive_kafka.commit.metadata.user import check_metadata
from reactive_kafka.errors import BrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.partitions.start import Where, check_where
from reactive_kafka.records import PartitionLike, TopicPartition, as_partition
from reactive_kafka.tasks import HomeLoop
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.partition import verdicts_of

T = TypeVar("T")


class ChannelOffsets:
    """Does what the methods of ``Channel`` about offsets say; they have the docstrings.

    Raises:
        ConfigError: The deserializer of the metadata cannot be used.
    """

    def __init__(self, channel: ChannelLifecycle) -> None:
        self._channel = channel
        self._settings = channel.settings
        self._reader = MetadataReader(channel.settings)
        self._home = HomeLoop()

    @property
    def _clients(self) -> ChannelClients:
        return self._channel.session.clients

    def _of(self, client: ChannelConsumer) -> set[TopicPartition]:
        """The partitions of one client, also while reading has not started, or is being ended."""
        return set(client.table.ours)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(partition for client in self._clients.consumers for partition in self._of(client))

    def _client(self, partition: TopicPartition) -> ChannelConsumer | None:
        return next((client for client in self._clients if partition in self._of(client)), None)

    def _owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ChannelConsumer]:
        owners: dict[TopicPartition, ChannelConsumer] = {}
        for partition in partitions:
            client = self._client(partition)
            if client is None:
                raise NotOwnerError(f"channel {self._settings.name!r}: {partition} is not ours")
            owners[partition] = client
        return owners

    @contextmanager
    def _failure_as_cause(self) -> Iterator[None]:
        """An error without a cause gets the failure of the channel, if it has failed."""
        try:
            yield
        except BrokerError as error:
            if error.__cause__ is None:
                error.__cause__ = self._channel.status.failure
            raise

    async def committed(self) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for client, partitions in self._shares():
            asked = [partition for partition in partitions if self._asks(client, partition)]
            found.update({one.id: one.stored for one in client.table if one.id in partitions})
            if asked:
                stored = await self._consumer(client).committed(asked)
                found.update({one: None if at is None else at.offset for one, at in stored.items()})
        return found

    def _asks(self, client: ChannelConsumer, partition: TopicPartition) -> bool:
        """Whether the group is asked.

        A store is asked only before reading starts: its answer claims rows that another member may own.
        """
        if self._settings.commit_strategy == "checkpoint":
            return partition not in client.table.trackers
        return self._settings.group_id is not None

    async def lag(self) -> dict[TopicPartition, int]:
        committed = await self.committed()
        found: dict[TopicPartition, int] = {}
        for client, partitions in self._shares():
            ends = await self._consumer(client).end_offsets(partitions)
            for partition, end in ends.items():
                tracker, position = client.table.trackers.get(partition), committed.get(partition)
                behind = tracker.start if position is None and tracker is not None else position
                if behind is not None:
                    found[partition] = max(0, end - behind)
        return found

    def _shares(self) -> list[tuple[ChannelConsumer, list[TopicPartition]]]:
        shares = [(client, sorted(self._of(client))) for client in self._clients.consumers]
        return [(client, partitions) for client, partitions in shares if partitions]

    def _consumer(self, client: ChannelConsumer) -> Consumer:
        consumer = client.committer.consumer
        if consumer is None:
            raise TransientBrokerError(f"channel {self._settings.name!r} is connecting")
        return consumer

    async def seek(self, partition: PartitionLike, where: Where) -> None:
        partition = as_partition(partition)
        check_where(where)
        with self._failure_as_cause():
            await owner_of(self._clients, partition, self._settings.name).seek(partition, where)

    async def commit(self, positions: Mapping[TopicPartition, int] | None) -> None:
        with self._failure_as_cause():
            await (self._commit_all() if positions is None else self._commit_positions(positions))

    async def _commit_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        if not isinstance(positions, Mapping):
            raise TypeError(f"commit() takes a dict of partition to position, not {positions!r}")
        wanted = {as_partition(partition): offset for partition, offset in positions.items()}
        shares: dict[ChannelConsumer, dict[TopicPartition, int]] = {}
        for partition, client in self._owners(wanted).items():
            shares.setdefault(client, {})[partition] = wanted[partition]
        for client, share in shares.items():
            client.engine.check_positions(share)
        for client, share in shares.items():
            await client.committer.commit_positions(share)

    async def _commit_all(self) -> None:
        """Each client commits what it can; then the first error is raised."""
        errors = [error for client in self._clients if (error := await _not_stored(client)) is not None]
        if errors:
            raise errors[0]

    def ack_up_to(self, message: Message[Any], metadata: str | None) -> Future[bool]:
        if not isinstance(message, Message):
            raise TypeError(f"ack_up_to() takes a message of this channel, not {type(message).__name__}")
        if message.channel != self._settings.name:
            raise ValueError(f"a message of channel {message.channel!r} cannot be acked by {self._settings.name!r}")
        return verdicts_of(message.tracker).ack_up_to(message.index, metadata)

    def store_metadata(self, partition: PartitionLike, text: str) -> bool:
        partition = as_partition(partition)

        def store() -> bool:
            check_metadata(text)
            client = self._client(partition)
            one = None if client is None else client.table.get(partition)
            return one is not None and one.store_metadata(text)

        return self.on_the_loop(store, False)

    async def metadata(self, partition: PartitionLike) -> Any:
        partition = as_partition(partition)
        client = self._client(partition)
        if client is None:
            return None
        asks, settings = self._asks(client, partition), self._settings
        is_stale = asks and (not settings.offset_metadata_cache or settings.enable_auto_commit)
        one = client.table.get(partition)
        known = None if is_stale or one is None else one.user_metadata
        if known is not None:
            return self._reader.value(partition, known.metadata)
        stored = None
        if asks or settings.commit_strategy == "checkpoint":
            stored = (await self._consumer(client).committed([partition]))[partition]
            if self._client(partition) is not client:
                return None  # it was revoked meanwhile
        text = "" if stored is None else decode(stored.metadata, stored.offset).user
        return self._reader.value(partition, text)

    def on_the_loop(self, call: Callable[[], T], otherwise: T) -> T:
        """What *call* answers on the channel's loop, from whichever thread; *otherwise* where that loop has ended."""
        return self._home.call(call, lambda: otherwise)


async def _not_stored(client: ChannelConsumer) -> BrokerError | None:
    """Commit what is settled in a client's partitions; the error if that failed."""
    try:
        await client.committer.commit_now()
    except BrokerError as error:
        return error
    return None

"""The offsets of one channel in its users' hands: what the group has, how far behind it is, metadata, and commits."""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

from reactive_kafka.broker.client import Consumer
from reactive_kafka.channel.consumer import ChannelConsumer, owner_of
from reactive_kafka.channel.offset_metadata import MetadataReader
from reactive_kafka.channel.session import ChannelSession
from reactive_kafka.commit.metadata.codec import decode
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, NotOwnerError, TransientBrokerError
from reactive_kafka.partitions.start import Where, check_where
from reactive_kafka.records import PartitionLike, TopicPartition, as_partition
from reactive_kafka.verdicts.message import Message, settlement_of

T = TypeVar("T")


class ChannelOffsets:
    """What a channel's users ask about its offsets, and what they have done with them.

    Args:
        life: That of the moment.
        failure: What the channel has failed for, if it has.

    Raises:
        ConfigError: The deserializer of the metadata cannot be used.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        session: Callable[[], ChannelSession],
        failure: Callable[[], BaseException | None],
    ) -> None:
        self._settings = settings
        self._session = session
        self._failure = failure
        self._reader = MetadataReader(settings)
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()

    # -- who has a partition

    def _of(self, member: ChannelConsumer) -> set[TopicPartition]:
        """The partitions of one client: also those in which reading has not begun, and those that are being let go."""
        return set(member.table.ours)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now, without those of topics for delayed retries."""
        return frozenset(partition for member in self._session().consumers for partition in self._of(member))

    def _member(self, partition: TopicPartition) -> ChannelConsumer | None:
        return next((member for member in self._session().members if partition in self._of(member)), None)

    def _owners(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ChannelConsumer]:
        owners: dict[TopicPartition, ChannelConsumer] = {}
        for partition in partitions:
            member = self._member(partition)
            if member is None:
                raise NotOwnerError(f"channel {self._settings.name!r}: {partition} is not ours")
            owners[partition] = member
        return owners

    @contextmanager
    def _saying_why(self) -> Iterator[None]:
        """What cannot be done because the channel has failed has that as its cause."""
        try:
            yield
        except BrokerError as error:
            if error.__cause__ is None:
                error.__cause__ = self._failure()
            raise

    # -- asking

    async def committed(self) -> dict[TopicPartition, int | None]:
        """See :meth:`Channel.committed`."""
        found: dict[TopicPartition, int | None] = {}
        for member, partitions in self._shares():
            asked = [partition for partition in partitions if self._asks(member, partition)]
            found.update({one.id: one.stored for one in member.table if one.id in partitions})
            if asked:
                stored = await self._consumer(member).committed(asked)
                found.update({one: None if at is None else at.offset for one, at in stored.items()})
        return found

    def _asks(self, member: ChannelConsumer, partition: TopicPartition) -> bool:
        """Whether the group is asked. A store is not, where reading has begun: what is another's would be claimed."""
        if self._settings.commit_strategy == "checkpoint":
            return partition not in member.table.trackers
        return self._settings.group_id is not None

    async def lag(self) -> dict[TopicPartition, int]:
        """See :meth:`Channel.lag`."""
        committed = await self.committed()
        found: dict[TopicPartition, int] = {}
        for member, partitions in self._shares():
            ends = await self._consumer(member).end_offsets(partitions)
            for partition, end in ends.items():
                tracker, position = member.table.trackers.get(partition), committed.get(partition)
                behind = tracker.start if position is None and tracker is not None else position
                if behind is not None:
                    found[partition] = max(0, end - behind)
        return found

    def _shares(self) -> list[tuple[ChannelConsumer, list[TopicPartition]]]:
        shares = [(member, sorted(self._of(member))) for member in self._session().consumers]
        return [(member, partitions) for member, partitions in shares if partitions]

    def _consumer(self, member: ChannelConsumer) -> Consumer:
        consumer = member.committer.consumer
        if consumer is None:
            raise TransientBrokerError(f"channel {self._settings.name!r} is connecting")
        return consumer

    # -- moving

    async def seek(self, partition: PartitionLike, where: Where) -> None:
        """See :meth:`Channel.seek`."""
        partition = as_partition(partition)
        check_where(where)
        with self._saying_why():
            await owner_of(self._session().members, partition, self._settings.name).seek(partition, where)

    async def commit(self, positions: Mapping[TopicPartition, int] | None) -> None:
        """See :meth:`Channel.commit`."""
        with self._saying_why():
            await (self._commit_all() if positions is None else self._commit_positions(positions))

    async def _commit_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        if not isinstance(positions, Mapping):
            raise TypeError(f"commit() takes a dict of partition to position, not {positions!r}")
        wanted = {as_partition(partition): offset for partition, offset in positions.items()}
        shares: dict[ChannelConsumer, dict[TopicPartition, int]] = {}
        for partition, member in self._owners(wanted).items():
            shares.setdefault(member, {})[partition] = wanted[partition]
        for member, share in shares.items():
            member.engine.check_positions(share)
        for member, share in shares.items():
            await member.committer.commit_positions(share)

    async def _commit_all(self) -> None:
        """Each client commits what it can; what the first of them could not is raised then."""
        errors = [error for member in self._session().members if (error := await _not_stored(member)) is not None]
        if errors:
            raise errors[0]

    def ack_up_to(self, message: Message[Any], metadata: str | None) -> Future[bool]:
        """See :meth:`Channel.ack_up_to`."""
        if not isinstance(message, Message):
            raise TypeError(f"ack_up_to() takes a message of this channel, not {type(message).__name__}")
        if message.channel != self._settings.name:
            raise ValueError(f"a message of channel {message.channel!r} cannot be acked by {self._settings.name!r}")
        return settlement_of(message).ack_up_to(message.tracker, message.index, metadata)

    # -- metadata

    def store_metadata(self, partition: PartitionLike, text: str) -> bool:
        """See :meth:`Channel.store_offset_metadata`."""
        partition = as_partition(partition)

        def store() -> bool:
            members = self._session().members
            member = self._member(partition) or members[0]  # whose refusal of a string that is none is the same
            return member.table.store_metadata(partition, text)

        return self.on_the_loop(store, False)

    async def metadata(self, partition: PartitionLike) -> Any:
        """See :meth:`Channel.offset_metadata`."""
        partition = as_partition(partition)
        member = self._member(partition)
        if member is None:
            return None
        asks, settings = self._asks(member, partition), self._settings
        is_stale = asks and (not settings.offset_metadata_cache or settings.enable_auto_commit)
        known = None if is_stale else member.table.metadata_of(partition)
        if known is not None:
            return self._reader.value(partition, known.metadata)
        stored = None
        if asks or settings.commit_strategy == "checkpoint":
            stored = (await self._consumer(member).committed([partition]))[partition]
            if self._member(partition) is not member:
                return None  # it has gone meanwhile
        text = "" if stored is None else decode(stored.metadata, stored.offset).user
        return self._reader.value(partition, text)

    # -- threads

    def on_the_loop(self, call: Callable[[], T], otherwise: T) -> T:
        """What *call* answers on the channel's loop, from whichever thread; *otherwise* where that loop has ended."""
        if get_ident() == self._thread:
            return call()
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # it is raised where it was asked for
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop is closed
            return otherwise
        return answer.result()


async def _not_stored(member: ChannelConsumer) -> BrokerError | None:
    """Commit what is settled in a client's partitions; why that was not stored, None: it was."""
    try:
        await member.committer.commit_now()
    except BrokerError as error:
        return error
    return None

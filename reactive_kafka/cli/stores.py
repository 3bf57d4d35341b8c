"""The checkpoint stores in which channels of a group keep its positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack

from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, Write
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.cli.errors import Failure
from reactive_kafka.cli.offsets_plan import Change
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.records import TopicPartition


def is_of(channel: IncomingSettings, group: str) -> bool:
    """Whether a channel reads for this group; one without a group goes by its own name in a store."""
    return group == (channel.group_id or channel.name)


class Stores:
    """The stores of one group, opened when they are first used.

    Args:
        channels: Those of the configuration.
        closing: Closes those that were opened.
    """

    def __init__(self, channels: Sequence[IncomingSettings], group: str, closing: AsyncExitStack) -> None:
        self._group = group
        self._closing = closing
        kept = [(one, one.checkpoint) for one in channels if one.checkpoint is not None and is_of(one, group)]
        self._reads = {channel.name: channel.subscription for channel, _ in kept}
        self._urls = {channel.name: checkpoint.store for channel, checkpoint in kept}
        self._opened: dict[str, CheckpointStore] = {}

    def channel_of(self, topic: str) -> str | None:
        """The channel that keeps the positions of this topic in a store; None: Kafka keeps them."""
        return next((name for name, subscription in self._reads.items() if subscription.reads(topic)), None)

    async def rows(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Checkpoint]:
        """partition -> its row, without those that have none."""
        found: dict[TopicPartition, Checkpoint] = {}
        for name, theirs in self._by_channel(partitions).items():
            found.update(await self._store(name).read(self._group, theirs))
        return found

    async def write(self, changes: Mapping[TopicPartition, Change], rows: Mapping[TopicPartition, Checkpoint]) -> None:
        """Take the rows over, each with a new token: an owner that still runs loses them, and reads them again.

        A state goes with the position that it belongs to: a move back drops it, one forward keeps it.

        Args:
            rows: As they were read.

        Raises:
            Failure: A row has changed since.
        """
        for name, theirs in self._by_channel(changes).items():
            writes = {tp: _taking(changes[tp], rows.get(tp)) for tp in theirs}
            refused = await self._store(name).write(self._group, writes)
            if refused:
                names = ", ".join(map(str, sorted(refused)))
                raise Failure(f"the store of channel {name!r} has changed meanwhile: {names}; look again")

    def _by_channel(self, partitions: Collection[TopicPartition]) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            name = self.channel_of(partition.topic)
            if name is not None:
                found.setdefault(name, []).append(partition)
        return found

    def _store(self, name: str) -> CheckpointStore:
        if name not in self._opened:
            self._opened[name] = open_store(self._urls[name])
            self._closing.push_async_callback(self._opened[name].close)
        return self._opened[name]


def _taking(change: Change, row: Checkpoint | None) -> Write:
    """The write that moves a row, which must still be the one that was read."""
    token, position = (0, None) if row is None else row[:2]
    return Write(token, Checkpoint(token + 1, change.after, change.state, change.metadata), position)

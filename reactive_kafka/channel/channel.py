"""The public face of an incoming channel: iterate, pause, look at its offsets and move them."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any

from reactive_kafka.channel.iteration import messages
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.offsets import ChannelOffsets
from reactive_kafka.delivery.pauses import Pauses
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.partitions.start import Where
from reactive_kafka.records import PartitionLike, TopicPartition, as_partition
from reactive_kafka.verdicts.message import Message

PAUSED = "paused by the application"
"""The reason of a pause where none is given."""


class Channel:
    """One incoming channel of a running application, from ``app.channel(name)``.

    ``async for message in channel`` consumes without a handler; you ack or nack each message yourself.
    """

    def __init__(self, lifecycle: ChannelLifecycle) -> None:
        self._lifecycle = lifecycle
        self._offsets = ChannelOffsets(lifecycle)

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of its ``[incoming.NAME]`` table."""
        return self._lifecycle.name

    def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """Messages as they arrive, to be acked or nacked by hand, until the channel ends.

        Raises:
            ChannelClosedError: The channel has a handler, or has failed and does not restart by itself.
        """
        return messages(self._lifecycle)

    def facts(self) -> ChannelFacts:
        """What health, metrics and the page show of the channel; nothing is asked of the broker."""
        return self._lifecycle.facts()

    @property
    def is_started(self) -> bool:
        """Whether it runs or has run. A channel without a handler starts when it is first iterated over."""
        return self._lifecycle.status.state != "starting"

    @property
    def is_ready(self) -> bool:
        """Whether it has its assignment, and reading has begun in all of it."""
        return self._lifecycle.is_ready

    async def restart(self) -> None:
        """Restart a channel that has failed. Returns when it has started; it connects in the background.

        Waits until the channel has released its partitions. All attempts of ``restart.max_attempts`` are available
        again. Handlers that are still running are left behind, and their records are handled again.

        Raises:
            ChannelClosedError: The channel has not failed, or the application is stopping.
        """
        await self._lifecycle.restart()

    def pause(self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None) -> None:
        """Stop fetching and handling queued records. Running handlers and commits go on.

        The pause lasts until :meth:`resume` removes its reason, through rebalances and restarts, and may begin before
        the channel has joined. Each party pauses for a reason of its own, which counts once: records flow again when no
        reason is left. A paused channel stays a member of its group, and is ready. Callable from any thread; in effect
        when it returns.

        Args:
            reason: One line for people, shown on the page and in health.
            partitions: Pause only these, assigned or not; None: the whole channel.

        Raises:
            TypeError: The reason is not a string, or a partition is not a partition.
        """
        self._change_pauses(Pauses.pause, reason, partitions)

    def resume(self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None) -> None:
        """Remove a reason of :meth:`pause`; an unknown reason changes nothing. Callable from any thread.

        Args:
            partitions: Remove it only from these, if they were paused for it themselves; None: from the channel and
                from every partition.

        Raises:
            TypeError: As :meth:`pause`.
        """
        self._change_pauses(Pauses.resume, reason, partitions)

    def _change_pauses(
        self,
        change: Callable[[Pauses, str, Iterable[TopicPartition] | None], None],
        reason: str,
        partitions: Collection[PartitionLike] | None,
    ) -> None:
        if not isinstance(reason, str):
            raise TypeError(f"a reason is a string, not {reason!r}; partitions are given as partitions=[...]")
        places = None if partitions is None else [as_partition(one) for one in partitions]

        def do() -> None:
            self._lifecycle.change_pauses(lambda pauses: change(pauses, reason, places))

        self._offsets.on_the_loop(do, None)

    @property
    def paused(self) -> bool:
        """Whether the whole channel is paused; False while only some of its partitions are."""
        return self._lifecycle.is_paused

    async def commit(self, positions: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit now instead of at the next tick: everything that is settled, or exactly these positions.

        A position is the offset of the next record to read. It may pass settled records only, and never moves back
        (use :meth:`seek`). Committing settles nothing: unsettled records below the position can still be acked.

        Args:
            positions: partition -> position; None: everything that may be committed (nothing with
                ``commit_strategy = "ignore"``).

        Raises:
            CommitRefusedError: A position would pass an unsettled record, or move back; nothing was sent.
            NotOwnerError: A partition is not assigned to this application, as in a rebalance; nothing was sent for it.
            BrokerError: The commit failed, or its outcome is unknown; what is settled is committed later all the same.
            CommitStrategyError: A custom strategy raised, or returned no position; the channel stops.
        """
        await self._offsets.commit(positions)

    async def committed(self) -> dict[TopicPartition, int | None]:
        """partition -> the group's committed position, asked of the broker; None if nothing is committed.

        With ``commit_strategy = "checkpoint"``: the position that the store has confirmed.

        Raises:
            BrokerError: The broker did not answer.
        """
        return await self._offsets.committed()

    async def lag(self) -> dict[TopicPartition, int]:
        """partition -> records between the committed position and the log end, both asked of the broker.

        Without a committed position it is counted from where reading started. Partitions in which reading has not
        started are left out.

        Raises:
            BrokerError: The broker did not answer.
        """
        return await self._offsets.lag()

    def ack_up_to(self, message: Message[Any], metadata: str | None = None) -> Future[bool]:
        """Ack a message, and every message delivered before it in its partition.

        Nacked messages stay with their failure strategy. With ``ordering = "key"`` or ``"unordered"`` earlier records
        may still be queued: they are handled as usual. Callable from any thread.

        Args:
            metadata: As for :meth:`reactive_kafka.Message.ack`.

        Returns:
            An awaitable as of ``ack``, which may be ignored: True if the call settled at least one record.

        Raises:
            TypeError: *message* is not a message.
            ValueError: It is a message of another channel, or the metadata is too long.
        """
        return self._offsets.ack_up_to(message, metadata)

    def store_offset_metadata(self, partition: PartitionLike, metadata: str) -> bool:
        """Commit a string with the next new position of a partition; the newest string counts.

        Callable from any thread.

        Returns:
            False if the partition is not assigned to this application.

        Raises:
            ValueError: The string is longer than 4,096 UTF-16 units, or contains NUL.
        """
        return self._offsets.store_metadata(partition, metadata)

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
        return await self._offsets.metadata(partition)

    async def seek(self, partition: PartitionLike, where: Where) -> None:
        """Continue reading a partition from elsewhere; late acks of its in-flight records have no effect.

        The committed position does not move with the seek, but with the next settled record, also backwards. In a hook
        of ``on_assigned``, *where* is where reading starts.

        Args:
            where: An offset, ``"beginning"``, ``"end"``, or a time: the first record at or after it, else the end. For
                an offset that the log does not have, ``auto_offset_reset`` applies.

        Raises:
            NotOwnerError: The partition is not assigned to this application.
            ValueError: A naive datetime, a negative offset, or an unknown word.
            BrokerError: The broker did not answer.
        """
        await self._offsets.seek(partition, where)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned now, without those of retry topics."""
        return self._offsets.assignment

    @property
    def in_flight(self) -> int:
        """Records delivered to a handler or to the application, and without a verdict."""
        return self._lifecycle.session.clients.in_flight()

"""An incoming channel as its users have it: consumed by iteration, paused, its offsets looked at and moved."""

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

    ``async for message in channel`` consumes without a handler; each message is to be settled by hand.
    """

    def __init__(self, lifecycle: ChannelLifecycle) -> None:
        self._lifecycle = lifecycle
        self._offsets = ChannelOffsets(lifecycle)

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}>"

    @property
    def name(self) -> str:
        """That of its ``[incoming.NAME]`` table."""
        return self._lifecycle.name

    def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """Messages as they come, to be acked or nacked by hand, until the channel ends.

        Raises:
            ChannelClosedError: The channel has a handler, or has failed and does not come back by itself.
        """
        return messages(self._lifecycle)

    def facts(self) -> ChannelFacts:
        """What is known about the channel now, without asking anybody: what health, metrics and the page show."""
        return self._lifecycle.facts()

    @property
    def is_started(self) -> bool:
        """Whether it runs, or has run: one without a handler starts when it is first iterated over."""
        return self._lifecycle.status.state != "starting"

    @property
    def is_ready(self) -> bool:
        """Whether it has its assignment, and reading has begun in all of it."""
        return self._lifecycle.is_ready

    async def restart(self) -> None:
        """Start a channel that has failed anew; returns when it is started, and connects in the background.

        It waits until the channel has let go of its partitions. Attempts of ``restart.max_attempts`` count from
        nothing again. Handlers that still run from before are left behind: their records are handled again.

        Raises:
            ChannelClosedError: It has not failed, or the application stops.
        """
        await self._lifecycle.restart()

    def pause(self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None) -> None:
        """Fetch nothing more, and call no handler for what waits; running handlers go on, and so do commits.

        It lasts until :meth:`resume` takes the reason away, through rebalances and restarts; it may begin before the
        channel has joined. Several parties may pause, each for a reason of its own: records flow again when none is
        left. A reason counts once, however often it is given. A paused channel stays a member of its group, and is
        ready. May be called from any thread; in effect when it returns.

        Args:
            reason: One line for people; the page and health show it.
            partitions: Pause only these, whether or not they are assigned now; None: the whole channel.

        Raises:
            TypeError: The reason is no string, or one of the partitions no partition.
        """
        self._change_pauses(Pauses.pause, reason, partitions)

    def resume(self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None) -> None:
        """Take a reason of :meth:`pause` away; one that was not given changes nothing. From any thread, as there.

        Args:
            partitions: Take it away from these, if they were paused for it by themselves; None: from the channel, and
                from every partition that is paused for it.

        Raises:
            TypeError: As of :meth:`pause`.
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
        """Whether the whole channel is paused, for any reason; False while only some of its partitions are."""
        return self._lifecycle.is_paused

    async def commit(self, positions: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit at once instead of at the next tick: what is settled by now, or exactly these positions.

        A position is the offset of the next record to read. It may pass settled records only, and never goes back:
        that is :meth:`seek`'s. It settles nothing, so what is below it and open may still be acked.

        Args:
            positions: partition -> position; None: of every partition what may be committed (nothing with
                ``commit_strategy = "ignore"``).

        Raises:
            CommitRefusedError: A position would pass an unsettled record, or go back; nothing was sent.
            NotOwnerError: A partition is not ours, or not ours any more, also for the time of a rebalance; a given
                position was not sent then.
            BrokerError: It was not stored, or nobody knows; what is settled is committed later all the same.
            CommitStrategyError: A strategy of one's own raised, or its answer is no position; the channel stops.
        """
        await self._offsets.commit(positions)

    async def committed(self) -> dict[TopicPartition, int | None]:
        """partition -> the position that the group has now, asked of the broker; None where nothing is committed.

        With ``commit_strategy = "checkpoint"``: the position that the store has confirmed.

        Raises:
            BrokerError: It could not be asked for.
        """
        return await self._offsets.committed()

    async def lag(self) -> dict[TopicPartition, int]:
        """partition -> records from the committed position to the end of the log, both asked of the broker.

        Counted from where reading began where nothing is committed; without the partitions in which it has not begun.

        Raises:
            BrokerError: It could not be asked for.
        """
        return await self._offsets.lag()

    def ack_up_to(self, message: Message[Any], metadata: str | None = None) -> Future[bool]:
        """Ack a message and all before it in its partition that handlers, or the application, have had.

        Those nacked before stay with their failure strategy. With ``ordering = "key"`` or ``"unordered"`` records
        before it may still wait for a handler: they stay to be handled. May be called from any thread.

        Args:
            metadata: As of :meth:`reactive_kafka.Message.ack`.

        Returns:
            An awaitable as of ``ack``, which may be ignored: True if at least one record was settled by this call.

        Raises:
            TypeError: It is no message.
            ValueError: It is one of another channel; or the metadata is too long.
        """
        return self._offsets.ack_up_to(message, metadata)

    def store_offset_metadata(self, partition: PartitionLike, metadata: str) -> bool:
        """Have a string stored with the next new position of a partition, whoever commits it; the newest one counts.

        May be called from any thread.

        Returns:
            False if the partition is not ours.

        Raises:
            ValueError: It is longer than 4,096 UTF-16 units, or has a NUL.
        """
        return self._offsets.store_metadata(partition, metadata)

    async def offset_metadata(self, partition: PartitionLike) -> Any:
        """The string beside the committed position, through ``offset_metadata_deserializer``.

        Known until the next rebalance, our own commits included, or asked of the broker each time with
        ``offset_metadata_cache = false``.

        Returns:
            ``""`` if nothing is stored, None if the partition is not ours.

        Raises:
            DecodeError: The deserializer cannot read it.
            BrokerError: It could not be asked for.
        """
        return await self._offsets.metadata(partition)

    async def seek(self, partition: PartitionLike, where: Where) -> None:
        """Go on from somewhere else in a partition; its records in flight are not ours any more.

        No committed position moves by itself: the next record that is settled moves it, back too. In a hook of
        ``on_assigned`` it says where reading begins.

        Args:
            where: An offset, ``"beginning"``, ``"end"``, or a time: the first record at or after it, else the end. An
                offset that the log does not have: what ``auto_offset_reset`` says.

        Raises:
            NotOwnerError: The partition is not ours.
            ValueError: A naive datetime, a negative offset, or another word.
            BrokerError: The log could not be looked at.
        """
        await self._offsets.seek(partition, where)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now, without those of topics for delayed retries."""
        return self._offsets.assignment

    @property
    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return self._lifecycle.session.clients.in_flight()

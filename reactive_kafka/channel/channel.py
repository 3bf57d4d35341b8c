"""``Channel``: what users do with an incoming channel. They iterate, pause, commit and seek."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from reactive_kafka.broker.client import Consumer
from reactive_kafka.channel.clients import ChannelClients, ChannelConsumer
from reactive_kafka.channel.handled_waits import HandledWaits
from reactive_kafka.channel.iteration import messages
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.named_functions import MetadataReader
from reactive_kafka.channel.skip_by_hand import SkipResult, skip_record
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    NotOwnerError,
    TransientBrokerError,
)
from reactive_kafka.observe.facts import ChannelFacts
from reactive_kafka.outgoing.emitter import RecordMetadata
from reactive_kafka.partitions.partition import lag_begins
from reactive_kafka.partitions.start_choice import Where, check_where
from reactive_kafka.records import PartitionLike, TopicPartition, as_partition
from reactive_kafka.tasks import HomeLoop, at_home
from reactive_kafka.tracking.metadata.codec import decode
from reactive_kafka.tracking.metadata.user import check_metadata
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import not_ageing
from reactive_kafka.verdicts.message import Message

PAUSED = "paused by the application"
"""The reason of a pause where none is given."""

P = ParamSpec("P")
T = TypeVar("T")


def _from_any_loop(
    method: Callable[Concatenate[Channel, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Channel, P], Coroutine[Any, Any, T]]:
    """Let a method be awaited on another event loop, as blocking handlers do in their thread."""

    @wraps(method)
    async def awaited(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await at_home(self._home, partial(method, self, *args, **kwargs))

    return awaited


def _asks_a_broker(
    method: Callable[Concatenate[Channel, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Channel, P], Coroutine[Any, Any, T]]:
    """Let no record age whose handler awaits a method that waits for nothing but a broker."""

    @wraps(method)
    async def awaited(self: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with not_ageing():
            return await method(self, *args, **kwargs)

    return awaited


class Channel:
    """One incoming channel of a running application, from ``app.channel(name)``.

    ``async for message in channel`` consumes without a handler; you ack or nack each message
    yourself.

    Its methods may be called from any thread, and awaited on any event loop: a blocking handler
    calls ``asyncio.run(channel.commit())``. Only the iteration belongs to the application's loop.
    """

    def __init__(self, lifecycle: ChannelLifecycle) -> None:
        self._lifecycle = lifecycle
        self._settings = lifecycle.settings
        self._reader = MetadataReader(lifecycle.settings)
        self._home = HomeLoop()
        self._handled_waits = HandledWaits(lifecycle)

    def __repr__(self) -> str:
        return f"<Channel {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of its ``[incoming.NAME]`` table."""
        return self._settings.name

    def __aiter__(self) -> AsyncIterator[Message[Any]]:
        """Messages as they arrive, to be acked or nacked by hand, until the channel ends.

        Raises:
            ChannelClosedError: The channel has a handler, or has failed and does not restart by
                itself.
            RuntimeError: The caller is on another event loop than the application.
        """
        if not self._home.is_here:
            raise RuntimeError(
                f"channel {self.name!r} is iterated over on the event loop of the application only"
            )
        return messages(self._lifecycle)

    def facts(self) -> ChannelFacts:
        """Return what health, metrics and the page show of the channel, from memory."""
        return self._lifecycle.facts()

    @property
    def is_started(self) -> bool:
        """Whether it runs or has run. A channel without a handler starts at its first iteration."""
        return self._lifecycle.status.state != "starting"

    @property
    def is_ready(self) -> bool:
        """Whether it has its assignment, and reads all of its partitions."""
        return self._lifecycle.is_ready

    @property
    def is_stopped(self) -> bool:
        """Whether :meth:`stop` or ``enabled = false`` has stopped it, until :meth:`start`."""
        return self._lifecycle.status.stopped_by is not None

    async def stop(self) -> None:
        """Stop this channel alone, until :meth:`start`.

        It drains, commits what is settled, and leaves its group. Handlers may finish within
        ``drain_timeout``, and an iteration over the channel ends. Pauses and counts stay. A stopped
        channel is ready, and health says that it is stopped. Nothing happens if it is stopped
        already, or while the application stops.

        Returns when the group is left. A handler or a hook of the channel itself cannot wait for
        that: for it the call returns at once, no further record is taken, and the channel stops
        when the handler has returned. Cancelling the caller does not end the stop.
        """
        stop = partial(self._lifecycle.switch.stop, from_thread=not self._home.is_here)
        await at_home(self._home, stop)

    async def start(self) -> None:
        """Start a channel that is stopped, not ``enabled``, or failed, at the committed position.

        Returns when it has started. It connects in the background. Nothing happens if it runs. If
        it is still stopping, it starts when the stop is over. A handler or a hook of the channel
        itself does not wait for that.

        Raises:
            ChannelClosedError: The application is stopping.
        """
        start = partial(self._lifecycle.switch.start, from_thread=not self._home.is_here)
        await at_home(self._home, start)

    async def restart(self) -> None:
        """Restart a channel that has failed. It connects in the background.

        This waits until the channel has released its partitions. A handler or a hook of the channel
        itself does not wait for that. All attempts of ``restart.max_attempts`` are available again.
        Handlers that are still running are left behind, and their records are handled again.

        Raises:
            ChannelClosedError: The channel has not failed, or the application is stopping.
        """
        restart = partial(self._lifecycle.switch.restart, from_thread=not self._home.is_here)
        await at_home(self._home, restart)

    def pause(
        self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None
    ) -> None:
        """Stop fetching and handling queued records. Running handlers and commits continue.

        The pause lasts until :meth:`resume` removes its reason, through rebalances and restarts. It
        may begin before the channel has joined its group. Each caller pauses for its own reason,
        and records flow again when no reason is left. A paused channel stays a member of its group,
        and is ready. Callable from any thread; the pause is in effect when this returns.

        Args:
            reason: One line for people, shown on the page and in health.
            partitions: Pause only these, assigned or not; None: the whole channel.

        Raises:
            TypeError: The reason is not a string, or a partition is not a partition.
        """
        self._change_pauses(Pauses.pause, reason, partitions)

    def resume(
        self, reason: str = PAUSED, *, partitions: Collection[PartitionLike] | None = None
    ) -> None:
        """Remove a reason of :meth:`pause`. Callable from any thread.

        An unknown reason changes nothing.

        Args:
            partitions: Remove the reason from these partitions, if they were paused for it
                themselves. None: from the channel and from every partition.

        Raises:
            TypeError: As :meth:`pause`.
        """
        self._change_pauses(Pauses.resume, reason, partitions)

    @property
    def paused(self) -> bool:
        """Whether the whole channel is paused; False while only some of its partitions are."""
        return self._lifecycle.is_paused

    @property
    def in_flight(self) -> int:
        """How many records a handler or the application has, without a verdict."""
        return self._lifecycle.session.clients.in_flight()

    @_from_any_loop
    @_asks_a_broker
    async def commit(self, positions: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit now instead of at the next tick: everything that is settled, or these positions.

        A position is the offset of the next record to read. It may pass settled records only, and
        never moves back (use :meth:`seek`). A commit settles no record.

        Args:
            positions: partition -> position. None: everything that may be committed, which is
                nothing with ``commit_strategy = "ignore"``.

        Raises:
            CommitRefusedError: A position would pass an unsettled record, or move back. Nothing
                was sent.
            NotOwnerError: A partition is not assigned to this application, maybe because of a
                rebalance. Nothing was sent for it.
            BrokerError: The commit failed, or its outcome is unknown. What is settled is committed
                later all the same.
            CommitStrategyError: A custom strategy raised, or returned no position. The channel
                stops.
        """
        with self._failure_as_cause():
            await (self._commit_all() if positions is None else self._commit_positions(positions))

    @_from_any_loop
    @_asks_a_broker
    async def committed(self) -> dict[TopicPartition, int | None]:
        """Ask the broker for the committed positions: partition -> position.

        None: the partition has no committed position. With ``commit_strategy = "checkpoint"`` it is
        the position that the store has confirmed.

        Raises:
            BrokerError: The broker did not answer.
        """
        found: dict[TopicPartition, int | None] = {}
        for client, partitions in self._shares():
            asked = [partition for partition in partitions if self._asks(client, partition)]
            ours = client.table.ours
            found.update(
                {
                    partition.id: partition.commits.stored
                    for partition in client.table
                    if partition.id in ours
                }
            )
            if asked:
                stored = await self._consumer(client).committed(asked)
                found.update(
                    {
                        partition: None if at is None else at.offset
                        for partition, at in stored.items()
                    }
                )
        return found

    @_from_any_loop
    @_asks_a_broker
    async def lag(self) -> dict[TopicPartition, int]:
        """Ask the broker for the lag: partition -> records from the committed position to the end.

        Without a committed position the lag is counted from where reading started, and with
        ``commit_strategy = "ignore"`` from the first unsettled record. Partitions in which reading
        has not started are left out.

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

    @_from_any_loop
    async def handled(self, confirmation: RecordMetadata, *, timeout: float | None = None) -> None:
        """Wait until this channel has handled a record that was sent, to read your own write.

        A record is handled when it is settled: acked, skipped by a filter, or nacked and its
        failure strategy carried out, also as a dead letter. It returns at once if the channel is
        past the record already, also in an earlier run or because reading began behind it, and for
        a record that compaction has removed. While the channel has no assignment it waits.

            confirmation = await app.emitter("orders").send(order)
            await app.channel("orders").handled(confirmation, timeout=5)

        Args:
            confirmation: What :meth:`Emitter.send` has returned. One that another process got can
                be written as ``RecordMetadata(topic, partition, offset)``.
            timeout: In seconds. None: without a bound.

        Raises:
            TypeError: It is no RecordMetadata.
            ValueError: The channel does not read that topic, partition or offset. Or the broker has
                not said where the record is (``acks = 0``).
            NotOwnerError: The partition is another member's, or was taken away. It is raised at
                once, or after 5 s if this member has no partition at all.
            ChannelClosedError: The channel has failed for good, or stops.
            TimeoutError: The timeout has passed. The record may still be handled.

        Cancellation:
            Safe.
        """
        partition = self._sent_to(confirmation)
        offset = confirmation.offset
        try:
            async with asyncio.timeout(timeout) as limit:
                await self._handled_waits.wait(partition, offset)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"channel {self.name!r} has not handled {partition} offset {offset} within "
                f"{timeout:g} s"
            ) from None

    def _sent_to(self, confirmation: RecordMetadata) -> TopicPartition:
        """Return the partition of a record that this channel reads. Raises as :meth:`handled`."""
        if not isinstance(confirmation, RecordMetadata):
            raise TypeError(
                "handled() takes the RecordMetadata that `await emitter.send(...)` returns, not "
                f"{type(confirmation).__name__}"
            )
        topic, number, offset = confirmation
        partition = TopicPartition(topic, number)
        if not self._settings.subscription.includes(partition):
            raise ValueError(f"channel {self.name!r} does not read {partition}")
        if offset < 0:
            raise ValueError(
                "the broker has not said where it has stored the record, as with acks = 0"
            )
        ranges = self._settings.ranges.get(partition)
        if ranges is not None and not ranges.count(offset, offset + 1):
            raise ValueError(f"channel {self.name!r} does not read {partition} offset {offset}")
        return partition

    def ack_up_to(self, message: Message[Any], metadata: str | None = None) -> Future[bool]:
        """Ack a message, and every message delivered before it in its partition.

        Messages that wait for their next attempt are acked, too. Nacked messages stay with their
        failure strategy. With ``ordering = "key"`` or ``"unordered"`` earlier records may still be
        queued, or wait for their schema: they are handled as usual. Callable from any thread.

        Args:
            metadata: As for :meth:`reactive_kafka.Message.ack`.

        Returns:
            An awaitable as of ``ack``, which may be ignored. It is True if the call settled at
            least one record.

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
        verdicts = verdicts_of(message.tracker)
        answer = verdicts.ack_up_to(message.index, metadata)
        watch = verdicts.channel.watch
        if watch is not None:
            watch.acked(message, answer)
        return answer

    def store_offset_metadata(self, partition: PartitionLike, metadata: str) -> bool:
        """Commit a string with the next new position of a partition. The newest string counts.

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
            owned = None if client is None else client.table.get(place)
            return owned is not None and owned.store_metadata(metadata)

        return self._home.call(store, lambda: False)

    @_from_any_loop
    @_asks_a_broker
    async def offset_metadata(self, partition: PartitionLike) -> Any:
        """Return the string committed with the position.

        ``offset_metadata_deserializer`` decodes it. It is cached until the next rebalance, and the
        application's own commits update it. With ``offset_metadata_cache = false`` the broker is
        asked each time.

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
        owned = client.table.get(partition)
        known = None if is_stale or owned is None else owned.user_metadata
        if known is not None:
            return self._reader.value(partition, known.metadata)
        stored = None
        if asks or client.starts.keeps_positions:
            stored = (await self._consumer(client).committed([partition]))[partition]
            if self._client(partition) is not client:
                # The partition was revoked meanwhile.
                return None
        text = "" if stored is None else decode(stored.metadata, stored.offset).user
        return self._reader.value(partition, text)

    @_from_any_loop
    @_asks_a_broker
    async def seek(self, partition: PartitionLike, where: Where) -> None:
        """Continue reading a partition elsewhere. Late acks of its in-flight records do nothing.

        The committed position moves with the next settled record and not with the seek. It may move
        backwards then. In a hook of ``on_assigned`` this decides where reading starts.

        Args:
            where: An offset; ``"beginning"``; ``"end"``; ``by(-100)``, the number of records from
                the position, within the log; or a time, for the first record at or after it, or
                the end if there is none. For an offset that the log does not have,
                ``auto_offset_reset`` applies.

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
                    self._lifecycle.skips.forget(partition)
                    await client.starts.seek(partition, where)
                    client.progress()
                    return
            raise self._not_ours(partition)

    def skip(self, partition: PartitionLike, offset: int) -> SkipResult:
        """Settle one record without handling it, so that the channel continues past it.

        A record that waits is taken out of the queue. If a handler has it, the handler is
        cancelled, and its open transaction stores nothing; a batch is not cancelled, and its
        verdict on the record does not count. A record that has
        not come yet is skipped when it comes: so a channel that has failed for it continues after a
        restart. That is forgotten with the process, by a :meth:`seek` of the partition, and if its
        topic is recreated. Skipped records are counted, and written to no dead-letter topic.
        Callable from any thread.

        Returns:
            ``"skipped"``; ``"waiting"`` if it will be skipped when it comes; ``"settled"`` if it
            has its verdict already, or the log does not have it.

        Raises:
            NotOwnerError: The partition is not assigned to this application.
            SkipRefusedError: The channel does not read the topic, or runs on Spark; the failure
                strategy or the transaction of the record is under way; or 1,000 records wait to be
                skipped.
            CheckpointError: A batch has the record in a transaction.
            CommitRefusedError: A broadcast of batches has the record.
            ValueError: A negative offset.
            TypeError: No partition, or no whole number.
        """
        place = as_partition(partition)
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"skip() takes an offset, a whole number, not {offset!r}")
        if offset < 0:
            raise ValueError(f"there is no offset {offset}: they begin at 0")

        def closed() -> SkipResult:
            raise ChannelClosedError("the application has stopped")

        return self._home.call(lambda: skip_record(self._lifecycle, place, offset), closed)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions assigned now, without those of retry topics."""
        return frozenset(
            partition for client in self._clients.consumers for partition in client.table.ours
        )

    def _change_pauses(
        self,
        change: Callable[[Pauses, str, Iterable[TopicPartition] | None], None],
        reason: str,
        partitions: Collection[PartitionLike] | None,
    ) -> None:
        if not isinstance(reason, str):
            raise TypeError(
                f"a reason is a string, not {reason!r}; partitions are given as partitions=[...]"
            )
        places = None if partitions is None else [as_partition(place) for place in partitions]

        def do() -> None:
            self._lifecycle.change_pauses(lambda pauses: change(pauses, reason, places))

        self._home.call(do, lambda: None)

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
        """Have each client commit what it can; then raise the first error."""
        errors: list[BrokerError] = []
        for client in self._clients:
            try:
                await client.committer.commit_now()
            except BrokerError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def _clients(self) -> ChannelClients:
        return self._lifecycle.session.clients

    def _client(self, partition: TopicPartition) -> ChannelConsumer | None:
        """Return the client that has a partition, also before reading has started there."""
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
        """Return whether the committed position of a partition is asked for, or known here."""
        if client.starts.keeps_positions:
            # A store is asked only before reading starts: its answer claims rows of other owners.
            return partition not in client.table.trackers
        return self._settings.group_id is not None

    def _not_ours(self, partition: TopicPartition) -> NotOwnerError:
        return NotOwnerError(f"channel {self.name!r}: {partition} is not ours")

    @contextmanager
    def _failure_as_cause(self) -> Iterator[None]:
        """Give a BrokerError without a cause the failure of the channel, if it has failed."""
        try:
            yield
        except BrokerError as error:
            if error.__cause__ is None:
                error.__cause__ = self._lifecycle.status.failure
            raise

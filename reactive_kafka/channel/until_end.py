"""Waits, in a run that ends by itself, until a channel has handled what was there at its start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf

from reactive_kafka.broker.client import GroupHasMembersError
from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.clients import ChannelConsumer
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.switch import BY_APPLICATION
from reactive_kafka.errors import BrokerError, CommitStrategyError
from reactive_kafka.observe.events import RangeBeyondEnd
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import read_up_to
from reactive_kafka.verdicts.acknowledger import verdicts_of

LOOK_S = 0.1
"""How often this looks whether the end is reached."""
IDLE_S = 5.0
"""How long a member has to be without partitions before it looks whether the others are done. A
rebalance may give it some only in its second round.
"""
ASK_AGAIN_S = 1.0
"""How soon a broker that has not answered is asked again, and a commit is tried again."""
SHARED_S = 10.0
"""How long commits may be refused because the group has members, before a channel with fixed
partitions gives up. Only members may commit for a group that has some.
"""


def is_done_by_group(
    ends: Mapping[TopicPartition, int],
    beginnings: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, Committed | None],
    auto_offset_reset: str,
) -> bool:
    """Return whether the group has handled what was in all partitions.

    A partition without a committed position counts if its log is empty, or if its records need not
    be read: with any other ``auto_offset_reset`` than ``earliest``.

    Args:
        ends: Partition -> the end that is to be reached.
    """
    for partition, end in ends.items():
        stored = committed.get(partition)
        if stored is not None:
            if stored.offset < end:
                return False
        elif auto_offset_reset == "earliest" and beginnings.get(partition, 0) < end:
            return False
    return True


class UntilEnd:
    """Waits until one channel has handled what was in its partitions when it got them."""

    def __init__(self, channel: ChannelLifecycle) -> None:
        self.name = channel.name
        self._channel = channel
        self._clock = channel.services.clock
        self._observer = channel.services.observer
        # True: all of its topics exist.
        self._has_topics = False
        self._idle_since = inf
        # Where the logs of all partitions ended when this member was first without any. The member
        # that has them may vanish, and they come to this one only when its session has ended.
        self._ends_of_group: Mapping[TopicPartition, int] | None = None
        # When to ask again whether the group has reached them.
        self._ask_group_at = -inf
        # Since when the application holds the same number of unsettled records, and their number.
        self._held_since = inf
        self._held = -1
        # True: the end is reached. The on_caught_up hooks may still be running.
        self._is_reached = False
        # True: the channel was not running when this looked last.
        self._was_stopped = False
        # When a commit was first refused because the group has members.
        self._shared_since = inf
        # Why the end will not be reached. None: it may be.
        self.failure: str | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the channel was stopped and has been started again, so it has an end to reach."""
        return self._was_stopped and self._channel.status.may_go_on

    async def is_over(self) -> bool:
        """Wait until everything is handled and committed.

        The ``on_caught_up`` hooks of the channel are waited for, too. If the channel fails for good
        or is stopped, this returns as well.

        Returns:
            False if the rest is left to the stop. Either the application holds messages without a
            verdict although their handlers have returned: it may keep them until others come, so
            they are waited for only as long as in a stop. Or the channel has a custom commit
            strategy, which may commit only at the end.
        """
        while not (status := self._channel.status).is_over or status.restarts_at is not None:
            wait_s = LOOK_S
            session = self._channel.session
            try:
                if await self._has_read_all(session):
                    session.no_more_to_come()
                    if (
                        self._is_handled(session)
                        and session.hook.is_relayed()
                        and await self._are_retries_over(session)
                    ):
                        # Here a broker that is away is waited for. The stop could not wait so long.
                        for client in session.clients:
                            await client.committer.commit_now()
                        self._is_reached = True
                        if not any(
                            client.catch_up.is_pending for client in session.clients.consumers
                        ):
                            return ":" not in self._channel.settings.commit_strategy
                    elif self._is_only_held(session):
                        return False
            except (BrokerError, CommitStrategyError) as error:
                wait_s = ASK_AGAIN_S
                if self._is_refused_for_members(error):
                    self.failure = (
                        f"what is handled was not committed: {error}; give the channel a group of "
                        "its own"
                    )
                    return True
            await asyncio.sleep(wait_s)
        self._was_stopped = True
        if status.state == "failed":
            self.failure = status.why_failed(self._clock.monotonic())
        elif status.stopped_by == BY_APPLICATION and not self._was_reached():
            self.failure = f"channel {self.name!r} was {BY_APPLICATION} before its end"
        return True

    def _is_refused_for_members(self, error: Exception) -> bool:
        """Return whether commits have been refused for too long because the group has members."""
        if not isinstance(error.__cause__, GroupHasMembersError):
            self._shared_since = inf
            return False
        now = self._clock.monotonic()
        self._shared_since = min(self._shared_since, now)
        return now - self._shared_since >= SHARED_S

    async def _has_read_all(self, session: ChannelSession) -> bool:
        if not self._channel.is_ready:
            return False
        for client in session.clients.consumers:
            await self._note_ends(client)
        read = [partition for client in session.clients.consumers for partition in client.table]
        now = self._clock.monotonic()
        is_the_same = self._channel.is_ready and self._channel.session is session
        self._idle_since = inf if read or not is_the_same else min(self._idle_since, now)
        if is_the_same and not read:
            return await self._may_end_without_partitions(session, now)
        return is_the_same and all(
            partition.is_read
            and partition.tracker is not None
            and partition.tracker.position >= _end(partition)
            for partition in read
        )

    async def _may_end_without_partitions(self, session: ChannelSession, now: float) -> bool:
        """Return whether a member without partitions has nothing to wait for.

        Until the group has committed everything, partitions of a member that fails or vanishes may
        still come. Where nothing is committed, all that can be known is that this member has had
        no partitions for a while.

        Raises:
            BrokerError: The broker or the checkpoint store did not answer.
        """
        settings = self._channel.settings
        consumer = session.clients.consumers[0].starts.consumer
        if consumer is None:
            return False
        keeps_positions = settings.commit_strategy != "ignore" and (
            settings.group_id is not None or session.hook.keeps_positions
        )
        if keeps_positions and self._ends_of_group is None:
            there = await consumer.topics()
            reads = settings.subscription.reads
            every = [one for topic, found in there.items() if reads(topic) for one in found]
            self._ends_of_group = await consumer.end_offsets(every)
        if now - self._idle_since < IDLE_S or now < self._ask_group_at:
            return False
        if self._ends_of_group is None:
            return True
        self._ask_group_at = now + ASK_AGAIN_S
        # A topic may be deleted by now, or recreated with fewer records.
        there = await consumer.topics()
        every = [one for one in self._ends_of_group if one in there.get(one.topic, ())]
        ends_now = await consumer.end_offsets(every)
        stored = await session.hook.stored_positions(every)
        if stored is None:
            stored = await consumer.committed(every)
        return is_done_by_group(
            {one: min(self._ends_of_group[one], end) for one, end in ends_now.items()},
            await consumer.beginning_offsets(every),
            stored,
            settings.auto_offset_reset,
        )

    async def _note_ends(self, client: ChannelConsumer) -> None:
        """Note where the logs of new partitions end, or their ranges.

        With ``read_committed`` these are their last stable offsets.

        Raises:
            BrokerError: The broker did not answer, or a topic is missing.
        """
        consumer = client.starts.consumer
        new = {
            partition.id: partition for partition in client.table if partition.log.run_end is None
        }
        if consumer is None or (self._has_topics and not new):
            return
        # A channel without partitions is at its end only if its topics exist.
        if not self._has_topics:
            there = await consumer.topics()
            self._has_topics = all(
                there.get(topic) for topic in self._channel.settings.subscription.topics
            )
        if not self._has_topics:
            # The caller tries again. Missing topics are reported by Reach.
            raise BrokerError("a topic is missing")
        ends = await consumer.end_offsets(list(new)) if new else {}
        for partition, end in read_up_to(client.table.ranges, ends).items():
            new[partition].log.note_run_end(end)
            ranges = new[partition].ranges
            if ranges is not None and end < ranges.end:
                told = RangeBeyondEnd(
                    channel=self.name, partition=partition, until=ranges.end, end=end
                )
                self._observer.on(told)

    def _was_reached(self) -> bool:
        """Return whether a channel that was stopped had reached its end before.

        A hook that is called at the end may have stopped it.
        """
        return self._is_reached or all(
            client.catch_up.is_reached for client in self._channel.session.clients.consumers
        )

    def _is_handled(self, session: ChannelSession) -> bool:
        read = [partition for client in session.clients.consumers for partition in client.table]
        return all(
            partition.tracker is not None and partition.tracker.safe >= _end(partition)
            for partition in read
        )

    async def _are_retries_over(self, session: ChannelSession) -> bool:
        """Return whether all delayed retries are settled."""
        for client in session.clients:
            consumer = client.starts.consumer
            if not client.is_for_retries:
                continue
            if consumer is None:
                return False
            ends = (
                await consumer.end_offsets([partition.id for partition in client.table])
                if len(client.table)
                else {}
            )
            trackers = {
                partition.id: partition.tracker
                for partition in client.table
                if partition.is_read and partition.tracker is not None
            }
            if any(name not in trackers or trackers[name].safe < end for name, end in ends.items()):
                return False
        return True

    def _is_only_held(self, session: ChannelSession) -> bool:
        """Return whether all that is left is held by the application, for as long as a stop takes.

        No handler runs then, no record waits, and no nack is being carried out.
        """
        now = self._clock.monotonic()
        read = [partition for client in session.clients for partition in client.table]
        nacks = sum(
            len(verdicts_of(partition.live).nacks)
            for partition in read
            if partition.live is not None
        )
        busy = nacks + sum(partition.running + partition.queued for partition in read)
        held = session.clients.in_flight()
        if busy or not held or held != self._held:
            if busy or not held:
                self._held = -1
                self._held_since = inf
            else:
                self._held = held
                self._held_since = now
        return now - self._held_since >= self._channel.settings.drain_timeout_s


def _end(partition: Partition) -> float:
    """Where reading ends; infinite until that was asked."""
    return inf if partition.log.run_end is None else partition.log.run_end

"""Connects and polls one client, notices that brokers are away, and replaces a broken client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any

from reactive_kafka.assignment.assignment import Assignment
from reactive_kafka.assignment.lifeline import Lifeline
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Connector, Consumer, RebalanceListener
from reactive_kafka.channel.reach import Reach
from reactive_kafka.channel.session_signals import ClientSignals
from reactive_kafka.channel.stable import StableOffsets
from reactive_kafka.client_metrics.metrics_pusher import MetricsPusher
from reactive_kafka.commit.committer import Committer
from reactive_kafka.config.checks import GroupTimes
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, FencedError
from reactive_kafka.fetching.budget import EMPTY_POLL, PollRequest
from reactive_kafka.fetching.fetcher import Fetcher
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.partitions.client_context import ClientContext
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import (
    Fails,
    Flag,
    Handle,
    Work,
    aligned_wait_s,
    is_set_within,
    log_failure,
)

POLL_S = 0.5
"""The longest wait of one poll. A member has to be polled, even if paused or draining."""

IDLE_POLL_S = 2.0
"""The longest wait after a poll that has brought nothing. Whatever changes what the next poll asks
for wakes it.
"""

CHECK_S = 2.0
"""How often a broker is asked whether it answers."""

UNSURE_CHECK_S = 0.5
"""How soon it is asked again if a topic or a leader is missing, which may just be coming."""

BACKOFF = Backoff(0.25, 5.0)
"""The waits between attempts to connect, before a broken client is replaced, and between polls that
are refused.
"""

STEADY_S = BACKOFF.last_s
"""How long a client has to work without an error before the waits begin again with the shortest. A
connection alone is no progress: a client that connects and breaks would be replaced without a wait.
"""

SILENT_S = 60.0
"""A client is replaced if it hears nothing from its group for so long, beyond the session and a
rebalance, while brokers answer. The client itself has stopped working then."""

CONNECTING = "connecting"
"""Why nothing can be read, before the first attempt to connect has ended."""


class ClientConnection:
    """Keeps one client connected, and makes another one when it breaks.

    Args:
        name: The name of the client, for its id and for logs.
        reader: Makes the Kafka clients.
        pusher: Pushes its metrics. None: they are not pushed.
    """

    def __init__(
        self,
        name: str,
        context: ClientContext,
        reader: Connector,
        signals: ClientSignals,
        *,
        assignment: Assignment,
        starts: PositionLookup,
        committer: Committer,
        fetcher: Fetcher,
        lifeline: Lifeline,
        outages: OutageReports,
        pusher: MetricsPusher | None,
    ) -> None:
        settings = context.settings
        self._name = name
        self._settings = settings
        self._assignment = assignment
        self._pusher = pusher
        self._listener: RebalanceListener = assignment
        if pusher is not None:
            self._listener = pusher.timed(assignment)
        self._starts = starts
        self._committer = committer
        self._fetcher = fetcher
        self._lifeline = lifeline
        self._signals = signals
        self._clock = context.clock
        self._outages = outages
        self._consumer: Consumer | None = None
        # The client of the session before may have been cut off when its channel failed.
        self._is_cut_off = outages.is_away(name)
        self._back_at = -inf
        # Why no broker answers. None: one does.
        self._silence: str | None = CONNECTING
        # Why a broker that answers does not let us read. It is cleared when a client has an
        # assignment and has polled: a new connection alone proves nothing.
        self._refusal: str | None = None
        self._is_closed = False
        # Not set while a client that broke leaves its group.
        self._broken_has_left = Flag()
        self._broken_has_left.set()
        # True: the last poll has brought nothing.
        self._is_idle = False
        # Set by a poll that finds partitions without a position.
        self._lookup_is_due = Flag()
        # The task that polls the client.
        self._poller: asyncio.Task[Any] | None = None
        # Partition -> the task that decides what becomes of it, because it cannot be read.
        self._unreadable: dict[TopicPartition, Handle] = {}
        # A quarter of max_poll_interval_ms. A client that is not polled for that interval leaves
        # its group.
        self._most_wait_s = float(settings.client.get("max_poll_interval_ms", inf)) / 4000
        self._idle_poll_s = min(IDLE_POLL_S, self._most_wait_s)
        self._rebalance_s = GroupTimes.of(settings.client.get).rebalance_s
        self.reach = Reach(
            settings.name,
            starts.table,
            context.observer,
            context.problems,
            tells_topics=name == settings.name,
        )
        self.stable = StableOffsets(settings.name, starts.table, context.observer)
        self._make: Callable[[], Consumer] = lambda: reader.consumer(
            name=name,
            subscription=settings.subscription,
            group_id=settings.group_id,
            properties=_properties(settings),
        )

    async def run(self) -> None:
        """Connect, poll until the client breaks or the channel ends, and connect again."""
        waits = Waits(BACKOFF)
        while not self._is_over():
            consumer = self._make()
            try:
                await consumer.start(self._listener)
            except BrokerError as error:
                self._is_away(str(error))
                await asyncio.sleep(waits.next_s())
                continue
            if self._is_over():
                await consumer.stop()
                return
            self._use(consumer)
            self._is_back()
            began = self._clock.monotonic()
            await self._poll_and_check(consumer)
            if self._clock.monotonic() - began >= STEADY_S:
                waits.progressed()
            if self._consumer is consumer and not self._is_over():
                await self._rebuild(consumer)
                await asyncio.sleep(waits.next_s())

    async def _poll_and_check(self, consumer: Consumer) -> None:
        self._poller = asyncio.current_task()
        channel = self._settings.name
        beside = [
            self._beside(
                lambda: self._check(consumer), f"broker check of {channel}", self._signals.fail
            ),
            self._beside(
                lambda: self._look_up(consumer), f"position lookup of {channel}", self._signals.fail
            ),
        ]
        if (push := self._push_of(consumer)) is not None:
            beside.append(self._beside(push, f"metrics of {channel}", log_failure))
        self._lifeline.begin(consumer)
        try:
            await self._poll(consumer)
        finally:
            self._lifeline.end()
            beside += self._unreadable.values()
            for handle in beside:
                handle.cancel()
            await asyncio.wait([handle.task for handle in beside])
            # A task that was cancelled before it began has not removed itself.
            self._unreadable.clear()
            self._fetcher.stops.failures.deciding.clear()

    def _beside(self, work: Work, name: str, fails: Fails) -> Handle:
        """Start a task that runs beside the polls of a client."""
        return Handle(work, name, fails, self._is_ending)

    def _is_ending(self) -> bool:
        """Return whether the polls, and all that runs beside them, are being cancelled."""
        return self._poller is not None and self._poller.cancelling() > 0

    def _push_of(self, consumer: Consumer) -> Work | None:
        """Return the task that pushes the metrics of a client; None: there is nothing to push."""
        pusher = self._pusher
        receiver = None if pusher is None else consumer.metrics_receiver()
        if pusher is None or receiver is None:
            return None
        return partial(pusher.run, receiver)

    def _is_over(self) -> bool:
        return self._is_closed or self._signals.is_over()

    def _use(self, consumer: Consumer | None) -> None:
        self._consumer = consumer
        self._starts.consumer = consumer
        self._committer.consumer = consumer

    def wake(self) -> None:
        """End the wait of a poll, because partitions may bring other records now."""
        self._fetcher.room.look_again()
        if self._consumer is not None:
            self._consumer.wake()

    def made_progress(self) -> None:
        """Wake the poll because workers have settled records, unless it is too early for that."""
        if not self._fetcher.looks_later:
            self.wake()

    async def close(self) -> None:
        """Leave the group, and poll no more."""
        self._is_closed = True
        consumer = self._consumer
        self._use(None)
        if consumer is None:
            await self._broken_has_left.wait()
            return
        try:
            await self._push_last(consumer)
        finally:
            await consumer.stop()

    async def _push_last(self, consumer: Consumer) -> None:
        """Push the metrics of a client that is about to close, unless no broker answers."""
        if self._pusher is None or self._is_cut_off:
            return
        receiver = consumer.metrics_receiver()
        if receiver is not None:
            await self._pusher.close(receiver)

    async def _rebuild(self, consumer: Consumer) -> None:
        """Release the partitions of a broken client, and close it.

        Its membership ends with it, so nothing can be committed afterwards.
        """
        self._signals.connects()

        async def leave() -> None:
            self._use(None)
            self.reach.over()
            self.stable.found({}, 0.0, 0.0)
            self._broken_has_left.clear()
            try:
                await consumer.stop()
            finally:
                self._broken_has_left.set()

        await self._assignment.lose(leave)

    async def _poll(self, consumer: Consumer) -> None:
        """Poll until the channel ends or the client breaks, also while draining: a member must."""
        waits = Waits(BACKOFF)
        failed_at = -inf
        while self._consumer is consumer:
            if self._has_stopped(consumer):
                self._breaks(
                    "the client has not heard from its group for a long time, although "
                    "brokers answer"
                )
                return
            try:
                await self._poll_once(consumer)
            except FatalBrokerError as error:
                if isinstance(error, FencedError):
                    self._signals.fail(error)
                else:
                    self._breaks(str(error))
            except BrokerError as error:
                if self._consumer is consumer:
                    self._breaks(str(error))
                return
            except Exception as error:
                # A bug of ours, or of the client. It stops this channel, and no other.
                self._signals.fail(error)
            else:
                if self._refusal is not None and self._signals.is_joined:
                    self._refusal = None
                    self._tell_back()
                continue
            if self._clock.monotonic() - failed_at >= STEADY_S + BACKOFF.last_s:
                waits.progressed()
            failed_at = self._clock.monotonic()
            await asyncio.sleep(min(waits.next_s(), self._most_wait_s))

    def _has_stopped(self, consumer: Consumer) -> bool:
        """Return whether the client has heard nothing from its group for too long.

        Brokers answer meanwhile, and no rebalance can take so long.
        """
        if self._is_cut_off:
            return False
        silent_s = self._clock.monotonic() - max(consumer.session_ends_at(), self._back_at)
        return silent_s >= SILENT_S + self._rebalance_s

    def _breaks(self, reason: str) -> None:
        """Note why this client cannot be used, although brokers answer."""
        self._refusal = reason
        self._tell_away(reason)

    async def _poll_once(self, consumer: Consumer) -> None:
        if not self._starts.are_done:
            self._lookup_is_due.set()
        asked = self._fetcher.plan_poll(consumer) if self._signals.is_taking() else EMPTY_POLL
        wait_s = self._wait_s(asked)
        poll = await consumer.poll(asked.budgets, wait_s, asked.most, asked.byte_room)
        self._is_idle = not poll.chunks and not poll.errors
        self._fetcher.intake.take(poll)
        for partition, error in poll.errors.items():
            if partition not in self._unreadable:
                self._decide_on(partition, error)
        if poll.chunks:
            self._committer.records_came()
            # The workers run first, so that the next poll knows what room there is, and fills all
            # of it at once.
            await asyncio.sleep(0)

    def _decide_on(self, name: TopicPartition, error: BrokerError) -> None:
        """Decide what becomes of a partition that a poll could not read.

        That may take an answer of its broker. Polls go on meanwhile with the other partitions.
        """

        failures = self._fetcher.stops.failures
        failures.deciding.add(name)
        partition = self._starts.table.get(name)
        tracker = None if partition is None else partition.tracker

        async def decide() -> None:
            try:
                fatal = await failures.cannot_read(name, error, tracker)
            finally:
                self._unreadable.pop(name, None)
                failures.deciding.discard(name)
            if fatal is not None:
                self._signals.fail(fatal)
            self.wake()

        self._unreadable[name] = self._beside(decide, f"{name} cannot be read", self._signals.fail)

    async def _look_up(self, consumer: Consumer) -> None:
        """Look up where to read whenever a poll finds partitions without a position.

        It may take long, if a coordinator or a store is slow. Polls go on meanwhile with the
        partitions that have a position.
        """
        while True:
            await self._lookup_is_due.wait()
            self._lookup_is_due.clear()
            read_before = self._starts.table.reading
            await self._starts.find()
            self._fetcher.room.look_again()
            if self._starts.table.reading is not read_before:
                # A poll that began before asks for none of those that are read since.
                consumer.wake()

    def _wait_s(self, asked: PollRequest) -> float:
        """How long a poll may wait for records."""
        if asked.again_s is not None:
            return asked.again_s
        is_steady = self._starts.are_done and self._signals.is_taking() and not asked.left_out
        if not (self._is_idle and is_steady and not self._is_cut_off):
            return POLL_S
        return aligned_wait_s(max(POLL_S, self._idle_poll_s), self._clock.monotonic())

    async def _check(self, consumer: Consumer) -> None:
        """Ask a broker now and then whether it answers. The client itself reports no outage."""
        while True:
            wait_s = UNSURE_CHECK_S if self.reach.is_unsure else CHECK_S
            await is_set_within(
                self._signals.look_soon, aligned_wait_s(wait_s, self._clock.monotonic())
            )
            self._signals.look_soon.clear()
            asked_at = self._clock.monotonic()
            try:
                await consumer.check()
            except BrokerError as error:
                self._is_away(str(error))
                continue
            self._is_back()
            try:
                sight = await consumer.look(self._starts.table.ours)
                now = self._clock.monotonic()
                self.reach.found(sight, asked_at, now)
                self.stable.found(sight.held_up, asked_at, now)
                await self._starts.look_at_topics()
                # Last, because one partition without an answer is enough for it to fail.
                await self._ask_ends(consumer)
            except BrokerError:
                # Only the lag of some partitions is old now. The next check reports an outage.
                pass

    async def _ask_ends(self, consumer: Consumer) -> None:
        """Ask for the ends of partitions that are not fetched: no answer of a fetch names these.

        Raises:
            BrokerError: The broker did not answer.
        """
        table = self._starts.table
        silent = {
            partition.id: partition
            for partition in table
            if partition.live is not None
            and (partition.fetch.is_paused or partition.log.end is None)
            # A leader that does not answer would hold up the rest of the check.
            and partition.log.leader_away is None
        }
        if silent:
            for partition, end in (await consumer.end_offsets(list(silent))).items():
                silent[partition].log.note_end(end)

    def _is_away(self, reason: str) -> None:
        """Note that no broker answers, and why."""
        self._silence = reason
        self._tell_away(reason)

    def _is_back(self) -> None:
        """Note that a broker answers."""
        self._silence = None
        self._tell_back()

    def _tell_away(self, reason: str) -> None:
        if self._is_closed:
            # The next session may have a client of this name already.
            return
        self._is_cut_off = True
        self._outages.away(self._name, reason, self._clock.monotonic())

    def _tell_back(self) -> None:
        if self.broker_error is not None or not self._is_cut_off or self._is_closed:
            return
        self._is_cut_off = False
        self._back_at = self._clock.monotonic()
        self._outages.back(self._name, self._back_at)

    @property
    def broker_error(self) -> str | None:
        """Why nothing can be read. None: it can."""
        return self._silence or self._refusal


def _properties(settings: IncomingSettings) -> Mapping[str, object]:
    properties = {**settings.client, "max_unpacked_bytes": settings.max_unpacked_bytes}
    if not settings.enable_auto_commit:
        return properties
    interval_ms = round(settings.commit_interval_s * 1000)
    return {**properties, "enable_auto_commit": True, "auto_commit_interval_ms": interval_ms}

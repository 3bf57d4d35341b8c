"""The connection of one client: connects, polls, notices that brokers are away, and replaces a
client that breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf

from reactive_kafka.assignment.assignment import Assignment
from reactive_kafka.assignment.lifeline import Lifeline
from reactive_kafka.assignment.position_lookup import PositionLookup
from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Consumer
from reactive_kafka.channel.client_parts import ClientParts
from reactive_kafka.channel.reach import Reach
from reactive_kafka.channel.signals import ClientSignals
from reactive_kafka.channel.stable import StableOffsets
from reactive_kafka.commit.committer import Committer
from reactive_kafka.config.checks import GroupTimes
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import BrokerError, FatalBrokerError, FencedError
from reactive_kafka.fetching.budget import EMPTY_POLL, PollRequest
from reactive_kafka.fetching.fetcher import Fetcher
from reactive_kafka.tasks import Handle, ends_with_others, is_set_within

POLL_S = 0.5
"""Longest wait of one poll: the client must be polled all the time, paused or draining."""

IDLE_POLL_S = 2.0
"""The same where the last poll has brought nothing, and only what wakes a poll could change what
this one asks for.
"""

CHECK_S = 2.0
"""How often a broker is asked whether it is there."""

UNSURE_CHECK_S = 0.5
"""How soon it is asked again where a topic or a leader is missing: it may be about to be made, or
elected.
"""

BACKOFF = Backoff(0.25, 5.0)
"""Between attempts to connect, between two clients of which the first breaks, and between polls
that are refused.
"""

STEADY_S = BACKOFF.last_s
"""A client that has worked for so long without an error has made progress. A connection alone is no
progress: a client that connects and then breaks would be replaced without a pause."""

SILENT_S = 60.0
"""The client is replaced if the group is silent for so long beyond the session and a rebalance,
while brokers answer. Then the client itself has stopped working."""

CONNECTING = "connecting"
"""The reason as long as nothing else is known."""


class Connection:
    """Keeps a consumer, from one client to the next; *name* is the client's, for its id and
    logs.
    """

    def __init__(
        self,
        name: str,
        parts: ClientParts,
        assignment: Assignment,
        starts: PositionLookup,
        committer: Committer,
        fetcher: Fetcher,
        lifeline: Lifeline,
        signals: ClientSignals,
    ) -> None:
        self._settings = settings = parts.settings
        self._assignment = assignment
        self._starts = starts
        self._committer = committer
        self._fetcher = fetcher
        self._lifeline = lifeline
        self._signals = signals
        self._clock = parts.clock
        self._outages = parts.outages
        self._consumer: Consumer | None = None
        self._is_cut_off = False
        self._back_at = -inf
        # Why no broker answers.
        self._silence: str | None = CONNECTING
        # Why a broker that answers does not let us read. Over once a client is assigned and has
        # polled: to connect again says nothing.
        self._refusal: str | None = None
        self._is_closed = False
        # The last poll has brought nothing.
        self._is_idle = False
        # A quarter of max_poll_interval_ms: the client leaves the group if it is not polled for
        # that long.
        self._most_wait_s = float(settings.client.get("max_poll_interval_ms", inf)) / 4000
        self._idle_poll_s = min(IDLE_POLL_S, self._most_wait_s)
        self._rebalance_s = GroupTimes.of(settings.client.get).rebalance_s
        self.reach = Reach(
            settings.name, starts.table, parts.observer, tells_topics=name == settings.name
        )
        self.stable = StableOffsets(settings.name, starts.table, parts.observer)
        self._make: Callable[[], Consumer] = lambda: parts.reader.consumer(
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
                await consumer.start(self._assignment)
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
        poller = asyncio.current_task()
        is_ending = lambda: poller is not None and poller.cancelling() > 0  # noqa: E731
        name = f"broker check of {self._settings.name}"
        check = Handle(lambda: self._check(consumer), name, self._signals.fail, is_ending)
        self._lifeline.begin(consumer)
        try:
            await self._poll(consumer)
        finally:
            self._lifeline.end()
            check.cancel()
            await asyncio.wait([check.task])

    def _is_over(self) -> bool:
        return self._is_closed or self._signals.is_over()

    def _use(self, consumer: Consumer | None) -> None:
        self._consumer = self._starts.consumer = self._committer.consumer = consumer

    def wake(self) -> None:
        """Have what the partitions may bring looked at again."""
        self._fetcher.room.look_again()
        if self._consumer is not None:
            self._consumer.wake()

    def made_progress(self) -> None:
        """Workers have settled records: the same, unless it is too early to look for room."""
        if not self._fetcher.looks_later:
            self.wake()

    async def close(self) -> None:
        """Leave the group, and poll no more."""
        self._is_closed = True
        consumer = self._consumer
        self._use(None)
        if consumer is not None:
            await consumer.stop()

    async def _rebuild(self, consumer: Consumer) -> None:
        """The client is of no use any more. Its membership ends with it, so nothing can be
        committed after.
        """
        self._signals.connects()

        async def leave() -> None:
            self._use(None)
            self.reach.over()
            self.stable.found({}, 0.0, 0.0)
            await consumer.stop()

        await self._assignment.lose(leave)

    async def _poll(self, consumer: Consumer) -> None:
        """Poll until the channel ends or the client breaks. It is polled while draining too: a
        member must be.
        """
        waits = Waits(BACKOFF)
        failed_at = -inf
        while self._consumer is consumer:
            if self._has_stopped(consumer):
                self._breaks(
                    "the client has not heard from its group for long, though brokers answer"
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
                # A bug, of ours or of the client: it stops this channel, and no other.
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
        """Whether a client that reaches brokers has not heard from its group for longer than
        anything may take.
        """
        if self._is_cut_off:
            return False
        silent_s = self._clock.monotonic() - max(consumer.session_ends_at(), self._back_at)
        return silent_s >= SILENT_S + self._rebalance_s

    def _breaks(self, reason: str) -> None:
        """A broker answers, and this client cannot go on."""
        self._refusal = reason
        self._tell_away(reason)

    async def _poll_once(self, consumer: Consumer) -> None:
        if not self._starts.are_done:
            await self._starts.find()
            self._fetcher.room.look_again()
        asked = self._fetcher.plan_poll(consumer) if self._signals.is_taking() else EMPTY_POLL
        poll = await consumer.poll(asked.budgets, self._wait_s(asked), asked.most)
        self._is_idle = not poll.chunks and not poll.errors
        self._fetcher.intake.take(poll)
        if poll.chunks:
            self._committer.records_came()
            # The workers first: then one poll fills all that they have emptied.
            await asyncio.sleep(0)
        for partition, error in poll.errors.items():
            if (
                fatal := await self._fetcher.stops.failures.cannot_read(partition, error)
            ) is not None:
                self._signals.fail(fatal)

    def _wait_s(self, asked: PollRequest) -> float:
        """How long a poll may wait for records."""
        if asked.again_s is not None:
            return asked.again_s
        is_steady = self._starts.are_done and self._signals.is_taking() and not asked.left_out
        if not (self._is_idle and is_steady and not self._is_cut_off):
            return POLL_S
        return ends_with_others(max(POLL_S, self._idle_poll_s), self._clock.monotonic())

    async def _check(self, consumer: Consumer) -> None:
        """Ask for a broker now and then; the client itself is silent about their absence."""
        while True:
            wait_s = UNSURE_CHECK_S if self.reach.is_unsure else CHECK_S
            await is_set_within(
                self._signals.look_soon, ends_with_others(wait_s, self._clock.monotonic())
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
                await self._ask_ends(consumer)
                await self._starts.look_at_topics()
            except BrokerError:
                # Only the lag of some is old meanwhile; the next check says whether a broker is
                # there.
                pass

    async def _ask_ends(self, consumer: Consumer) -> None:
        """Partitions that are not fetched tell nothing about their log's end: ask. BrokerError
        without an answer.
        """
        table = self._starts.table
        silent = {
            one.id: one
            for one in table
            if one.live is not None and (one.fetch.is_paused or one.log.end is None)
        }
        if silent:
            for partition, end in (await consumer.end_offsets(list(silent))).items():
                silent[partition].log.note_end(end)

    def _is_away(self, reason: str) -> None:
        """No broker answers."""
        self._silence = reason
        self._tell_away(reason)

    def _is_back(self) -> None:
        """A broker answers."""
        self._silence = None
        self._tell_back()

    def _tell_away(self, reason: str) -> None:
        self._is_cut_off = True
        self._outages.away(self, reason, self._clock.monotonic())

    def _tell_back(self) -> None:
        if self.broker_error is not None or not self._is_cut_off:
            return
        self._is_cut_off = False
        self._back_at = self._clock.monotonic()
        self._outages.back(self, self._back_at)

    @property
    def broker_error(self) -> str | None:
        """Why nothing can be read; None: it can."""
        return self._silence or self._refusal


def _properties(settings: IncomingSettings) -> Mapping[str, object]:
    properties = {**settings.client, "max_unpacked_bytes": settings.max_unpacked_bytes}
    if not settings.enable_auto_commit:
        return properties
    interval_ms = round(settings.commit_interval_s * 1000)
    return {**properties, "enable_auto_commit": True, "auto_commit_interval_ms": interval_ms}

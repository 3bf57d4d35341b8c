"""The life of an incoming channel, from its start to its end, through failures and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from reactive_kafka.channel.after import has_waiting
from reactive_kafka.channel.blueprint import ByIteration, ChannelBlueprint
from reactive_kafka.channel.channel_facts import channel_facts, partition_facts
from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.named_functions import rate_value_of
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.channel.switch import Switch
from reactive_kafka.channel.totals import ChannelTotals
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.delivery.lanes.limits import TokenBucket
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.delivery.lanes.rates_by_value import BucketsByValue
from reactive_kafka.errors import ChannelClosedError, text_of
from reactive_kafka.fetching.record_skips import RecordSkips
from reactive_kafka.observe.events import ChannelPaused, ConsumersIdle, EndFailed
from reactive_kafka.observe.facts import ChannelFacts, PartitionFacts
from reactive_kafka.observe.outages import OutageReports
from reactive_kafka.tasks import outcome_of, outcome_text

NOT_ENABLED = "not started: enabled = false"
"""Why a channel is stopped that the application did not start."""

STORE_CLOSED_S = 5.0
"""How long a checkpoint store may take to close."""


class ChannelLifecycle:
    """Starts and ends one incoming channel for the application. Users hold its ``Channel``.

    Whatever fails a channel (a nack, poison, a partition without a position), it releases its
    partitions as in a stop. So what was acked is committed, and other members take over.
    """

    def __init__(self, blueprint: ChannelBlueprint) -> None:
        self.blueprint = blueprint
        self.settings = blueprint.settings
        self.name = blueprint.settings.name
        self.services = blueprint.services
        # The application iterates over it; no worker takes its records.
        self.is_iterated = isinstance(blueprint.consumption, ByIteration)
        self._clock = blueprint.services.clock
        self._observer = blueprint.services.observer
        rate = self.settings.rate_limit
        self._totals = ChannelTotals(
            commits=CommitOutcomes(durations=blueprint.commit_durations),
            limit=None if rate is None or rate.by else TokenBucket(rate.per_second),
            value_limit=None
            if rate is None or rate.by is None
            else BucketsByValue(rate.per_second, rate_value_of(rate.by)),
        )
        self.status = ChannelStatus(self.settings, self._clock, self._observer)
        # The next session reports the end of an outage that the session before has reported.
        self._outages = OutageReports(self.name, self._observer)
        # A restart makes another one.
        self.session = self._new_session()
        self.switch = Switch(self)
        # How many idle consumers were reported last.
        self._idle_told = 0
        # The partitions as they were when the channel failed. None: it has not failed.
        self._last_partitions: tuple[PartitionFacts, ...] | None = None

    def _new_session(self) -> ChannelSession:
        return ChannelSession(
            self.blueprint,
            self._totals,
            self.status,
            fail=self.fail,
            exit=self._exit,
            joined=self._joined,
            facts=self.facts,
            outages=self._outages,
        )

    def start(self) -> None:
        """Start the channel's tasks. They connect, and keep trying while no broker answers."""
        self.status.change("connect")
        self.session.start()

    def stay_stopped(self) -> None:
        """Leave the channel stopped, because it is not enabled. A call may start it."""
        self.status.stop_for(NOT_ENABLED)
        self.status.change("stop")
        self.status.change("stopped")

    async def quiesce(self, deadline: float) -> None:
        """Stop fetching and calling handlers, and wait for those that run.

        Args:
            deadline: Until when they are waited for (monotonic).
        """
        self.status.end()
        await self.switch.over(deadline - self._clock.monotonic())
        if self.status.state != "stopped":
            await self.drain(deadline)

    async def drain(self, deadline: float) -> None:
        """Take no new records, and wait for the handlers that run until *deadline* (monotonic)."""
        if self.status.state == "failed":
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    await self.session.signals.has_left.wait()
            except TimeoutError:
                # Handlers that still run are left behind, as in any stop.
                pass
        self.status.change("stop")
        # This comes before stop_retrying(): a worker whose wait ends would take another record.
        self.session.clients.take_nothing_new()
        # An application that iterates leaves its loop, and may still settle its messages.
        self.session.stop_retrying()
        await self.session.clients.drain(deadline, to_the_end=True)

    async def finish(self, deadline: float) -> None:
        """Release the partitions with a last commit, leave the group, and close."""
        # The stack takes every step, whatever the others raise, the last one pushed first.
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._close_store)
            if self.status.state != "stopped":
                await self.release_and_leave(deadline)

    async def release_and_leave(self, deadline: float) -> None:
        """Release the partitions with a last commit, leave the group, and be stopped."""
        session = self.session
        # The stack takes every step, whatever the others raise, the last one pushed first.
        async with AsyncExitStack() as steps:
            steps.callback(session.arrival.set)
            steps.callback(self.status.change, "stopped")
            steps.push_async_callback(session.leave)
            # Relay events of the outbox while we still own the partitions. Their next owner relays
            # the rest.
            await session.hook.flush(deadline)
            await session.clients.release(deadline)

    async def _close_store(self) -> None:
        """Close the checkpoint store; an error or a timeout is reported."""
        store = self.blueprint.positions.store
        if store is None:
            return
        error = await outcome_of(store.close, f"close the store of {self.name}", STORE_CLOSED_S)
        if error is not None:
            self.report_failed_end("closing the checkpoint store", error)

    def report_failed_end(self, doing: str, error: BaseException) -> None:
        """Report what has gone wrong while the channel ends. The end continues."""
        self._observer.on(
            EndFailed(channel=self.name, doing=doing, reason=outcome_text(error), error=error)
        )

    def fail(self, reason: BaseException) -> bool:
        """Stop only this channel. What is settled is committed.

        Returns:
            False if the channel was stopping, or had failed before.
        """
        if not self.status.fail(reason):
            return False
        session = self.session
        session.acknowledger.failure = reason
        # At once: no record may be handled before the failed one, which comes again.
        session.clients.take_nothing_new()
        session.arrival.set()
        self.status.tell_failure(
            self.status.why_failed(self._clock.monotonic()) or text_of(reason), reason
        )
        session.spawn(lambda: self._end_after_failure(session), f"end of {self.name}")
        return True

    async def _end_after_failure(self, session: ChannelSession) -> None:
        """End a session that has failed, and begin the next one if the channel restarts."""
        session.stop_retrying()
        session.guard.interrupt()
        task = asyncio.current_task()
        try:
            await self._leave_after_failure(session)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or (task is not None and task.cancelling()):
                # The event loop ends, and with it this task.
                raise
            self.report_failed_end("leaving", error)
        await self._restart_after_wait(session)

    async def _leave_after_failure(self, session: ChannelSession) -> None:
        """Drain, release the partitions with a last commit, and leave the group."""
        deadline = self._clock.monotonic() + self.settings.drain_timeout_s
        # The stack takes every step, whatever the others raise, the last one pushed first.
        async with AsyncExitStack() as steps:
            steps.callback(session.arrival.set)
            steps.callback(session.signals.has_left.set)
            steps.push_async_callback(session.leave)
            steps.callback(self._note_partitions, session)
            steps.push_async_callback(self._release, session, deadline)
            steps.callback(session.guard.leave)
            await session.clients.drain(deadline)

    async def _release(self, session: ChannelSession, deadline: float) -> None:
        await session.clients.release(
            min(deadline, self._clock.monotonic() + self.settings.revoke_grace_s)
        )

    def _note_partitions(self, session: ChannelSession) -> None:
        """Keep the facts of the partitions, which are gone when the client has left the group."""
        self._last_partitions = partition_facts(session, self._clock.monotonic(), also_left=True)

    async def _restart_after_wait(self, session: ChannelSession) -> None:
        """Restart when the wait is over.

        Nothing happens if the application stops, or if the channel was restarted by hand meanwhile.
        """
        if self.status.restarts_at is not None:
            await session.workers.over()
        # restarts_at is read again after each wait: a stop, or a restart by hand, removes it.
        if self.status.restarts_at is not None:
            await asyncio.sleep(max(0.0, self.status.restarts_at - self._clock.monotonic()))
        if self.status.restarts_at is not None and self.session is session:
            self.start_new_session()

    async def restart(self) -> None:
        """Restart a channel that has failed, by hand. Raises as ``Channel.restart`` does."""
        session = self.session
        status = self.status
        if status.state == "failed":
            await session.signals.has_left.wait()
            await session.workers.over()
            if self.session is not session:
                # Another caller has restarted the channel meanwhile.
                return
        is_stopping = status.is_ending or (status.stopped_by and status.state != "stopped")
        if status.state != "failed" or is_stopping:
            state = "stopping" if is_stopping else status.state
            raise ChannelClosedError(
                f"channel {self.name!r} is {state}: restart() is for one that has failed"
            )
        status.forget_attempts()
        self.start_new_session()

    def stopped_by_hand(self) -> None:
        """Note that the channel was stopped by hand. Its session reaches it no more."""
        self.session.signals.has_left.set()
        self._last_partitions = None
        self.status.failure = None

    def start_new_session(self) -> None:
        """Begin another session."""
        before = self.session
        self._last_partitions = None
        self.session = self._new_session()
        self.status.restart()
        self.session.start()
        # It wakes an application that iterates, which continues with the new session.
        before.arrival.set()

    def _joined(self) -> None:
        """Note that a client has its assignment."""
        clients = self.session.clients
        self.status.has_joined = self.status.has_joined or clients.have_joined
        if clients.are_joined:
            self.status.join()
        idle = clients.idle_consumers
        # It is reported once, until the number changes.
        if idle and idle != self._idle_told:
            self._observer.on(
                ConsumersIdle(channel=self.name, idle=idle, consumers=self.settings.consumers)
            )
        if idle is not None:
            self._idle_told = idle

    def _exit(self, reason: BaseException) -> None:
        """End the process, because a handler or a hook asked for it."""
        # Taking records stops at once, and not with the stop that follows. The handler that raised
        # SystemExit has not settled its record, so no record behind it may be handled.
        self.session.clients.take_nothing_new()
        self.services.exit(reason)

    @property
    def is_ready(self) -> bool:
        return self.status.state == "running" and self.session.clients.is_positioned

    def has_waiting(self) -> bool:
        """Return whether records wait here that channels with ``after`` wait for.

        A channel that has stopped or failed, or has not been started, has none.
        """
        return self.status.is_taking and has_waiting(self.session.clients)

    @property
    def is_paused(self) -> bool:
        return bool(self._totals.pauses.reasons)

    @property
    def skips(self) -> RecordSkips:
        """The records that are skipped when they come."""
        return self._totals.skips

    def change_pauses(self, change: Callable[[Pauses], None]) -> None:
        """Pause or resume. The change is in effect when this returns."""
        pauses = self._totals.pauses
        before = pauses.reasons, pauses.partitions
        change(pauses)
        self.session.pauses_changed()
        if (pauses.reasons, pauses.partitions) != before:
            self._observer.on(
                ChannelPaused(
                    channel=self.name, reasons=pauses.reasons, partitions=pauses.partitions
                )
            )

    def facts(self) -> ChannelFacts:
        now = self._clock.monotonic()
        return channel_facts(
            self.settings,
            self.status,
            self.session,
            self._totals,
            self._last_partitions,
            now,
            self.blueprint.handlers,
        )

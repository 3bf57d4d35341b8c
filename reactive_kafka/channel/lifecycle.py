"""The life of an incoming channel: from its start to its end, through failures and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from reactive_kafka.channel.session import ChannelSession, channel_facts, partition_facts
from reactive_kafka.channel.spec import ChannelSpec, ChannelTotals
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.channel.switch import Switch
from reactive_kafka.delivery.lanes.limits import TokenBucket
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.errors import ChannelClosedError, text_of
from reactive_kafka.observe.events import ChannelPaused, ConsumersIdle, EndFailed
from reactive_kafka.observe.facts import ChannelFacts, PartitionFacts
from reactive_kafka.tasks import outcome_of, told_of

NOT_ENABLED = "not started: enabled = false"
"""Why a channel stands while the application goes on."""

STORE_CLOSED_S = 5.0
"""How long a checkpoint store may take to close."""


class ChannelLifecycle:
    """What the application starts, ends and asks of one incoming channel; users hold its
    ``Channel``.
    """

    def __init__(self, spec: ChannelSpec) -> None:
        self.spec = spec
        self.settings = spec.settings
        self.name = spec.settings.name
        self._clock = spec.services.clock
        self._observer = spec.services.observer
        rate = self.settings.rate_limit
        self._totals = ChannelTotals(limit=None if rate is None else TokenBucket(rate.per_second))
        self.status = ChannelStatus(self.settings, self._clock, self._observer)
        # A restart makes another.
        self.session = self._new_session()
        self.switch = Switch(self)
        self._idle_told = 0
        # As the channel left them when it failed.
        self._last_partitions: tuple[PartitionFacts, ...] | None = None

    def _new_session(self) -> ChannelSession:
        return ChannelSession(
            self.spec,
            self._totals,
            self.status,
            fail=self.fail,
            exit=self._exit,
            joined=self._joined,
        )

    def start(self) -> None:
        """Start the channel's tasks; they connect, and go on trying while no broker answers."""
        self.status.change("connect")
        self.session.start()

    def leave_off(self) -> None:
        """Do not start it: that is for a call to do."""
        self.status.stop_for(NOT_ENABLED)
        self.status.change("stop")
        self.status.change("stopped")

    async def quiesce(self, deadline: float) -> None:
        """Stop fetching and calling handlers, and wait for those that run, until *deadline*
        (monotonic).
        """
        self.status.end()
        await self.switch.over(deadline - self._clock.monotonic())
        if self.status.state != "stopped":
            await self.drain(deadline)

    async def drain(self, deadline: float) -> None:
        """Take nothing new, and wait for the handlers that run, until *deadline* (monotonic)."""
        if self.status.state == "failed":
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    await self.session.signals.has_let_go.wait()
            except TimeoutError:
                # What still runs is left behind, as in any stop.
                pass
        self.status.change("stop")
        # Before the waits between attempts end: a worker whose wait has ended would take another
        # record.
        self.session.clients.take_nothing_new()
        # An application that iterates comes to its end and may settle its messages.
        self.session.stop_retrying()
        await self.session.clients.drain(deadline, to_the_end=True)

    async def finish(self, deadline: float) -> None:
        """Release the partitions with a last commit, leave the group, and close."""
        # Every step is taken, whatever those before it raise.
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._close_store)
            if self.status.state != "stopped":
                await self.let_all_go(deadline)

    async def let_all_go(self, deadline: float) -> None:
        """Release the partitions with a last commit, and leave the group; the channel is stopped
        then.
        """
        session = self.session
        # Every step is taken, whatever those before it raise.
        async with AsyncExitStack() as steps:
            steps.callback(session.arrival.set)
            steps.callback(self.status.change, "stopped")
            steps.push_async_callback(session.leave)
            await session.clients.release(deadline)

    async def _close_store(self) -> None:
        """Close the checkpoint store; an error or a timeout is reported."""
        if self.spec.checkpoint is None:
            return
        close = self.spec.checkpoint.store.close
        error = await outcome_of(close, f"close the store of {self.name}", STORE_CLOSED_S)
        if error is not None:
            self.tell_end_failed("closing the checkpoint store", error)

    def tell_end_failed(self, doing: str, error: BaseException) -> None:
        """Tell what has gone wrong in an end, which goes on."""
        self._observer.on(
            EndFailed(channel=self.name, doing=doing, reason=told_of(error), error=error)
        )

    def fail(self, reason: BaseException) -> bool:
        """Stop only this channel: what is settled is committed. False if it was stopping or had
        failed before.
        """
        if not self.status.fail(reason):
            return False
        session = self.session
        session.acknowledger.failure = reason
        # At once: no record may overtake the failed one.
        session.clients.take_nothing_new()
        session.arrival.set()
        self.status.tell_failure(
            self.status.why_failed(self._clock.monotonic()) or text_of(reason), reason
        )
        session.spawn(lambda: self._let_go(session), f"end of {self.name}")
        return True

    async def _let_go(self, session: ChannelSession) -> None:
        session.stop_retrying()
        session.guard.interrupt()
        task = asyncio.current_task()
        try:
            await self._take_leave(session)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or (task is not None and task.cancelling()):
                # The loop ends.
                raise
            self.tell_end_failed("leaving", error)
        await self._come_back(session)

    async def _take_leave(self, session: ChannelSession) -> None:
        deadline = self._clock.monotonic() + self.settings.drain_timeout_s
        # Every step is taken, whatever those before it raise.
        async with AsyncExitStack() as steps:
            steps.callback(session.arrival.set)
            steps.callback(session.signals.has_let_go.set)
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
        """Keep the partitions for the facts: they are forgotten when the client leaves the
        group.
        """
        self._last_partitions = partition_facts(session, self._clock.monotonic(), also_left=True)

    async def _come_back(self, session: ChannelSession) -> None:
        """Restart when the wait is over, unless the application ends or somebody has restarted the
        channel.
        """
        if self.status.restarts_at is not None:
            await session.workers.over()
        # Read again after each wait: a stop, or a restart by hand, takes it away.
        if self.status.restarts_at is not None:
            await asyncio.sleep(max(0.0, self.status.restarts_at - self._clock.monotonic()))
        if self.status.restarts_at is not None and self.session is session:
            self.start_anew()

    async def restart(self) -> None:
        """Restart a channel that has failed, by hand. Raises as ``Channel.restart`` does."""
        session = self.session
        status = self.status
        if status.state == "failed":
            await session.signals.has_let_go.wait()
            await session.workers.over()
            if self.session is not session:
                # Somebody else has restarted it.
                return
        is_stopping = status.is_ending or (status.stopped_by and status.state != "stopped")
        if status.state != "failed" or is_stopping:
            raise ChannelClosedError(
                f"channel {self.name!r} is {'stopping' if is_stopping else status.state}: "
                "restart() is for one that has failed"
            )
        status.forget_attempts()
        self.start_anew()

    def has_stopped(self) -> None:
        """It was stopped by hand: what is left of its session is not heard any more."""
        self.session.signals.has_let_go.set()
        self._last_partitions = self.status.failure = None

    def start_anew(self) -> None:
        """Go on with another session."""
        before = self.session
        self._last_partitions = None
        self.session = self._new_session()
        self.status.restart()
        self.session.start()
        # An application that iterates goes on with the new one.
        before.arrival.set()

    def _joined(self) -> None:
        """A client has its assignment."""
        clients = self.session.clients
        self.status.has_joined = self.status.has_joined or clients.have_joined
        if clients.are_joined:
            self.status.join()
        idle = clients.idle_consumers
        # Told once, for as long as it is so.
        if idle and idle != self._idle_told:
            self._observer.on(
                ConsumersIdle(channel=self.name, idle=idle, consumers=self.settings.consumers)
            )
        if idle is not None:
            self._idle_told = idle

    def _exit(self, reason: BaseException) -> None:
        """A handler or a hook asked the process to end."""
        # At once, and not with the stop that follows: the handler that raised SystemExit has not
        # settled its record, and no record behind it may be handled by a process that is about to
        # end.
        self.session.clients.take_nothing_new()
        self.spec.services.exit(reason)

    @property
    def is_ready(self) -> bool:
        return self.status.state == "running" and self.session.clients.is_positioned

    @property
    def is_paused(self) -> bool:
        return bool(self._totals.pauses.reasons)

    def change_pauses(self, change: Callable[[Pauses], None]) -> None:
        """Pause or resume; the change is in effect when this returns."""
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
            self.settings, self.status, self.session, self._totals, self._last_partitions, now
        )

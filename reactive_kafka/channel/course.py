"""The course of an incoming channel: its states from the start to the end, failing and coming back."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.facts import Condition, channel_facts, partition_facts
from reactive_kafka.channel.lifecycle import Comebacks, transition
from reactive_kafka.channel.offsets import ChannelOffsets
from reactive_kafka.channel.session import ChannelParts, ChannelSession, ChannelTotals
from reactive_kafka.checkpoint.codec import Codec
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.clock import Clock
from reactive_kafka.commit.strategy import strategy_for
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.workers import Workers, WorkerSetup
from reactive_kafka.errors import ChannelClosedError, describe, text_of
from reactive_kafka.observe.events import (
    ChannelFailed,
    ChannelStateChanged,
    ConsumersIdle,
    EndFailed,
    HandlerRetried,
    Observer,
)
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.partitions.assignment import Hooks
from reactive_kafka.records import RawRecord
from reactive_kafka.tasks import Tasks, outcome_of, told_of
from reactive_kafka.verdicts.delivery import D, Delivery

STORE_CLOSED_S = 5.0
"""How long a checkpoint store may take to close."""


class ChannelLifecycle:
    """What one incoming channel goes through; its users' face is :class:`reactive_kafka.Channel`.

    Args:
        tasks: The application's; those of the channel fail the channel.
        make_workers: Makes the channel's dispatcher; None: the application iterates.
        key_of: What records are ordered by, with ``ordering = "key"``.
        on_exit: A handler or a hook asked the process to end.
        reader: Makes the clients that read the channel's own topics; None: *connector*.
        keeps_plans: Its records are run in ranges that outlive a crash.
        store: Of its positions and states, with ``commit_strategy = "checkpoint"``; closed at the end.
        codec: Of the states in it.

    Raises:
        ConfigError: A strategy of the application's cannot be made.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        connector: Connector,
        clock: Clock,
        observer: Observer,
        tasks: Tasks,
        *,
        decode: Callable[[bytes | None], Any] | None = None,
        decode_key: Callable[[bytes | None], Any] | None = None,
        hooks: Hooks | None = None,
        make_workers: Callable[[Self, WorkerSetup], Workers] | None = None,
        key_of: Callable[[RawRecord], Hashable] | None = None,
        on_exit: Callable[[BaseException], None] | None = None,
        reader: Connector | None = None,
        keeps_plans: bool = False,
        store: CheckpointStore | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.strategy = strategy_for(settings)
        self._clock = clock
        self._observer = observer
        self._decode = decode
        self._on_exit = on_exit
        self._is_iterated = make_workers is None
        self._parts = ChannelParts(
            settings=settings, strategy=self.strategy, connector=connector, clock=clock, observer=observer, tasks=tasks,
            hooks=hooks or Hooks(), decode_key=decode_key, key_of=key_of, reader=reader, keeps_plans=keeps_plans,
            store=store, codec=codec,
            make_workers=None if make_workers is None else lambda setup: make_workers(self, setup),
        )  # fmt: skip
        self._totals_ = ChannelTotals()
        self.session = ChannelSession(self._parts, self._totals_, self)
        self._offsets = ChannelOffsets(settings, lambda: self.session, lambda: self._failure)
        self._comebacks = Comebacks(settings.restart, settings.unprocessed_record_max_age_s)
        self._state: ChannelState = "starting"
        self._has_joined = False
        self._idle_told = 0
        self._is_ending = False
        self._failure: BaseException | None = None
        self._comes_back_at: float | None = None
        self._last_partitions: tuple[PartitionFacts, ...] | None = None  # as the channel left them when it failed

    # -- from the start to the end

    def start(self) -> None:
        """Start the channel's tasks; they connect, and go on trying where no broker answers."""
        self._change("connect")
        self.session.start()

    async def quiesce(self, deadline: float) -> None:
        """Fetch nothing more, call no handler, and wait for those that run, until *deadline* (monotonic)."""
        self._is_ending, self._comes_back_at = True, None
        if self._state == "failed":
            await self._has_let_go(deadline)
        self._change("stop")
        # Before waits between attempts end: a worker that gives up takes no other record then.
        self.session.take_nothing_new()
        self.session.stop_retrying()  # an application that iterates comes to its end, and may settle what it holds
        await self.session.drain(deadline, to_the_end=True)

    async def _has_let_go(self, deadline: float) -> None:
        """Wait until a channel that failed has let go, or until *deadline*."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self.session.has_let_go.wait()
        except TimeoutError:
            pass  # what still runs is left behind, as by any stop

    async def finish(self, deadline: float) -> None:
        """Let go of the partitions after the last commit, leave the group, and close."""
        async with AsyncExitStack() as steps:  # each is taken, whatever those before it have raised
            steps.callback(self.session.arrival.set)
            steps.callback(self._change, "stopped")
            steps.push_async_callback(self._close_store)
            steps.push_async_callback(self.session.leave)
            await self.session.release(deadline)

    async def _close_store(self) -> None:
        """Close the checkpoint store, whatever that does, and however long it would take."""
        if self._parts.store is None:
            return
        error = await outcome_of(self._parts.store.close, f"close the store of {self.name}", STORE_CLOSED_S)
        if error is not None:
            doing = "closing the checkpoint store"
            self._observer.on(EndFailed(channel=self.name, doing=doing, reason=told_of(error), error=error))

    def _change(self, event: str) -> None:
        old, self._state = self._state, transition(self._state, event)
        if old != self._state:
            self._observer.on(ChannelStateChanged(channel=self.name, old=old, new=self._state))

    # -- failing, and coming back

    def fail(self, reason: BaseException) -> bool:
        """Stop this channel, and only it: what is settled is committed, the rest stays for the next owner.

        Returns:
            False if it was stopping or had failed before; nothing is told then.
        """
        if self._state in ("failed", "stopping", "stopped"):
            return False
        self._failure = self.session.acknowledger.failure = reason
        self._comes_back_at = self._comebacks.failed(self._clock.monotonic())
        self._change("fail")
        session = self.session
        session.take_nothing_new()  # at once: what comes after a failed record is not worked on before it
        session.arrival.set()
        why = self._why_failed(self._clock.monotonic()) or text_of(reason)
        self._observer.on(ChannelFailed(channel=self.name, reason=why, error=reason))
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
                raise  # the loop ends
            self._observer.on(EndFailed(channel=self.name, doing="leaving", reason=told_of(error), error=error))
        await self._come_back(session)

    async def _take_leave(self, session: ChannelSession) -> None:
        deadline = self._clock.monotonic() + self.settings.drain_timeout_s
        async with AsyncExitStack() as steps:  # each is taken, whatever those before it have raised
            steps.callback(session.arrival.set)
            steps.callback(session.has_let_go.set)
            steps.push_async_callback(session.leave)
            steps.callback(self._note_partitions, session)
            steps.push_async_callback(self._release, session, deadline)
            steps.callback(session.guard.leave)
            await session.drain(deadline)

    async def _release(self, session: ChannelSession, deadline: float) -> None:
        await session.release(min(deadline, self._clock.monotonic() + self.settings.revoke_grace_s))

    def _note_partitions(self, session: ChannelSession) -> None:
        """They have been let go by now, and are forgotten when the group is left."""
        self._last_partitions = partition_facts(session, self._clock.monotonic(), also_left=True)

    async def _come_back(self, session: ChannelSession) -> None:
        """Start anew when the wait is over, unless the application ends or somebody has restarted the channel."""
        if self._comes_back_at is not None:
            await session.workers.over()
            await asyncio.sleep(max(0.0, self._comes_back_at - self._clock.monotonic()))
        if self._comes_back_at is not None and self.session is session:
            self._start_anew()

    @property
    def failure(self) -> BaseException | None:
        """What it has failed for; None: it has not, or was started again since."""
        return self._failure

    @property
    def comes_back(self) -> bool:
        """Whether it has failed, and is started again by itself."""
        return self._comes_back_at is not None

    async def restart(self) -> None:
        """Start a channel that has failed anew; see :meth:`reactive_kafka.Channel.restart`."""
        session = self.session
        if self._state == "failed":
            await session.has_let_go.wait()
            await session.workers.over()
            if self.session is not session:
                return  # somebody else has restarted it
        if self._state != "failed" or self._is_ending:
            raise ChannelClosedError(
                f"channel {self.name!r} is {'stopping' if self._is_ending else self._state}: "
                "restart() is for one that has failed"
            )
        self._comebacks.forget()
        self._start_anew()

    def _start_anew(self) -> None:
        before = self.session
        self._failure = self._comes_back_at = self._last_partitions = None
        self.session = ChannelSession(self._parts, self._totals_, self)
        self._change("restart")
        self.session.start()
        before.arrival.set()  # an application that iterates goes on with the new one

    # -- what a life asks and tells

    def is_over(self) -> bool:
        """Whether it has failed, or stopped."""
        return self._state in ("failed", "stopped")

    def is_taking(self) -> bool:
        """Whether records are wanted: one client may have its assignment while another one connects."""
        return self._state in ("running", "connecting")

    def connects(self) -> None:
        """A client is being built again."""
        self._change("connect")

    def joined(self) -> None:
        """A client has its assignment."""
        self._has_joined = self._has_joined or self.session.have_joined
        if self.session.are_joined:
            self._change("joined")
            self._comebacks.runs(self._clock.monotonic())
        self._tell_idle()

    def _tell_idle(self) -> None:
        """Say that clients have no partition, once for as long as it is so."""
        idle = self.session.idle_consumers
        if idle and idle != self._idle_told:
            self._observer.on(ConsumersIdle(channel=self.name, idle=idle, consumers=self.settings.consumers))
        if idle is not None:
            self._idle_told = idle

    # -- what workers tell

    def progress(self, lane: Lane) -> None:
        """A worker turned away from a lane."""
        if self.session.acknowledger.is_awaited and (lane.revoked or lane.waiting <= lane.low_water):
            self.session.made_progress()

    def nack(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """The handler of a message failed for good."""
        return self.session.acknowledger.failed(message, reason)

    def verdict_of(self, message: Delivery) -> Future[bool] | None:
        """What the verdict that is being carried out for a message will come to; None if there is none."""
        return self.session.acknowledger.verdict_of(message)

    def settled(self, tracker: OffsetTracker) -> None:
        """Workers have settled records of a partition by themselves."""
        self.session.acknowledger.settled(tracker)

    def will_retry(self, message: Delivery, reason: BaseException, attempt: int, wait_s: float) -> None:
        """A call of a handler failed, and another one follows."""
        self._observer.on(
            HandlerRetried(
                channel=self.name,
                partition=message.topic_partition,
                offset=message.offset,
                attempt=attempt,
                wait_s=wait_s,
                reason=describe(reason),
                error=reason,
            )
        )

    def raised_after_ack(self, message: Delivery, reason: BaseException) -> None:
        """A handler raised, and its record was settled before it ran."""
        self.session.acknowledger.raised_after_ack(message, reason)

    def exit(self, reason: BaseException) -> None:
        """A handler or a hook asked the process to end."""
        if self._on_exit is not None:
            self.session.take_nothing_new()
            self._on_exit(reason)

    def begin_call(self, messages: Sequence[D]) -> Sequence[D]:
        """A handler is to be called with these messages; those that it is to get."""
        return self.session.acknowledger.begin_call(messages)

    @property
    def may_go_on(self) -> bool:
        """Whether records may come, now or when it is started again by itself."""
        return self.is_taking() or self.comes_back

    async def store_plans(self, trackers: Iterable[OffsetTracker]) -> bool:
        """Commit until the groups have the plans of these trackers; False as soon as one of them is not ours."""
        return await self.session.store_plans(trackers)

    # -- what is known

    def facts(self) -> ChannelFacts:
        """What is known about the channel now."""
        now = self._clock.monotonic()
        condition = Condition(
            state="paused" if self._totals_.pauses.reasons and self._state == "running" else self._state,
            reason=self._why_failed(now),
            has_joined=self._has_joined,
            partitions=self._last_partitions,
        )
        return channel_facts(self.settings, condition, self.session, self._totals_, now)

    def _why_failed(self, now: float) -> str | None:
        """The reason, and whether the channel comes back, where it is one that does so by itself."""
        most = self.settings.restart.max_attempts
        if self._failure is None or not most or self._is_ending:
            return None if self._failure is None else text_of(self._failure)
        if self._comes_back_at is None:
            restarts = "restart is" if most == 1 else "restarts are"
            return f"{text_of(self._failure)}; the channel stays down: its {most} {restarts} used up"
        wait_s = max(0.0, self._comes_back_at - now)
        when = "at once" if wait_s < 0.05 else f"in {wait_s:.{int(wait_s < 10)}f} s"
        attempt = f"attempt {self._comebacks.attempts} of {most}"
        return f"{text_of(self._failure)}; the channel is started again {when} ({attempt})"

"""The workers of a channel with handlers: what wakes them, what they hold, and how they end.

A fixed number of long-lived workers run handlers one after the other, inline: no task, future or
lock is made for a record. ``concurrency`` counts handlers that run. A worker that waits for
something else (the next attempt, a dead letter) is parked: it holds back its own lane only, and
another worker takes its place meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from functools import partial
from itertools import count
from typing import Any, Protocol

from reactive_kafka.delivery.current import RecordPlace
from reactive_kafka.delivery.lanes.keyed import KeyedLane
from reactive_kafka.delivery.lanes.lane import UNKEYED, Lane
from reactive_kafka.delivery.long_calls import LongCalls
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.workers.interface import ChannelWorkers, LaneProgress, WorkerSetup
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.places import WorkerPlaces
from reactive_kafka.delivery.workers.slots import ChannelSlots
from reactive_kafka.delivery.workers.waits import WorkerWaits
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.delivery.workers.worker_states import IDLE, PARKED_WORKERS, RUNNING
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.futures import when_done
from reactive_kafka.verdicts.value_origins import call_off_values

STRETCH_S = 0.005
"""How long a worker runs handlers before it lets other tasks run.

This is a time and no number of records, so that heartbeats and commits run in between however long
a handler takes.
"""

INTERRUPTED_S = 1.0
"""How long a handler that was cancelled for poison may take to end before it is abandoned."""


class Runner(Protocol):
    """What a worker does with the lanes that it takes."""

    # A call takes records of several lanes.
    takes_batches: bool

    def has_work(self) -> bool:
        """Return whether :meth:`take` may find lanes; it may also find none."""

    def take(self, worker: Worker) -> Sequence[Lane]:
        """Take lanes with work, for :meth:`run`; none if there is no work that may begin."""

    def rest_s(self) -> float | None:
        """Return how long a worker without work may rest; None: until it is woken."""

    async def run(self, worker: Worker) -> bool:
        """Call the handler with records of the worker's lanes.

        Returns:
            Whether the worker has to let other tasks run.
        """

    def payload_of(self, record: RawRecord) -> Any:
        """Decode a record as for its handler. Raises what the decoder raises."""

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""

    def not_ready(self, now: float) -> Iterable[str]:
        """Return why records have waited long for the next call of their handler."""

    def postponed(self, now: float) -> Iterable[str]:
        """Return which records wait because their handlers have asked for that."""


class WorkerPool(ChannelWorkers):
    """The workers of one channel. A *runner* knows what a worker does with the lanes it takes.

    Args:
        context: Each worker runs in a copy of it.
        returned: The messages whose handlers returned without a verdict.
        may_keep: The application may keep messages after their handler has returned.
    """

    def __init__(
        self,
        runner: Runner,
        setup: WorkerSetup,
        context: Context,
        progress: LaneProgress,
        *,
        isolation: Isolation,
        places: WorkerPlaces,
        waits: WorkerWaits,
        returned: ReturnedUnsettled,
        long_calls: LongCalls,
        may_keep: bool,
    ) -> None:
        self.takes_batches = runner.takes_batches
        self._runner = runner
        self._channel_name = setup.settings.name
        self._lanes = setup.lanes
        self._clock = setup.channel.clock
        self._spawn = setup.channel.spawn
        self._acknowledger = setup.acknowledger
        self._context = context
        self._totals = setup.totals
        self._trackers = setup.trackers
        self._roots = setup.origins.of
        self._progress = progress
        self._isolation = isolation
        self._places = places
        self._slots = places.slots
        self._waits = waits
        self._returned = returned
        self._long_calls = long_calls
        self._may_keep = may_keep
        # One worker was woken, and has not looked for work yet.
        self._is_waking = False
        self._numbers = count(1)
        # The workers that hold lanes, in the order in which they took them.
        self._busy: dict[Worker, None] = {}
        places.serve(start_worker=self._start_worker, place_is_free=self._place_is_free)
        # Takes lanes for a worker, as the runner does.
        self._take: Callable[[Worker], Sequence[Lane]] = runner.take
        self._rest_s: Callable[[], float | None] = runner.rest_s
        if self._slots is not None:
            self._slots.serve(self._slot_is_free)
            self._take = partial(self._take_with_slot, self._slots)
            self._rest_s = partial(self._rest_without_slot_s, self._slots)

    # -- work comes

    @property
    def idle(self) -> int:
        """How many workers have nothing to do, or may be started."""
        return self._places.idle

    def work_is_there(self) -> None:
        """Note that records were put into the lanes.

        For single records one worker is woken, which wakes the next one if there is more. For
        batches every worker looks whether one is due.
        """
        if self.takes_batches:
            self._places.wake_all()
        elif not self._is_waking:
            self._is_waking = self._places.wake()

    def _wake_next(self) -> None:
        """Wake another worker if there are lanes left: this one has just taken some."""
        if not self._lanes.ready:
            return
        if self.takes_batches:
            # If the window is full nothing comes that would wake another one.
            self._places.wake()
        else:
            self.work_is_there()

    def _place_is_free(self) -> None:
        if self._lanes.ready:
            self.work_is_there()

    def _start_worker(self) -> None:
        context = self._context.copy()
        name = f"worker {next(self._numbers)} of {self._channel_name}"
        # Each coroutine around the handler costs something whenever that is resumed. So this one is
        # all that the task runs.
        self._spawn(partial(self._work, context), name, context)

    async def _work(self, context: Context) -> None:
        """Take lanes and run handlers: what a worker's task does, in this context."""
        worker = Worker(self, context, keeps_apart=self._isolation.in_contexts)
        monotonic = self._clock.monotonic
        worker.stretch_end = monotonic() + STRETCH_S
        while not self._is_replaced(worker):
            self._is_waking = False
            lanes = self._take(worker)
            if not lanes:
                self._compact_left_lanes(worker)
                if not await self._places.rest(worker, self._rest_s()):
                    return
                worker.stretch_end = monotonic() + STRETCH_S
                continue
            self._hold(worker, lanes)
            self._wake_next()
            try:
                lets_others_run = await self._runner.run(worker)
            finally:
                stays = self._turn_away(worker)
            if not stays:
                return
            if self.takes_batches:
                # The lanes that were released may make up a batch for another worker.
                self.work_is_there()
            if lets_others_run:
                self._compact_left_lanes(worker)
                await self._isolation.let_others_run(worker)
                worker.stretch_end = monotonic() + STRETCH_S

    # -- limits that the channel shares with others

    def _take_with_slot(self, slots: ChannelSlots, worker: Worker) -> Sequence[Lane]:
        """Take lanes if there is a slot for their handler call."""
        if not self._runner.has_work():
            slots.nothing_to_do()
            return ()
        if not slots.take():
            return ()
        lanes = self._runner.take(worker)
        if lanes:
            worker.has_slot = True
        else:
            slots.give_back()
        return lanes

    def _rest_without_slot_s(self, slots: ChannelSlots) -> float | None:
        """Return how long a worker may rest: until it is woken if the channel waits for a slot."""
        return None if slots.waits else self._runner.rest_s()

    def _slot_is_free(self) -> bool:
        """Have a worker take a free slot; False if there is no work for one, or no worker."""
        if not self._lanes.ready:
            return False
        if self.takes_batches:
            return self._places.wake()
        if not self._is_waking:
            self._is_waking = self._places.wake()
        return self._is_waking

    def _is_replaced(self, worker: Worker) -> bool:
        """Start another worker if a handler has left something in this one's task or context."""
        if worker.is_spent:
            self._places.change(worker, "end")
            self._places.start()
        return worker.is_spent

    # -- what workers hold

    # A worker takes lanes and turns away from them for every record where few records come at a
    # time. So these two changes of its state are written out: to look them up in the table costs
    # 0.3 µs. A test compares them with the table.

    def _hold(self, worker: Worker, lanes: Sequence[Lane]) -> None:
        if worker.state is not IDLE:
            # Raises: no other state has this event.
            worker.follow("take")
        worker.state = RUNNING
        worker.lanes = lanes
        self._busy[worker] = None

    def _turn_away(self, worker: Worker) -> bool:
        """Release what a worker holds; False if it has no place any more, and ends."""
        del self._busy[worker]
        worker.forget_call()
        self._release(worker)
        if self._slots is not None:
            self._slots.leave(worker)
        if worker.state is not RUNNING:
            worker.handler_ended()
            if worker.is_abandoned:
                worker.follow("end")
                # Others may take what it has released.
                self._place_is_free()
                return False
            worker.follow("turn away")
        worker.state = IDLE
        return not (self._isolation.is_closed or self._places.pass_on(worker))

    def _release(self, worker: Worker) -> None:
        lanes = worker.lanes
        worker.lanes = ()
        key = worker.key
        worker.key = UNKEYED
        worker.left.update(lanes)
        for lane in lanes:
            if isinstance(lane, KeyedLane) and key is not UNKEYED:
                lane.free(key)
            self._lanes.release(lane)
            self._progress.left(lane)

    def _compact_left_lanes(self, worker: Worker) -> None:
        """Drop settled records of the lanes that a worker has left, which times them.

        That is done after a stretch and before a rest, and not for each lane, because it costs less
        for many records at once.
        """
        for lane in worker.left:
            lane.tracker.compact()
        worker.left.clear()

    # -- what a channel asks about records

    def payload_of(self, record: RawRecord) -> Any:
        """Decode a record as for its handler. Raises what the decoder raises."""
        return self._runner.payload_of(record)

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what the call has."""
        self._isolation.tell_calls()

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Return whether a handler has a record."""
        return any(worker.has(tracker, index) for worker in self._busy)

    def roots(self, delivery: Delivery) -> Iterable[RecordPlace]:
        """Return the records of Kafka that a delivery was made of."""
        return self._roots(delivery)

    def left_unsettled(self) -> Iterator[Held]:
        """Yield the records whose handlers returned without a verdict, by partition."""
        if not self._may_keep:
            return
        at_handlers: set[RecordPlace] = set()
        for worker in self._busy:
            call = worker.call()
            if call is not None:
                at_handlers.update((message.tracker, message.index) for message in call.messages)
        for tracker in self._trackers():
            left = [
                index for index in tracker.open_at_handlers() if (tracker, index) not in at_handlers
            ]
            if left:
                yield tracker, left

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""
        return self._runner.waits_for_outage

    def not_ready(self, now: float) -> Iterable[str]:
        """Return why records have waited long for the next call of their handler."""
        return self._runner.not_ready(now)

    def postponed(self, now: float) -> Iterable[str]:
        """Return which records wait because their handlers have asked for that."""
        return self._runner.postponed(now)

    def warnings(self, now: float) -> Iterable[str]:
        """Return what is wrong with the calls and does not make the channel unready."""
        return self._long_calls.warnings(now)

    # -- waits

    def resumed(self) -> None:
        """Make the attempts that have waited for the end of a pause."""
        self._waits.resumed()

    def suspended(self) -> None:
        """End the waits for another attempt in suspended lanes, and put their records back."""
        self._waits.suspended()

    def stop_retrying(self) -> None:
        """End the waits between attempts; their records stay unsettled."""
        self._waits.stop()

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """Hold a record's lane until its nack is carried out, even if its handler returns before.

        Without an order of records nothing is held.
        """
        if self._lanes.shared and not self._lanes.is_keyed:
            return
        for worker in self._busy:
            if worker.has(tracker, index):
                worker.blocked_on.append(verdict)
                worker.cut_lanes()
                return

    # -- the end of workers

    def close(self) -> None:
        """End idle workers, and busy ones as soon as they are done: no work will come."""
        self._isolation.is_closed = True
        self.stop_retrying()
        self._places.close()

    def abandon(self, lane: Lane) -> None:
        """Stop counting workers that are busy with a lane whose partition is gone for good.

        Their handlers are not waited for, and one that never ends must not keep its place for ever.
        A worker whose handler does end, ends. One that waits for another attempt waits no longer.
        """
        for worker in self._busy:
            if worker.is_at(lane):
                self._places.abandon(worker)
                self._waits.dropped(worker)

    def deliveries_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the unsettled messages of the call that has a record, or that has returned."""
        for worker in self._busy:
            messages = worker.messages_of(tracker, index)
            if messages:
                return messages
        return self._returned.find(tracker, index)

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record, and do not wait for it.

        So are handlers of memory channels that have values which were made of it.

        Returns:
            The unsettled messages of its call, or of a handler that has returned without a verdict.
        """
        call_off_values(tracker, index)
        for worker in self._busy:
            messages = worker.messages_of(tracker, index)
            if messages:
                self._cancel(worker, messages[0])
                return messages
        return self._returned.find(tracker, index)

    def give_up(self, tracker: OffsetTracker, index: int) -> None:
        """Do not wait for the handler that has a record: others get its lane and its place."""
        for worker in self._busy:
            messages = worker.messages_of(tracker, index)
            if messages and not worker.is_abandoned:
                self._replace(worker, messages[0])
                return

    def _cancel(self, worker: Worker, message: Delivery) -> None:
        if worker.state in PARKED_WORKERS:
            # No handler runs. The verdict itself ends the wait for the next attempt.
            return
        if worker.is_interrupted:
            return
        worker.follow("interrupt")
        worker.cut_lanes()
        worker.task.cancel()
        worker.replacement = asyncio.get_running_loop().call_later(
            INTERRUPTED_S, self._replace, worker, message
        )

    def _replace(self, worker: Worker, message: Delivery) -> None:
        """Abandon a worker whose handler is not waited for.

        Its lane goes to others after the verdict on *message*.
        """
        self._totals.abandoned += 1
        self._places.abandon(worker)

        def release(_: object = None) -> None:
            if worker.lanes:
                self._release(worker)
                self.work_is_there()

        verdict = self._acknowledger.verdict_of(message)
        if verdict is None:
            release()
        else:
            when_done(verdict, release)

"""The workers of one channel: what wakes them, what they hold, and which of them are interrupted or
abandoned.

A fixed number of long-lived workers run handlers one after the other, inline: no task, future or
lock is made for a record. ``concurrency`` counts handlers that run. A worker that waits for
something else (the next attempt, a dead letter) is parked: it holds back its lane only, and another
one takes its place meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable, Iterator, Sequence
from contextvars import Context
from functools import partial
from itertools import count

from reactive_kafka.delivery.calls import Isolation
from reactive_kafka.delivery.current import Place
from reactive_kafka.delivery.keyed import KeyedLane
from reactive_kafka.delivery.lane import UNKEYED, Lane
from reactive_kafka.delivery.places import Places, answer
from reactive_kafka.delivery.states import IDLE, PARKED_WORKERS, RUNNING
from reactive_kafka.delivery.workers import Worker, Workers, WorkerSetup, WorkerSignals
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.delivery import Delivery

STRETCH_S = 0.005
"""How long a worker goes on without letting the loop run."""

INTERRUPTED_S = 1.0
"""How long a handler that is cancelled for poison may take to end, before its worker is
abandoned.
"""


class WorkerPool(Workers):
    """The workers of one channel; what one does with the lanes it takes is a subclass's."""

    def __init__(self, setup: WorkerSetup, channel: WorkerSignals) -> None:
        super().__init__()
        self._settings = setup.settings
        self._lanes = setup.lanes
        self._hook = setup.hook
        self._channel = channel
        self._clock = setup.clock
        self._spawn = setup.spawn
        self._context = setup.context
        self._totals = setup.totals
        self._is_waking = False
        self._is_stopping = False
        self._names = count(1)
        # In the order in which they took their lanes.
        self._busy: dict[Worker, None] = {}
        self._trackers = setup.trackers
        self._roots = setup.roots
        # Whether the application may keep messages whose handler has returned.
        self._may_keep = False
        # Attempts that are due and wait for the end of a pause.
        self._paused: dict[Worker, Future[bool]] = {}
        self._isolation = Isolation(setup.is_ending)
        self._places = Places(
            setup.settings.concurrency, self._isolation, self._start_worker, self._place_is_free
        )

    async def _work(self, context: Context) -> None:
        """What a worker's task does, in this context."""
        raise NotImplementedError

    def _new_worker(self, context: Context) -> Worker:
        """The worker of the current task, which runs in this context."""
        return Worker(self, context, keeps_apart=self._isolation.in_contexts)

    @property
    def idle(self) -> int:
        return self._places.idle

    def work_is_there(self) -> None:
        """Records were put into the lanes: one worker is woken, which wakes the next if there is
        more.
        """
        if not self._is_waking:
            self._is_waking = self._places.wake()

    def _place_is_free(self) -> None:
        if self._lanes.ready:
            self.work_is_there()

    def _start_worker(self) -> None:
        context = self._context.copy()
        # Each coroutine around the handler costs whenever that goes on, so the work is all that the
        # task runs.
        self._spawn(
            partial(self._work, context),
            f"worker {next(self._names)} of {self._settings.name}",
            context,
        )

    def _goes_on_in_another(self, worker: Worker) -> bool:
        """Whether a worker ends for another one, in whose task and context no handler has left
        anything.
        """
        if worker.is_spent:
            self._places.change(worker, "end")
            self._places.start()
        return worker.is_spent

    # "take" and "turn away" come with every lane, and where few records come at a time that is with
    # every record. So these two changes are written out: to look them up in the table costs 0.3 µs.
    # A test holds them to the table.

    def _hold(self, worker: Worker, lanes: Sequence[Lane]) -> None:
        if worker.state is not IDLE:
            # Raises.
            worker.follow("take")
        worker.state = RUNNING
        worker.lanes = lanes
        self._busy[worker] = None

    def _turn_away(self, worker: Worker) -> bool:
        """Release what a worker holds; False if it has no place any more, and ends."""
        del self._busy[worker]
        worker.messages = ()
        worker.piece = ()
        worker.record = None
        worker.index = -1
        self._release(worker)
        if worker.state is not RUNNING:
            worker.handler_ended()
            if worker.is_abandoned:
                worker.follow("end")
                # What it released is for others to take.
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
            self._channel.progress(lane)

    async def _rest(self, worker: Worker, most_s: float | None = None) -> bool:
        """Wait for work; False: the worker ends. What it has settled is timed first, as after each
        stretch.
        """
        self._look(worker)
        return await self._places.rest(worker, most_s)

    async def _let_others_run(self, worker: Worker) -> None:
        self._look(worker)
        await self._isolation.let_others_run(worker)

    def _look(self, worker: Worker) -> None:
        for lane in worker.left:
            lane.tracker.compact()
        worker.left.clear()

    async def _wait_for_attempt(
        self, worker: Worker, messages: Sequence[Delivery], after_s: float
    ) -> bool:
        """Wait for the next attempt; False if the channel stops, or the partition goes: they are
        given back then.
        """
        loop = asyncio.get_running_loop()
        due: Future[bool] = loop.create_future()
        timer = loop.call_later(after_s, self._due, worker, due)
        try:
            return await self._wait_until(worker, messages, due)
        finally:
            timer.cancel()
            self._paused.pop(worker, None)

    def _due(self, worker: Worker, due: Future[bool]) -> None:
        """The time for the next attempt has come. A pause holds it up."""
        if any(lane.is_paused for lane in worker.lanes):
            self._paused[worker] = due
        else:
            answer(due, True)

    def resumed(self) -> None:
        for worker, due in list(self._paused.items()):
            if not any(lane.is_paused for lane in worker.lanes):
                answer(due, True)

    def roots(self, delivery: Delivery) -> Iterable[Place]:
        return self._roots(delivery)

    def left_unsettled(self) -> Iterator[Held]:
        if not self._may_keep:
            return
        busy: set[tuple[OffsetTracker, int]] = set()
        for worker in self._busy:
            call = worker.call()
            if call is not None:
                busy.update((message.tracker, message.index) for message in call.messages)
        for tracker in self._trackers():
            left = [index for index in tracker.open_at_handlers() if (tracker, index) not in busy]
            if left:
                yield tracker, left

    async def _wait_until(
        self, worker: Worker, messages: Sequence[Delivery], due: Future[bool]
    ) -> bool:
        """Wait until *due* is true; else as :meth:`_wait_for_attempt`."""
        is_due = False
        if not (self._is_stopping or worker.is_revoked):
            worker.wait = due
            try:
                await self._places.park(worker, [due])
                is_due = due.result()
            finally:
                worker.wait = None
                due.cancel()
        if not is_due:
            self._give_back(worker, messages)
        return is_due

    def stop_retrying(self) -> None:
        self._is_stopping = True
        for worker in self._busy:
            answer(worker.wait, False)

    def suspended(self) -> None:
        for worker in self._busy:
            if worker.is_revoked:
                answer(worker.wait, False)

    def close(self) -> None:
        self._isolation.is_closed = True
        self.stop_retrying()
        self._places.close()

    def _give_back(self, worker: Worker, messages: Sequence[Delivery]) -> None:
        """Another attempt will not come from this worker: put records without a verdict back into
        their lanes.

        Where the channel ends they are left instead: nobody will settle them, a stop need not wait
        for them, and the next owner reads them again.
        """
        lanes = {id(lane.tracker): lane for lane in worker.lanes}
        for message in reversed(messages):
            tracker = message.tracker
            index = message.index
            if self._is_stopping:
                tracker.nack(index)
            elif tracker.is_open(index):
                tracker.unstart(index)
                lanes[id(tracker)].put_back(message.record, index, worker.key)

    def tell_calls(self) -> None:
        self._isolation.tell_calls()

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        if self._lanes.shared and not self._lanes.is_keyed:
            return
        for worker in self._busy:
            if worker.has(tracker, index):
                worker.blocked_on.append(verdict)
                worker.cut_lanes()
                return

    async def _wait_blocked(self, worker: Worker) -> None:
        """Wait for the nacks of a worker's records that are being carried out."""
        pending = [verdict for verdict in worker.blocked_on if not verdict.done()]
        worker.blocked_on = []
        if pending:
            await self._places.park(worker, pending)

    def abandon(self, lane: Lane) -> None:
        # The lane's partition has gone for good, so nobody waits for these handlers, and one that
        # never ends must not keep its place for ever. A worker whose handler does end, ends.
        for worker in self._busy:
            if lane in worker.lanes:
                self._places.abandon(worker)

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        for worker in self._busy:
            if messages := worker.messages_of(tracker, index):
                self._cancel(worker, messages[0])
                return messages
        return self.returned.find(tracker, index)

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        return any(worker.has(tracker, index) for worker in self._busy)

    def _cancel(self, worker: Worker, message: Delivery) -> None:
        if worker.state in PARKED_WORKERS:
            # It sees that there is a verdict.
            answer(worker.wait, True)
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
        """An interrupted handler has not ended: abandon its worker, and let its lane go on after
        the verdict.
        """
        self._totals.abandoned += 1
        self._places.abandon(worker)

        def go_on(_: object = None) -> None:
            if worker.lanes:
                self._release(worker)
                self.work_is_there()

        verdict = self._channel.verdict_of(message)
        if verdict is None:
            go_on()
        else:
            verdict.add_done_callback(go_on)

"""The workers of one channel: how many there are, what wakes them, and which of them count no longer.

A fixed number of long-lived workers, each of which runs handlers one after the other, inline: no task, future
or lock is made for a record. ``concurrency`` counts handlers that run. A worker that waits for something else (the
next attempt, a dead letter) steps aside and holds back its lane only: another one takes its place meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.delivery.calls import Call, in_context, in_task
from reactive_kafka.delivery.lane import Lane, Part
from reactive_kafka.delivery.worker import ReturnedUnsettled, Worker
from reactive_kafka.delivery.workers import InProcess, WorkerSetup
from reactive_kafka.verdicts.delivery import Delivery, is_open

STRETCH_S = 0.005
"""How long a worker goes on without letting the loop run."""

INTERRUPTED_S = 1.0
"""How long a handler that is cancelled for poison may take to end, before its worker is replaced."""

MOST_STRAYS = 16
"""After so many cancellations that nobody awaits a worker ends: whoever sends them means it."""

STORE_RETRY_S = 0.25
"""How soon a handler is called again whose transaction was not stored; there it waits while the store is away."""


class Host(Protocol):
    """What the workers need from their channel."""

    def progress(self, lane: Lane) -> None:
        """A worker turns away from a lane: there may be room for new records, or a drain may be over."""

    def settled(self, tracker: OffsetTracker) -> None:
        """Records were settled without the channel being asked: there may be something to commit at once."""

    def nack(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """The handler of a message failed for good."""

    def verdict_of(self, message: Delivery) -> Future[bool] | None:
        """What the verdict that is being carried out for a message will come to; None if there is none."""

    def will_retry(self, message: Delivery, reason: BaseException, attempt: int, wait_s: float) -> None:
        """Call number *attempt* for a message (for a batch: its first one) failed, and another one follows."""

    def raised_after_ack(self, message: Delivery, reason: BaseException) -> None:
        """A handler raised, and its record was settled before it ran."""

    def exit(self, reason: BaseException) -> None:
        """A handler asked the process to end (SystemExit, KeyboardInterrupt)."""


class WorkerPool(InProcess):
    """The workers of one channel; what one does with the lanes it takes is a subclass's.

    At most ``concurrency`` of them have a place; they are started as they are needed.
    """

    def __init__(self, setup: WorkerSetup, host: Host) -> None:
        self._settings = setup.settings
        self._lanes = setup.lanes
        self._hook = setup.hook
        self._host = host
        self._clock = setup.clock
        self._spawn = setup.spawn
        self._totals = setup.totals
        self._places = 0  # taken by workers that run or rest
        self._idle: list[Future[bool]] = []
        self._returning: deque[Future[None]] = deque()  # were aside, and wait for a place
        self._is_waking = False
        self._is_stopping = False
        self._is_closed = False
        self._is_ending = setup.is_ending
        self._in_contexts = False  # each call in a context of its own: a handler sets context variables
        self._in_tasks = False  # in a task of its own, too: a handler leaves its task cancelled
        self._names = count(1)
        self._busy: dict[Worker, None] = {}  # in the order in which they took their lanes
        self._waits: dict[Future[bool], Worker] = {}
        self.returned = ReturnedUnsettled()

    async def _work(self, worker: Worker) -> None:
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """Whether a worker has nothing to do, or may be started."""
        return bool(self._idle) or self._places < self._settings.concurrency

    # -- waking

    def work_is_there(self) -> None:
        """Records were put into the lanes: one worker is woken, which wakes the next if there is more."""
        if self._is_waking:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():  # cancelled: the application ends
                self._is_waking = True
                waiter.set_result(True)
                return
        if self._places < self._settings.concurrency:
            self._is_waking = True
            self._start_worker()

    def _start_worker(self) -> None:
        self._places += 1

        async def run() -> None:
            worker = Worker(keeps_apart=self._in_contexts)
            await in_context(self._work, worker, worker.context)

        self._spawn(run, f"worker {next(self._names)} of {self._settings.name}")

    def _goes_on_in_another(self, worker: Worker) -> bool:
        """Whether a worker ends for another one, in whose task and context no handler has left anything."""
        if worker.is_spent:
            self._places -= 1
            self._start_worker()
        return worker.is_spent

    async def _rest(self, worker: Worker, most_s: float | None = None) -> bool:
        """Wait for work; False: the worker's place is wanted by one that was aside, or all is over, and it ends.

        Args:
            most_s: When to look for work all the same; None: never.
        """
        if self._is_closed or self._hands_over():
            return False
        loop = asyncio.get_running_loop()
        waiter: Future[bool] = loop.create_future()
        timer = None if most_s is None else loop.call_later(most_s, _answer, waiter, True)
        self._idle.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError as error:
            self._note_stray(worker, error)
            return waiter.cancelled() or not waiter.done() or waiter.result()
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._idle:
                self._idle.remove(waiter)

    # -- holding lanes

    def _hold(self, worker: Worker, lanes: Sequence[Part]) -> None:
        worker.lanes = lanes
        worker.has_lanes = True
        self._busy[worker] = None

    def _turn_away(self, worker: Worker) -> bool:
        """Release what a worker holds; False if its place is another's now, and it ends."""
        del self._busy[worker]
        worker.comes_to_rest()
        worker.messages, worker.piece, worker.record, worker.index = (), (), None, -1
        if worker.has_lanes:
            self._release(worker)
            if worker.is_left and self._lanes.has_work:
                self.work_is_there()  # it takes nothing itself any more
        return not (worker.is_left or self._is_closed or self._hands_over())

    def _hands_over(self) -> bool:
        """Give the place of a worker that is free to one that was aside; False if none wants it."""
        while self._returning:
            waiter = self._returning.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def _release(self, worker: Worker) -> None:
        worker.has_lanes = False
        for lane in worker.lanes:
            self._lanes.release(lane)
            self._host.progress(lane.partition_lane)

    # -- stepping aside

    async def _aside(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Wait until all of these are done, none of which is a handler, without taking a handler's place.

        Cancellation:
            The application ends: nobody asks for the place any more.
        """
        if worker.is_left:
            await self._done(worker, awaited)
            return
        worker.is_aside = True
        self._places -= 1
        if self._lanes.has_work:
            self.work_is_there()
        await self._done(worker, awaited)
        await self._take_place(worker)
        worker.is_aside = False
        self._gives_place_back(worker)

    def _gives_place_back(self, worker: Worker) -> None:
        """One that was left behind while it was aside has no use for its place."""
        if worker.is_left:
            self._places -= 1
            if self._lanes.has_work:
                self.work_is_there()

    async def _take_place(self, worker: Worker) -> None:
        if self._is_closed or self._places < self._settings.concurrency:
            self._places += 1
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(False)  # that worker ends, and its place is ours
                return
        returning: Future[None] = asyncio.get_running_loop().create_future()
        self._returning.append(returning)
        await self._done(worker, [returning])

    async def _waited(self, worker: Worker, after_s: float) -> bool:
        """Wait for the next attempt; False if the channel stops, or the partition is taken away, meanwhile."""
        if self._is_stopping or worker.is_parked:
            return False
        loop = asyncio.get_running_loop()
        ended: Future[bool] = loop.create_future()
        timer = loop.call_later(after_s, _answer, ended, True)
        worker.wait = ended
        self._waits[ended] = worker
        try:
            await self._aside(worker, [ended])
            return ended.result()
        finally:
            timer.cancel()
            worker.wait = None
            del self._waits[ended]

    def stop_retrying(self) -> None:
        """Waits between attempts end, and their records stay unsettled."""
        self._is_stopping = True
        for ended in self._waits:
            _answer(ended, False)

    def close(self) -> None:
        """No work will come any more: workers that rest end, and those that are busy when they have done."""
        self._is_closed = True
        self.stop_retrying()
        while self._idle:
            _answer(self._idle.pop(), False)
        while self._hands_over():
            pass  # nobody will have a place for them any more

    def suspended(self) -> None:
        """Lanes were suspended: end the waits for another attempt in them, and put their records back."""
        for ended, worker in self._waits.items():
            if worker.is_parked:
                _answer(ended, False)

    def _give_back(self, worker: Worker, messages: Sequence[Delivery]) -> None:
        """Another attempt will not come from this worker: the records have no verdict, and wait again or are left.

        They are left where the channel ends: nobody will settle them, the stop need not wait, the next owner gets them.
        """
        lanes = {id(lane.tracker): lane for lane in worker.lanes}
        for message in reversed(messages):
            tracker, index = message.tracker, message.index
            if self._is_stopping:
                tracker.nack(index)
            elif tracker.is_open(index):
                tracker.unstart(index)
                lanes[id(tracker)].put_back(message.record, index)

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """A nack is being carried out: the lane of its record is held until then, also if its handler returns."""
        if self._lanes.shared:
            return
        for worker in self._busy:
            if worker.has(tracker, index):
                worker.blocked_on.append(verdict)
                for lane in worker.lanes:
                    if isinstance(lane, Lane):
                        lane.cut()
                return

    async def _wait_blocked(self, worker: Worker) -> None:
        """Wait for the nacks of a worker that are being carried out."""
        pending, worker.blocked_on = [verdict for verdict in worker.blocked_on if not verdict.done()], []
        if pending:
            await self._aside(worker, pending)

    # -- handlers that nobody waits for any more

    def abandon(self, lane: Lane) -> None:
        """Workers that still run records of this lane count no longer: others take their places.

        Their partition has gone for good, so nobody waits for these handlers, and one that never ends must not
        keep its place for ever. A worker that does come back ends.
        """
        for worker in self._busy:
            if any(part.partition_lane is lane for part in worker.lanes):
                self._leave_behind(worker)

    def _leave_behind(self, worker: Worker) -> None:
        if worker.is_left:
            return
        worker.is_left = True
        if not worker.is_aside:
            self._places -= 1
            if self._lanes.has_work:
                self.work_is_there()

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record; its verdict is not awaited any more.

        Returns:
            What the handler has and has not settled: that message, or its whole batch. Empty if nobody knows it.
        """
        for worker in self._busy:
            if messages := worker.messages_of(tracker, index):
                self._cancel(worker, messages[0])
                return messages
        return self.returned.find(tracker, index)

    def _cancel(self, worker: Worker, message: Delivery) -> None:
        if worker.is_aside:
            if worker.wait is not None:
                _answer(worker.wait, True)  # it sees that there is a verdict
            return
        if worker.is_interrupted:
            return
        worker.is_interrupted = True
        for lane in worker.lanes:
            if isinstance(lane, Lane):
                lane.cut()
        worker.task.cancel()
        worker.interrupts += 1
        asyncio.get_running_loop().call_later(INTERRUPTED_S, self._replace, worker, message, worker.interrupts)

    def _replace(self, worker: Worker, message: Delivery, interrupt: int) -> None:
        """An interrupted handler has not ended: its worker is left behind, and its lane goes on after the verdict."""
        if not worker.is_interrupted or not worker.has_lanes or worker.interrupts != interrupt:
            return
        self._totals.abandoned += 1
        self._leave_behind(worker)

        def go_on(_: object = None) -> None:
            if worker.has_lanes:
                self._release(worker)
                self.work_is_there()

        verdict = self._host.verdict_of(message)
        if verdict is None:
            go_on()
        else:
            verdict.add_done_callback(go_on)

    async def _may_again(self, worker: Worker, messages: Sequence[Delivery], error: BaseException) -> bool | None:
        """Wait for the next call where the checkpoint store answers for an error.

        Returns:
            Whether the handler is to be called again now; None: it is a failure like any other.
        """
        again = self._hook.may_call_again(error)
        if again is None:
            return None
        still = [message for message in messages if is_open(message)]
        if not still:
            return False
        if again.if_settled and len(still) == len(messages):
            return None
        for message in () if again.ages else still:
            message.tracker.stop_clock((message.index,))
        if not await self._waited(worker, STORE_RETRY_S):
            self._give_back(worker, still)
            return False
        now = self._clock.monotonic()
        for message in () if again.ages else still:
            message.tracker.start_clock((message.index,), now)
        return True

    # -- what a handler leaves in the task and the context that it shares with others

    @property
    def _is_over(self) -> bool:
        """Whether whoever cancels a worker is the application."""
        return self._is_closed or self._is_ending()

    def _apart(self, worker: Worker, call: Call) -> Call:
        """*call* as this worker makes it: as it is, until a handler has left something for those after it."""
        if self._in_tasks:
            return lambda argument: in_task(call, argument, worker.fresh_context())
        if self._in_contexts:
            return lambda argument: in_context(call, argument, worker.fresh_context())
        return call

    async def _call_returned(self, worker: Worker) -> None:
        """A call has returned: nothing that it has left reaches whoever comes next.

        Raises:
            CancelledError: It had cancelled its own task, and returned before that could reach it. A task of its own
                would have counted as cancelled.
        """
        if worker.has_strange_values:
            self._in_contexts = worker.is_spent = True
        if worker.is_cancelled and not self._is_over:
            self._in_contexts = self._in_tasks = worker.is_spent = True
            try:
                await asyncio.sleep(0)  # a cancellation that is still to come, comes here
            finally:
                if not self._is_over:
                    worker.take_off_cancellation()

    async def _call_raised(self, worker: Worker, error: BaseException) -> None:
        """The same of a call that has raised.

        Raises:
            CancelledError: The application ends, and has cancelled the worker.
        """
        if isinstance(error, asyncio.CancelledError) and self._is_over and worker.is_cancelled:
            raise error
        try:
            await self._call_returned(worker)
        except asyncio.CancelledError:
            if self._is_over:
                raise

    async def _done(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Wait until all of these are done, whatever a handler of before has left behind that cancels its task late.

        Cancellation:
            Only when the application ends; none of the futures is cancelled by it.
        """
        while pending := [one for one in awaited if not one.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                self._note_stray(worker, error)

    async def _let_others_run(self, worker: Worker) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self._note_stray(worker, error)

    def _note_stray(self, worker: Worker, error: asyncio.CancelledError) -> None:
        """A worker was cancelled, and no handler runs in it.

        Raises:
            CancelledError: It is meant: the application ends, or somebody insists. Or its task was not cancelled at
                all, and something that it waits for was.
        """
        worker.strays += 1
        if self._is_over or worker.strays > MOST_STRAYS or not worker.is_cancelled:
            raise error
        self._in_contexts = self._in_tasks = worker.is_spent = True
        worker.take_off_cancellation()


def _answer(waiter: Future[bool], answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)

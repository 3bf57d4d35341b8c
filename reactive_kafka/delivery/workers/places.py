"""Who may run handlers: a channel has ``concurrency`` places for workers."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.slots import ChannelSlots
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.delivery.workers.worker_states import WITH_PLACE, WorkerState


class WorkerPlaces:
    """The places of one channel's workers, and the workers that wait for work or for a place.

    A worker has a place from its start, as long as its state is in ``WITH_PLACE``. It gives the
    place up in one of two ways:

    - It parks or is abandoned. A worker that waits for a place gets it. If there is none, the pool
      looks who needs it.
    - It ends because another worker is done waiting and wants to continue. The place changes hands
      in one step, here, and not only when the other task gets its turn. If it were free in between,
      work that comes then would start one worker too many.

    So only :meth:`change` counts places. It compares the states before and after.

    Args:
        most: ``concurrency``.
        slots: What the channel has of a ``limit``. None: it has no limit.
    """

    def __init__(self, most: int, isolation: Isolation, slots: ChannelSlots | None = None) -> None:
        self._most = most
        self._isolation = isolation
        self.slots = slots
        self._start_worker: Callable[[], None] = _nothing
        self._place_is_free: Callable[[], None] = _nothing
        self._taken = 0
        # Worker -> completed when it has work; False: it ends.
        self._idle: dict[Worker, Future[bool]] = {}
        # Workers that are done waiting for something else, and have no place yet.
        self.returning: deque[Worker] = deque()

    def serve(self, *, start_worker: Callable[[], None], place_is_free: Callable[[], None]) -> None:
        """Serve a pool from now on.

        Args:
            start_worker: Starts a worker as a task. Its place is taken already.
            place_is_free: Called when a place has become free.
        """
        self._start_worker = start_worker
        self._place_is_free = place_is_free

    @property
    def idle(self) -> int:
        """How many workers have nothing to do, or may be started."""
        return len(self._idle) + max(0, self._most - self._taken)

    def change(self, worker: Worker, event: str) -> None:
        """Change a worker's state, and count the place that it takes or gives up by that."""
        before = worker.state
        worker.follow(event)
        self._taken += (worker.state in WITH_PLACE) - (before in WITH_PLACE)

    def start(self) -> None:
        """Take a place for a new worker, and start that."""
        self._taken += 1
        self._start_worker()

    def wake(self) -> bool:
        """Have one more worker look for work, an idle or a new one; False if all are busy."""
        while self._idle:
            _, waiter = self._idle.popitem()
            # A waiter that is done was cancelled: the application ends.
            if not waiter.done():
                waiter.set_result(True)
                return True
        if self._taken < self._most:
            self.start()
            return True
        return False

    def wake_all(self) -> None:
        """Have every idle worker look for work, and one new worker if there is room for it."""
        for waiter in self._idle.values():
            answer(waiter, True)
        if self._taken < self._most:
            self.start()

    async def rest(self, worker: Worker, most_s: float | None = None) -> bool:
        """Wait for work, *most_s* seconds at most; False: the worker ends.

        It ends if its place went to another worker, or if no work will come any more.
        """
        if self._isolation.is_closed or self.pass_on(worker):
            return False
        loop = asyncio.get_running_loop()
        waiter: Future[bool] = loop.create_future()
        timer = None if most_s is None else loop.call_later(most_s, answer, waiter, True)
        self._idle[worker] = waiter
        try:
            return await waiter
        except asyncio.CancelledError as error:
            self._isolation.stray(worker, error)
            return waiter.cancelled() or not waiter.done() or waiter.result()
        finally:
            if timer is not None:
                timer.cancel()
            self._idle.pop(worker, None)

    async def park(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Wait without a place until all of these are done; none of them is a handler.

        Cancellation:
            The application ends: the place is not needed any more.
        """
        # Its handler may have taken our cancellation off the task by itself, unnoticed so far.
        worker.handler_ended()
        self.change(worker, "park")
        if self.slots is not None:
            self.slots.leave(worker)
        if not worker.is_abandoned:
            self._freed()
        try:
            await self._isolation.done(worker, awaited)
            if worker.state is WorkerState.PARKED:
                await self._return(worker)
        except BaseException:
            self.abandon(worker)
            raise
        finally:
            # One that was abandoned after it got its place is past this state already.
            if worker.state is WorkerState.ABANDONED_PARKED:
                worker.follow("resume")

    async def _return(self, worker: Worker) -> None:
        """Get a place: a free one, that of an idle worker, or the next that a worker passes on."""
        if self._isolation.is_closed or self._taken < self._most:
            self.change(worker, "resume")
            return
        while self._idle:
            other, waiter = self._idle.popitem()
            if not waiter.done():
                self.change(other, "end")
                self.change(worker, "resume")
                waiter.set_result(False)
                return
        worker.follow("return")
        worker.place = asyncio.get_running_loop().create_future()
        self.returning.append(worker)
        await self._isolation.done(worker, [worker.place])

    def pass_on(self, worker: Worker) -> bool:
        """Give the place of a free worker to one that waits for a place; False if none does."""
        while self.returning:
            other = self.returning.popleft()
            # In any other state it was abandoned meanwhile.
            if other.state is WorkerState.RETURNING:
                self.change(worker, "end")
                self._resume(other)
                return True
        return False

    def _resume(self, worker: Worker) -> None:
        self.change(worker, "resume")
        answer(worker.place, True)

    def abandon(self, worker: Worker) -> None:
        """Stop counting a worker; a replacement may start."""
        if worker.is_abandoned:
            return
        had_place = worker.state in WITH_PLACE
        self.change(worker, "abandon")
        if self.slots is not None:
            self.slots.leave(worker)
        answer(worker.place, False)
        if had_place:
            self._freed()

    def _freed(self) -> None:
        """Give a place that has become free to a worker that waits for one, else tell the pool.

        Without that a worker could wait for ever: only workers that end or rest pass places on.
        """
        while self.returning:
            other = self.returning.popleft()
            if other.state is WorkerState.RETURNING:
                self._resume(other)
                return
        self._place_is_free()

    def close(self) -> None:
        """End idle workers; those that wait for a place continue without one. No work will come."""
        while self._idle:
            _, waiter = self._idle.popitem()
            answer(waiter, False)
        while self.returning:
            other = self.returning.popleft()
            if other.state is WorkerState.RETURNING:
                self._resume(other)


def answer(waiter: Future[bool] | None, result: bool) -> None:
    """Complete what a worker waits for, if it waits and has no answer yet."""
    if waiter is not None and not waiter.done():
        waiter.set_result(result)


def _nothing() -> None:
    """Stand in until there is a pool."""

"""Who may run handlers: a channel has ``concurrency`` places, and a worker that waits for something
else has none.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.delivery.calls import Isolation
from reactive_kafka.delivery.states import WITH_PLACE, WorkerState
from reactive_kafka.delivery.workers import Worker


class Places:
    """The places of one channel's workers, and the workers that wait for work or for a place."""

    # Who owns a place when: a worker has one from its start, while its state is in WITH_PLACE. It
    # gives it up by parking or by being abandoned, and the place is free: ``freed`` looks for
    # somebody who needs it. Or it ends because a worker that is done waiting wants to go on: then
    # the place changes hands in one step, here, and not when the other's task gets its turn. Were
    # it free in between, work that comes then would start one worker too many. So nobody counts
    # places but ``change``, which compares the states before and after.

    def __init__(
        self, most: int, isolation: Isolation, start: Callable[[], None], freed: Callable[[], None]
    ) -> None:
        self._most = most
        self._isolation = isolation
        # Starts a worker as a task; its place is taken already.
        self._start = start
        # Called when a place has become free.
        self._freed = freed
        self._taken = 0
        self._idle: dict[Worker, Future[bool]] = {}
        # Done waiting for something else, and without a place to go on in.
        self.returning: deque[Worker] = deque()

    @property
    def idle(self) -> int:
        """How many workers have nothing to do, or may be started."""
        return len(self._idle) + max(0, self._most - self._taken)

    def change(self, worker: Worker, event: str) -> None:
        """Change a worker's state, and take or give up its place by that."""
        before = worker.state
        worker.follow(event)
        self._taken += (worker.state in WITH_PLACE) - (before in WITH_PLACE)

    def start(self) -> None:
        self._taken += 1
        self._start()

    def wake(self) -> bool:
        """Have one worker more look for work, an idle or a new one; False if all places are
        busy.
        """
        while self._idle:
            _, waiter = self._idle.popitem()
            # Else it was cancelled: the application ends.
            if not waiter.done():
                waiter.set_result(True)
                return True
        if self._taken < self._most:
            self.start()
            return True
        return False

    def wake_all(self) -> None:
        """Have every idle worker look for work, and one more if it may be started."""
        for waiter in self._idle.values():
            answer(waiter, True)
        if self._taken < self._most:
            self.start()

    async def rest(self, worker: Worker, most_s: float | None = None) -> bool:
        """Wait for work, for *most_s* seconds at most; False: it has no place any more, or all is
        over, and it ends.
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
        """Wait until all of these are done, none of which is a handler, without a place.

        Cancellation:
            The application ends: nobody asks for the place any more.
        """
        # Unnoticed, where it has taken our cancellation off its task by itself.
        worker.handler_ended()
        self.change(worker, "park")
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
            if worker.is_abandoned:
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
        """End a worker that is free, for another one that waits for its place; False if none
        does.
        """
        while self.returning:
            other = self.returning.popleft()
            # Else it was abandoned meanwhile.
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
        answer(worker.place, False)
        if had_place:
            self._freed()

    def close(self) -> None:
        """No work will come any more: who is idle ends, and who waits for a place goes on without
        one.
        """
        while self._idle:
            answer(self._idle.popitem()[1], False)
        while self.returning:
            other = self.returning.popleft()
            if other.state is WorkerState.RETURNING:
                self._resume(other)


def answer(waiter: Future[bool] | None, with_: bool) -> None:
    """Complete what a worker waits for, if it does and has no answer yet."""
    if waiter is not None and not waiter.done():
        waiter.set_result(with_)

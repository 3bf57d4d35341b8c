"""What a worker waits for between two calls, without a place: attempts, schemas and nacks."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence

from reactive_kafka.delivery.workers.places import WorkerPlaces, answer
from reactive_kafka.delivery.workers.slots import ChannelSlots
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.verdicts.ageing import clock_stopped
from reactive_kafka.verdicts.delivery import Delivery, is_open


class WorkerWaits:
    """The waits of one channel's workers, each for the next attempt or for nacks of its records."""

    def __init__(self, places: WorkerPlaces) -> None:
        self._places = places
        # Worker -> what it waits for before the next attempt. True: the time has come, or there is
        # a verdict by now. False: there will be no attempt.
        self._waiting: dict[Worker, Future[bool]] = {}
        # Attempts that are due and wait for the end of a pause.
        self._paused: dict[Worker, Future[bool]] = {}
        self._is_stopping = False

    async def until_due(self, worker: Worker, messages: Sequence[Delivery], wait_s: float) -> bool:
        """Wait *wait_s* seconds for the next attempt.

        The wait is over at once when all of the records have their verdicts.

        Returns:
            False if this worker makes no attempt, because the channel stops, a partition goes, or
            is read from elsewhere: the records were given back.
        """
        loop = asyncio.get_running_loop()
        due: Future[bool] = loop.create_future()
        timer = loop.call_later(wait_s, answer, due, True)
        try:
            return await self.until(worker, messages, due)
        finally:
            timer.cancel()

    async def until_resumed(self, worker: Worker, messages: Sequence[Delivery]) -> bool:
        """Wait for the end of a pause before an attempt: the last wait before each of them.

        The channel may have been paused again by the time that the worker has a place.

        Returns:
            False if this worker makes no attempt: as :meth:`until_due`, or because all of the
            records have their verdicts.
        """
        while _is_paused(worker) and any(map(is_open, messages)):
            due: Future[bool] = asyncio.get_running_loop().create_future()
            self._paused[worker] = due
            try:
                if not await self.until(worker, messages, due):
                    return False
            finally:
                self._paused.pop(worker, None)
        return any(map(is_open, messages))

    async def until(self, worker: Worker, messages: Sequence[Delivery], due: Future[bool]) -> bool:
        """Wait until *due* is done. If the wait ends earlier, *due* is cancelled.

        Returns as :meth:`until_due`.
        """
        is_due = await self._until(worker, messages, due)
        slots = self._places.slots
        if is_due and slots is not None:
            return await self._until_slot(worker, messages, slots)
        return is_due

    async def _until_slot(
        self, worker: Worker, messages: Sequence[Delivery], slots: ChannelSlots
    ) -> bool:
        """Wait for a slot of ``limit``; the records do not age. Returns as :meth:`until_due`.

        There is no need for one if all records have their verdicts by now.
        """
        while not worker.has_slot and any(is_open(message) for message in messages):
            slot = slots.take_again(worker)
            if slot is None:
                break
            try:
                with clock_stopped(messages, asyncio.get_running_loop().time):
                    if not await self._until(worker, messages, slot):
                        return False
            finally:
                slots.forget(worker)
        return True

    async def _until(self, worker: Worker, messages: Sequence[Delivery], due: Future[bool]) -> bool:
        is_due = False
        if not (self._is_stopping or worker.is_revoked):
            self._waiting[worker] = due
            end = _answer_at_verdicts(messages, due)
            try:
                await self._places.park(worker, [due])
                # An abandoned worker has lost its place: a partition of its records is gone or read
                # from elsewhere. Another worker begins what is left of the batch. And nothing
                # begins in a revocation, which may have come while a worker whose wait was over had
                # no place.
                is_due = due.result() and not (worker.is_abandoned or worker.is_revoked)
            finally:
                end()
                del self._waiting[worker]
                due.cancel()
        if not is_due:
            self._give_back(worker, messages)
        return is_due

    async def for_nacks(self, worker: Worker) -> None:
        """Wait until the nacks of a worker's records are carried out."""
        pending = [verdict for verdict in worker.blocked_on if not verdict.done()]
        worker.blocked_on = []
        if pending:
            await self._places.park(worker, pending)

    def resumed(self) -> None:
        """Make the attempts that wait for the end of a pause that is over."""
        for worker, due in list(self._paused.items()):
            if not _is_paused(worker):
                answer(due, True)

    def dropped(self, worker: Worker) -> None:
        """End the wait of a worker, one of whose lanes was dropped."""
        answer(self._waiting.get(worker), False)

    def suspended(self) -> None:
        """End the waits in lanes that are suspended."""
        for worker, due in self._waiting.items():
            if worker.is_revoked:
                answer(due, False)

    def stop(self) -> None:
        """End all waits for another attempt, and those to come: the channel ends."""
        self._is_stopping = True
        for due in self._waiting.values():
            answer(due, False)

    def _give_back(self, worker: Worker, messages: Sequence[Delivery]) -> None:
        """Put records without a verdict back into their lanes: this worker makes no more attempt.

        If the channel ends they are left instead. They stay unsettled, a stop need not wait for
        them, and the next owner reads them again.
        """
        lanes = {id(lane.tracker): lane for lane in worker.lanes}
        for message in reversed(messages):
            tracker = message.tracker
            index = message.index
            if self._is_stopping:
                tracker.nack(index)
            elif tracker.is_open(index):
                lanes[id(tracker)].wait_again(message.record, index, worker.key)


def _answer_at_verdicts(messages: Sequence[Delivery], due: Future[bool]) -> Callable[[], None]:
    """Complete *due* with True when all of these have their verdicts, whoever gives them.

    Returns:
        What has to be called when nobody waits any more.
    """
    waiting = [message for message in messages if is_open(message)]
    without_verdict = len(waiting)

    def told(_: int) -> None:
        nonlocal without_verdict
        without_verdict -= 1
        if not without_verdict:
            answer(due, True)

    def end() -> None:
        for message in waiting:
            message.tracker.forget_at_verdict(message.index)

    if not waiting:
        answer(due, True)
    for message in waiting:
        message.tracker.call_at_verdict(message.index, told)
    return end


def _is_paused(worker: Worker) -> bool:
    """Return whether the application has paused a partition that the worker has records of."""
    return any(lane.is_paused for lane in worker.lanes)

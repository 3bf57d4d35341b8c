"""A channel has so many places; a worker that waits for something else gives its place away, and
gets one again.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from contextvars import copy_context

from reactive_kafka.delivery.workers.interface import NoWorkers
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.places import WorkerPlaces
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.delivery.workers.worker_states import WorkerState


class Rig:
    """Places for *most* workers, which a test moves by hand."""

    def __init__(self, most: int) -> None:
        self.started = 0
        self.freed = 0
        self.isolation = Isolation(lambda: False)
        self.places = WorkerPlaces(most, self.isolation)
        self.places.serve(start_worker=self._start, place_is_free=self._free)

    def _start(self) -> None:
        self.started += 1

    def _free(self) -> None:
        self.freed += 1

    def busy(self) -> Worker:
        """A worker that was started and has taken a lane."""
        self.places.start()
        worker = Worker(NoWorkers(), copy_context())
        worker.follow("take")
        return worker

    async def parked(self, worker: Worker) -> tuple[asyncio.Task[None], Future[bool]]:
        """Park a worker: the task that waits, and what it waits for."""
        awaited: Future[bool] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self.places.park(worker, [awaited]))
        await asyncio.sleep(0)
        return task, awaited


async def turns() -> None:
    """Let a worker whose wait is over find out."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_parked_worker_gives_its_place_away_and_takes_a_free_one_when_it_goes_on() -> None:
    rig = Rig(1)
    worker = rig.busy()
    assert not rig.places.idle
    task, awaited = await rig.parked(worker)
    assert (rig.freed, rig.places.idle, worker.state) == (1, 1, WorkerState.PARKED)
    awaited.set_result(True)
    await task
    assert (rig.places.idle, worker.state) == (0, WorkerState.RUNNING)


async def test_where_no_place_is_free_it_gets_the_next_that_is_passed_on_in_one_step() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    second = rig.busy()
    awaited.set_result(True)
    await turns()
    assert first.state is WorkerState.RETURNING
    second.follow("turn away")
    assert rig.places.pass_on(second)
    # Before the first has its turn.
    assert (first.state, second.state) == (WorkerState.RUNNING, WorkerState.ENDED)
    assert not rig.places.wake()
    await task


async def test_who_waits_for_a_place_gets_that_of_a_worker_that_is_abandoned() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    second = rig.busy()
    awaited.set_result(True)
    await turns()
    assert first.state is WorkerState.RETURNING
    rig.places.abandon(second)
    assert (first.state, rig.places.idle) == (WorkerState.RUNNING, 0)
    await task


async def test_who_has_just_got_a_place_may_be_abandoned_before_it_goes_on() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    second = rig.busy()
    awaited.set_result(True)
    await turns()
    rig.places.abandon(second)
    rig.places.abandon(first)
    await task
    assert first.state is WorkerState.ABANDONED


async def test_who_waits_for_a_place_gets_that_of_a_worker_that_parks() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    second = rig.busy()
    awaited.set_result(True)
    await turns()
    waiting, done = await rig.parked(second)
    assert (first.state, rig.places.idle) == (WorkerState.RUNNING, 0)
    await task
    assert rig.freed == 1
    done.set_result(True)
    await turns()
    assert second.state is WorkerState.RETURNING
    rig.places.close()
    await waiting


async def test_an_idle_worker_ends_for_one_that_goes_on() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    rig.places.start()
    idle = Worker(NoWorkers(), copy_context())
    resting = asyncio.ensure_future(rig.places.rest(idle))
    await asyncio.sleep(0)
    awaited.set_result(True)
    await task
    assert not await resting
    assert (first.state, idle.state) == (WorkerState.RUNNING, WorkerState.ENDED)


async def test_a_worker_that_is_abandoned_while_it_waits_for_a_place_needs_none() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    second = rig.busy()
    awaited.set_result(True)
    await turns()
    rig.places.abandon(first)
    await task
    assert first.state is WorkerState.ABANDONED
    second.follow("turn away")
    assert not rig.places.pass_on(second)
    # It had no place to free.
    assert rig.freed == 1


async def test_an_abandoned_worker_frees_its_place_once() -> None:
    rig = Rig(2)
    workers = [rig.busy(), rig.busy()]
    for _ in range(2):
        rig.places.abandon(workers[0])
    assert (rig.freed, rig.places.idle) == (1, 1)
    assert rig.places.wake()
    assert (rig.started, rig.places.idle) == (3, 0)


async def test_who_waits_for_a_place_goes_on_without_one_when_all_is_over() -> None:
    rig = Rig(1)
    first = rig.busy()
    task, awaited = await rig.parked(first)
    rig.busy()
    awaited.set_result(True)
    await turns()
    rig.isolation.is_closed = True
    rig.places.close()
    await task
    assert first.state is WorkerState.RUNNING


async def test_a_worker_that_is_woken_early_leaves_no_timer_behind() -> None:
    rig = Rig(1)
    worker = rig.busy()
    loop = asyncio.get_running_loop()
    timers = {timer for timer in loop._scheduled if not timer.cancelled()}  # type: ignore[attr-defined]
    resting = asyncio.ensure_future(rig.places.rest(worker, 3600.0))
    await asyncio.sleep(0)
    assert rig.places.wake()
    assert await resting
    assert {timer for timer in loop._scheduled if not timer.cancelled()} == timers  # type: ignore[attr-defined]

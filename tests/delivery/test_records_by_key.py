"""Workers that call a handler by key: who was alone in a lane leaves it when keys matter; and which
record a worker is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from operator import attrgetter
from typing import Any

from reactive_kafka import IncomingSettings, Message
from reactive_kafka.delivery.assembly import record_workers
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import NoWorkers
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.testing import FakeClock, record
from tests.app.helpers import settle_down, tp
from tests.delivery.worker_setups import worker_setup
from tests.tracking.values import tracker_of


async def test_who_was_alone_takes_no_record_of_a_key_that_another_worker_has() -> None:
    tasks: list[asyncio.Task[Any]] = []
    running: dict[int, asyncio.Future[None]] = {}

    async def handler(message: Message[Any]) -> None:
        running[message.offset] = asyncio.get_running_loop().create_future()
        await running[message.offset]
        del running[message.offset]

    def spawn(
        work: Callable[[], Awaitable[None]], name: str, context: Context | None = None
    ) -> None:
        tasks.append(asyncio.ensure_future(work()))

    settings = IncomingSettings(
        name="orders", topics=("orders",), group_id="g", ordering="key", concurrency=2
    )
    invocation = Invocation(call=handler, decode=None, wants_message=True, ack="post")
    lanes = LaneQueue(shared=False, key_of=attrgetter("key"), keys_are_total=True)
    # The clock stands, so no stretch is ever over.
    setup = worker_setup(settings, lanes, FakeClock(), spawn)
    workers = record_workers(setup, copy_context(), invocation)
    tracker = tracker_of()
    came = [record(offset=at, key=key) for at, key in enumerate((b"a", b"b", b"b", b"c"))]
    lanes.add(lanes.new(tracker), came, tracker.deliver(range(4), 4), 0.0)
    workers.work_is_there()
    await settle_down()
    assert set(running) == {0, 1}
    running[0].set_result(None)
    await settle_down()
    assert set(running) == {1, 3}
    running[1].set_result(None)
    await settle_down()
    assert set(running) == {2, 3}
    for done in list(running.values()):
        done.set_result(None)
    await settle_down()
    assert tracker.committable == 4
    workers.close()
    await asyncio.gather(*tasks)


async def test_a_worker_has_the_message_of_its_own_record_and_of_no_other() -> None:
    tracker = tracker_of()
    tracker.deliver(range(3), 3)
    worker = Worker(NoWorkers(), copy_context())
    worker.lanes = (Lane(tracker),)
    worker.index = 1
    worker.record = record(offset=1)
    (message,) = worker.messages_of(tracker, 1)
    assert (message.index, message.record) == (1, worker.record)
    assert worker.messages_of(tracker, 2) == []
    assert worker.messages_of(tracker_of(tp(1)), 1) == []
    assert worker.has(tracker, 1)
    assert not worker.has(tracker, 2)

"""Lanes that several workers take from: what a handler's return does to its record, whatever has
become of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

import pytest

from reactive_kafka import IncomingSettings
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.delivery.assembly import record_workers
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.lanes.queue import LaneQueue
from tests.app.helpers import settle_down
from tests.delivery.test_lanes import records
from tests.delivery.worker_setups import worker_setup
from tests.tracking.values import tracker_of

Act = Callable[[Any], object]


async def run(tracker: Any, act: Act, count: int = 3) -> int:
    """Have handlers run so many records, of which that of the second does something first; how many
    were run.
    """
    lanes, tasks, calls = LaneQueue(shared=True), list[asyncio.Task[Any]](), 0

    async def call(value: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            act(tracker)

    def spawn(
        work: Callable[[], Awaitable[None]], name: str, context: Context | None = None
    ) -> None:
        tasks.append(asyncio.ensure_future(work()))

    settings = IncomingSettings(
        name="orders", topics=("orders",), group_id="g", ordering="unordered", concurrency=2
    )
    invocation = Invocation(call=call, decode=None, wants_message=False, ack="post")
    setup = worker_setup(settings, lanes, SYSTEM_CLOCK, spawn)
    workers = record_workers(setup, copy_context(), invocation)
    lanes.add(lanes.new(tracker), records(*range(count)), tracker.deliver(range(count), count), 0.0)
    workers.work_is_there()
    await settle_down()
    workers.close()
    await asyncio.gather(*tasks)
    return calls


@pytest.mark.parametrize(
    ("act", "settled"),
    [
        (lambda tracker: None, 3),
        (lambda tracker: tracker.settle(1), 3),
        (lambda tracker: tracker.nack(1), 2),
        (lambda tracker: tracker.compact(), 3),
        (lambda tracker: (tracker.nack(1), tracker.settle_nacked(1)), 3),
    ],
)
async def test_a_return_settles_the_record_that_has_no_verdict(act: Act, settled: int) -> None:
    tracker = tracker_of()
    assert await run(tracker, act) == 3
    assert tracker.settled == settled
    assert tracker.committable == (3 if settled == 3 else 1)
    assert tracker.settle_nacked(1) is (settled == 2), (
        "a nack is carried out, though its handler has returned"
    )
    assert tracker.committable == 3


async def test_a_return_after_the_assignment_settles_nothing() -> None:
    tracker = tracker_of()
    assert await run(tracker, lambda tracker: tracker.close(), count=2) == 2
    assert tracker.settled == 1

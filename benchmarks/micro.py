"""What single parts cost per record, without a broker: ``make bench-micro``. The best of five runs
each.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
import time
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.assembly import record_workers
from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.formats import record_decoder_for
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from tests.delivery.worker_setups import worker_setup

PARTITION = TopicPartition("orders", 0)
CHUNK = 500
WINDOW = 2_000
RECORDS = 500_000
WAITING = 100_000
"""Records of the cases in which handlers wait."""
RUNS = 5
EVENTS = record_decoder_for(bytes, None)
"""As every channel has it that looks for CloudEvents: none of these records has headers."""


def settle_in_order(stride: int = 1) -> None:
    """Deliver chunks of 500 and settle each record in its turn, asking for the position once a
    chunk.
    """
    tracker = OffsetTracker(PARTITION, 0)
    for start in range(0, RECORDS * stride, CHUNK * stride):
        offsets = range(start, start + CHUNK * stride, stride)
        first = tracker.deliver(offsets if stride == 1 else list(offsets), offsets[-1] + 1)
        settle = tracker.settle
        for index in range(first, first + CHUNK):
            settle(index)
        assert tracker.committable == offsets[-1] + 1


def settle_with_gaps() -> None:
    """The same, of a compacted topic in which every second offset is gone."""
    settle_in_order(stride=2)


def settle_shuffled() -> None:
    """Windows of 2,000 records, settled in any order."""
    tracker = OffsetTracker(PARTITION, 0)
    order = list(range(WINDOW))
    random.Random(3).shuffle(order)
    for start in range(0, RECORDS, WINDOW):
        first = tracker.deliver(range(start, start + WINDOW), start + WINDOW)
        for at in order:
            tracker.settle(first + at)
        assert tracker.committable == start + WINDOW


def settle_behind_a_straggler() -> None:
    """The first record of each 100,000 stays unsettled while the others settle: the window grows
    behind it.
    """
    size = 100_000
    tracker = OffsetTracker(PARTITION, 0)
    for start in range(0, RECORDS, size):
        for chunk in range(start, start + size, CHUNK):
            first = tracker.deliver(range(chunk, chunk + CHUNK), chunk + CHUNK)
            for index in range(max(first, start + 1), first + CHUNK):
                tracker.settle(index)
            assert tracker.committable == start
        tracker.settle(start)


def settle_ranges() -> None:
    """A chunk of 500 settled in one call, as a batch is."""
    tracker = OffsetTracker(PARTITION, 0)
    for start in range(0, RECORDS, CHUNK):
        first = tracker.deliver(range(start, start + CHUNK), start + CHUNK)
        tracker.settle_range(first, first + CHUNK)
        assert tracker.committable == start + CHUNK


@dataclass(slots=True)
class Raw:
    """A record as the client hands it out."""

    offset: int
    timestamp: int | None = 0
    key: bytes | None = None
    value: bytes | None = b"." * 100
    headers: tuple[tuple[str, bytes | None], ...] = ()


async def noop(_: object) -> None:
    """A handler."""


async def dispatch(*, wants_message: bool) -> None:
    """Chunks of 500 through the tracker, a lane and one worker to a handler that does nothing."""
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="bench")
    invocation = Invocation(
        call=noop, decode=None, decode_record=EVENTS, wants_message=wants_message, ack="post"
    )
    lanes = LaneQueue(shared=False)
    setup = worker_setup(settings, lanes, SYSTEM_CLOCK, lambda task, name, context=None: None)
    pool = record_workers(setup, copy_context(), invocation)
    worker = Worker(pool, copy_context())
    worker.follow("take")
    worker.stretch_end = math.inf
    tracker = OffsetTracker(PARTITION, 0)
    lane = Lane(tracker)
    records = [Raw(offset) for offset in range(CHUNK)]
    for start in range(0, RECORDS, CHUNK):
        lane.add(records, tracker.deliver(range(start, start + CHUNK), start + CHUNK), 0.0)
        worker.lanes = (lane,)
        await pool._runner.run(worker)
    assert tracker.committable == RECORDS


@functools.cache
def with_keys(keys: int) -> list[Raw]:
    """All records, whose keys come in turn."""
    return [Raw(offset, key=b"%d" % (offset % keys)) for offset in range(RECORDS)]


async def dispatch_by_key(keys: int) -> None:
    """The same with ``ordering = "key"``: each record is followed by one of another key."""
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="bench", ordering="key")
    invocation = Invocation(
        call=noop, decode=None, decode_record=EVENTS, wants_message=True, ack="post"
    )
    lanes = LaneQueue(shared=False, key_of=attrgetter("key"), keys_are_total=True)
    setup = worker_setup(settings, lanes, SYSTEM_CLOCK, lambda task, name, context=None: None)
    pool = record_workers(setup, copy_context(), invocation)
    worker = Worker(pool, copy_context())
    worker.follow("take")
    worker.stretch_end = math.inf
    tracker = OffsetTracker(PARTITION, 0)
    lane = lanes.new(tracker)
    records = with_keys(keys)
    for start in range(0, RECORDS, CHUNK):
        first = tracker.deliver(range(start, start + CHUNK), start + CHUNK)
        lanes.add(lane, records[start : start + CHUNK], first, 0.0)
        while (part := lanes.take()) is not None:
            worker.lanes = (part,)
            await pool._runner.run(worker)
            lanes.release(part)
    assert tracker.committable == RECORDS


class Running:
    """The tasks of the workers."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Any, name: str, context: Context | None = None) -> None:
        """Start a worker."""
        self.tasks.append(
            asyncio.get_running_loop().create_task(work(), name=name, context=context)
        )


async def wait_at_once(in_flight: int, ordering: Literal["key", "unordered"]) -> None:
    """Handlers that sleep 10 ms, so many at once, each key once: chunks of 500 into one lane, as
    there is room.
    """
    settings = IncomingSettings(
        name="orders",
        topics=("orders",),
        group_id="bench",
        ordering=ordering,
        concurrency=in_flight,
    )
    keys: Any = {"key_of": attrgetter("key"), "keys_are_total": True} if ordering == "key" else {}
    lanes = LaneQueue(shared=ordering == "unordered", **keys)
    running = Running()
    invocation = Invocation(
        call=sleep, decode=None, decode_record=EVENTS, wants_message=True, ack="post"
    )
    setup = worker_setup(settings, lanes, SYSTEM_CLOCK, running.spawn)
    pool = record_workers(setup, copy_context(), invocation)
    tracker = OffsetTracker(PARTITION, 0)
    lane = lanes.new(tracker)
    records = with_keys(RECORDS)
    for start in range(0, WAITING, CHUNK):
        first = tracker.deliver(range(start, start + CHUNK), start + CHUNK)
        lanes.add(lane, records[start : start + CHUNK], first, time.monotonic())
        pool.work_is_there()
        while tracker.unsettled > (0 if start + CHUNK == WAITING else 2 * in_flight - CHUNK):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    pool.close()
    await asyncio.gather(*running.tasks)


async def sleep(_: object) -> None:
    """A handler that waits."""
    await asyncio.sleep(0.01)


async def sleep_at_once(in_flight: int) -> None:
    """What the sleeping alone costs: tasks that take the next record from one iterator."""
    records = iter(range(WAITING))

    async def work() -> None:
        for record in records:
            await sleep(record)

    await asyncio.gather(*(work() for _ in range(in_flight)))


def dispatch_messages() -> None:
    """To a handler of the message."""
    asyncio.run(dispatch(wants_message=True))


def dispatch_payloads() -> None:
    """To a handler of the payload."""
    asyncio.run(dispatch(wants_message=False))


Case = Callable[[], object]
CASES: tuple[tuple[str, Case], ...] = (
    ("tracker, settled in order", settle_in_order),
    ("tracker, settled in order, offsets with gaps", settle_with_gaps),
    ("tracker, settled in any order", settle_shuffled),
    ("tracker, behind a straggler", settle_behind_a_straggler),
    ("tracker, settled 500 at a time", settle_ranges),
    ("dispatch of a `Message` to a no-op handler", dispatch_messages),
    ("dispatch of bytes to a no-op handler", dispatch_payloads),
    *(
        (
            f"dispatch of a `Message` by key, {keys:,} keys",
            lambda keys=keys: asyncio.run(dispatch_by_key(keys)),
        )
        for keys in (10, 10_000, 1_000_000)
    ),
)
AT_ONCE = (1_000, 10_000)
WAITING_CASES: tuple[tuple[str, Case], ...] = tuple(
    case
    for number in AT_ONCE
    for case in (
        (
            f"{number:,} tasks that sleep 10 ms",
            lambda number=number: asyncio.run(sleep_at_once(number)),
        ),
        (
            f"{number:,} handlers that sleep",
            lambda number=number: asyncio.run(wait_at_once(number, "unordered")),
        ),
        ("the same, of a key each", lambda number=number: asyncio.run(wait_at_once(number, "key"))),
    )
)
"""Handlers that wait, beside what their waiting costs."""


def best_ns(case: Case, runs: Iterable[int] = range(RUNS), records: int = RECORDS) -> float:
    """Nanoseconds of CPU a record, of the quickest run."""
    took = []
    for _ in runs:
        began = time.process_time()
        case()
        took.append(time.process_time() - began)
    return min(took) / records * 1e9


def main() -> None:
    """Print a line a case."""
    for name, case in CASES:
        print(f"{best_ns(case):8.1f} ns a record  {name}")
    for name, case in WAITING_CASES:
        print(f"{best_ns(case, range(2), WAITING):8.1f} ns a record  {name}")


if __name__ == "__main__":
    main()

"""What single parts cost per record, without a broker: ``make bench-micro``. The best of five runs each."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.calls import Invocation
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.records import Dispatcher
from reactive_kafka.delivery.workers import Worker, WorkerSetup
from reactive_kafka.formats import record_decoder_for
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.hook import NoHook

PARTITION = TopicPartition("orders", 0)
CHUNK = 500
WINDOW = 2_000
RECORDS = 500_000
RUNS = 5
EVENTS = record_decoder_for(bytes, None)
"""As every channel has it that looks for CloudEvents: none of these records has headers."""


def settle_in_order(stride: int = 1) -> None:
    """Deliver chunks of 500 and settle each record in its turn, asking for the position once a chunk."""
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
    """The first record of each 100,000 stays unsettled while the others settle: the window grows behind it."""
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
    invocation = Invocation(call=noop, decode=None, decode_record=EVENTS, wants_message=wants_message, ack="post")
    host: Any = None  # asked only about failures
    lanes = Lanes(shared=False)
    setup = WorkerSetup(settings, lanes, SYSTEM_CLOCK, lambda task, name: None, NoHook("orders"))
    dispatcher = Dispatcher(setup, invocation, host)
    worker = Worker(dispatcher)
    worker.follow("take")
    tracker = OffsetTracker(PARTITION, 0)
    lane = Lane(tracker)
    records = [Raw(offset) for offset in range(CHUNK)]
    for start in range(0, RECORDS, CHUNK):
        lane.add(records, tracker.deliver(range(start, start + CHUNK), start + CHUNK), 0.0)
        await dispatcher._run(worker, lane, math.inf)
    assert tracker.committable == RECORDS


async def dispatch_by_key(keys: int) -> None:
    """The same with ``ordering = "key"``: the worker takes and releases the lane of one key after the other."""
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="bench", ordering="key")
    invocation = Invocation(call=noop, decode=None, decode_record=EVENTS, wants_message=True, ack="post")
    host: Any = None  # asked only about failures
    lanes = Lanes(shared=False, key_of=attrgetter("key"))
    setup = WorkerSetup(settings, lanes, SYSTEM_CLOCK, lambda task, name: None, NoHook("orders"))
    dispatcher = Dispatcher(setup, invocation, host)
    worker = Worker(dispatcher)
    worker.follow("take")
    tracker = OffsetTracker(PARTITION, 0)
    lane = lanes.new(tracker)
    records = [Raw(offset, key=b"%d" % (offset % keys)) for offset in range(CHUNK)]
    for start in range(0, RECORDS, CHUNK):
        lanes.add(lane, records, tracker.deliver(range(start, start + CHUNK), start + CHUNK), 0.0)
        while (part := lanes.take()) is not None:
            await dispatcher._run(worker, part, math.inf)
            lanes.release(part)
    assert tracker.committable == RECORDS


def dispatch_messages() -> None:
    """To a handler of the message."""
    asyncio.run(dispatch(wants_message=True))


def dispatch_payloads() -> None:
    """To a handler of the payload."""
    asyncio.run(dispatch(wants_message=False))


def dispatch_few_keys() -> None:
    """Ten keys, 50 records of each in a chunk."""
    asyncio.run(dispatch_by_key(10))


def dispatch_many_keys() -> None:
    """Each record of a chunk has a key of its own."""
    asyncio.run(dispatch_by_key(CHUNK))


CASES: tuple[tuple[str, Callable[[], None]], ...] = (
    ("tracker, settled in order", settle_in_order),
    ("tracker, settled in order, offsets with gaps", settle_with_gaps),
    ("tracker, settled in any order", settle_shuffled),
    ("tracker, behind a straggler", settle_behind_a_straggler),
    ("tracker, settled 500 at a time", settle_ranges),
    ("dispatch of a `Message` to a no-op handler", dispatch_messages),
    ("dispatch of bytes to a no-op handler", dispatch_payloads),
    ("dispatch of a `Message` by key, 10 keys", dispatch_few_keys),
    ("dispatch of a `Message` by key, 500 keys", dispatch_many_keys),
)


def best_ns(case: Callable[[], None], runs: Iterable[int] = range(RUNS)) -> float:
    """Nanoseconds a record, of the quickest run."""
    took = []
    for _ in runs:
        began = time.perf_counter()
        case()
        took.append(time.perf_counter() - began)
    return min(took) / RECORDS * 1e9


def main() -> None:
    """Print a line a case."""
    for name, case in CASES:
        print(f"{best_ns(case):8.1f} ns a record  {name}")


if __name__ == "__main__":
    main()

"""What is told of a partition that cannot be read, and how soon it is tried again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from reactive_kafka import TransientBrokerError
from reactive_kafka.events import ReadFailed
from reactive_kafka.fetching.read_failures import ReadFailures
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, now, tp, until
from tests.partitions.reading import partition_of, partitions_read


@in_virtual_time
async def test_the_answer_to_a_request_that_was_on_its_way_is_no_second_failure() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    partitions, recorder = partitions_read(tp(0)), Recorder()
    context: Any = SimpleNamespace(
        clock=loop.clock,
        settings=SimpleNamespace(on_unreadable="fail"),
        channel="orders",
        observer=recorder,
    )
    starts: Any = SimpleNamespace(table=partitions.table, consumer=None)
    reports: Any = None
    failures = ReadFailures(context, starts, reports, lambda: None)
    tracker = partition_of(partitions, tp(0)).tracker

    async def fail() -> None:
        error = TransientBrokerError("the node closed the connection")
        assert await failures.cannot_read(tp(0), error, tracker) is None

    await fail()
    began = now()
    await fail()
    assert len(recorder.of(ReadFailed)) == 1
    await until(lambda: not failures.held_back(now()), 60)
    first_s = now() - began
    await fail()
    assert len(recorder.of(ReadFailed)) == 2
    began = now()
    await until(lambda: not failures.held_back(now()), 60)
    # It was the second failure, and not the third.
    assert now() - began < 3 * first_s

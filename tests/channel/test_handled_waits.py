"""How long a wait for a handled record lets its partition be away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.channel.handled_waits import UNDECIDED_S, HandledWaits
from reactive_kafka.clock import Clock
from reactive_kafka.errors import NotOwnerError
from tests.app.helpers import in_virtual_time
from tests.tracking.values import tracker_of

A = TopicPartition("orders", 0)


class Member:
    """A running channel of one client, whose partition a test takes away and gives back."""

    def __init__(self) -> None:
        self.tracker = tracker_of(A)
        self.tracker.deliver([0], 1)
        self.table = SimpleNamespace(ours=frozenset({A}), trackers={A: self.tracker})
        channel: Any = SimpleNamespace(
            name="orders",
            services=SimpleNamespace(clock=Clock(monotonic=asyncio.get_running_loop().time)),
            session=SimpleNamespace(
                clients=SimpleNamespace(consumers=[SimpleNamespace(table=self.table)])
            ),
            status=SimpleNamespace(state="running", may_go_on=True, failure=None),
        )
        self.waits = HandledWaits(channel)

    def has(self, *, partition: bool) -> None:
        self.table.ours = frozenset({A} if partition else ())
        self.table.trackers = {A: self.tracker} if partition else {}


@in_virtual_time
async def test_each_absence_of_a_partition_is_timed_from_its_own_beginning() -> None:
    member = Member()
    waiting = asyncio.create_task(member.waits.wait(A, 0))
    for _ in range(4):
        await asyncio.sleep(10)
        member.has(partition=False)
        await asyncio.sleep(0.8 * UNDECIDED_S)
        assert not waiting.done()
        member.has(partition=True)
    await asyncio.sleep(10)
    assert not waiting.done()
    member.tracker.settle(0)
    await waiting


@in_virtual_time
async def test_an_absence_that_lasts_is_an_error() -> None:
    member = Member()
    waiting = asyncio.create_task(member.waits.wait(A, 0))
    await asyncio.sleep(1)
    member.has(partition=False)
    await asyncio.sleep(UNDECIDED_S + 0.1)
    with pytest.raises(NotOwnerError, match="is not ours"):
        await waiting

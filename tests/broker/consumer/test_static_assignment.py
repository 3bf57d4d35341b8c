"""Partitions that a consumer has chosen itself reach the listener once, and nobody takes them away."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka.broker.client import STATIC_GENERATION
from reactive_kafka.broker.consumer.membership.static_assignment import StaticAssignment
from reactive_kafka.records import TopicPartition
from tests.broker.consumer.test_classic_membership import ReadPartitions

pytestmark = pytest.mark.virtual_time

FIRST = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 1)})
LATER = frozenset({TopicPartition("orders", 2)})


class Listener:
    """Notes what it is told."""

    def __init__(self, reader: ReadPartitions) -> None:
        self.reader = reader
        self.told: list[frozenset[TopicPartition]] = []
        self.takes_s = 0.0
        self.raises: Exception | None = None

    async def on_assigned(self, partitions: frozenset[TopicPartition], generation: int) -> None:
        assert partitions <= self.reader.held
        assert generation == STATIC_GENERATION
        await asyncio.sleep(self.takes_s)
        self.told.append(partitions)
        if self.raises is not None:
            raise self.raises

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        raise AssertionError("nobody takes them away")


def assigning() -> tuple[StaticAssignment, Listener]:
    reader = ReadPartitions()
    listener = Listener(reader)
    return StaticAssignment(reader, listener), listener


async def test_an_assignment_without_a_partition_is_passed_on_too() -> None:
    static, listener = assigning()
    static.start(())
    await asyncio.sleep(1)
    assert listener.told == [frozenset()]


async def test_only_partitions_that_are_new_are_passed_on_once_the_last_call_has_ended() -> None:
    static, listener = assigning()
    listener.takes_s = 10.0
    static.start(FIRST)
    await asyncio.sleep(5)
    static.add(FIRST | LATER)
    assert listener.reader.held == FIRST
    await asyncio.sleep(10)
    static.add(FIRST | LATER)
    static.add(FIRST | LATER)
    await asyncio.sleep(20)
    assert listener.told == [FIRST, LATER]
    assert listener.reader.held == FIRST | LATER


async def test_what_the_listener_raises_is_raised_once_and_ends_a_waiting_poll() -> None:
    static, listener = assigning()
    listener.raises = ZeroDivisionError("a hook")
    static.start(FIRST)
    static.raise_errors()
    await asyncio.sleep(1)
    assert listener.reader.woken == 1
    with pytest.raises(ZeroDivisionError, match="a hook"):
        static.raise_errors()
    static.raise_errors()


async def test_a_stop_ends_the_call_of_the_listener_unless_that_has_asked_for_it() -> None:
    static, listener = assigning()
    listener.takes_s = 10.0
    await static.close(None)
    static.start(FIRST)
    await asyncio.sleep(1)
    await static.close(None)
    assert listener.told == []

    static, listener = assigning()

    async def stop(partitions: frozenset[TopicPartition], generation: int) -> None:
        await static.close(asyncio.current_task())
        listener.told.append(partitions)

    listener.on_assigned = stop  # type: ignore[method-assign]
    static.start(FIRST)
    await asyncio.sleep(1)
    assert listener.told == [FIRST]

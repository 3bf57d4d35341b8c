"""The store of tests fails as it is told to, and remembers what was written."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, Rows, WriteAttempt
from reactive_kafka.errors import CheckpointRefusedError, CorruptCheckpointError, StoreAwayError
from tests.app.helpers import in_virtual_time

ORDERS = TopicPartition("orders", 0)
FIRST, NEXT = {ORDERS: Write(0, Checkpoint(1, 5))}, {ORDERS: Write(1, Checkpoint(1, 6), 5)}


def two() -> tuple[Rows, MemoryStore, MemoryStore]:
    rows = Rows()
    return rows, MemoryStore(rows, who="a"), MemoryStore(rows, who="b")


async def test_what_everybody_wrote_stands_in_the_history() -> None:
    rows, a, b = two()
    await a.write("g", FIRST)
    await b.write("g", FIRST)
    assert rows.history == [
        WriteAttempt("a", "g", ORDERS, FIRST[ORDERS], True),
        WriteAttempt("b", "g", ORDERS, FIRST[ORDERS], False),
    ]


async def test_one_client_is_away_or_all_of_them() -> None:
    rows, a, b = two()
    a.faults.away = True
    with pytest.raises(StoreAwayError):
        await a.write("g", FIRST)
    assert await b.write("g", FIRST) == frozenset()
    a.faults.away, rows.faults.away = False, True
    for store in (a, b):
        with pytest.raises(StoreAwayError):
            await store.read("g", [ORDERS])
    rows.faults.away = False
    assert await a.read("g", [ORDERS]) == {ORDERS: Checkpoint(1, 5)}


async def test_a_lost_answer_was_stored_and_a_late_write_lands_when_it_is_told_to() -> None:
    rows, a, b = two()
    a.faults.script("write", "lost", "late", "away")
    with pytest.raises(StoreAwayError, match="has arrived"):
        await a.write("g", FIRST)
    assert rows.row("g", ORDERS) == Checkpoint(1, 5)
    with pytest.raises(StoreAwayError, match="on its way"):
        await a.write("g", NEXT)
    with pytest.raises(StoreAwayError, match="is away"):
        await a.write("g", NEXT)
    assert rows.row("g", ORDERS) == Checkpoint(1, 5)
    await b.write("g", {ORDERS: Write(1, Checkpoint(2, 5), 5)})
    assert [written.stored for written in rows.land()] == [False]
    assert rows.land() == []
    assert rows.row("g", ORDERS) == Checkpoint(2, 5)


@pytest.mark.parametrize(("outcome", "stored"), [("away", False), ("lost", True), ("late", False)])
async def test_the_end_of_a_transaction_fails_like_a_write(outcome: str, stored: bool) -> None:
    rows, a, _ = two()
    rows.faults.script("exit", outcome)  # type: ignore[arg-type]
    with pytest.raises(StoreAwayError):
        async with a.transaction("g", FIRST) as mine:
            mine["row"] = 1
    assert rows.data == ({"row": 1} if stored else {})
    assert (rows.row("g", ORDERS) is not None) is stored
    rows.land()
    assert rows.data == ({} if outcome == "away" else {"row": 1})


async def test_a_late_end_of_a_transaction_that_was_overtaken_changes_nothing() -> None:
    rows, a, b = two()
    a.faults.script("exit", "late")
    with pytest.raises(StoreAwayError):
        async with a.transaction("g", FIRST) as mine:
            mine["row"] = 1
    await b.write("g", FIRST)
    assert [written.stored for written in rows.land()] == [False]
    assert rows.data == {}


async def test_the_start_of_a_transaction_fails_before_the_block() -> None:
    rows, a, _ = two()
    rows.faults.script("enter", "away")
    rows.faults.script("read", "corrupt")
    with pytest.raises(StoreAwayError):
        async with a.transaction("g", FIRST):
            pytest.fail("the block was entered")
    with pytest.raises(CorruptCheckpointError):
        await a.read("g", [ORDERS])
    with pytest.raises(CheckpointRefusedError):
        async with a.transaction("g", NEXT):
            pytest.fail("the block was entered")


@in_virtual_time
async def test_a_call_that_is_held_waits_and_is_given_up_at_its_deadline() -> None:
    rows, a, b = two()
    hold = rows.faults.hold("write")
    held = asyncio.create_task(a.write("g", FIRST))
    await hold.arrived()
    assert await b.write("g", {ORDERS: Write(0, Checkpoint(1, 9))}) == frozenset()
    hold.release()
    assert await held == {ORDERS}
    hold = a.faults.hold("write")
    with pytest.raises(StoreAwayError, match="did not answer within 10 s"):
        await a.write("g", {ORDERS: Write(1, Checkpoint(1, 10), 9)})
    hold.release()
    assert rows.row("g", ORDERS) == Checkpoint(1, 9)


@in_virtual_time
async def test_a_slow_store_takes_its_time() -> None:
    rows, a, b = two()
    rows.faults.slow_s, a.faults.slow_s = 2.0, 3.0
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(a.write("g", FIRST), b.read("g", [ORDERS]))
    assert loop.time() - began == pytest.approx(5.0)
    a.faults.slow_s = 9.0
    with pytest.raises(StoreAwayError):
        await a.read("g", [ORDERS])

"""Somebody's open transaction: readers of what is committed wait for its end, and say what they
wait for.
"""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka import App
from reactive_kafka.events import TransactionHangs
from reactive_kafka.records import RecordBytes
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import note_values
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    tp,
    until,
)

PATIENT = {"transaction_timeout_ms": 600_000}


def reading(recorder: Recorder, seen: list[bytes], **orders: object) -> App:
    app = make_app(recorder, **orders)
    note_values(app, seen)

    return app


async def open_transaction(broker: MemoryBroker) -> Any:
    """Somebody who has written a record in a transaction, and does not end it."""
    producer = broker.connector().transactional_producer(
        name="other", transactional_id="other", properties=PATIENT
    )
    await producer.claim()
    producer.begin()
    await producer.write(tp(0), [RecordBytes(b"in it")])
    return producer


def warnings(app: App) -> tuple[str, ...]:
    return app.channel("orders").facts().warnings


@in_virtual_time
async def test_a_last_stable_offset_that_stands_still_is_a_warning_with_its_numbers_until_it_moves() -> (
    None
):
    recorder, seen, broker = Recorder(), list[bytes](), make_broker(2)
    app = reading(recorder, seen, isolation_level="read_committed")
    async with running(app, broker=broker):
        broker.produce("orders", b"before", partition=0)
        producer = await open_transaction(broker)
        broker.produce("orders", b"behind", partition=0)
        began = now()
        await until(lambda: warnings(app), 15)
        assert now() - began >= 9
        await asyncio.sleep(50 - (now() - began))
        (warning,) = warnings(app)
        stood = int(warning.partition(" for ")[2].partition(" s")[0])
        assert 46 <= stood <= 50
        assert warning == (
            f"the last stable offset of orders-0 has stood at 1 for {stood} s, the end is 3: an open transaction"
        )
        assert app.health().ready.status == "UP"
        assert warning in app.health().ready.checks[0].data["warnings"]
        assert [
            (told.partition, told.stable, told.end) for told in recorder.of(TransactionHangs)
        ] == [(tp(0), 1, 3)]
        assert seen == [b"before"]
        await producer.abort()
        await until(lambda: seen == [b"before", b"behind"])
        await until(lambda: not warnings(app), 3)


@in_virtual_time
async def test_transactions_that_end_and_those_that_nobody_waits_for_are_no_warning() -> None:
    recorder, broker = Recorder(), make_broker(1)
    patient = reading(recorder, [], isolation_level="read_committed")
    async with running(patient, broker=broker):
        # One after the other, each of them open for eight seconds.
        for _ in range(4):
            producer = await open_transaction(broker)
            await asyncio.sleep(8)
            await producer.commit()
        await asyncio.sleep(4)
    hasty = reading(recorder, seen := [], isolation_level="read_uncommitted")
    async with running(hasty, broker=broker):
        await open_transaction(broker)
        await asyncio.sleep(30)
        assert len(seen) == 1, "the group has handled the others"
        assert warnings(hasty) == ()
    assert recorder.of(TransactionHangs) == []

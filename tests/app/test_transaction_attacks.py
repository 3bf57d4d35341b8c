"""Transactions used as nobody should, and left in the lurch: nothing is lost, doubled, or held for
ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import (
    Batch,
    Emitter,
    EmitterTransaction,
    Record,
    RejectedRecordError,
    TransactionAbortedError,
)
from reactive_kafka.events import RecordDeadLettered
from tests.app.helpers import Recorder, in_virtual_time, running, send, tp, until
from tests.app.test_emitter_transactions import app_with, seen
from tests.app.test_exactly_once import DEAD, position, values
from tests.app.test_exactly_once import app_with as exactly_once

# Most transactions of a channel at a time.
MOST_PRODUCERS = 16
# One producer is kept for transactions that have partitions.
MOST_BLOCKS = MOST_PRODUCERS - 1
# So many records of a transaction are collected before any is written.
COLLECTED = 10_000


@pytest.mark.parametrize("slow", [None, "claim", "send"])
@in_virtual_time
async def test_many_tasks_may_send_in_one_block_at_once(slow: Any) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        if slow is not None:
            test.broker.delay_next(slow, seconds=1.0)
        many = 2 * COLLECTED + 1_000
        async with emitter.transaction() as tx:
            await asyncio.gather(*(tx.send(b"%d" % number) for number in range(many)))
        assert sorted(map(int, filter(None, seen(test.broker)))) == list(range(many))


@in_virtual_time
async def test_blocks_with_many_tasks_use_up_no_producers() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        for _ in range(MOST_PRODUCERS + 1):
            async with asyncio.timeout(60):
                async with emitter.transaction() as tx:
                    await asyncio.gather(*(tx.send(b"x") for _ in range(COLLECTED + 10)))
        assert len(seen(test.broker)) == (MOST_PRODUCERS + 1) * (COLLECTED + 10)


@in_virtual_time
async def test_a_block_that_has_lost_records_to_an_error_which_it_has_caught_is_not_committed() -> (
    None
):
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        refused = 0
        with pytest.raises(TransactionAbortedError, match="has failed already"):
            async with emitter.transaction() as tx:
                for number in range(COLLECTED + 5):
                    try:
                        await tx.send(b"x", partition=99 if number == 7 else None)
                    except RejectedRecordError:
                        refused += 1
        assert (refused, seen(test.broker)) == (1, [])


@in_virtual_time
async def test_a_block_that_outlives_the_application_sends_nothing_and_makes_no_producer() -> None:
    app, made, stopped = app_with(), list[str](), list[str]()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        producers = app._run.channels.outgoing["invoices"].writer.producers  # type: ignore[union-attr]
        inner = producers._make

        def noted(*, transactional_id: str) -> Any:
            made.append(transactional_id)
            producer = inner(transactional_id=transactional_id)
            stop = producer.stop

            async def stops() -> None:
                stopped.append(transactional_id)
                await stop()

            producer.stop = stops
            return producer

        producers._make = noted
        tx = emitter.transaction()
        await tx.__aenter__()
        await tx.send(b"late")
    with pytest.raises(TransactionAbortedError, match="have stopped"):
        await tx.__aexit__(None, None, None)
    assert (seen(test.broker), sorted(made)) == ([], sorted(stopped))


@in_virtual_time
async def test_a_block_that_waits_for_a_producer_hears_that_the_application_has_stopped() -> None:
    app, going = app_with(), asyncio.Event()
    emitter = app.emitter("invoices")

    async def block() -> None:
        async with emitter.transaction() as tx:
            for _ in range(COLLECTED):
                await tx.send(b"x")
            await going.wait()

    async with running(app) as test:
        blocks = [asyncio.ensure_future(block()) for _ in range(MOST_BLOCKS + 2)]
        await until(lambda: test.broker.end(tp(0, "invoices")) == MOST_BLOCKS * COLLECTED)
        await asyncio.sleep(1)
    waiting = [one for one in blocks if one.done()]
    assert len(waiting) == 2
    for one in waiting:
        with pytest.raises(TransactionAbortedError, match="have stopped"):
            await one
    going.set()
    for one in blocks[:MOST_BLOCKS]:
        with pytest.raises(TransactionAbortedError):
            await one


@in_virtual_time
async def test_a_letter_that_the_broker_refuses_fails_no_record_of_the_batch_around_it() -> None:
    recorder = Recorder()
    app = exactly_once(
        recorder, batch_max_records=4, batch_max_wait="1s", failure_strategy="dead-letter-queue"
    )
    batches = list[list[int]]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[int]) -> list[Record]:
        batches.append(batch.payloads)
        return [Record(payload) for payload in batch.payloads]

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), times=1, of=DEAD)
        await send(test, b"1", b"bad", b"3", b"4")
        await until(lambda: position(test.broker) == 4, 30)
        assert values(test.broker, DEAD) == [b"bad"]
        assert values(test.broker) == [b"1", b"3", b"4"]
        assert [one.offset for one in recorder.of(RecordDeadLettered)] == [1]


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("is_cancelled", [False, True])
@in_virtual_time
async def test_what_a_task_still_writes_for_a_block_that_has_ended_is_in_no_other_transaction(
    is_cancelled: bool,
    is_over: bool,
) -> None:
    app, writing = app_with(), list[asyncio.Task[None]]()
    emitter = app.emitter("invoices")
    async with running(app) as test:

        async def many(tx: EmitterTransaction) -> None:
            for _ in range(COLLECTED):
                await tx.send(b"aborted" * 100, partition=0)

        async def block() -> None:
            async with emitter.transaction() as tx:
                writing.append(asyncio.create_task(many(tx)))
                await sending.arrived()
                raise ValueError("no")

        sending = test.broker.hold("send")
        ends = asyncio.create_task(block())
        await sending.arrived()
        await asyncio.sleep(0.1)
        if is_cancelled:
            ends.cancel()
            await asyncio.sleep(0.1)
        # The write comes to its end before anybody else begins.
        if is_over:
            sending.release()
            await asyncio.gather(ends, *writing, return_exceptions=True)
        others = [asyncio.create_task(alone(emitter, b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0.1)
        sending.release()
        await asyncio.gather(ends, *writing, return_exceptions=True)
        await asyncio.gather(*others)
        for number in range(MOST_PRODUCERS):
            await alone(emitter, b"%d" % (3 + number))
        assert sorted(seen(test.broker)) == sorted(
            b"%d" % number for number in range(3 + MOST_PRODUCERS)
        )


async def alone(emitter: Emitter, value: bytes) -> None:
    async with emitter.transaction() as tx:
        await tx.send(value, partition=0)

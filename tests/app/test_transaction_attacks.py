"""Transactions used as nobody should, and left in the lurch: nothing is lost, doubled, or held for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import RejectedRecordError, TransactionAbortedError
from reactive_kafka.outgoing.transactions import GATHERED, MOST_PRODUCERS
from tests.app.helpers import in_virtual_time, running
from tests.app.test_emitter_transactions import app_with, seen


@pytest.mark.parametrize("slow", [None, "claim", "send"])
@in_virtual_time
async def test_many_tasks_may_send_in_one_block_at_once(slow: Any) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        if slow is not None:
            test.broker.delay_next(slow, seconds=1.0)
        many = 2 * GATHERED + 1_000
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
                    await asyncio.gather(*(tx.send(b"x") for _ in range(GATHERED + 10)))
        assert len(seen(test.broker)) == (MOST_PRODUCERS + 1) * (GATHERED + 10)


@in_virtual_time
async def test_a_block_that_has_lost_records_to_an_error_which_it_has_caught_is_not_committed() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        refused = 0
        with pytest.raises(TransactionAbortedError, match="has failed already"):
            async with emitter.transaction() as tx:
                for number in range(GATHERED + 5):
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

"""Senders wait for room in their turn, and one that gives up passes its place on."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import App
from tests.app.helpers import in_virtual_time, running, settle_down, until


@pytest.mark.parametrize("turns", range(16))
@in_virtual_time
async def test_a_sender_that_is_cancelled_in_whatever_turn_of_the_loop_passes_its_place_on(
    turns: int,
) -> None:
    """With room for one record. Between the turn that lets a sender in and its own next turn lies
    one of these.
    """
    app = App({"outgoing": {"invoices": {"max_in_flight": 1}}})
    async with running(app) as test:
        emitter = app.emitter("invoices")
        await emitter.send(b"0")
        written = test.broker.hold("send")
        first = asyncio.create_task(emitter.send(b"1"))
        await written.arrived()
        second, third = (asyncio.create_task(emitter.send(value)) for value in (b"2", b"3"))
        await settle_down()
        written.release()
        for _ in range(turns):
            await asyncio.sleep(0)
        second.cancel()
        await until(lambda: first.done() and second.done() and third.done())
        await asyncio.wait_for(emitter.send(b"4"), 5)
        values = [record.value for record in test.records("invoices")]
        assert values in ([b"0", b"1", b"3", b"4"], [b"0", b"1", b"2", b"3", b"4"])

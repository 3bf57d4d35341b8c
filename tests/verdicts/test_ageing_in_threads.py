"""A handler in a thread waits for us: the clocks of its records stop in the thread of their loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from reactive_kafka import App, Message
from reactive_kafka.verdicts import ageing
from tests.app.helpers import committed, make_app, running, send, until

OUTAGE_S = 1.0


async def test_a_handler_that_blocks_may_wait_for_another_application_on_another_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = make_app(commit_interval="50ms", unprocessed_record_max_age=f"{OUTAGE_S / 5}s")
    other = App({"outgoing": {"invoices": {}}})
    invoices = other.emitter("invoices")
    has_come, is_over = threading.Event(), threading.Event()
    threads = set[int]()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        invoices.send_nowait(b"").result()

    class Spied(ageing.not_ageing):
        def __enter__(self) -> None:
            threads.add(threading.get_ident())
            super().__enter__()

    monkeypatch.setattr(ageing, "not_ageing", Spied)

    async def others() -> None:
        async with running(other) as test:
            hold = test.broker.hold("send")
            has_come.set()
            await hold.arrived()
            await asyncio.to_thread(is_over.wait)
            hold.release()

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, others()))
    await asyncio.to_thread(has_come.wait)
    async with running(app) as test:
        await send(test, b"")
        await asyncio.sleep(OUTAGE_S)
        assert app.health().live.is_up
        is_over.set()
        await until(lambda: committed(test) == 1, 30)
    await thread
    assert threads == {threading.get_ident()}

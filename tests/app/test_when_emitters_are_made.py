"""Emitters that are made before the start, while it goes on, or later: their channels are watched
from then on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated

import pytest

from reactive_kafka import App, Depends, Router
from reactive_kafka.events import NotWritable
from reactive_kafka.testing import MemoryBroker, VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, now, settle_down, until

MISSING = "broker: topic 'invoices' does not exist, and the broker does not create it"
SOON_S = 5.0
NOTHING_FEEDS = (
    "nothing feeds outgoing channel 'invoices': no @app.outgoing or app.emitter() names it"
)


@asynccontextmanager
async def started(app: App) -> AsyncIterator[MemoryBroker]:
    """The application as in production, on a broker that has the topic orders and creates no
    other.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    broker = MemoryBroker(loop.clock, auto_create=False)
    broker.create_topic("orders", 1)
    app._clock = loop.clock
    app._connector = broker.connector()
    try:
        async with app:
            yield broker
    finally:
        await broker.close()


def application(recorder: Recorder | None = None) -> App:
    tables = {
        "http": {"enabled": False},
        "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
        "outgoing": {"invoices": {}},
    }
    return App(tables, observer=recorder)


def in_the_module(app: App) -> None:
    app.emitter("invoices")


def in_an_on_start_hook(app: App) -> None:
    app.on_start(lambda: app.emitter("invoices"))


def in_an_async_on_start_hook(app: App) -> None:
    @app.on_start
    async def make() -> None:
        await asyncio.sleep(1)
        app.emitter("invoices")


def in_a_router_s_on_start_hook(app: App) -> None:
    router = Router()
    router.on_start(lambda: router.emitter("invoices"))
    app.include(router)


def in_a_task_of_an_on_start_hook(app: App) -> None:
    tasks = list[asyncio.Task[None]]()

    @app.on_start
    async def start() -> None:
        async def make() -> None:
            app.emitter("invoices")

        tasks.append(asyncio.create_task(make()))


def in_a_dependency_of_the_application(app: App) -> None:
    async def make() -> str:
        app.emitter("invoices")
        return ""

    @app.incoming("orders")
    async def handler(order: bytes, made: Annotated[str, Depends(make, scope="app")]) -> None: ...


def in_a_handler(app: App) -> None:
    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        app.emitter("invoices")


def in_a_handler_s_thread(app: App) -> None:
    @app.incoming("orders")
    def handler(order: bytes) -> None:
        assert threading.current_thread() is not threading.main_thread()
        app.emitter("invoices")


@contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """What the application logs as warnings."""
    told = list[str]()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    handler, logger = Noting(logging.WARNING), logging.getLogger("reactive_kafka")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def reasons(app: App) -> list[str]:
    return [check.data["reason"] for check in app.health().ready.checks if check.status == "DOWN"]


BEFORE_THE_START = [
    in_the_module,
    in_an_on_start_hook,
    in_an_async_on_start_hook,
    in_a_router_s_on_start_hook,
    in_a_task_of_an_on_start_hook,
    in_a_dependency_of_the_application,
]


@pytest.mark.parametrize("make", [*BEFORE_THE_START, in_a_handler, in_a_handler_s_thread])
@in_virtual_time
async def test_readiness_names_a_missing_topic_before_anything_is_sent(
    make: Callable[[App], None],
) -> None:
    recorder = Recorder()
    app = application(recorder)
    make(app)
    async with started(app) as broker:
        broker.produce("orders", b"", partition=0)
        began = now()
        await until(lambda: MISSING in reasons(app), SOON_S)
        assert now() - began < SOON_S
        await asyncio.sleep(30)
        assert len(recorder.of(NotWritable)) == 1, (
            "its topic is looked for once, however it was made"
        )
        broker.create_topic("invoices", 1)
        await until(lambda: app.health().ready.status == "UP")


@pytest.mark.parametrize("make", BEFORE_THE_START)
@in_virtual_time
async def test_a_channel_with_an_emitter_is_not_called_unfed(make: Callable[[App], None]) -> None:
    app = application()
    make(app)
    with noted_warnings() as told:
        async with started(app):
            await settle_down()
    assert NOTHING_FEEDS not in told


@in_virtual_time
async def test_a_channel_that_nothing_feeds_is_told_and_not_watched() -> None:
    app = application()
    app.on_start(lambda: None)
    with noted_warnings() as told:
        async with started(app):
            await asyncio.sleep(30)
            assert MISSING not in reasons(app)
    assert told.count(NOTHING_FEEDS) == 1


@in_virtual_time
async def test_an_emitter_may_be_made_while_the_application_stops_and_after_that() -> None:
    app = application()
    app.before_stop(lambda: app.emitter("invoices"))
    async with started(app):
        await settle_down()
    assert app.emitter("invoices") is app.emitter("invoices")

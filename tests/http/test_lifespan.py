"""The lifespan of a web application: it runs in the server's loop, from before the first request to
after the last.
"""

from __future__ import annotations

import asyncio
import io
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from litestar import Litestar
from starlette.applications import Starlette

from reactive_kafka import App, ConfigError
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import make_app, make_broker, tp, until
from tests.cli.process import COMMAND, running
from tests.faults.driver import free_port

Web = Callable[
    [Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


class Server:
    """The part of an ASGI server that is about lifespans."""

    def __init__(self, web: Any) -> None:
        self._web: Web = web
        self._given, self.told = asyncio.Queue[dict[str, str]](), asyncio.Queue[dict[str, str]]()

    async def run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._web(scope, self._given.get, self.told.put)

    async def ask(self, event: str) -> dict[str, str]:
        """Give it an event, and return its answer."""
        await self._given.put({"type": f"lifespan.{event}"})
        return await self.told.get()


@asynccontextmanager
async def serving(app: App, web: Any, broker: MemoryBroker) -> AsyncIterator[Server]:
    app._connector = broker.connector()
    server = Server(web)
    task = asyncio.create_task(server.run())
    assert (await server.ask("startup"))["type"] == "lifespan.startup.complete"
    try:
        yield server
    finally:
        assert (await server.ask("shutdown"))["type"] == "lifespan.shutdown.complete"
        await task


FRAMEWORKS = {
    "FastAPI": lambda app: FastAPI(lifespan=app.lifespan),
    "a router of FastAPI": lambda app: with_router(APIRouter(lifespan=app.lifespan)),
    "Starlette": lambda app: Starlette(lifespan=app.lifespan),
    "Litestar": lambda app: Litestar(lifespan=[app.lifespan], logging_config=None),
}


def with_router(router: APIRouter) -> FastAPI:
    web = FastAPI()
    web.include_router(router)
    return web


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_it_starts_before_the_server_serves_and_stops_in_order(framework: str) -> None:
    app, told, broker = make_app(), list[str](), make_broker()
    app.configure(overrides={"http": {"enabled": False}})
    emitter = app.emitter("invoices")

    @app.on_start
    async def starts() -> None:
        told.append("starts")

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        told.append("begins")
        await until(lambda: app.facts().stopping)
        told.append("ends")

    @app.before_stop
    def stops() -> None:
        told.append("stops")

    for _ in range(2):
        async with serving(app, FRAMEWORKS[framework](app), broker):
            assert told == ["starts"]
            assert app.facts().started
            await emitter.send(b"x", topic="orders")
            await until(lambda: told[-1] == "begins")
        assert told == ["starts", "begins", "ends", "stops"]
        assert not app.facts().started
        told.clear()
    assert broker.committed("billing")[tp()].offset == 2
    await broker.close()


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_what_is_wrong_fails_the_start_of_the_server(framework: str) -> None:
    app = App({"incoming": {"orders": {"gruop_id": "billing"}}})
    server = Server(FRAMEWORKS[framework](app))
    task = asyncio.create_task(server.run())
    answer = await server.ask("startup")
    assert answer["type"] == "lifespan.startup.failed"
    assert "[incoming.orders] gruop_id" in answer["message"]
    with pytest.raises((ConfigError, ExceptionGroup)):
        await task


async def test_the_web_application_goes_on_when_this_one_ends_by_itself_and_readiness_tells() -> (
    None
):
    app, broker = make_app(), make_broker()
    app.configure(overrides={"http": {"enabled": False}})
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handler(order: bytes) -> None:
        raise SystemExit(3)

    web = FastAPI(lifespan=app.lifespan)
    web.mount("/kafka", app.asgi)
    async with (
        serving(app, web, broker),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web") as client,
    ):
        assert (await client.get("/openapi.json")).status_code == 200
        await emitter.send(b"x", topic="orders")
        await until(lambda: app.facts().ended)
        assert (await client.get("/openapi.json")).status_code == 200
        ready = await client.get("/kafka/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "DOWN")
    await broker.close()


@contextmanager
def no_handlers() -> Iterator[tuple[logging.Logger, logging.Logger]]:
    """The root logger and ours without a handler, as a web server leaves them; put back
    afterwards.
    """
    loggers = logging.getLogger(), logging.getLogger("reactive_kafka")
    before = [(logger.handlers[:], logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers.clear()
    try:
        yield loggers
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)


async def start_and_stop() -> None:
    app, broker = make_app(), make_broker()
    app.configure(overrides={"http": {"enabled": False}})

    @app.incoming("orders")
    async def handler(order: bytes) -> None: ...

    async with serving(app, FastAPI(lifespan=app.lifespan), broker):
        pass
    await broker.close()


async def test_a_lifespan_warns_once_where_logging_is_not_configured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with no_handlers():
        await start_and_stop()
    lines = [line for line in capsys.readouterr().err.splitlines() if "logging" in line]
    (line,) = lines
    assert line == (
        "logging is not configured: call logging.basicConfig(level=logging.INFO) in the module of"
        " the web application. Until then nothing below WARNING is shown of reactive_kafka, and"
        " its warnings have neither time nor level"
    )


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
@pytest.mark.parametrize("name", ["root", "ours"])
async def test_a_lifespan_does_not_warn_where_a_handler_was_chosen_whatever_its_level(
    name: str, level: int
) -> None:
    stream = io.StringIO()
    with no_handlers() as (root, ours):
        logger = root if name == "root" else ours
        logger.addHandler(logging.StreamHandler(stream))
        logger.setLevel(level)
        await start_and_stop()
    assert "logging" not in stream.getvalue()
    assert ("orders: " in stream.getvalue()) == (level == logging.INFO)


@pytest.mark.parametrize("level", [logging.ERROR, logging.CRITICAL])
async def test_a_lifespan_does_not_warn_where_warnings_are_turned_off(
    level: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with no_handlers() as (_, ours):
        ours.setLevel(level)
        await start_and_stop()
    assert "logging" not in capsys.readouterr().err


SERVICE = """
import asyncio
from fastapi import FastAPI
from reactive_kafka import App, ConfigError

app = App({
    "kafka": {"bootstrap_servers": "BOOTSTRAP"},
    "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest", "commit_interval": "1m"}},
    "outgoing": {"out": {"topic": "orders"}},
    "http": {"enabled": False},
    WRONG
})
out = app.emitter("out")

@app.incoming("orders")
async def handler(order: bytes) -> None:
    print("begins", flush=True)
    await asyncio.sleep(1)
    print("ends", flush=True)

web = FastAPI(lifespan=app.lifespan)
web.mount("/kafka", app.asgi)

@web.post("/orders")
async def order() -> int:
    return (await out.send(b"x")).offset
"""


def test_uvicorn_stops_it_in_order_at_a_signal(tmp_path: Path) -> None:
    port = free_port()
    with running(*COMMAND, "broker", "--kind", "embedded", cwd=tmp_path) as broker:
        broker.wait_for(lambda: "\n" in broker.out, "the address is printed", timeout_s=90.0)
        bootstrap = broker.out.split()[0]
        (tmp_path / "shop.py").write_text(
            SERVICE.replace("BOOTSTRAP", bootstrap).replace("WRONG", "")
        )
        command = (sys.executable, "-m", "uvicorn", "shop:web", "--port", str(port))
        with running(
            *command, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
        ) as server:
            server.wait_for(lambda: "Uvicorn running on" in server.err, "it serves")
            assert httpx.post(f"http://127.0.0.1:{port}/orders", timeout=30).status_code == 200
            server.wait_for(lambda: "begins" in server.out, "the handler runs")
            server.process.send_signal(signal.SIGTERM)
            ended = server.end()
        assert [line for line in ended.out.splitlines() if line in ("begins", "ends")] == [
            "begins",
            "ends",
        ]
        assert "Application shutdown complete" in ended.err
        assert ended.code in (0, -signal.SIGTERM), server.said
        app = App({"kafka": {"bootstrap_servers": bootstrap}, "incoming": {}})
        assert asyncio.run(app.offsets("billing").positions())[tp()] == 1


def test_uvicorn_tells_what_is_wrong_and_does_not_serve(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SERVICE.replace("WRONG", '"inncoming": {},'))
    command = (sys.executable, "-m", "uvicorn", "shop:web", "--port", str(free_port()))
    with running(*command, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}) as server:
        ended = server.end()
    assert ended.code == 3
    assert "inncoming" in ended.err
    assert "Application startup failed" in ended.err

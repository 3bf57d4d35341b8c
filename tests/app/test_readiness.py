"""``@app.readiness``: what the application itself says about its readiness."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reactive_kafka import App, ConfigError, Router
from reactive_kafka.events import HookFailed
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import take_all
from tests.app.helpers import Recorder, in_virtual_time, make_app, make_broker, running, until


def orders_app(recorder: Recorder | None = None) -> App:
    app = make_app(recorder)
    take_all(app)
    return app


def check_of(app: App, name: str = "schemas") -> Any:
    (check,) = (check for check in app.health().ready.checks if check.name == name)
    return check


@in_virtual_time
async def test_readiness_shows_the_reason_under_its_name_until_there_is_none() -> None:
    app = orders_app()
    reason: str | None = "three schemas\nare missing"

    @app.readiness("schemas")
    async def schemas() -> str | None:
        return reason

    async with running(app):
        health = app.health()
        assert (health.live.status, health.started.status) == ("UP", "UP")
        assert health.ready.status == "DOWN"
        assert check_of(app).data == {
            "state": "not ready",
            "reason": "three schemas\\nare missing",
        }
        assert check_of(app, "orders").status == "UP"
        reason = None
        await until(lambda: app.health().ready.is_up, 1.1)
        assert check_of(app).data == {"state": "ready", "reason": None}
        reason = "again"
        await until(lambda: not app.health().ready.is_up, 1.1)


async def test_a_plain_function_runs_in_a_thread() -> None:
    app, threads = orders_app(), list[int]()

    @app.readiness("schemas")
    def schemas() -> str | None:
        threads.append(threading.get_ident())
        return None

    async with running(app):
        assert app.health().ready.is_up
    assert threads
    assert threading.get_ident() not in threads


@in_virtual_time
async def test_what_it_raises_is_the_reason_and_is_told_once() -> None:
    recorder = Recorder()
    app = orders_app(recorder)
    calls = 0

    @app.readiness("schemas")
    async def schemas() -> str | None:
        nonlocal calls
        calls += 1
        raise ConnectionError("no route to the database")

    async with running(app):
        await until(lambda: calls > 3)
        assert check_of(app).data["reason"] == "ConnectionError: no route to the database"
        (told,) = recorder.of(HookFailed)
        assert (told.hook, told.reason) == ("readiness 'schemas'", check_of(app).data["reason"])
        assert isinstance(told.error, ConnectionError)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, "the function returned an object of type bool, instead of None or a reason (str)"),
        ("", "no reason was given"),
    ],
)
@in_virtual_time
async def test_an_answer_that_is_no_reason_is_not_ready(answer: Any, reason: str) -> None:
    app = orders_app()
    app.readiness("schemas")(lambda: answer)
    async with running(app):
        assert check_of(app).data["reason"] == reason


@in_virtual_time
async def test_a_call_without_an_answer_in_five_seconds_is_cancelled_and_made_again() -> None:
    app, cancelled = orders_app(), list[bool]()
    hangs = False

    @app.readiness("schemas")
    async def schemas() -> str | None:
        if hangs:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                # A cleanup that takes time does not delay what the probe says.
                await asyncio.sleep(1)
                cancelled.append(True)
                raise
        return None

    async with running(app):
        assert app.health().ready.is_up
        hangs = True
        await asyncio.sleep(5.5)
        assert app.health().ready.is_up
        await until(lambda: not app.health().ready.is_up, 0.7)
        assert cancelled == []
        assert check_of(app).data["reason"] == "no answer in 5 s"
        await until(lambda: cancelled)
        hangs = False
        await until(lambda: app.health().ready.is_up, 2.1)


async def test_a_thread_that_hangs_is_not_joined_by_others() -> None:
    app, calls, ends = orders_app(), list[int](), threading.Event()

    @app.readiness("schemas")
    def schemas() -> str | None:
        calls.append(1)
        if len(calls) == 2:
            ends.wait()
        return None

    async with running(app):
        try:
            await until(lambda: not app.health().ready.is_up, 10)
            assert check_of(app).data["reason"] == "no answer in 5 s"
            await asyncio.sleep(2.5)
            assert len(calls) == 2
        finally:
            ends.set()
        await until(lambda: app.health().ready.is_up, 5)


@in_virtual_time
async def test_it_is_called_from_the_start_hooks_on_until_the_stop_and_again_in_the_next_run() -> (
    None
):
    app, told = orders_app(), list[str]()

    @app.on_start
    async def opens() -> None:
        await asyncio.sleep(3)
        told.append("opens")

    @app.readiness("database")
    async def database() -> str | None:
        told.append("asked")
        return None

    @app.before_stop
    async def closes() -> None:
        told.append("closes")
        await asyncio.sleep(5)

    for _ in range(2):
        async with running(app):
            await asyncio.sleep(2.5)
        assert told == ["opens", "asked", "asked", "asked", "closes"]
        told.clear()


@in_virtual_time
async def test_it_sees_the_context_variables_of_start_hooks_and_another_channel_has_its_name() -> (
    None
):
    app, router = orders_app(), Router()

    @router.readiness("orders")
    async def orders() -> str | None:
        return "no orders today"

    app.include(router)
    async with running(app):
        names = {check.name: check.status for check in app.health().ready.checks}
        assert names == {"orders": "UP", "orders (of the application)": "DOWN"}


async def test_mounted_health_shows_it() -> None:
    app, broker = orders_app(), make_broker()
    app.configure(overrides={"http": {"enabled": False}})
    app._connector = broker.connector()
    reason: str | None = "warming up"
    app.readiness("cache")(lambda: reason)
    web = FastAPI(lifespan=app.lifespan)
    web.mount("/kafka", app.asgi)

    async def ready() -> tuple[int, str]:
        answer = await client.get("/kafka/health/ready")
        return answer.status_code, answer.text

    transport = httpx.ASGITransport(web)
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        await until(lambda: check_of(app, "cache").data["reason"] == "warming up")
        status, text = await ready()
        assert status == 503
        assert "warming up" in text
        reason = None
        await until(lambda: app.health().ready.is_up)
        assert (await ready())[0] == 200
    await broker.close()


def test_a_name_is_used_once() -> None:
    app, router = App({}), Router()

    def first() -> None: ...
    def second() -> None: ...

    app.readiness("schemas")(first)
    with pytest.raises(ConfigError, match=r"'schemas'\) of .*second .*first .* has that name"):
        app.readiness("schemas")(second)
    router.readiness("schemas")(second)
    router.readiness("database")(second)
    with pytest.raises(ConfigError, match="has that name"):
        app.include(router)
    # Nothing of it was taken over.
    app.readiness("database")(second)


@pytest.mark.parametrize(
    "name", ["", " ", None, 3, "application", "spark", test_a_name_is_used_once]
)
def test_a_wrong_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^1 problem.*\n.*@app\.readiness"):
        App({}).readiness(name)


def test_a_function_that_cannot_be_called_without_arguments_is_refused_at_the_start() -> None:
    app = App({"incoming": {"orders": {"group_id": "billing"}}})

    def schemas(name: str) -> None: ...

    app.readiness("schemas")(schemas)  # type: ignore[type-var]
    with pytest.raises(
        ConfigError, match=r"@app.readiness\('schemas'\) of .*schemas .*without an arg"
    ):
        app.configure()


@in_virtual_time
async def test_it_cannot_be_added_while_the_application_runs() -> None:
    app = orders_app()
    async with running(app):
        with pytest.raises(RuntimeError, match="while the application is running"):
            app.readiness("late")


@in_virtual_time
async def test_a_function_that_asks_for_the_end_of_the_process_ends_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = orders_app()
    asks = False

    @app.readiness("schemas")
    async def schemas() -> None:
        if asks:
            raise SystemExit(3)

    broker: MemoryBroker = make_broker()
    async with running(app, broker=broker):
        run = app._run
        assert run is not None
        asks = True
        await until(lambda: run.has_ended)
        assert run.exit_code() == 3
    assert "a handler, hook, job or readiness function asked the process to end" in caplog.text
    await broker.close()

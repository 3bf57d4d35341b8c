"""One run of an application: what goes wrong at its start, in its own things, and at each step of
its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from reactive_kafka import App, ConfigError, Message
from reactive_kafka.events import EndFailed, HookFailed
from tests.app.checkpoints import MemoryStore, Rows
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    running,
    send,
    tp,
    until,
)
from tests.app.sabotage import Sabotage


class Broken(MemoryStore):
    """A store that cannot be closed."""

    def __init__(self, *, how: str) -> None:
        super().__init__(Rows())
        self._how = how

    async def close(self) -> None:
        if self._how == "hangs":
            await asyncio.Event().wait()
        raise asyncio.CancelledError if self._how == "is cancelled" else OSError("the disk is gone")


@pytest.mark.parametrize("how", ["raises", "hangs", "is cancelled"])
@in_virtual_time
async def test_a_store_that_does_not_close_costs_no_other_channel_its_last_commit(how: str) -> None:
    recorder, handled = Recorder(), list[str]()
    tables: dict[str, Any] = {"auto_offset_reset": "earliest", "commit_interval": "9s"}
    stored = {
        "commit_strategy": "checkpoint",
        "checkpoint": {"store": "memory://unused"},
        "group_id": "a",
    }
    app = App(
        {"incoming": {"a": tables | stored, "b": tables | {"group_id": "b"}}}, observer=recorder
    )
    app._stores = lambda _: Broken(how=how)

    @app.incoming("a")
    @app.incoming("b")
    async def handler(message: Message[bytes]) -> None:
        handled.append(message.channel)

    async with running(app) as test:
        await test.send("a", b"")
        await test.send("b", b"")
        await until(lambda: len(handled) == 2)
        test.broker.delay_next("commit", 1.0, 5, of="b")
        await app.stop()
        assert test.committed("b") == {tp(topic="b"): 1}
        assert test.broker.members("b") == test.broker.members("a") == {}
    (failed,) = recorder.of(EndFailed)
    assert (failed.channel, failed.doing) == ("a", "closing the checkpoint store")


# -- hooks of the application


@pytest.mark.parametrize(
    "error", [SystemExit(4), asyncio.CancelledError(), GeneratorExit(), ValueError("no")]
)
@in_virtual_time
async def test_whatever_before_stop_raises_the_last_commits_are_made_and_the_groups_are_left(
    error: BaseException,
) -> None:
    recorder, second = Recorder(), list[str]()
    app = make_app(recorder, commit_interval="1h")
    take_all(app)

    @app.before_stop
    async def first_hook() -> None:
        raise error

    @app.before_stop
    async def second_hook() -> None:
        second.append("called")

    async with running(app) as test:
        run = app._run
        assert run is not None
        await send(test, b"")
        await until(lambda: facts(test).totals and facts(test).totals[tp()].acked)
        await app.stop()
        assert positions(test.broker) == [1]
        assert test.broker.members("billing") == {}
        assert run.exit_code() == (4 if isinstance(error, SystemExit) else 0)
    assert second == ["called"]
    assert len(recorder.of(HookFailed)) == (0 if isinstance(error, SystemExit) else 1)


@in_virtual_time
async def test_a_before_stop_hook_that_cancels_its_own_task_stops_nothing() -> None:
    recorder = Recorder()
    app = make_app(recorder, commit_interval="1h")
    take_all(app)

    @app.before_stop
    async def hook() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).totals and facts(test).totals[tp()].acked)
        await app.stop()
        assert positions(test.broker) == [1]


@in_virtual_time
async def test_a_start_hook_that_awaits_a_cancelled_task_is_an_error_that_names_it() -> None:
    app = make_app()

    @app.on_start
    async def hook() -> None:
        child = asyncio.ensure_future(asyncio.sleep(10))
        child.cancel()
        await child

    app.configure(overrides={"http": {"enabled": False}})
    with pytest.raises(RuntimeError, match=r"the on_start hook .*hook.* ended with CancelledError"):
        await app.start()
    assert app._run is None


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def swallows_its_timeout() -> None:
    asyncio.get_running_loop().call_later(0.1, own_task().cancel)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


async def leaves_a_timer() -> None:
    asyncio.get_running_loop().call_later(0.1, own_task().cancel)


@pytest.mark.parametrize("does", [swallows_its_timeout, leaves_a_timer])
@in_virtual_time
async def test_a_start_hook_that_cancels_its_task_leaves_nothing_of_that_to_the_application(
    does: Any,
) -> None:
    app, handled = make_app(failure_strategy="ignore", commit_interval="100ms"), list[bytes]()
    app.on_start(does)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        if value == b"bad":
            own_task().cancel()
            await asyncio.sleep(0)
        handled.append(value)

    async with running(app) as test:
        await asyncio.sleep(1)
        await send(test, b"bad", b"good")
        await until(lambda: handled == [b"good"] and committed(test) == 2)
        assert app.health().status == "UP"


@in_virtual_time
async def test_a_start_hook_that_cancels_itself_as_it_returns_is_an_error_that_names_it() -> None:
    app = make_app()

    @app.on_start
    async def hook() -> None:
        own_task().cancel()

    app.configure(overrides={"http": {"enabled": False}})
    with pytest.raises(RuntimeError, match=r"the on_start hook .*hook.* ended with CancelledError"):
        await app.start()
    assert app._run is None


@in_virtual_time
async def test_what_a_start_hook_raises_is_raised_as_it_is_also_a_group() -> None:
    app, group = make_app(), ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    @app.on_start
    async def hook() -> None:
        raise group

    app.configure(overrides={"http": {"enabled": False}})
    with pytest.raises(ExceptionGroup) as raised:
        await app.start()
    assert raised.value is group


@in_virtual_time
async def test_what_fails_behind_the_start_hooks_is_not_said_to_be_theirs() -> None:
    app = make_app(commit_strategy="checkpoint", checkpoint={"store": "sqlite:///gone.db"})

    def open_store(settings: Any) -> MemoryStore:
        raise OSError("the disk is gone")

    @app.on_start
    async def hook() -> None: ...

    app._stores = open_store
    app.configure(overrides={"http": {"enabled": False}})
    with pytest.raises(OSError, match="the disk is gone") as raised:
        await app.start()
    assert not hasattr(raised.value, "__notes__")


@in_virtual_time
async def test_handlers_find_what_a_start_hook_sets_in_its_context() -> None:
    app, found = make_app(), list[str]()
    release: ContextVar[str] = ContextVar("release")

    @app.on_start
    async def hook() -> None:
        release.set("2.1")

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        found.append(release.get("none"))

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: found == ["2.1"])


# -- stopping, and starting again


@in_virtual_time
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nobody_in_the_group() -> None:
    app, broker, is_started = make_app(), make_broker(), False
    app.incoming("orders")(_into([]))
    app.configure(overrides={"http": {"enabled": False}})
    app._connector = broker.connector()
    turns = 0
    while not is_started:
        starting = asyncio.create_task(app.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_started = starting.done()
        starting.cancel()
        await asyncio.wait([starting])
        if not is_started:
            await asyncio.sleep(1)
            assert (turns, broker.members("billing")) == (turns, {})
            assert not app.facts().started
        turns += 1
    await app.stop()
    assert turns > 2
    await broker.close()


@in_virtual_time
async def test_of_two_who_stop_at_once_one_may_start_again_and_the_other_takes_nothing_from_that() -> (
    None
):
    app, handled, broker = make_app(), list[bytes](), make_broker()
    app.incoming("orders")(_into(handled))
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock

    async def restart() -> None:
        await app.stop()
        await app.start()

    await app.start()
    await asyncio.gather(restart(), app.stop())
    broker.produce("orders", b"again")
    await until(lambda: handled == [b"again"])
    assert app.facts().started
    await app.stop()
    assert broker.members("billing") == {}
    await broker.close()


def _into(handled: list[bytes]) -> Any:
    async def handler(value: bytes) -> None:
        handled.append(value)

    return handler


# -- the end of handlers


@in_virtual_time
async def test_a_handler_that_is_cut_off_at_the_deadline_may_await_in_its_cleanup() -> None:
    app, story = make_app(drain_timeout="300ms"), list[str]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        story.append("began")
        try:
            await asyncio.sleep(100)
        finally:
            story.append("cancelled")
            await asyncio.sleep(0.8)
            story.append("rolled back")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: story)
        await app.stop()
        assert story == ["began", "cancelled", "rolled back"]
        assert positions(test.broker) in ([], [0])


@in_virtual_time
async def test_a_handler_that_ignores_its_cancellation_meets_one_and_costs_nothing_after_the_stop() -> (
    None
):
    app, met, go_on = make_app(drain_timeout="300ms"), list[float](), asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                met.append(now())

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).partitions[0].in_flight)
        await app.stop()
        await asyncio.sleep(60)
        assert len(met) == 1
        go_on.set()
        await asyncio.sleep(0)


# -- the application's own


@in_virtual_time
async def test_probes_say_down_when_a_run_has_crashed_and_begin_anew_with_the_next_one() -> None:
    app, broker = make_app(), make_broker()

    class Crashing:
        def __init__(self) -> None:
            self.is_broken = True

        def __getattr__(self, name: str) -> Any:
            if name == "consumer" and self.is_broken:
                raise ZeroDivisionError("a bug")
            return getattr(broker.connector(), name)

    connector: Any = Crashing()
    app._connector = connector
    take_all(app)

    app.configure(overrides={"http": {"enabled": False}})
    await app.start()
    await until(lambda: app.health().live.status == "DOWN")
    connector.is_broken = False
    await app.stop()
    await app.start()
    await until(lambda: app.health().status == "UP", 30)
    await app.stop()
    assert (app.health().live.status, app.health().ready.status) == ("UP", "DOWN")
    await broker.close()


class Full(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space left")


@pytest.fixture
def full_log() -> Iterator[None]:
    """A log that takes nothing: each line of ours raises."""
    sink = Full()
    logging.getLogger("reactive_kafka").addHandler(sink)
    yield
    logging.getLogger("reactive_kafka").removeHandler(sink)


@pytest.mark.parametrize("name", [None, 7, ["orders"]])
@in_virtual_time
async def test_a_channel_is_asked_for_by_its_name(name: Any) -> None:
    app = make_app()
    async with running(app):
        with pytest.raises(ConfigError, match=r"app.channel\(.*\): expected the name of a channel"):
            app.channel(name)


@pytest.mark.usefixtures("full_log")
@in_virtual_time
async def test_a_log_handler_that_raises_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    app, seen = make_app(failure_strategy="ignore"), list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)
        raise ValueError("no")

    async with running(app) as test:
        await send(test, b"1", b"2", b"3")
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(5)
        assert app.health().status == "UP"
    assert "no space left" in capsys.readouterr().err


@pytest.mark.usefixtures("full_log")
@pytest.mark.parametrize("reason", ["a handler exits", "a channel fails", "a task goes wrong"])
@in_virtual_time
async def test_a_log_handler_that_raises_does_not_keep_an_application_from_its_end(
    reason: str,
) -> None:
    app, broker = make_app(), make_broker()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise SystemExit(3) if reason == "a handler exits" else ValueError("no")

    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    run = app._new_run(exit_on_failure=True)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(
        Sabotage("loop lag", ValueError("no")) if reason == "a task goes wrong" else None
    )
    try:
        await app._start(run)
        if reason != "a task goes wrong":
            broker.produce("orders", b"")
        await asyncio.wait_for(run.wait_asked(), 60)
        await app.stop()
        assert run.exit_code() == (3 if reason == "a handler exits" else 1)
    finally:
        loop.set_task_factory(None)
        await broker.close()


async def test_run_where_a_loop_runs_already_says_what_to_use_instead() -> None:
    app = App({"incoming": {"orders": {"group_id": "billing"}}, "http": {"enabled": False}})
    with pytest.raises(RuntimeError, match="where one runs already, use `async with app"):
        app.run()
    assert not app.facts().started

"""What handlers are called with besides their record: made once a scope, and ended when that is
over.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    CallNext,
    ConfigError,
    Depends,
    Message,
    Record,
    Router,
    current_message,
)
from reactive_kafka.events import EndFailed, HandlerRetried, RecordIgnored
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    until,
)

TOLD: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    TOLD.clear()


class Pool:
    def __init__(self) -> None:
        self.sessions = 0


async def make_pool() -> AsyncIterator[Pool]:
    TOLD.append("pool")
    yield Pool()
    TOLD.append("pool ends")


ThePool = Annotated[Pool, Depends(make_pool, scope="app")]


async def make_session(pool: ThePool) -> AsyncIterator[str]:
    pool.sessions += 1
    name = f"session {pool.sessions}"
    TOLD.append(name)
    try:
        yield name
    except BaseException as error:
        TOLD.append(f"{name} breaks: {type(error).__name__}")
        raise
    TOLD.append(f"{name} ends")


TheSession = Annotated[str, Depends(make_session)]


@in_virtual_time
async def test_those_of_a_call_are_made_for_each_and_those_of_the_application_once() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(order: bytes, session: TheSession, *, pool: ThePool) -> None:
        TOLD.append((order, session, pool.sessions))

    for _ in range(2):
        TOLD.clear()
        async with running(app) as test:
            # Also where no record has come.
            assert TOLD == ["pool"]
            await send(test, b"a", b"b")
            await test.settled()
        assert TOLD == [
            "pool",
            "session 1",
            (b"a", "session 1", 1),
            "session 1 ends",
            "session 2",
            (b"b", "session 2", 2),
            "session 2 ends",
            "pool ends",
        ]


async def sync_and_async(pool: ThePool) -> str:
    return f"async {pool.sessions}"


def plain(pool: ThePool) -> str:
    TOLD.append(threading.current_thread() is threading.main_thread())
    return f"plain {pool.sessions}"


def generator(of: Annotated[str, Depends(sync_and_async)]) -> Iterator[str]:
    TOLD.append(threading.current_thread() is threading.main_thread())
    yield f"generator of {of}"
    TOLD.append(threading.current_thread() is threading.main_thread())


class Repository:
    def __init__(self, of: Annotated[str, Depends(generator)], page: int = 20) -> None:
        TOLD.append(threading.current_thread() is threading.main_thread())
        self.of, self.page = of, page


async def test_what_may_block_is_made_in_a_thread_and_a_class_where_its_handler_runs() -> None:
    app, seen = make_app(), list[Any]()

    @app.incoming("orders")
    async def handler(
        order: bytes,
        plain: Annotated[str, Depends(plain)],
        repository: Annotated[Repository, Depends(Repository)],
    ) -> None:
        seen.append((plain, repository.of, repository.page))

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
    assert seen == [("plain 0", "generator of async 0", 20)]
    assert TOLD == ["pool", False, False, True, False, "pool ends"]


def database() -> Iterator[sqlite3.Connection]:
    # Which refuses every other thread.
    connection = sqlite3.connect(":memory:")
    yield connection
    TOLD.append(connection.execute("SELECT 2").fetchone())
    connection.close()


class Orders:
    def __init__(self, database: Annotated[sqlite3.Connection, Depends(database)]) -> None:
        self.database = database


async def test_a_handler_that_blocks_has_its_own_thread_in_common_with_what_is_made_for_it() -> (
    None
):
    app, seen = make_app(), list[Any]()

    @app.incoming("orders")
    def handler(
        order: bytes, orders: Annotated[Orders, Depends(Orders)], session: TheSession
    ) -> None:
        seen.append((session, orders.database.execute("SELECT 1").fetchone()))

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
    assert seen == [("session 1", (1,))]
    assert TOLD == ["pool", "session 1", (2,), "session 1 ends", "pool ends"]


def plain_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(order: bytes, database: Annotated[sqlite3.Connection, Depends(database)]) -> Any:
        return function(order, database)

    return wrapper


async def test_what_a_plain_wrapper_returns_is_awaited_before_anything_ends() -> None:
    app = make_app()

    async def inner(order: bytes, database: sqlite3.Connection) -> None:
        await asyncio.sleep(0.01)
        TOLD.append("handled")

    app.incoming("orders")(plain_wrapper(inner))
    async with running(app) as test:
        await send(test, b"a")
        await test.settled(10)
    assert TOLD == ["handled", (2,)]


async def test_a_batch_and_a_message_are_given_to_whoever_asks_for_them() -> None:
    app = App(
        {
            "incoming": {
                name: {"group_id": "g", "topic": name} for name in ("orders", "batches", "values")
            }
        }
    )

    async def offset(message: Message[Any]) -> int:
        return message.offset

    async def size(batch: Batch[Any]) -> int:
        return len(batch)

    @app.incoming("orders")
    async def of_message(message: Message[bytes], offset: Annotated[int, Depends(offset)]) -> None:
        TOLD.append(("message", offset))

    @app.incoming("values")
    def of_value(value: bytes, offset: Annotated[int, Depends(offset)]) -> None:
        TOLD.append(("value", offset, current_message().offset))  # type: ignore[union-attr]

    @app.incoming("batches")
    async def of_batch(batch: Batch[bytes], size: Annotated[int, Depends(size)]) -> None:
        TOLD.append(("batch", size))

    async with TestApp(app) as test:
        for channel in ("orders", "values", "batches"):
            await test.send(channel, b"x")
        await test.settled()
    assert sorted(TOLD) == [("batch", 1), ("message", 0), ("value", 0, 0)]


@in_virtual_time
async def test_the_message_of_a_call_has_the_payload_of_its_handler() -> None:
    """Whatever the handlers of the channel have in common, and a middleware has made of it."""
    app = make_app(retry={"max_attempts": 2, "backoff": 0})
    seen = list[tuple[Any, Any, int]]()

    async def described(message: Message[Any]) -> tuple[Any, int]:
        return message.payload, message.attempt

    @app.middleware
    async def shout(message: Message[Any], call_next: CallNext) -> Any:
        if isinstance(message.payload, str):
            message.payload = message.payload.upper()
        return await call_next(message)

    @app.incoming("orders", when=lambda message: message.payload.startswith(b"{"))
    async def of_objects(
        order: dict[str, int], described: Annotated[tuple[Any, int], Depends(described)]
    ) -> None:
        seen.append((order, *described))
        if len(seen) == 1:
            raise ValueError("once")

    @app.incoming("orders")
    async def of_texts(
        text: str, described: Annotated[tuple[Any, int], Depends(described)]
    ) -> None:
        seen.append((text, *described))

    async with running(app) as test:
        await send(test, b'{"id": 1}', b"text")
        await test.settled()
    assert seen == [
        ({"id": 1}, {"id": 1}, 1),
        ({"id": 1}, {"id": 1}, 2),
        ("TEXT", "TEXT", 1),
    ]


@in_virtual_time
async def test_a_generator_has_its_dependencies_until_all_that_it_yields_is_sent() -> None:
    app = make_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes, session: TheSession) -> AsyncIterator[Record]:
        for number in range(2):
            TOLD.append(number)
            yield Record({"of": session, "number": number})

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [
            b'{"of":"session 1","number":0}',
            b'{"of":"session 1","number":1}',
        ]
    assert TOLD == ["pool", "session 1", 0, 1, "session 1 ends", "pool ends"]


@in_virtual_time
async def test_a_generator_that_is_cut_off_ends_its_dependencies() -> None:
    app = make_app(failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes, session: TheSession) -> AsyncIterator[Record]:
        yield Record({"cannot": {"be": object()}})
        TOLD.append("never")

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
    assert TOLD == ["pool", "session 1", "session 1 breaks: GeneratorExit", "pool ends"]


@in_virtual_time
async def test_what_a_handler_returns_is_sent_when_its_dependencies_have_ended() -> None:
    app = make_app(failure_strategy="ignore")

    async def refuses_the_commit() -> AsyncIterator[str]:
        yield "session"
        raise OSError("cannot commit")

    @app.incoming("orders", retry=2)
    @app.outgoing("invoices")
    async def handler(order: bytes, session: Annotated[str, Depends(refuses_the_commit)]) -> bytes:
        TOLD.append("called")
        return order

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
        assert test.records("invoices") == []
    assert TOLD == ["called", "called"]


@in_virtual_time
async def test_a_source_has_its_own_until_it_ends() -> None:
    app = make_app()

    @app.outgoing("invoices")
    async def prices(session: TheSession) -> AsyncIterator[str]:
        yield session
        await asyncio.Event().wait()

    async with running(app) as test:
        await until(lambda: test.records("invoices"))
        assert [record.value for record in test.records("invoices")] == [b"session 1"]
    assert TOLD == ["pool", "session 1", "session 1 breaks: CancelledError", "pool ends"]


# -- what raises


@in_virtual_time
async def test_a_dependency_that_raises_is_the_handlers_failure_with_its_retries() -> None:
    recorder, attempts = Recorder(), list[int]()
    app = make_app(recorder, failure_strategy="ignore", retry={"max_attempts": 3, "backoff": "1ms"})

    async def fails(session: TheSession, message: Message[Any]) -> None:
        attempts.append(message.attempt)
        raise OSError("no connection")

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(fails)]) -> None:
        raise AssertionError("it is not called")

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
        assert committed(test) == 1
    assert len(attempts) == 3
    assert len(recorder.of(HandlerRetried)) == 2
    (nacked,) = recorder.of(RecordIgnored)
    assert "no connection" in nacked.reason
    told = [it for n in (1, 2, 3) for it in (f"session {n}", f"session {n} breaks: OSError")]
    assert TOLD[1:-1] == told


@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_dependency_cannot_swallow_what_a_handler_raises(in_thread: bool) -> None:
    recorder = Recorder()
    app = make_app(recorder, failure_strategy="ignore")

    async def swallows(session: TheSession) -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            TOLD.append("swallowed")

    def swallows_too(outer: Annotated[None, Depends(swallows)]) -> Iterator[None]:
        try:
            yield
        except ValueError:
            TOLD.append("swallowed")

    Inner = Annotated[None, Depends(swallows_too)]

    async def handler(order: bytes, it: Inner) -> None:
        raise ValueError("refused")

    def blocking(order: bytes, it: Inner) -> None:
        raise ValueError("refused")

    app.incoming("orders")(blocking if in_thread else handler)
    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
    assert [event.reason for event in recorder.of(RecordIgnored)] == ["ValueError: refused"]
    assert TOLD[1:-1] == ["session 1", "swallowed", "swallowed", "session 1 breaks: ValueError"]


@in_virtual_time
async def test_an_application_does_not_start_without_what_it_needs() -> None:
    app = make_app()

    async def fails(pool: ThePool) -> AsyncIterator[None]:
        raise OSError("wrong password")
        yield

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(fails, scope="app")]) -> None: ...

    with pytest.raises(OSError, match="wrong password") as raised:
        async with running(app):
            pass
    assert raised.value.__notes__[0].startswith(f"raised by the dependency {__name__}.")
    # It was thrown into that, too.
    assert TOLD == ["pool"]
    assert not app.facts().started


@in_virtual_time
async def test_a_factory_that_cancels_itself_fails_the_start_and_cancels_nobody() -> None:
    app = make_app()

    async def cancels() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(1)

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(cancels, scope="app")]) -> None: ...

    with pytest.raises(RuntimeError, match="which is made at the start, ended with CancelledError"):
        async with running(app):
            pass


@in_virtual_time
async def test_a_start_that_is_cancelled_ends_what_was_made() -> None:
    recorder = Recorder()
    app, begun = make_app(recorder), asyncio.Event()

    async def hangs(pool: ThePool) -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(hangs, scope="app")]) -> None: ...

    async def start() -> None:
        async with running(app):
            pass

    task, began = asyncio.create_task(start()), now()
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (TOLD, now() - began) == (["pool"], 0)
    assert recorder.of(EndFailed) == []


@in_virtual_time
async def test_a_dependency_of_the_application_that_breaks_later_ends_it_in_order() -> None:
    app, breaks = make_app(), asyncio.Event()

    async def group(pool: ThePool) -> AsyncIterator[None]:
        async def child() -> None:
            await breaks.wait()
            raise OSError("connection lost")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
            yield

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(group, scope="app")]) -> None: ...

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
        breaks.set()
        await until(lambda: app.facts().ended)
        assert app.facts().ended == "the application has failed: OSError: connection lost"
        assert app.health().ready.status == "DOWN"


@in_virtual_time
async def test_an_end_that_raises_is_told_and_the_others_end() -> None:
    recorder = Recorder()
    app = make_app(recorder)

    async def breaks(pool: ThePool) -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(breaks, scope="app")]) -> None: ...

    async with running(app):
        pass
    (failed,) = recorder.of(EndFailed)
    assert (failed.channel, failed.doing) == ("*", "ending the dependencies of the application")
    assert failed.reason == "OSError: cannot close"


@in_virtual_time
async def test_an_end_that_hangs_is_cut_off() -> None:
    recorder = Recorder()
    app = make_app(recorder)

    async def hangs() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.Event().wait()
        finally:
            TOLD.append("cancelled")

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(hangs, scope="app")]) -> None: ...

    async with running(app):
        pass
    assert TOLD == ["cancelled"]
    assert [failed.reason for failed in recorder.of(EndFailed)] == ["no end within 5 s"]


# -- what is cut off


@in_virtual_time
async def test_a_handler_that_is_interrupted_ends_its_dependencies() -> None:
    app = make_app(on_poison="dead-letter-queue", unprocessed_record_max_age="5s")

    @app.incoming("orders")
    async def handler(order: bytes, session: TheSession) -> None:
        await asyncio.Event().wait()

    async with running(app) as test:
        await send(test, b"a")
        await until(lambda: committed(test) == 1, 60)
    assert TOLD == ["pool", "session 1", "session 1 breaks: CancelledError", "pool ends"]


async def test_a_thread_that_is_abandoned_keeps_its_dependencies_until_it_ends() -> None:
    app = make_app(on_poison="dead-letter-queue", unprocessed_record_max_age="100ms")
    go_on = threading.Event()

    @app.incoming("orders")
    def handler(
        order: bytes,
        session: TheSession,
        database: Annotated[sqlite3.Connection, Depends(database)],
    ) -> None:
        if order == b"stuck":
            go_on.wait(60)
            database.execute("SELECT 1")
        TOLD.append(order)

    async with running(app) as test:
        await send(test, b"stuck", b"next")
        await until(lambda: committed(test) == 2, 21)
        assert TOLD == ["pool", "session 1", "session 2", b"next", (2,), "session 2 ends"]
        assert facts(test).abandoned_handlers == 1
        go_on.set()
        await until(lambda: TOLD[-1] == "session 1 breaks: CancelledError")
        assert TOLD[-3:] == [b"stuck", (2,), "session 1 breaks: CancelledError"]
        assert facts(test).abandoned_handlers == 1
    assert TOLD[-1] == "pool ends"


async def test_a_thread_that_is_abandoned_and_returns_an_awaitable_ends_its_dependencies() -> None:
    app = make_app(on_poison="dead-letter-queue", unprocessed_record_max_age="100ms")
    go_on = threading.Event()

    def connect() -> Iterator[str]:
        go_on.wait(60)
        try:
            yield "connection"
        except BaseException as error:
            TOLD.append(f"connection breaks: {type(error).__name__}")
            raise

    class Rest:
        def __await__(self) -> Iterator[None]:
            TOLD.append("rest")
            yield

    @app.incoming("orders")
    def handler(order: bytes, connection: Annotated[str, Depends(connect)]) -> Rest:
        return Rest()

    async with running(app) as test:
        await send(test, b"stuck")
        await until(lambda: committed(test) == 1, 21)
        go_on.set()
        await until(lambda: TOLD == ["connection breaks: CancelledError"])


async def test_a_thread_that_never_ends_is_left_behind_with_what_it_has() -> None:
    app, go_on = make_app(drain_timeout="100ms"), threading.Event()

    @app.incoming("orders")
    def handler(order: bytes, session: TheSession) -> None:
        TOLD.append("called")
        go_on.wait(60)

    async with running(app) as test:
        await send(test, b"stuck")
        await until(lambda: "called" in TOLD)
    assert TOLD == ["pool", "session 1", "called", "pool ends"]
    go_on.set()
    await until(lambda: TOLD[-1] == "session 1 breaks: CancelledError")


# -- overrides


@in_virtual_time
async def test_an_override_is_taken_from_the_next_start_on() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(order: bytes, session: TheSession) -> None:
        TOLD.append(session)

    async def fake() -> AsyncIterator[str]:
        yield "fake"
        TOLD.append("fake ends")

    async def run() -> list[Any]:
        TOLD.clear()
        async with running(app) as test:
            await send(test, b"a")
            await test.settled()
        return list(TOLD)

    with_pool = ["pool", "session 1", "session 1", "session 1 ends", "pool ends"]
    assert await run() == with_pool
    app.dependency_overrides[make_session] = fake
    # And the pool that nobody needs is not made.
    assert await run() == ["fake", "fake ends"]
    del app.dependency_overrides[make_session]
    assert await run() == with_pool


@in_virtual_time
async def test_an_override_that_cannot_be_made_is_refused_at_the_start() -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(order: bytes, session: TheSession) -> None: ...

    async def needs_itself(session: TheSession) -> str:
        return session

    app.dependency_overrides[make_session] = needs_itself
    with pytest.raises(
        ConfigError, match=r"app\.dependency_overrides: dependencies need each other, so that none"
    ):
        async with running(app):
            pass


def test_a_graph_that_cannot_be_made_is_told_with_all_other_problems() -> None:
    app = App({"incoming": {"orders": {"topic": "a b"}}})

    def unfilled(host: str) -> str:
        return host

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[str, Depends(unfilled)]) -> None: ...

    with pytest.raises(
        ConfigError, match=r"(?s)topic.*has the parameter host, which nothing fills"
    ):
        app.configure()


# -- neighbours


@in_virtual_time
async def test_handlers_of_routers_and_of_memory_channels_have_them_too() -> None:
    app, router = (
        App({"memory": {"inside": {}}, "incoming": {"orders": {"group_id": "g"}}}),
        Router(),
    )

    @router.incoming("inside")
    async def inside(value: bytes, session: TheSession) -> None:
        TOLD.append((value, session))

    @router.incoming("orders")
    @router.outgoing("inside")
    async def orders(value: bytes, pool: ThePool) -> bytes:
        return value

    app.include(router)
    async with TestApp(app) as test:
        await test.send("orders", b"a")
        await test.settled()
        assert [call.argument for call in test.handler(inside).calls] == [b"a"]
    assert TOLD == ["pool", "session 1", (b"a", "session 1"), "session 1 ends", "pool ends"]


VARIABLE: ContextVar[str] = ContextVar("variable")


@in_virtual_time
async def test_context_variables_of_a_factory_are_the_handlers_and_no_later_ones() -> None:
    app = make_app()

    async def sets(message: Message[Any]) -> None:
        TOLD.append(VARIABLE.get("none"))
        VARIABLE.set(str(message.offset))

    @app.incoming("orders")
    async def handler(order: bytes, it: Annotated[None, Depends(sets)]) -> None:
        TOLD.append(VARIABLE.get())

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        await test.settled()
    assert TOLD == ["none", "0", "none", "1", "none", "2"]

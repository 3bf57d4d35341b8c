"""A send that somebody has forgotten to await is an error of that function, and its record is not
acked.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message
from reactive_kafka.events import HandlerRetried, HookFailed, JobFailed, RecordIgnored
from tests.app.helpers import Recorder, committed, in_virtual_time, running, settle_down, until

pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine '.*' was never awaited:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def forgotten_coroutines_are_collected_here() -> Iterator[None]:
    """Or Python would warn of them while another test runs, which is none that ignores it."""
    yield
    gc.collect()


def forgets_in_a_handler(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        emitter.send(order)  # type: ignore[unused-coroutine]


def forgets_with_a_message(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: Message[bytes]) -> None:
        kept_until_the_return = emitter.send(order.payload)  # noqa: F841


def forgets_in_a_batch(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(orders: Batch[bytes]) -> None:
        for order in orders:
            emitter.send(order.payload)  # type: ignore[unused-coroutine]


def forgets_in_a_generator(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    @app.outgoing("copies")
    async def handle(order: bytes) -> AsyncIterator[bytes]:
        emitter.send(order)  # type: ignore[unused-coroutine]
        yield order


def forgets_behind_what_it_yields(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    @app.outgoing("copies")
    async def handle(order: bytes) -> AsyncIterator[bytes]:
        if not order:
            yield order
        emitter.send(order)  # type: ignore[unused-coroutine]


def forgets_before_a_result(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    @app.outgoing("copies")
    async def handle(order: bytes) -> bytes:
        emitter.send(order)  # type: ignore[unused-coroutine]
        return order


def forgets_in_a_task_of_its_own(app: App) -> None:
    emitter = app.emitter("invoices")

    async def part(order: bytes) -> None:
        emitter.send(order)  # type: ignore[unused-coroutine]

    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        await asyncio.gather(part(order))


def forgets_a_request(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        emitter.request(order)  # type: ignore[unused-coroutine]


def returns_the_send(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: bytes) -> Any:
        return emitter.send(order)


def asks_for_the_emitter_in_its_handler(app: App) -> None:
    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        app.emitter("invoices").send(order)  # type: ignore[unused-coroutine]


def forgets_in_a_middleware(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.middleware
    async def tell(message: Any, call_next: Any) -> Any:
        emitter.send(b"seen")  # type: ignore[unused-coroutine]
        return await call_next(message)

    @app.incoming("orders")
    async def handle(order: bytes) -> None: ...


def sends_in_a_thread(app: App) -> None:
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    def handle(order: bytes) -> None:
        emitter.send(order)  # type: ignore[unused-coroutine]


FORGETTING = [
    forgets_in_a_handler,
    forgets_with_a_message,
    forgets_in_a_batch,
    forgets_in_a_generator,
    forgets_behind_what_it_yields,
    forgets_before_a_result,
    forgets_in_a_task_of_its_own,
    forgets_a_request,
    returns_the_send,
    asks_for_the_emitter_in_its_handler,
    forgets_in_a_middleware,
]


def told_app(recorder: Recorder, **orders: Any) -> App:
    table = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "failure_strategy": "ignore",
        **orders,
    }
    return App(
        {"incoming": {"orders": table}, "outgoing": {"invoices": {}, "copies": {}}},
        observer=recorder,
    )


async def ignored(app: App, recorder: Recorder) -> RecordIgnored:
    """Why the only record was nacked; nothing was sent."""
    async with running(app) as test:
        await test.send("orders", b"order")
        await until(lambda: recorder.of(RecordIgnored))
        assert not test.records("invoices")
        assert not test.records("copies")
    return recorder.of(RecordIgnored)[0]


@pytest.mark.parametrize("declare", FORGETTING)
def test_a_send_without_await_is_a_nack_that_says_so(declare: Callable[[App], None]) -> None:
    @in_virtual_time
    async def check() -> None:
        recorder = Recorder()
        app = told_app(recorder)
        declare(app)
        told = str((await ignored(app, recorder)).reason)
        assert "without await: nothing was sent" in told
        assert "emitter.send(...)" in told or "emitter.request(...)" in told
        assert f"{declare.__name__}.<locals>.handle" in told

    check()


async def test_a_send_in_a_thread_is_a_nack_that_says_what_to_use() -> None:
    recorder = Recorder()
    app = told_app(recorder)
    sends_in_a_thread(app)
    assert "emitter.send_nowait(value).result()" in str((await ignored(app, recorder)).reason)


@in_virtual_time
async def test_a_handler_that_forgets_an_await_is_called_again_as_for_any_error() -> None:
    recorder = Recorder()
    app = told_app(recorder, retry={"max_attempts": 3})
    forgets_in_a_handler(app)
    await ignored(app, recorder)
    assert len(recorder.of(HandlerRetried)) == 2


@in_virtual_time
async def test_a_send_dropped_in_a_call_that_has_raised_is_not_the_next_calls() -> None:
    recorder = Recorder()
    app = told_app(recorder)
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        if order == b"bad":
            kept_by_the_traceback = emitter.send(order)  # noqa: F841
            emitter.send(order)  # type: ignore[unused-coroutine]
            raise ValueError("of its own")

    async with running(app) as test:
        await test.send("orders", b"bad")
        await test.send("orders", b"good")
        await until(lambda: committed(test) == 2)
    (told,) = recorder.of(RecordIgnored)
    assert "of its own" in str(told.reason)


async def awaits(send: Any) -> None:
    await send


async def gathers(send: Any) -> None:
    await asyncio.gather(send)


async def waits_for(send: Any) -> None:
    await asyncio.wait_for(send, 5)


async def leaves_to_a_task(send: Any) -> None:
    TASKS.append(asyncio.create_task(send))


async def leaves_to_a_group(send: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(send)


async def leaves_to_a_future(send: Any) -> None:
    TASKS.append(asyncio.ensure_future(send))


async def keeps_for_later(send: Any) -> None:
    async def later() -> None:
        await asyncio.sleep(1)
        await send

    TASKS.append(asyncio.create_task(later()))


TASKS: list[Any] = []


@pytest.mark.parametrize(
    "use",
    [
        awaits,
        gathers,
        waits_for,
        leaves_to_a_task,
        leaves_to_a_group,
        leaves_to_a_future,
        keeps_for_later,
    ],
)
def test_a_send_that_begins_now_or_later_is_sent_and_no_error(use: Callable[[Any], Any]) -> None:
    @in_virtual_time
    async def check() -> None:
        recorder = Recorder()
        app = told_app(recorder)
        emitter = app.emitter("invoices")

        @app.incoming("orders")
        async def handle(order: bytes) -> None:
            await use(emitter.send(order))

        async with running(app) as test:
            await test.send("orders", b"order")
            await until(lambda: test.records("invoices"))
        assert not recorder.of(RecordIgnored)

    check()


@in_virtual_time
async def test_a_send_that_its_handler_has_cancelled_or_closed_is_no_error() -> None:
    recorder = Recorder()
    app = told_app(recorder)
    emitter = app.emitter("invoices")
    handled = []

    @app.incoming("orders")
    async def handle(order: bytes) -> None:
        task = asyncio.create_task(emitter.send(order))
        task.cancel()
        await asyncio.wait([task])
        del task
        emitter.send(order).close()
        handled.append(order)

    async with running(app) as test:
        await test.send("orders", b"order")
        await until(lambda: handled)
        await settle_down()
    assert not recorder.of(RecordIgnored)


def test_a_framework_that_asks_whether_to_await_a_send_hears_yes() -> None:
    from starlette.background import BackgroundTask

    emitter = App({"outgoing": {"invoices": {}}}).emitter("invoices")
    assert BackgroundTask(emitter.send, b"later").is_async


@in_virtual_time
async def test_a_hook_and_a_job_that_forget_an_await_are_told_as_failed() -> None:
    recorder = Recorder()
    app = told_app(recorder)
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    async def handle(order: bytes) -> None: ...

    @app.on_assigned("orders")
    async def assigned(partitions: object) -> None:
        emitter.send(b"assigned")  # type: ignore[unused-coroutine]

    @app.every("1s")
    async def job() -> None:
        emitter.send(b"job")  # type: ignore[unused-coroutine]

    @app.before_stop
    async def last() -> None:
        emitter.send(b"last")  # type: ignore[unused-coroutine]

    async with running(app):
        await until(lambda: recorder.of(HookFailed) and recorder.of(JobFailed))
    told = [*recorder.of(HookFailed), recorder.of(JobFailed)[0]]
    assert len(told) == 3
    assert all("emitter.send(...) without await: nothing was sent" in one.reason for one in told)


@in_virtual_time
async def test_a_start_hook_that_forgets_an_await_fails_the_start() -> None:
    app = told_app(Recorder())
    emitter = app.emitter("invoices")

    @app.on_start
    async def boot() -> None:
        emitter.send(b"started")  # type: ignore[unused-coroutine]

    with pytest.raises(
        RuntimeError, match=r"boot .* has called emitter\.send\(\.\.\.\) without await"
    ):
        async with running(app):
            pass


@in_virtual_time
async def test_a_source_that_forgets_an_await_fails_its_channel() -> None:
    app = told_app(Recorder())
    emitter = app.emitter("invoices")

    @app.outgoing("copies")
    async def source() -> AsyncIterator[bytes]:
        emitter.send(b"one")  # type: ignore[unused-coroutine]
        yield b"one"

    async with running(app) as test:
        await settle_down()
        assert "without await: nothing was sent" in str(test.app.health())
        assert not test.records("copies")

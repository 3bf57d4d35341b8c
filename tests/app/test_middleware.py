"""Middleware around handlers: its order, its attempts, and what it raises or returns."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import (
    App,
    Batch,
    CallNext,
    ConfigError,
    Depends,
    Message,
    Record,
    Router,
    current_batch,
    current_message,
)
from reactive_kafka.events import HandlerFailed, HandlerRetried, RecordDeadLettered
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.app.checkpoints import Rows, app_on, row, store_of
from tests.app.helpers import Recorder, committed, in_virtual_time, make_app, running, send, until

LETTERS = "dead-letter-topic-orders"

# -- a model of what a call does: layer by layer, attempt by attempt

Place = Literal["app before", "router before", "handler", "router after", "app after", ""]
PLACES: tuple[Place, ...] = (
    "app before",
    "router before",
    "handler",
    "router after",
    "app after",
    "",
)
LAYERS = ("app", "router")


@dataclass(frozen=True)
class Play:
    """One record, its handler, and where each attempt raises."""

    shape: Literal["payload", "message", "batch"]
    kind: Literal["async", "thread", "yields"]
    ack: Literal["post", "manual", "pre", "none"]
    sends: bool
    # For the write.
    waits: bool
    # One for each attempt that there may be.
    raises: tuple[Place, ...]

    @property
    def is_possible(self) -> bool:
        return (self.sends or self.kind != "yields") and (
            self.ack != "manual" or self.shape != "payload"
        )


PLAYS = st.builds(
    Play,
    st.sampled_from(["payload", "message", "batch"]),
    st.sampled_from(["async", "thread", "yields"]),
    st.sampled_from(["post", "manual", "pre", "none"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(PLACES), min_size=1, max_size=3).map(tuple),
).filter(lambda play: play.is_possible)


@dataclass
class Outcome:
    """What has been called, what was sent, and what became of the record."""

    trace: list[str]
    sent: list[bytes | None]
    letters: int
    position: int | None
    # Handlers that have raised after their record's verdict.
    raised_after: int


def expected(play: Play) -> Outcome:
    trace, sent, is_acked = list[str](), list[bytes | None](), play.ack in ("pre", "none")
    letters = after = 0
    for number, place in enumerate(play.raises, 1):
        trace += trace_of(place)
        if place in ("", "router after", "app after"):
            is_acked = is_acked or play.ack == "manual"
        # What a call yields is taken back at once where it fails.
        if not place:
            if play.sends:
                sent += [b"first", b"second"] if play.kind == "yields" else [b"made router app"]
            is_acked = is_acked or play.ack == "post"
            break
        if is_acked:
            after = 1
            break
        if number == len(play.raises):
            letters = 1
    position = None if play.ack == "none" else 1
    return Outcome(trace, sent, letters, position, after)


def trace_of(place: Place) -> list[str]:
    """The trace of one attempt that raises there."""
    trace = list[str]()
    for layer in LAYERS:
        trace.append(f"{layer} in")
        if place == f"{layer} before":
            return trace + [f"{outer} saw" for outer in reversed(LAYERS[: LAYERS.index(layer)])]
    trace.append("handler")
    if place == "handler":
        return [*trace, "router saw", "app saw"]
    trace.append("router out")
    if place == "router after":
        return [*trace, "app saw"]
    trace.append("app out")
    return trace


class Raised(Exception):
    """On purpose."""


def played(play: Play) -> Outcome:
    found = list[Outcome]()

    async def main(clock: FakeClock) -> None:
        async with asyncio.timeout(600):
            found.append(await _play(play))

    run_in_virtual_time(main)
    return found[0]


async def _play(play: Play) -> Outcome:
    trace, raises, recorder = list[str](), list(play.raises), Recorder()
    table: dict[str, Any] = {
        "ack": play.ack,
        "failure_strategy": "dead-letter-queue",
        "batch_max_wait": 0,
        "retry": {"max_attempts": len(raises), "backoff": 0.01},
    }
    if play.ack == "none":
        table |= {"commit_strategy": "ignore"}
    app = App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest", **table}
            },
            "outgoing": {"invoices": {"wait_for_write": play.waits}},
        },
        observer=recorder,
    )
    router = Router()
    place: list[Place] = [""]

    def layer(name: str) -> Callable[[Any, CallNext], Awaitable[Any]]:
        async def middleware(message: Any, call_next: CallNext) -> Any:
            assert isinstance(message, Batch if play.shape == "batch" else Message)
            first = message[0] if isinstance(message, Batch) else message
            if name == "app":
                place[0] = raises[first.attempt - 1]
            trace.append(f"{name} in")
            if place[0] == f"{name} before":
                raise Raised(place[0])
            try:
                result = await call_next(message)
            except Raised:
                trace.append(f"{name} saw")
                raise
            trace.append(f"{name} out")
            if place[0] == f"{name} after":
                raise Raised(place[0])
            return result if result is None else result + f" {name}".encode()

        return middleware

    app.middleware(layer("app"))
    router.middleware(layer("router"))
    handler = handler_of(play, trace, place)
    if play.sends:
        handler = router.outgoing("invoices")(handler)
    router.incoming("orders")(handler)
    app.include(router)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(trace) >= len(expected(play).trace))
        if play.ack != "none":
            await test.settled()
        await until(lambda: not any(one.in_flight for one in app.facts().outgoing))
        letters, sent = test.records(LETTERS), [one.value for one in test.records("invoices")]
        position = committed(test)
    after = len(recorder.of(HandlerFailed))
    assert len(recorder.of(HandlerRetried)) == max(0, trace.count("app in") - 1)
    assert len(recorder.of(RecordDeadLettered)) == len(letters)
    return Outcome(trace, sent, len(letters), position, after)


def handler_of(play: Play, trace: list[str], place: list[Place]) -> Any:
    def work(given: Any) -> bytes | None:
        trace.append("handler")
        if play.shape == "payload":
            assert given == b"x"
        if place[0] == "handler":
            raise Raised("handler")
        if play.ack == "manual":
            given.ack()
        return b"made" if play.sends else None

    async def asynchronous(given: Any) -> bytes | None:
        return work(given)

    def blocking(given: Any) -> bytes | None:
        return work(given)

    async def yielding(given: Any) -> AsyncIterator[bytes]:
        yield b"first"
        work(given)
        yield b"second"

    chosen: Any = {"async": asynchronous, "thread": blocking, "yields": yielding}[play.kind]
    kinds: Any = {"payload": bytes, "message": Message[bytes], "batch": Batch[bytes]}
    chosen.__annotations__["given"] = kinds[play.shape]
    return chosen


@settings(max_examples=100, deadline=None)
@given(PLAYS)
def test_every_layer_is_called_in_its_order_at_each_attempt_and_what_it_raises_is_the_handlers(
    play: Play,
) -> None:
    assert played(play) == expected(play)


# -- what it is around


@in_virtual_time
async def test_a_routers_middleware_covers_its_handlers_and_those_of_its_routers_inside_of_the_applications() -> (
    None
):
    app, outer, inner = make_app(), Router(), Router()
    app = App(
        {"incoming": {name: {"group_id": "g", "auto_offset_reset": "earliest"} for name in "abc"}}
    )
    called = list[str]()

    def named(name: str) -> Callable[[Message[Any], CallNext], Awaitable[Any]]:
        async def middleware(message: Message[Any], call_next: CallNext) -> Any:
            called.append(f"{name} {message.channel}")
            return await call_next(message)

        return middleware

    async def handler(value: bytes) -> None: ...

    app.incoming("a")(handler)
    # The same function, which has other middleware there.
    outer.incoming("b")(handler)
    outer.include(inner)
    app.include(outer)
    inner.incoming("c")(handler)
    # What comes late counts, too.
    for name, one in (("inner", inner), ("outer", outer), ("app", app), ("second", app)):
        one.middleware(named(name))
    async with running(app) as test:
        for name in "abc":
            await test.send(name, b"x")
            await test.settled()
    assert called == [
        "app a",
        "second a",
        "app b",
        "second b",
        "outer b",
        "app c",
        "second c",
        "outer c",
        "inner c",
    ]


@in_virtual_time
async def test_memory_channels_have_it_and_a_nack_goes_back() -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "g",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": "ignore",
                }
            },
            "memory": {"inside": {}},
        }
    )
    called, handled = list[Any](), list[Any]()

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        called.append((message.channel, message.payload))
        if message.payload == {"of": "bad"}:
            raise ValueError("bad")
        return await call_next(message)

    @app.incoming("orders")
    @app.outgoing("inside")
    async def first(value: str) -> dict[str, str]:
        return {"of": value}

    @app.incoming("inside")
    async def second(value: dict[str, str]) -> None:
        handled.append(value)

    async with running(app) as test:
        await send(test, "good", "bad")
        await test.settled()
        totals = next(iter(test.app.channel("orders").facts().totals.values()))
        assert (totals.acked, sum(totals.nacked.values())) == (1, 1)
    assert called[0] == ("orders", "good") and called[-1] == ("inside", {"of": "bad"})
    assert len(called) == 4
    assert handled == [{"of": "good"}]


@in_virtual_time
async def test_a_record_that_cannot_be_decoded_reaches_no_middleware() -> None:
    app, called = make_app(failure_strategy="ignore"), list[Any]()

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        called.append(message.payload)
        return await call_next(message)

    @app.incoming("orders")
    async def handler(value: int) -> None: ...

    async with running(app) as test:
        await send(test, b"no number", b"5")
        await test.settled()
    assert called == [5]


@in_virtual_time
async def test_it_knows_what_the_handler_has_and_what_it_sets_is_seen_there_and_nowhere_else() -> (
    None
):
    app, seen = make_app(), list[Any]()

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        now = current_message()
        assert now is not None and now.offset == message.offset
        message.payload = message.payload.upper()
        return await call_next(message)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        now = current_message()
        seen.append((value, None if now is None else now.offset))

    async with running(app) as test:
        await send(test, b"a", b"b")
        await test.settled()
    assert seen == [(b"A", 0), (b"B", 1)]
    assert current_batch() is None


@in_virtual_time
async def test_it_is_around_the_whole_run_of_a_handler_that_yields_and_may_send_more() -> None:
    app, trace = make_app(), list[str]()

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        trace.append("begins")
        # In a task of its own, which is fine.
        assert await asyncio.wait_for(call_next(message), 5) is None
        trace.append("ends")
        return Record(b"last")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> AsyncIterator[bytes]:
        trace.append("first")
        yield b"first"
        await asyncio.sleep(1)
        trace.append("second")
        yield b"second"

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert [one.value for one in test.records("invoices")] == [b"first", b"second", b"last"]
    assert trace == ["begins", "first", "second", "ends"]


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_dependencies_are_made_and_ended_inside_of_it(is_blocking: bool) -> None:
    app, trace = make_app(), list[str]()

    async def make_pool() -> AsyncIterator[str]:
        trace.append("made")
        yield "pool"
        trace.append("ended")

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        trace.append("in")
        result = await call_next(message)
        trace.append("out")
        return result

    async def on_loop(value: bytes, pool: Annotated[str, Depends(make_pool)]) -> None:
        trace.append(f"{pool} {value.decode()}")

    def in_thread(value: bytes, pool: Annotated[str, Depends(make_pool)]) -> None:
        trace.append(f"{pool} {value.decode()}")

    app.incoming("orders")(in_thread if is_blocking else on_loop)
    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
    assert trace == ["in", "made", "pool x", "ended", "out"]


@pytest.mark.parametrize("outcome", ["away", "lost", "late"])
@in_virtual_time
async def test_a_transaction_of_the_store_may_be_around_a_handler_that_takes_the_payload(
    outcome: Any,
) -> None:
    rows, connections = Rows(), list[Any]()
    app = app_on(rows)

    @app.middleware
    async def in_transaction(message: Message[Any], call_next: CallNext) -> Any:
        async with message.transaction() as connection:
            connections.append(connection)
            return await call_next(message)

    @app.incoming("orders")
    async def store(value: bytes) -> None:
        connections[-1][value] = store_of(app).rows.data.get(value, 0) + 1

    async with running(app) as test:
        for call in ("enter", "exit"):
            store_of(app).faults.script(call, "ok", outcome, "ok")
        values = [b"%d" % number for number in range(5)]
        await send(test, *values)
        await test.settled(60)
        assert rows.data == dict.fromkeys(values, 1)
        assert row(rows).position == 5


# -- call_next


@in_virtual_time
async def test_call_next_may_be_called_not_at_all_or_again() -> None:
    app, calls = make_app(), list[bytes]()

    @app.middleware
    async def middleware(message: Message[Any], call_next: CallNext) -> Any:
        if message.payload == b"known":
            # Sent as if the handler had made it, and the record is acked.
            return b"cached"
        try:
            return await call_next(message)
        except ValueError:
            return await call_next(message)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        calls.append(value)
        if calls == [b"flaky"]:
            raise ValueError("once")
        return value

    async with running(app) as test:
        await send(test, b"known", b"flaky")
        await test.settled()
        assert [one.value for one in test.records("invoices")] == [b"cached", b"flaky"]
        assert committed(test) == 2
    assert calls == [b"flaky", b"flaky"]


async def _refused(
    shape: Any,
    pass_on: Callable[[Any, CallNext, list[Any]], Awaitable[Any]],
    *values: bytes,
    **orders: Any,
) -> tuple[list[str], list[Any]]:
    """Why records are nacked whose middleware passes something odd on; and what the handler has
    got.
    """
    recorder, handled, kept = Recorder(), list[Any](), list[Any]()
    app = make_app(recorder, failure_strategy="dead-letter-queue", **orders)

    @app.middleware
    async def middleware(given: Any, call_next: CallNext) -> Any:
        return await pass_on(given, call_next, kept)

    async def handler(given: Any) -> None:
        handled.append(given.payloads if isinstance(given, Batch) else given.payload)

    handler.__annotations__["given"] = shape
    app.incoming("orders")(handler)
    async with running(app) as test:
        await send(test, *values)
        await test.settled()
        assert committed(test) == len(values)
    return [event.reason for event in recorder.of(RecordDeadLettered)], handled


@in_virtual_time
async def test_a_record_is_not_passed_on_in_the_place_of_another() -> None:
    async def first_again(message: Message[Any], call_next: CallNext, kept: list[Any]) -> Any:
        kept.append(message)
        return await call_next(kept[0])

    reasons, handled = await _refused(Message[bytes], first_again, b"a", b"b")
    assert handled == [b"a"]
    (reason,) = reasons
    assert "has called call_next(<Message orders-0 offset 0" in reason
    assert (
        "it takes the message that the middleware was given, <Message orders-0 offset 1" in reason
    )

    async def payload(message: Message[Any], call_next: CallNext, kept: list[Any]) -> Any:
        return await call_next(message.payload)

    reasons, handled = await _refused(Message[bytes], payload, b"a")
    assert (len(reasons), handled) == (1, [])
    assert "has called call_next(b'a'): it takes the message" in reasons[0]


@in_virtual_time
async def test_a_batch_may_be_passed_on_in_part_but_nothing_of_another_and_not_empty() -> None:
    size: dict[str, Any] = {"batch_max_records": 2, "batch_max_wait": "1s"}

    async def good_ones(batch: Batch[bytes], call_next: CallNext, kept: list[Any]) -> Any:
        for message in batch:
            if message.payload == b"bad":
                message.nack(ValueError("bad"))
        return await call_next(Batch(message for message in batch if message.payload != b"bad"))

    reasons, handled = await _refused(Batch[bytes], good_ones, b"a", b"bad", **size)
    assert (reasons, handled) == (["ValueError: bad"], [[b"a"]])
    reasons, handled = await _refused(Batch[bytes], good_ones, b"bad", b"bad", **size)
    assert (reasons, handled) == (["ValueError: bad", "ValueError: bad"], [])

    async def first_again(batch: Batch[bytes], call_next: CallNext, kept: list[Any]) -> Any:
        kept.append(batch)
        return await call_next(kept[0])

    reasons, handled = await _refused(Batch[bytes], first_again, b"a", b"b", b"c", b"d", **size)
    assert handled == [[b"a", b"b"]]
    assert len(reasons) == 2
    assert "it takes some of the messages of the batch that the middleware was given" in reasons[0]


@pytest.mark.filterwarnings("ignore:coroutine '_Next._run' was never awaited:RuntimeWarning")
@in_virtual_time
async def test_a_record_does_not_count_as_handled_before_its_handler_is_done() -> None:
    async def not_awaited(message: Message[Any], call_next: CallNext, kept: list[Any]) -> None:
        call_next(message)

    reasons, handled = await _refused(Message[bytes], not_awaited, b"a")
    assert (len(reasons), handled) == (1, [])
    assert "has returned before what call_next had begun: await call_next" in reasons[0]

    async def in_a_task(message: Message[Any], call_next: CallNext, kept: list[Any]) -> None:
        kept.append(asyncio.ensure_future(call_next(message)))

    reasons, handled = await _refused(Message[bytes], in_a_task, b"a")
    assert (len(reasons), handled) == (1, [b"a"])

    async def later(message: Message[Any], call_next: CallNext, kept: list[Any]) -> Any:
        kept.append(call_next)
        return await kept[0](message)

    reasons, handled = await _refused(Message[bytes], later, b"a", b"b")
    assert (len(reasons), handled) == (1, [b"a"])
    assert (
        "call_next of the middleware tests.app.test_middleware." in reasons[0]
        and "after its return" in reasons[0]
    )


@in_virtual_time
async def test_a_time_limit_that_is_over_before_the_handler_begins_is_the_middleware_s_to_answer() -> (
    None
):
    async def limited(message: Message[Any], call_next: CallNext, kept: list[Any]) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(call_next(message), timeout=0)

    reasons, handled = await _refused(Message[bytes], limited, b"a")
    assert (reasons, handled) == ([], [])


# -- what can be middleware


async def right(message: Any, call_next: CallNext) -> Any:
    return await call_next(message)


class Callable_:
    async def __call__(self, message: Any, call_next: CallNext) -> Any:
        return await call_next(message)

    async def method(self, message: Any, call_next: CallNext) -> Any:
        return await call_next(message)


async def with_option(message: Any, call_next: CallNext, timeout: float) -> Any:
    return await call_next(message)


@functools.wraps(right)
def wrapper(*arguments: Any) -> Any:
    return right(*arguments)


@pytest.mark.parametrize(
    "function",
    [right, Callable_(), Callable_().method, functools.partial(with_option, timeout=1), wrapper],
)
def test_what_is_async_and_takes_two_arguments_can_be_middleware(function: Any) -> None:
    app, router = make_app(), Router()
    for one in (app, router):
        assert one.middleware(function) is function
        assert one.send_middleware(function) is function


async def one_parameter(message: Any) -> None: ...
async def three(message: Any, call_next: Any, more: Any) -> None: ...
async def unfilled(message: Any, call_next: Any, more: int = 5) -> None: ...
def sync(message: Any, call_next: Any) -> None: ...
async def by_name(*, message: Any, call_next: Any) -> None: ...
async def yields(message: Any, call_next: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (5, "is not a function"),
        (Callable_, "is not a function"),
        (sync, "is not async"),
        (yields, "yields"),
        (one_parameter, "is called with two arguments"),
        (three, "is called with two arguments"),
        (by_name, "is called with two arguments"),
        (unfilled, "has the parameter more, which nothing fills"),
    ],
)
def test_anything_else_is_refused_where_it_is_decorated(function: Any, why: str) -> None:
    app = make_app()
    for decorate, first in ((app.middleware, "message"), (app.send_middleware, "record")):
        with pytest.raises(ConfigError, match=why) as raised:
            decorate(function)
        assert f"write `async def m({first}, call_next)" in str(raised.value)


@in_virtual_time
async def test_nothing_of_it_is_decorated_while_the_application_runs() -> None:
    app, router = make_app(), Router()
    app.include(router)
    async with running(app):
        for one in (app, router):
            with pytest.raises(
                RuntimeError, match=r"@app\.middleware while the application is running"
            ):
                one.middleware(right)
            with pytest.raises(
                RuntimeError, match=r"@app\.send_middleware while the application is running"
            ):
                one.send_middleware(right)
    app.middleware(right)

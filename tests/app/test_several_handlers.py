"""Several handlers on one channel: which of them gets a record, with its own retries and outputs;
what none takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from reactive_kafka import (
    App,
    Batch,
    CommitRefusedError,
    ConfigError,
    Depends,
    Headers,
    Message,
    UnmatchedRecordError,
    current_message,
)
from reactive_kafka.events import RecordIgnored, RecordsSkipped
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.app.handlers import note_values, take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    rebalanced,
    running,
    send,
    tp,
    until,
)


class Placed(BaseModel):
    type: Literal["placed"] = "placed"
    id: int


class Cancelled(BaseModel):
    type: Literal["cancelled"] = "cancelled"
    id: int


@dataclass
class Refunded:
    id: int
    type: Literal["refunded", "returned"] = "refunded"


class Opened(msgspec.Struct, tag="opened", tag_field="kind"):
    id: int


class Closed(msgspec.Struct, tag="closed", tag_field="kind"):
    id: int


class Plain(BaseModel):
    id: int


class Other(BaseModel):
    id: int


def has_kind(kind: bytes) -> Callable[[Message[Any]], bool]:
    return lambda message: message.headers.get("kind") == kind


# -- which handler gets a record


async def test_the_first_that_fits_gets_it_and_the_one_without_a_predicate_comes_last() -> None:
    app, seen = make_app(value_deserializer="int"), list[tuple[str, int]]()

    @app.incoming("orders")
    async def rest(number: int) -> None:
        seen.append(("rest", number))

    @app.incoming("orders", when=lambda message: message.payload % 2 == 0)
    async def even(number: int) -> None:
        seen.append(("even", number))

    @app.incoming("orders", when=lambda message: message.payload % 3 == 0)
    async def third(message: Message[int]) -> None:
        seen.append(("third", message.payload))

    async with running(app) as test:
        await send(test, *range(1, 7))
        await test.settled()
        assert facts(test).totals[tp()].acked == 6
    names = {1: "rest", 2: "even", 3: "third", 4: "even", 5: "rest", 6: "even"}
    assert seen == [(names[number], number) for number in range(1, 7)]


async def test_the_type_of_the_payload_decides_without_predicates() -> None:
    app, seen = make_app(), list[Any]()

    @app.incoming("orders")
    async def placed(order: Placed) -> None:
        seen.append(("placed", order))

    @app.incoming("orders")
    # In a thread.
    def cancelled(message: Message[Cancelled]) -> None:
        seen.append(("cancelled", message.payload))

    @app.incoming("orders")
    async def refunded(order: Refunded | None) -> None:
        seen.append(("refunded", order))

    async with running(app) as test:
        await send(test, {"type": "cancelled", "id": 1}, {"type": "placed", "id": 2})
        await send(test, {"type": "returned", "id": 3}, None)
        await test.settled()
    assert seen == [
        ("cancelled", Cancelled(id=1)),
        ("placed", Placed(id=2)),
        ("refunded", Refunded(3, "returned")),
        ("refunded", None),
    ]


async def test_the_tags_of_structs_decide_too_and_members_of_unions() -> None:
    app, seen = make_app(), list[Any]()

    @app.incoming("orders", when=lambda message: message.payload.id == 7)
    async def seven(event: Opened | Closed) -> None:
        seen.append(("seven", event))

    @app.incoming("orders")
    async def opened(event: Opened) -> None:
        seen.append(("opened", event))

    @app.incoming("orders")
    async def closed(event: Closed) -> None:
        seen.append(("closed", event))

    async with running(app) as test:
        await send(
            test,
            {"kind": "closed", "id": 1},
            {"kind": "opened", "id": 2},
            {"kind": "closed", "id": 7},
        )
        await test.settled()
    assert seen == [("closed", Closed(1)), ("opened", Opened(2)), ("seven", Closed(7))]


async def test_a_predicate_of_a_type_is_not_asked_about_others() -> None:
    app, seen = make_app(), list[Any]()

    @app.incoming("orders", when=lambda message: message.payload.id > 0)
    async def placed(order: Placed) -> None:
        seen.append(order)

    @app.incoming("orders", when=lambda message: True)
    async def cancelled(order: Cancelled) -> None:
        seen.append(order)

    async with running(app) as test:
        await send(test, {"type": "cancelled", "id": 1}, {"type": "placed", "id": 2})
        await test.settled()
    assert seen == [Cancelled(id=1), Placed(id=2)]


async def test_types_that_cannot_be_told_apart_are_read_by_each_handler_once_its_predicate_has_chosen_it() -> (
    None
):
    """The predicates see what the format yields without a type."""
    app, seen, asked = make_app(failure_strategy="ignore"), list[Any](), list[Any]()

    def is_plain(message: Message[Any]) -> bool:
        asked.append(message.payload)
        return message.headers.get("kind") == b"plain"

    @app.incoming("orders", when=is_plain)
    async def plain(order: Plain) -> None:
        seen.append(order)

    @app.incoming("orders")
    async def other(message: Message[Other]) -> None:
        seen.append((message.payload, message.attempt))

    async with running(app) as test:
        await test.send("orders", {"id": 1}, headers=[("kind", b"plain")])
        await test.send("orders", {"id": 2})
        await test.send("orders", {"no": 3}, headers=[("kind", b"plain")])
        await until(lambda: facts(test).totals[tp()].nacked == {"ignore": 1})
    assert seen == [Plain(id=1), (Other(id=2), 1)]
    assert asked == [{"id": 1}, {"id": 2}, {"no": 3}]


async def test_predicates_see_bytes_where_a_handler_wants_bytes_or_text() -> None:
    app, seen = make_app(), list[Any]()

    @app.incoming("orders", when=lambda message: message.payload[:1] == b"{")
    async def plain(order: Plain) -> None:
        seen.append(order)

    @app.incoming("orders")
    async def text(line: str) -> None:
        seen.append(line)

    async with running(app) as test:
        await send(test, b'{"id": 1}', b"no JSON")
        await test.settled()
    assert seen == [Plain(id=1), "no JSON"]


async def test_a_memory_channel_tells_objects_apart_by_their_classes() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "g", "auto_offset_reset": "earliest"}},
            "memory": {"stage": {}},
        }
    )
    seen: list[Any] = []

    @app.incoming("orders")
    @app.outgoing("stage")
    async def read(number: int) -> Plain | Other:
        return Plain(id=number) if number % 2 else Other(id=number)

    @app.incoming("stage")
    async def plain(one: Plain) -> None:
        seen.append(one)

    @app.incoming("stage")
    async def other(one: Other) -> None:
        seen.append(one)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
    assert seen == [Plain(id=1), Other(id=2)]


# -- the property: which handler, how many calls, what is settled


PREDICATES = st.lists(st.sets(st.integers(0, 4)), max_size=4)


@settings(max_examples=40, deadline=None)
@given(
    PREDICATES,
    st.booleans(),
    st.lists(st.integers(0, 4), max_size=12),
    st.sampled_from(["partition", "key", "unordered"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["nack", "skip"]),
)
@example([{0, 1}, {1, 2}], True, [0, 1, 2, 3], "partition", True, False, "nack")
@example([{0, 1}, {1, 2}], False, [0, 1, 2, 3], "key", False, True, "skip")
def test_each_record_is_called_for_and_settled_as_the_rule_says(
    takes: list[set[int]],
    has_rest: bool,
    sent: list[int],
    ordering: str,
    broadcast: bool,
    filters: bool,
    unmatched: str,
) -> None:
    """Handler n takes the numbers of ``takes[n]``; the last one, if there is one, everything. 4 is
    filtered.
    """
    if not takes and not has_rest:
        has_rest = True

    async def main(clock: FakeClock) -> None:
        more: dict[str, Any] = (
            {"filter": "tests.app.test_several_handlers:is_below_four"} if filters else {}
        )
        app = make_app(
            value_deserializer="int",
            ordering=ordering,
            concurrency=3,
            failure_strategy="ignore",
            unmatched=unmatched,
            broadcast=broadcast,
            commit_interval="100ms",
            **more,
        )
        calls: list[tuple[int, int]] = []

        def handler(number: int) -> Callable[[int], Any]:
            async def handle(value: int) -> None:
                await asyncio.sleep(0.001 * value)
                calls.append((number, value))

            return handle

        for number, numbers in enumerate(takes):
            app.incoming(
                "orders", when=lambda message, numbers=numbers: message.payload in numbers
            )(handler(number))
        if has_rest:
            app.incoming("orders")(handler(len(takes)))
        async with running(app) as test:
            await send(test, *sent)
            await until(lambda: not sent or committed(test) == len(sent))
            totals = facts(test).totals.get(tp())
        expected: list[tuple[int, int]] = []
        skipped = {"filter": 0, "unmatched": 0}
        nacked = 0
        for value in sent:
            mine = [number for number, numbers in enumerate(takes) if value in numbers] + [
                len(takes)
            ] * has_rest
            if filters and value == 4:
                skipped["filter"] += 1
            elif not mine:
                skipped["unmatched"] += unmatched == "skip"
                nacked += unmatched == "nack"
            else:
                # A channel with one handler has nothing to broadcast to.
                expected += [(number, value) for number in (mine if broadcast else mine[:1])]
        assert sorted(calls) == sorted(expected)
        if totals is not None:
            assert totals.skipped == {why: records for why, records in skipped.items() if records}
            assert sum(totals.nacked.values()) == nacked
            assert totals.acked == len(sent) - sum(skipped.values()) - nacked

    run_in_virtual_time(main)


def is_below_four(message: Message[int]) -> bool:
    return message.payload < 4


# -- each handler's own ways


@in_virtual_time
async def test_each_handler_has_its_own_retries() -> None:
    app, calls = (
        make_app(value_deserializer="int", failure_strategy="ignore", retry={"max_attempts": 2}),
        list[Any](),
    )

    async def failing(message: Message[int]) -> None:
        calls.append((message.payload, message.attempt))
        raise ValueError

    @app.incoming("orders", when=lambda message: message.payload == 1, retry=3)
    async def patient(message: Message[int]) -> None:
        await failing(message)

    @app.incoming("orders", when=lambda message: message.payload == 2, retry=1)
    async def hasty(message: Message[int]) -> None:
        await failing(message)

    @app.incoming("orders")
    async def usual(message: Message[int]) -> None:
        await failing(message)

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await until(lambda: committed(test) == 3, 60)
    assert calls == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)]


@in_virtual_time
async def test_each_handler_sends_to_its_own_channels_and_its_record_is_acked_when_that_is_written() -> (
    None
):
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "g",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "int",
                }
            },
            "outgoing": {"even": {"wait_for_write": False}, "odd": {}},
        }
    )
    seen: list[int] = []

    @app.incoming("orders", when=lambda message: message.payload == 0)
    async def nothing(number: int) -> None:
        seen.append(number)

    @app.incoming("orders", when=lambda message: message.payload % 2 == 0)
    @app.outgoing("even")
    async def even(number: int) -> str:
        return f"even {number}"

    @app.incoming("orders")
    @app.outgoing("odd")
    async def odd(number: int) -> str:
        return f"odd {number}"

    async with running(app) as test:
        await send(test, *range(4))
        await test.settled()
        assert [record.value for record in test.records("even")] == [b"even 2"]
        assert [record.value for record in test.records("odd")] == [b"odd 1", b"odd 3"]
        assert facts(test).totals[tp()].acked == 4
    assert seen == [0]


async def test_handlers_that_ack_by_hand_ack_their_own() -> None:
    app, seen = make_app(value_deserializer="int", ack="manual"), list[Message[int]]()

    @app.incoming("orders", when=lambda message: message.payload == 1)
    async def keeps(message: Message[int]) -> None:
        seen.append(message)

    @app.incoming("orders")
    async def acks(message: Message[int]) -> None:
        message.ack()

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await until(lambda: seen and facts(test).totals[tp()].acked == 2)
        seen[0].ack()
        await test.settled()


async def test_each_handler_has_its_own_dependencies() -> None:
    app, seen = make_app(value_deserializer="int"), list[Any]()

    def of_even() -> str:
        return "even"

    def of_odd() -> str:
        return "odd"

    @app.incoming("orders", when=lambda message: message.payload % 2 == 0)
    async def even(number: int, given: Annotated[str, Depends(of_even)]) -> None:
        seen.append((number, given))

    @app.incoming("orders")
    def odd(number: int, given: Annotated[str, Depends(of_odd)]) -> None:
        seen.append((number, given))

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
        assert [call.payload for call in test.handler(even).calls] == [2]
    assert seen == [(1, "odd"), (2, "even")]


@pytest.mark.parametrize("ack", ["pre", "none"])
async def test_a_record_that_is_acked_before_its_call_is_chosen_for_too(ack: str) -> None:
    strategy = {"commit_strategy": "ignore"} if ack == "none" else {}
    app, seen = make_app(value_deserializer="int", ack=ack, **strategy), list[int]()

    @app.incoming("orders", when=lambda message: message.payload == 1)
    async def one(number: int) -> None:
        seen.append(number)
        raise ValueError

    @app.incoming("orders", when=lambda message: message.payload == 2)
    async def two(number: int) -> None:
        seen.append(-number)

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await until(
            lambda: (
                facts(test).totals.get(tp()) and sum(facts(test).totals[tp()].nacked.values()) == 2
            )
        )
    assert seen == [1, -2]


# -- what no handler takes


@in_virtual_time
async def test_what_no_handler_takes_is_nacked_at_once_and_can_be_routed_by_name() -> None:
    recorder = Recorder()
    app = make_app(
        recorder,
        value_deserializer="int",
        retry={"max_attempts": 5},
        failure_routes={"UnmatchedRecordError": "dead-letter-queue"},
    )

    @app.incoming("orders", when=lambda message: message.payload == 1)
    async def one(number: int) -> None: ...

    async with running(app) as test:
        await send(test, 1, 2)
        await until(lambda: test.records("dead-letter-topic-orders"))
        (letter,) = test.records("dead-letter-topic-orders")
        name = Headers(letter.headers).get("dead-letter-exception-class-name")
        assert name is not None
        assert name.endswith(b"UnmatchedRecordError")
        assert facts(test).retries == 0
    assert issubclass(UnmatchedRecordError, Exception)


@in_virtual_time
async def test_what_no_handler_takes_is_skipped_if_the_channel_says_so_and_told_once_an_interval() -> (
    None
):
    recorder = Recorder()
    app = make_app(recorder, value_deserializer="int", unmatched="skip")

    @app.incoming("orders", when=lambda message: message.payload == 1)
    async def one(number: int) -> None: ...

    async with running(app) as test:
        await send(test, 2, 1, 3)
        await test.settled()
        assert facts(test).totals[tp()].skipped == {"unmatched": 2}
        assert recorder.of(RecordsSkipped) == []
        await asyncio.sleep(11)
        (event,) = recorder.of(RecordsSkipped)
        assert event.text() == "2 records skipped: no handler takes such a record"
        await send(test, 4)
        await test.settled()
    assert [event.records for event in recorder.of(RecordsSkipped)] == [2, 1], (
        "the rest is told at the end"
    )


@in_virtual_time
async def test_a_predicate_that_raises_is_a_failure_of_its_handler() -> None:
    recorder = Recorder()
    app, asked = (
        make_app(recorder, value_deserializer="int", failure_strategy="ignore"),
        list[int](),
    )

    def odd_predicate(message: Message[int]) -> bool:
        asked.append(message.attempt)
        raise LookupError("no such thing")

    @app.incoming("orders", when=odd_predicate, retry=2)
    async def first(number: int) -> None: ...

    @app.incoming("orders")
    async def second(number: int) -> None:
        raise AssertionError("another handler's failure is none of its business")

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: committed(test) == 1, 60)
    assert asked == [1, 2]
    (ignored,) = recorder.of(RecordIgnored)
    assert ignored.reason == "LookupError: no such thing"


@in_virtual_time
async def test_a_delayed_retry_is_chosen_for_again() -> None:
    app, calls = (
        make_app(
            value_deserializer="int",
            failure_strategy="delayed-retry-topic",
            delayed_retry={"topics": ["orders_retry_1000"]},
        ),
        list[Any](),
    )

    @app.incoming("orders", when=lambda message: message.payload == 1)
    async def one(message: Message[int]) -> None:
        calls.append(message.topic)
        if len(calls) == 1:
            raise ValueError("not yet")

    @app.incoming("orders")
    async def rest(number: int) -> None:
        calls.append("rest")

    async with running(app) as test:
        await send(test, 1)
        await until(lambda: len(calls) == 2, 60)
    assert calls == ["orders", "orders_retry_1000"]


# -- what cannot be


def app_of(*handlers: tuple[Any, Any], **orders: Any) -> App:
    """An application with a handler for each annotation and predicate."""
    app = make_app(**orders)
    for number, (annotation, when) in enumerate(handlers):

        async def handle(value: Any) -> None: ...

        handle.__annotations__["value"] = annotation
        handle.__qualname__ = f"handler{number}"
        app.incoming("orders", when=when)(handle)
    return app


class Untagged(msgspec.Struct):
    id: int


class SamePlaced(BaseModel):
    type: Literal["placed", "placed again"] = "placed"
    id: int


@pytest.mark.parametrize(
    "types",
    [
        (Plain, Other),
        (Placed, SamePlaced),
        (Placed, Plain),
        (Placed, Placed),
        (Opened, Untagged),
        (Opened, Placed),
        (Placed | None, Cancelled | None),
        (dict, Placed),
        (Any, Placed),
        (str, bytes),
    ],
)
def test_handlers_that_cannot_be_told_apart_are_an_error_that_says_what_to_do(
    types: tuple[Any, Any],
) -> None:
    with pytest.raises(ConfigError) as caught:
        app_of(*((one, None) for one in types)).configure()
    (problem,) = caught.value.problems
    assert problem.startswith("channel 'orders' has two handlers: ")
    assert "handler0" in problem
    assert "handler1" in problem
    assert problem.endswith(
        "give one of them when=, or types of a discriminated union, or set broadcast = true"
    )
    app_of((types[0], lambda message: True), (types[1], None)).configure()


def test_a_batch_handler_is_alone() -> None:
    with pytest.raises(ConfigError, match="takes batches must be the only one of its channel"):
        app_of((Batch[bytes], lambda message: True), (bytes, None)).configure()
    with pytest.raises(ConfigError, match="takes batches must be the only one of its channel"):
        app_of((Batch[bytes], lambda message: True)).configure()


def test_handlers_of_a_channel_have_one_ack_mode() -> None:
    app = make_app()

    @app.incoming("orders", ack="pre", when=lambda message: True)
    async def first(order: bytes) -> None: ...

    take_all(app)

    with pytest.raises(
        ConfigError,
        match=r"'orders': all of its handlers need the same ack mode, but .*first.* has 'pre'",
    ):
        app.configure()


def test_a_predicate_is_a_plain_function() -> None:
    app = make_app()

    async def later(message: Message[Any]) -> bool:
        return True

    with pytest.raises(ConfigError, match="it is async, but its answer is needed at once"):
        app.incoming("orders", when=later)
    with pytest.raises(ConfigError, match="it is no function"):
        app.incoming("orders", when="later")  # type: ignore[arg-type]


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(
    ("retry", "calls"),
    # A table takes the place of the configured one.
    [(3, 1), ({"max_attempts": 3}, 3), (None, 1)],
)
@in_virtual_time
async def test_a_number_of_calls_leaves_the_rest_of_the_retries_as_configured(
    retry: Any, calls: int, is_alone: bool
) -> None:
    app = make_app(failure_strategy="ignore", retry={"max_attempts": 2, "never": ["ValueError"]})
    attempts = list[int]()

    @app.incoming("orders", retry=retry)
    async def handler(message: Message[bytes]) -> None:
        attempts.append(message.attempt)
        raise ValueError("never")

    if not is_alone:

        @app.incoming("orders", when=lambda message: False)
        async def other(message: Message[bytes]) -> None: ...

    async with running(app) as test:
        await test.send("orders", b"a")
        await test.settled()
    assert attempts == [*range(1, calls + 1)]


@pytest.mark.parametrize(
    ("handlers", "orders", "told"),
    [
        (
            [(bytes, None)],
            {"broadcast": True},
            ["broadcast = true: has no effect: the channel has one handler"],
        ),
        ([], {"broadcast": True}, ["broadcast = true: has no effect: the channel has no handler"]),
        ([(bytes, None)], {"unmatched": "skip"}, ["handler0"]),
        ([(bytes, has_kind(b"a")), (bytes, None)], {"unmatched": "skip"}, ["handler1"]),
        ([(bytes, has_kind(b"a"))], {"unmatched": "skip"}, []),
        # One without it is nobody's.
        ([(Placed, None), (Cancelled, has_kind(b"a"))], {"unmatched": "skip"}, []),
        ([(Placed, None), (Cancelled, None)], {"unmatched": "skip"}, ["handler0"]),
        (
            [(Cancelled, has_kind(b"a")), (Placed | Cancelled, None)],
            {"unmatched": "skip"},
            ["handler1"],
        ),
        ([(bytes, has_kind(b"a")), (bytes, None)], {"broadcast": True}, []),
    ],
)
def test_what_has_no_effect_is_told(
    handlers: list[Any], orders: dict[str, Any], told: list[str]
) -> None:
    warnings = app_of(*handlers, **orders).plan.warnings
    assert len(warnings) == len(told)
    for warning, text in zip(warnings, told, strict=True):
        assert "has no effect" in warning
        assert text in warning


# -- broadcast


@in_virtual_time
async def test_a_broadcast_record_is_acked_when_all_handlers_are_done() -> None:
    app, seen, goes_on = (
        make_app(broadcast=True, commit_interval="100ms"),
        list[Any](),
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def first(value: bytes) -> None:
        seen.append(("first", value))

    @app.incoming("orders", when=has_kind(b"a"))
    @app.outgoing("invoices")
    async def second(message: Message[bytes]) -> bytes:
        seen.append(("second", message.payload))
        return b"invoice"

    @app.incoming("orders")
    async def third(value: bytes) -> None:
        await goes_on.wait()
        seen.append(("third", value))

    async with running(app) as test:
        await test.send("orders", b"x", headers=[("kind", b"a")])
        await test.send("orders", b"y")
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(1)
        assert committed(test) in (None, 0)
        assert [record.value for record in test.records("invoices")] == [b"invoice"]
        goes_on.set()
        await test.settled()
        assert facts(test).totals[tp()].acked == 2
    assert seen == [
        ("first", b"x"),
        ("second", b"x"),
        ("third", b"x"),
        ("first", b"y"),
        ("third", b"y"),
    ]


@in_virtual_time
async def test_each_has_its_own_attempts_and_one_that_is_done_is_not_called_again() -> None:
    app, calls = make_app(broadcast=True, retry={"max_attempts": 2, "backoff": "1s"}), list[Any]()

    def failing(name: str, until_attempt: int, **decorator: Any) -> None:
        async def handle(message: Message[bytes]) -> None:
            calls.append((name, message.attempt))
            if message.attempt < until_attempt:
                raise ValueError(name)

        app.incoming("orders", **decorator)(handle)

    failing("first", 3, retry=3)
    failing("second", 1)
    failing("third", 2)
    async with running(app) as test:
        await send(test, b"x")
        await test.settled(timeout=60)
        assert facts(test).retries == 3
        assert facts(test).totals[tp()].nacked == {}
    assert calls == [
        ("first", 1),
        ("first", 2),
        ("first", 3),
        ("second", 1),
        ("third", 1),
        ("third", 2),
    ]


@pytest.mark.parametrize(
    "failing", [("first",), ("second",), ("third",), ("first", "third"), ("second", "third")]
)
@in_virtual_time
async def test_one_that_fails_for_good_has_the_record_nacked_once_the_others_are_done(
    failing: tuple[str, ...],
) -> None:
    recorder = Recorder()
    app, calls = (
        make_app(recorder, broadcast=True, failure_strategy="ignore", retry=None or {}),
        list[str](),
    )

    def add(name: str) -> None:
        async def handle(value: bytes) -> None:
            calls.append(name)
            if name in failing:
                raise ValueError(name)

        app.incoming("orders", retry=2)(handle)

    for name in ("first", "second", "third"):
        add(name)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: committed(test) == 1, 60)
        assert facts(test).totals[tp()].acked == 0
    assert calls == [
        name for name in ("first", "second", "third") for _ in range(1 + (name in failing))
    ]
    (ignored,) = recorder.of(RecordIgnored)
    assert ignored.reason == f"ValueError: {failing[0]}"
    told = [event.reason for event in recorder.events if type(event).__name__ == "AlsoFailed"]
    assert told == [f"ValueError: {name}" for name in failing[1:]]


@in_virtual_time
async def test_one_that_is_done_is_not_called_again_when_its_partition_is_retained() -> None:
    app, calls = (
        make_app(broadcast=True, retry={"max_attempts": 9, "backoff": "30s", "max_backoff": "30s"}),
        list[str](),
    )

    @app.incoming("orders")
    async def done(value: bytes) -> None:
        calls.append("done")

    @app.incoming("orders")
    async def fails(value: bytes) -> None:
        calls.append("fails")
        if calls.count("fails") < 3:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: calls.count("fails") == 1)
        await rebalanced(test)
        await until(lambda: calls.count("fails") == 3, 300)
        await test.settled()
    assert calls == ["done", "fails", "fails", "fails"]


@in_virtual_time
async def test_with_latest_the_next_record_waits_for_the_commit_of_the_broadcast() -> None:
    app, seen = make_app(broadcast=True, commit_strategy="latest"), list[Any]()

    for name in ("first", "second"):

        async def handle(message: Message[bytes], name: str = name) -> None:
            seen.append((name, message.offset, committed(test) or 0))

        app.incoming("orders")(partial(handle, name=name))

    async with running(app) as test:
        await send(test, b"x", b"y")
        await test.settled()
    assert seen == [("first", 0, 0), ("second", 0, 0), ("first", 1, 1), ("second", 1, 1)]


@in_virtual_time
async def test_no_handler_settles_a_broadcast_record_alone() -> None:
    app, errors, done = (
        make_app(broadcast=True, failure_strategy="ignore"),
        list[str](),
        list[bytes](),
    )

    @app.incoming("orders")
    async def impatient(message: Message[bytes]) -> None:
        mine = current_message()
        assert mine is not None
        for settle in (
            message.ack,
            mine.ack,
            lambda: message.nack(ValueError()),
            lambda: app.channel("orders").ack_up_to(message),
        ):
            with pytest.raises(
                CommitRefusedError, match="would settle a record for all of its handlers"
            ):
                settle()
            errors.append("refused")

    note_values(app, done)

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
    assert errors == ["refused"] * 4
    assert done == [b"x"]


@in_virtual_time
async def test_a_broadcast_record_whose_partition_goes_is_given_to_no_more_handlers_here() -> None:
    app, calls, goes_on = make_app(broadcast=True), list[str](), asyncio.Event()

    @app.incoming("orders")
    async def first(value: bytes) -> None:
        calls.append("first")
        if calls.count("first") == 1:
            await goes_on.wait()
            calls.append("went on")

    @app.incoming("orders")
    async def second(value: bytes) -> None:
        calls.append("second")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: calls)
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member, notice_after_s=0.5)
        # It comes again, with the new assignment.
        await until(lambda: calls.count("first") == 2, 60)
        await test.settled()
        goes_on.set()
        await until(lambda: "went on" in calls)
        await asyncio.sleep(1)
    assert calls == ["first", "first", "second", "went on"]


@pytest.mark.parametrize(
    ("orders", "ack", "said"),
    [
        ({}, "manual", "has 'manual'"),
        ({}, "pre", "has 'pre'"),
        (
            {
                "commit_strategy": "checkpoint",
                "checkpoint": {"store": "memory://", "state": "builtins:dict"},
            },
            None,
            'commit_strategy = "checkpoint"',
        ),
    ],
)
def test_what_does_not_go_with_broadcast_is_refused_by_name(
    orders: dict[str, Any], ack: Any, said: str
) -> None:
    app = make_app(broadcast=True, **orders)
    for _ in range(2):

        @app.incoming("orders", ack=ack)
        async def handle(message: Message[bytes]) -> None: ...

    with pytest.raises(ConfigError) as caught:
        app.configure()
    assert any(
        "broadcast = true" in problem and said in problem for problem in caught.value.problems
    )


def test_exactly_once_does_not_go_with_broadcast() -> None:
    app = App(
        {
            "kafka": {"bootstrap_servers": "localhost:9092"},
            "incoming": {"orders": {"group_id": "g", "broadcast": True}},
            "outgoing": {"invoices": {"transactional_id": "t"}},
        }
    )
    for _ in range(2):

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handle(value: bytes) -> bytes:
            return value

    with pytest.raises(ConfigError, match="it needs broadcast = false"):
        app.configure()

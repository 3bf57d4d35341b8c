"""``filter_headers``, and filters and ``when`` that see undecoded records: what is no record of ours
is never decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from reactive_kafka import App, Batch, Message
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import Rows, app_on, row
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    running,
    tp,
    until,
)
from tests.app.test_exactly_once import app_with as exactly_once_app

if TYPE_CHECKING:
    from reactive_kafka.records import RawRecord

HERE = "tests.app.test_selecting"


class Placed(BaseModel):
    order: int


asked: list[Any] = []
"""The payloads that filters and predicates were asked about."""


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()


def is_ours(message: Message[bytes]) -> bool:
    asked.append(message.payload)
    return message.headers.get("service") == b"ours"


def is_ours_or_empty(message: Message[bytes | None]) -> bool:
    return message.payload is None or is_ours(message)  # type: ignore[arg-type]


def is_even(message: Message[Placed]) -> bool:
    asked.append(message.payload)
    return message.payload.order % 2 == 0


def fails_at_first(message: Message[bytes]) -> bool:
    asked.append(message.attempt)
    if message.attempt < 3:
        raise LookupError("not yet")
    return message.headers.get("service") == b"ours"


def always_fails(message: Message[bytes]) -> bool:
    raise LookupError("no")


def produce(test: TestApp, value: bytes | None, service: str | None, **more: Any) -> None:
    headers = [] if service is None else [("service", service.encode())]
    test.broker.produce("orders", value, partition=0, headers=headers, **more)


def produce_of_two_services(test: TestApp) -> None:
    """Two orders of ours; between and behind them what no model of ours can read."""
    produce(test, b'{"order":1}', "ours")
    produce(test, b"<invoice/>", "theirs")
    produce(test, b'{"order":2}', "ours")
    produce(test, b"\xff", None)


Totals = tuple[int, int, dict[str, int]]


def totals(test: TestApp) -> Totals:
    """Acked, dead-lettered, skipped."""
    found = facts(test).totals[tp()]
    return found.acked, found.dead_lettered, found.skipped


def consume(app: App, takes: str, seen: list[int]) -> Callable[[], None]:
    """Have the application take its records in one of four ways; the answer ends it."""

    async def payload(placed: Placed) -> None:
        seen.append(placed.order)

    def in_thread(message: Message[Placed]) -> None:
        seen.append(message.payload.order)

    async def batch(batch: Batch[Placed]) -> None:
        seen.extend(placed.order for placed in batch.payloads)

    async def iterate() -> None:
        async for message in app.channel("orders"):
            seen.append(Placed.model_validate(message.payload).order)
            message.ack()

    if takes == "iterates":
        task = asyncio.create_task(iterate())
        return lambda: [task.cancel()].clear()
    app.incoming("orders")({"payload": payload, "thread": in_thread, "batch": batch}[takes])
    return lambda: None


# -- filter_headers


@pytest.mark.parametrize("takes", ["payload", "thread", "batch", "iterates"])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_records_without_the_header_are_skipped_before_anything_decodes_them(
    takes: str, ordering: str
) -> None:
    if ordering == "key" and takes != "payload":
        return
    seen: list[int] = []
    app = make_app(
        filter_headers={"service": "ours"},
        value_deserializer="json",
        failure_strategy="dead-letter-queue",
        ordering=ordering,
    )
    if takes != "iterates":
        consume(app, takes, seen)
    async with running(app) as test:
        end = consume(app, takes, seen) if takes == "iterates" else None
        produce_of_two_services(test)
        await until(lambda: committed(test) == 4)
        assert totals(test) == (2, 0, {"filter": 2})
        assert facts(test).totals[tp()].received == 4
        if end is not None:
            end()
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("headers", "is_handled"),
    [
        ([("service", b"a"), ("kind", b"x,y")], True),
        ([("kind", b"x,y"), ("service", b"b"), ("more", None)], True),
        ([("service", b"a")], False),
        ([("service", b"c"), ("kind", b"x,y")], False),
        ([("service", b"A"), ("kind", b"x,y")], False),
        ([("Service", b"a"), ("kind", b"x,y")], False),
        ([("service", None), ("kind", b"x,y")], False),
        ([("service", b"a"), ("kind", b"x")], False),
        # Of several headers with one name the last one counts.
        ([("service", b"c"), ("service", b"a"), ("kind", b"x,y")], True),
        ([("service", b"a"), ("service", b"c"), ("kind", b"x,y")], False),
        ([], False),
    ],
)
@in_virtual_time
async def test_a_record_needs_all_of_the_headers_each_with_one_of_its_values(
    headers: list[tuple[str, bytes | None]], is_handled: bool
) -> None:
    app = make_app(filter_headers={"service": ["a", "b"], "kind": "x,y"})
    seen: list[bytes] = []

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        seen.append(value)

    async with running(app) as test:
        test.broker.produce("orders", b"1", partition=0, headers=headers)
        await until(lambda: committed(test) == 1)
    assert bool(seen) is is_handled


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
@in_virtual_time
async def test_where_nothing_is_selected_the_position_moves_and_the_channel_catches_up(
    strategy: str,
) -> None:
    app = make_app(filter_headers={"service": "ours"}, commit_strategy=strategy, max_in_flight=10)
    caught_up: list[int] = []

    @app.incoming("orders")
    async def handle(value: bytes) -> None: ...

    @app.on_caught_up("orders")
    async def note(partitions: Any) -> None:
        caught_up.append(len(partitions))

    async with running(app) as test:
        for _ in range(1000):
            produce(test, b"", "theirs")
        await until(lambda: committed(test) == 1000)
        await until(lambda: caught_up == [1])
        assert totals(test) == (0, 0, {"filter": 1000})


@pytest.mark.parametrize("selects", ["headers", "filter"])
@in_virtual_time
async def test_exactly_once_and_a_store_pass_what_is_not_selected(selects: str) -> None:
    how: dict[str, Any] = {"filter_headers": {"service": "ours"}}
    if selects == "filter":
        how = {"filter": f"{HERE}:is_ours"}
    rows = Rows()
    stored = app_on(rows, **how)
    exactly_once = exactly_once_app(**how)

    @stored.incoming("orders")
    async def note(value: bytes) -> None: ...

    @exactly_once.incoming("orders")
    @exactly_once.outgoing("invoices")
    async def send(value: bytes) -> bytes:
        return value

    for app in (stored, exactly_once):
        async with running(app) as test:
            for service in ("theirs", "ours", "theirs", "theirs"):
                produce(test, service.encode(), service)
            await until(lambda app=app: totals_of(app) == (1, 3))
            if app is exactly_once:
                await until(lambda: committed(test) == 4, 30)
                assert [record.value for record in test.records("invoices")] == [b"ours"]
            else:
                await until(lambda: row(rows).position == 4, 30)


def totals_of(app: App) -> tuple[int, int]:
    """Acked, and skipped by the filter."""
    found = app.channel("orders").facts().totals.get(tp())
    return (found.acked, found.skipped.get("filter", 0)) if found else (0, 0)


@in_virtual_time
async def test_a_record_behind_an_open_one_is_skipped_and_not_committed_over_it() -> None:
    app = make_app(filter_headers={"service": "ours"}, ack="manual")
    kept: list[Message[bytes]] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        kept.append(message)

    async with running(app) as test:
        produce(test, b"", "theirs")
        produce(test, b"", "ours")
        produce(test, b"", "theirs")
        await until(lambda: bool(kept) and facts(test).totals[tp()].skipped == {"filter": 2})
        await asyncio.sleep(20)
        assert committed(test) in (None, 1)
        kept[0].ack()
        await until(lambda: committed(test) == 3)


@in_virtual_time
async def test_a_delayed_retry_is_selected_again_by_the_headers_that_it_has_kept() -> None:
    app = make_app(filter_headers={"service": "ours"}, failure_strategy="delayed-retry-topic")
    seen: list[str] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        seen.append(message.topic)
        if len(seen) == 1:
            raise ValueError("later")

    async with running(app) as test:
        produce(test, b"", "ours")
        await until(lambda: len(seen) == 2, 60)
        await test.settled(timeout=60)
    assert seen == ["orders", "orders_retry_10000"]


# -- a filter that sees undecoded records


@pytest.mark.parametrize("takes", ["payload", "thread", "batch", "iterates"])
@in_virtual_time
async def test_a_filter_of_bytes_is_asked_before_the_record_is_decoded(takes: str) -> None:
    seen: list[int] = []
    app = make_app(
        filter=f"{HERE}:is_ours",
        value_deserializer="json",
        failure_strategy="dead-letter-queue",
    )
    if takes != "iterates":
        consume(app, takes, seen)
    async with running(app) as test:
        end = consume(app, takes, seen) if takes == "iterates" else None
        produce_of_two_services(test)
        await until(lambda: committed(test) == 4)
        assert totals(test) == (2, 0, {"filter": 2})
        if end is not None:
            end()
    assert seen == [1, 2]
    assert asked == [b'{"order":1}', b"<invoice/>", b'{"order":2}', b"\xff"]


@pytest.mark.parametrize("takes", ["payload", "batch"])
@in_virtual_time
async def test_what_it_passes_and_cannot_be_decoded_is_a_dead_letter(takes: str) -> None:
    app = make_app(filter=f"{HERE}:is_ours", failure_strategy="dead-letter-queue")
    seen: list[int] = []
    consume(app, takes, seen)
    async with running(app) as test:
        produce(test, b"no json", "ours")
        produce(test, b"no json", "theirs")
        produce(test, b'{"order":3}', "ours")
        await until(lambda: committed(test) == 3)
        assert totals(test) == (1, 1, {"filter": 1})
    assert seen == [3]


@pytest.mark.parametrize("takes", ["payload", "batch"])
@in_virtual_time
async def test_it_sees_records_without_a_value(takes: str) -> None:
    app = make_app(filter=f"{HERE}:is_ours_or_empty", failure_strategy="dead-letter-queue")
    consume(app, takes, [])
    async with running(app) as test:
        produce(test, None, "theirs")
        produce(test, b"", "theirs")
        await until(lambda: committed(test) == 2)
        # The handler takes no None.
        assert totals(test) == (0, 1, {"filter": 1})


@in_virtual_time
async def test_one_that_raises_is_asked_again_and_may_still_skip() -> None:
    app = make_app(
        filter=f"{HERE}:fails_at_first",
        failure_strategy="dead-letter-queue",
        retry={"max_attempts": 3},
    )
    seen: list[int] = []
    consume(app, "payload", seen)
    async with running(app) as test:
        produce(test, b"<invoice/>", "theirs")
        produce(test, b'{"order":1}', "ours")
        await test.settled(timeout=60)
        assert totals(test) == (1, 0, {"filter": 1})
    assert seen == [1]
    assert asked == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("takes", ["payload", "batch", "iterates"])
@in_virtual_time
async def test_one_that_raises_for_good_has_the_record_nacked(takes: str) -> None:
    app = make_app(filter=f"{HERE}:always_fails", failure_strategy="dead-letter-queue")
    if takes != "iterates":
        consume(app, takes, [])
    async with running(app) as test:
        end = consume(app, takes, []) if takes == "iterates" else None
        produce(test, b"<invoice/>", "theirs")
        await until(lambda: committed(test) == 1)
        assert totals(test) == (0, 1, {})
        (letter,) = test.records("dead-letter-topic-orders")
        assert dict(letter.headers)["dead-letter-exception-class-name"] == b"builtins.LookupError"
        if end is not None:
            end()


def number_of_key(record: RawRecord) -> int:
    return int(record.key or b"")


@pytest.mark.parametrize("takes", ["payload", "batch", "iterates"])
@in_virtual_time
async def test_keys_of_other_services_are_not_decoded_either(takes: str) -> None:
    app = make_app(
        filter=f"{HERE}:is_ours",
        key_deserializer="int",
        value_deserializer="json",
        failure_strategy="dead-letter-queue",
    )
    seen: list[int] = []
    if takes != "iterates":
        consume(app, takes, seen)
    async with running(app) as test:
        end = consume(app, takes, seen) if takes == "iterates" else None
        produce(test, b'{"order":1}', "theirs", key=b"no int")
        produce(test, b'{"order":2}', "ours", key=b"no int")
        produce(test, b'{"order":3}', "ours", key=bytes(8))
        await until(lambda: committed(test) == 3)
        assert totals(test) == (1, 1, {"filter": 1})
        if end is not None:
            end()
    assert seen == [3]


@in_virtual_time
async def test_a_record_of_another_service_needs_no_ordering_key() -> None:
    app = make_app(
        filter=f"{HERE}:is_ours",
        ordering="key",
        concurrency=2,
        key=f"{HERE}:number_of_key",
        failure_strategy="dead-letter-queue",
    )
    seen: list[int] = []
    consume(app, "payload", seen)
    async with running(app) as test:
        produce(test, b'{"order":1}', "theirs", key=b"no int")
        produce(test, b'{"order":2}', "ours", key=b"no int")
        produce(test, b'{"order":3}', "ours", key=b"3")
        await until(lambda: committed(test) == 3)
        assert totals(test) == (1, 1, {"filter": 1})
    assert seen == [3]


# -- predicates that see undecoded records


@pytest.mark.parametrize("broadcast", [False, True])
@in_virtual_time
async def test_a_predicate_of_bytes_chooses_before_the_record_is_decoded(broadcast: bool) -> None:
    app = make_app(failure_strategy="dead-letter-queue", unmatched="skip", broadcast=broadcast)
    placed: list[int] = []

    @app.incoming("orders", when=is_ours)
    async def handle(order: Placed) -> None:
        placed.append(order.order)

    async with running(app) as test:
        produce_of_two_services(test)
        await test.settled()
        assert committed(test) == 4
        assert totals(test) == (2, 0, {"unmatched": 2})
    assert placed == [1, 2]


@pytest.mark.parametrize("broadcast", [False, True])
@in_virtual_time
async def test_each_service_may_have_a_handler_and_a_format_of_its_own(broadcast: bool) -> None:
    app = make_app(
        failure_strategy="dead-letter-queue", value_deserializer="json", broadcast=broadcast
    )
    seen: list[Any] = []

    @app.incoming("orders", when=is_ours)
    async def ours(order: Placed) -> None:
        seen.append(order.order)

    def has_angle(message: Message[bytes]) -> bool:
        return message.payload.startswith(b"<")

    @app.incoming("orders", when=has_angle)
    async def theirs(message: Message[Any]) -> None:
        seen.append("never")

    @app.incoming("orders", when=lambda message: message.payload == [7])
    async def others(numbers: list[int]) -> None:
        seen.append(numbers)

    async with running(app) as test:
        produce(test, b'{"order":1}', "ours")
        # It is chosen, and only then cannot be read.
        produce(test, b"<invoice/>", "theirs")
        produce(test, b"[7]", None)
        await test.settled()
        assert committed(test) == 3
        assert facts(test).totals[tp()].dead_lettered == 1
    assert seen == [1, [7]]


@in_virtual_time
async def test_a_filter_of_the_payload_and_a_predicate_of_bytes_each_see_their_own() -> None:
    app = make_app(filter=f"{HERE}:is_even", failure_strategy="dead-letter-queue")
    seen: list[int] = []

    @app.incoming("orders", when=is_ours)
    async def handle(order: Placed) -> None:
        seen.append(order.order)

    @app.incoming("orders")
    async def rest(order: Placed) -> None:
        seen.append(-order.order)

    async with running(app) as test:
        produce(test, b'{"order":2}', "ours")
        produce(test, b'{"order":3}', "ours")
        produce(test, b'{"order":4}', "theirs")
        produce(test, b"<invoice/>", "theirs")
        await test.settled()
        assert totals(test) == (2, 1, {"filter": 1})
    assert seen == [2, -4]
    order = Placed(order=2)
    assert asked == [order, b'{"order":2}', Placed(order=3), Placed(order=4), b'{"order":4}']


@in_virtual_time
async def test_each_attempt_of_a_handler_gets_the_payload() -> None:
    app = make_app(filter=f"{HERE}:is_ours")
    seen: list[Any] = []

    @app.incoming("orders", retry=3)
    async def handle(message: Message[Placed]) -> None:
        seen.append((message.payload.order, message.attempt))
        if message.attempt < 3:
            raise ValueError("not yet")

    async with running(app) as test:
        produce(test, b'{"order":1}', "ours")
        await test.settled(timeout=60)
    assert seen == [(1, 1), (1, 2), (1, 3)]
    assert asked == [b'{"order":1}'] * 3


@in_virtual_time
async def test_a_predicate_of_a_memory_channel_sees_the_object() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "g", "auto_offset_reset": "earliest"}},
            "memory": {"stage": {}},
        }
    )
    seen: list[bytes] = []

    @app.incoming("orders")
    @app.outgoing("stage")
    async def first(value: bytes) -> bytes:
        return value.upper()

    def is_loud(message: Message[bytes]) -> bool:
        return message.payload.isupper()

    @app.incoming("stage", when=is_loud)
    async def second(value: bytes) -> None:
        seen.append(value)

    async with running(app) as test:
        produce(test, b"hey", None)
        await test.settled()
    assert seen == [b"HEY"]

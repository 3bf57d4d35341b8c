"""``filter`` and ``max_record_age``: records that are settled without a call, counted, and told
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from reactive_kafka import App, Batch, ConfigError, Later, Message, TransientBrokerError
from reactive_kafka.events import RecordsSkipped
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)

HERE = "tests.app.test_filters"
asked: list[tuple[Any, Any, int]] = []
"""What :func:`is_even` was asked: payload, key, and the number of the attempt."""


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()


def is_even(message: Message[int]) -> bool:
    asked.append((message.payload, message.key, message.attempt))
    return message.payload % 2 == 0


def says_nothing(message: Message[Any]) -> None:
    """A filter whose author has forgotten to return."""


def raises(message: Message[int]) -> bool:
    asked.append((message.payload, message.key, message.attempt))
    if message.payload == 1 and message.attempt < 3:
        raise LookupError("not yet")
    return True


def yields(message: Message[Any]) -> Iterator[bool]:
    yield False


async def later(message: Message[Any]) -> bool:
    return True


def exits(message: Message[int]) -> bool:
    if message.payload == 1:
        raise SystemExit(3)
    return True


# -- filter


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("takes", ["payload", "message", "thread"])
@in_virtual_time
async def test_what_the_filter_does_not_pass_is_settled_without_a_call_and_counted(
    ordering: str, takes: str
) -> None:
    app = make_app(
        value_deserializer="int",
        key_deserializer="string",
        filter=f"{HERE}:is_even",
        ordering=ordering,
    )
    seen: list[int] = []

    async def payload(number: int) -> None:
        seen.append(number)

    async def message(one: Message[int]) -> None:
        seen.append(one.payload)

    def thread(number: int) -> None:
        seen.append(number)

    app.incoming("orders")({"payload": payload, "message": message, "thread": thread}[takes])
    async with running(app) as test:
        for number in range(6):
            await test.send("orders", number, key="k")
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped, totals.received) == (3, {"filter": 3}, 6)
        assert committed(test) == 6
    assert seen == [0, 2, 4]
    assert asked == [(number, "k", 1) for number in range(6)]


@in_virtual_time
async def test_the_metric_has_a_series_for_each_reason() -> None:
    app = make_app(value_deserializer="int", filter=f"{HERE}:is_even")

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    def skipped(reason: str) -> float | None:
        labels = {"channel": "orders", "reason": reason}
        return app.registry.get_sample_value("reactive_kafka_records_skipped_total", labels)

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await test.settled()
        assert {reason: skipped(reason) for reason in ("filter", "age", "unmatched")} == {
            "filter": 2,
            "age": 0,
            "unmatched": 0,
        }


@in_virtual_time
async def test_the_durations_of_calls_leave_out_records_that_are_skipped() -> None:
    app = make_app(value_deserializer="int", filter=f"{HERE}:is_even")

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        await send(test, *[1] * 10, 2, 3, 4)
        await test.settled()
        await asyncio.sleep(1)
        measured = facts(test)
        assert sum(measured.record_ages.counts) == 13
        assert sum(measured.handler_durations.counts) == 2


@in_virtual_time
async def test_records_that_no_handler_takes_are_no_calls() -> None:
    app = make_app(value_deserializer="int", unmatched="skip")

    @app.incoming("orders", when=lambda message: message.payload == 2)
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        await send(test, *[1] * 10, 2, 3)
        await test.settled()
        await asyncio.sleep(1)
        assert sum(facts(test).handler_durations.counts) == 1


@in_virtual_time
async def test_skipped_records_have_one_line_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reactive_kafka")
    app = make_app(value_deserializer="int", filter=f"{HERE}:is_even")

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        for _ in range(4):
            await send(test, *range(1, 200))
            await test.settled()
            await asyncio.sleep(5)
    lines = [line.getMessage() for line in caplog.records if "skipped" in line.getMessage()]
    assert lines == ["orders: 200 records skipped by the channel's filter"] * 2


@in_virtual_time
async def test_a_filter_that_raises_is_a_failure_and_is_asked_again() -> None:
    app, seen = (
        make_app(value_deserializer="int", filter=f"{HERE}:raises", retry={"max_attempts": 3}),
        list[int](),
    )

    @app.incoming("orders")
    async def handle(number: int) -> None:
        seen.append(number)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled(timeout=60)
    assert seen == [1, 2]
    assert [(number, attempt) for number, _, attempt in asked] == [(1, 1), (1, 2), (1, 3), (2, 1)]


@in_virtual_time
async def test_a_filter_that_forgets_to_return_skips_nothing() -> None:
    app = make_app(filter=f"{HERE}:says_nothing", failure_strategy="ignore")

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        raise AssertionError("the filter has not passed it")

    async with running(app) as test:
        await send(test, b"x")
        await until(
            lambda: (
                facts(test).totals.get(tp()) and facts(test).totals[tp()].nacked == {"ignore": 1}
            )
        )
        assert facts(test).totals[tp()].skipped == {}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (f"{HERE}:later", "it is async, but its result is needed at once"),
        (f"{HERE}:yields", "it yields, but it is only called"),
        (f"{HERE}:missing", "has no 'missing'"),
        (f"{HERE}:HERE", "it is not callable"),
        ("no.such.module:f", "no.such"),
    ],
)
def test_a_filter_that_cannot_be_one_is_an_error_at_the_start(named: str, said: str) -> None:
    app = make_app(filter=named)
    with pytest.raises(ConfigError) as caught:
        app.configure()
    (problem,) = caught.value.problems
    assert problem.startswith(f"code: [incoming.orders] filter = {named!r}: ")
    assert said in problem


@in_virtual_time
async def test_a_record_that_cannot_be_decoded_is_nacked_and_no_filter_is_asked() -> None:
    app = make_app(value_deserializer="int", filter=f"{HERE}:is_even", failure_strategy="ignore")

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        test.broker.produce("orders", b"no int", partition=0)
        await until(
            lambda: (
                facts(test).totals.get(tp()) and facts(test).totals[tp()].nacked == {"ignore": 1}
            )
        )
    assert asked == []


# -- records of other services: filters and ``when`` of payloads come after decoding


class Placed(BaseModel):
    order: int


def is_placed(message: Message[Any]) -> bool:
    asked.append((message.payload, message.key, message.attempt))
    return message.headers.get("type") == b"placed"


async def send_of_three_services(test: TestApp) -> None:
    """An order, a record in another format, and one of the same format that is no order."""
    test.broker.produce("orders", b'{"order":1}', partition=0, headers=[("type", b"placed")])
    test.broker.produce("orders", b"<invoice/>", partition=0, headers=[("type", b"invoice")])
    test.broker.produce("orders", b'{"order":2}', partition=0, headers=[("type", b"refund")])


def with_choice(by: str, **orders: Any) -> tuple[App, dict[str, Any]]:
    """An application that chooses orders by a filter, or by ``when``; and what its decorator
    takes.
    """
    if by == "filter":
        return make_app(filter=f"{HERE}:is_placed", **orders), {}
    return make_app(unmatched="skip", **orders), {"when": is_placed}


@pytest.mark.parametrize("by", ["filter", "when"])
@in_virtual_time
async def test_a_record_of_another_format_is_a_failure_before_a_choice_by_header_is_asked(
    by: str,
) -> None:
    app, arguments = with_choice(by, failure_strategy="dead-letter-queue")
    seen: list[int] = []

    @app.incoming("orders", **arguments)
    async def handle(placed: Placed) -> None:
        seen.append(placed.order)

    async with running(app) as test:
        await send_of_three_services(test)
        await test.settled()
        assert committed(test) == 3
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.dead_lettered, sum(totals.skipped.values())) == (1, 1, 1)
    assert seen == [1]
    assert [payload for payload, _, _ in asked] == [Placed(order=1), Placed(order=2)]


@pytest.mark.parametrize("by", ["filter", "when"])
@in_virtual_time
async def test_a_choice_by_header_among_bytes_passes_over_records_of_another_format(
    by: str,
) -> None:
    app, arguments = with_choice(
        by, failure_strategy="dead-letter-queue", value_deserializer="bytes"
    )
    seen: list[int] = []

    @app.incoming("orders", **arguments)
    async def handle(value: bytes) -> None:
        seen.append(Placed.model_validate_json(value).order)

    async with running(app) as test:
        await send_of_three_services(test)
        await test.settled()
        assert committed(test) == 3
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.dead_lettered, sum(totals.skipped.values())) == (1, 0, 2)
    assert seen == [1]


# -- batches, iterating, hooks


@in_virtual_time
async def test_batches_have_what_passes_and_a_batch_of_nothing_is_not_called() -> None:
    app = make_app(
        value_deserializer="int",
        filter=f"{HERE}:is_even",
        batch_max_records=3,
        batch_max_wait="10ms",
    )
    seen: list[list[int]] = []

    @app.incoming("orders")
    async def handle(batch: Batch[int]) -> None:
        seen.append(batch.payloads)

    async with running(app) as test:
        await send(test, 1, 3, 5)
        await until(lambda: committed(test) == 3)
        assert seen == []
        await send(test, 1, 2, 3)
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped) == (1, {"filter": 5})
    assert [number for batch in seen for number in batch] == [2]


@in_virtual_time
async def test_of_a_batch_a_record_whose_filter_raises_is_nacked_alone() -> None:
    app = make_app(
        value_deserializer="int",
        filter=f"{HERE}:raises",
        failure_strategy="ignore",
        retry={"max_attempts": 9},
    )
    seen: list[int] = []

    @app.incoming("orders")
    async def handle(batch: Batch[int]) -> None:
        seen.extend(batch.payloads)

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await until(lambda: committed(test) == 3)
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
    assert seen == [0, 2]


@in_virtual_time
async def test_an_application_that_iterates_gets_what_passes() -> None:
    app, seen = (
        make_app(value_deserializer="int", filter=f"{HERE}:is_even", max_record_age="1h"),
        list[int](),
    )
    async with running(app) as test:
        test.broker.produce("orders", bytes(7) + b"\x02", partition=0, timestamp_ms=1000)
        test.broker.produce("orders", b"no int", partition=0, timestamp_ms=1000)
        await send(test, 1, 2, 3, 4)

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(message.payload)
                message.ack()

        task = asyncio.create_task(consume())
        await until(lambda: committed(test) == 6)
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped, totals.nacked) == (2, {"filter": 2, "age": 2}, {})
        task.cancel()
    assert seen == [2, 4]


@in_virtual_time
async def test_an_application_that_iterates_does_not_get_what_the_filter_fails_for() -> None:
    app, seen = (
        make_app(value_deserializer="int", filter=f"{HERE}:raises", failure_strategy="ignore"),
        list[int](),
    )
    async with running(app) as test:
        await send(test, 1, 2)

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(message.payload)
                message.ack()

        task = asyncio.create_task(consume())
        await until(lambda: committed(test) == 2)
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
        task.cancel()
    assert seen == [2]


@pytest.mark.parametrize("takes_batches", [False, True])
@in_virtual_time
async def test_a_filter_may_ask_the_process_to_end(takes_batches: bool) -> None:
    app = make_app(value_deserializer="int", filter=f"{HERE}:exits")

    async def one(number: int) -> None: ...

    async def many(batch: Batch[int]) -> None: ...

    app.incoming("orders")(many if takes_batches else one)
    async with running(app) as test:
        await send(test, 1)
        assert app._run is not None
        await asyncio.wait_for(app._run.wait_asked(), 10)
        assert app._run.exit_code() == 3


@in_virtual_time
async def test_a_filter_may_look_at_the_offset_metadata_of_the_partition() -> None:
    """A service that has stored where an import has begun, and passes over what came before."""
    app, seen = (
        make_app(value_deserializer="int", filter=f"{HERE}:after_the_mark", ack="manual"),
        list[int](),
    )
    marks.clear()

    @app.on_assigned("orders")
    async def read(partitions: frozenset[Any]) -> None:
        for partition in partitions:
            marks[partition] = int(await app.channel("orders").offset_metadata(partition) or 0)

    @app.incoming("orders")
    async def handle(message: Message[int]) -> None:
        seen.append(message.payload)
        message.ack(metadata="2")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
        await until(lambda: committed(test) == 1)
        broker = test.broker
        await app.stop()
        await app.start()
        await until(lambda: app.channel("orders").is_ready)
        for number in (1, 2, 3):
            broker.produce("orders", bytes(7) + bytes([number]), partition=0)
        await until(lambda: committed(test) == 4)
    assert seen == [1, 3]


marks: dict[Any, int] = {}


def after_the_mark(message: Message[int]) -> bool:
    return message.payload > marks[message.topic_partition]


# -- max_record_age


@in_virtual_time
async def test_a_record_that_is_too_old_when_its_handler_would_be_called_is_skipped() -> None:
    app, seen, goes_on = (
        make_app(
            max_record_age="1m", filter=f"{HERE}:never_asked_of_old", unprocessed_record_max_age=0
        ),
        list[bytes](),
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handle(value: bytes) -> None:
        seen.append(value)
        if value == b"first":
            await goes_on.wait()

    async with running(app) as test:
        await send(test, b"first", b"gets old")
        await until(lambda: seen)
        await asyncio.sleep(61)
        goes_on.set()
        await send(test, b"new")
        test.broker.produce("orders", b"of no time", partition=0, timestamp_ms=-1)
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped) == (3, {"age": 1})
    assert seen == [b"first", b"new", b"of no time"]


def never_asked_of_old(message: Message[bytes]) -> bool:
    assert message.payload != b"gets old"
    return True


@pytest.mark.parametrize("takes_batches", [False, True])
@pytest.mark.parametrize("ordering", ["partition", "unordered"])
@in_virtual_time
async def test_an_old_record_need_not_be_readable(takes_batches: bool, ordering: str) -> None:
    app = make_app(
        max_record_age="1h", value_deserializer="int", failure_strategy="ignore", ordering=ordering
    )
    seen: list[int] = []

    async def one(number: int) -> None:
        seen.append(number)

    async def many(batch: Batch[int]) -> None:
        seen.extend(batch.payloads)

    app.incoming("orders")(many if takes_batches else one)
    async with running(app) as test:
        test.broker.produce("orders", b"no int", partition=0, timestamp_ms=1000)
        test.broker.produce("orders", bytes(8), partition=0, timestamp_ms=1000)
        test.broker.produce("orders", b"new, and no int", partition=0)
        await send(test, 7)
        await until(lambda: committed(test) == 4)
        totals = facts(test).totals[tp()]
        assert (totals.skipped, totals.nacked) == ({"age": 2}, {"ignore": 1})
    assert seen == [7]


@in_virtual_time
async def test_a_record_that_was_young_enough_is_tried_again_however_old_it_gets() -> None:
    """In place, and through a retry topic: its delay would make every record too old."""
    app = make_app(
        max_record_age="5s",
        retry={"max_attempts": 2, "backoff": "10s"},
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": ["orders_retry_60000"]},
    )
    calls: list[tuple[str, int]] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        calls.append((message.topic, message.attempt))
        if len(calls) < 4:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(calls) == 4, 300)
        assert facts(test).totals[tp()].skipped == {}
    assert calls == [
        ("orders", 1),
        ("orders", 2),
        ("orders_retry_60000", 1),
        ("orders_retry_60000", 2),
    ]


@pytest.mark.parametrize("decodes_late", [False, True])
@pytest.mark.parametrize("asks", [Later("10s"), TransientBrokerError("the shop is away")], ids=str)
@in_virtual_time
async def test_a_record_that_its_handler_has_had_is_not_skipped_at_a_call_that_is_no_attempt(
    asks: Exception, decodes_late: bool
) -> None:
    orders = {"filter": f"{HERE}:passes_bytes"} if decodes_late else {}
    app = make_app(max_record_age="5s", **orders)
    calls: list[float] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        calls.append(now())
        if now() < calls[0] + 10:
            raise asks

    async with running(app) as test:
        await send(test, b"x")
        await test.settled(timeout=60)
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.skipped) == (1, {})
    assert calls[-1] >= calls[0] + 10


def passes_bytes(message: Message[bytes]) -> bool:
    return True


@in_virtual_time
async def test_a_record_that_waits_for_its_next_attempt_is_not_skipped_after_a_rebalance() -> None:
    app = make_app(
        max_record_age="5s", retry={"max_attempts": 2, "backoff": "1m", "max_backoff": "1m"}
    )
    calls: list[int] = []

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        calls.append(message.attempt)
        if len(calls) == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: calls)
        await asyncio.sleep(10)
        await rebalanced(test)
        await test.settled()
        assert facts(test).totals[tp()].skipped == {}
    assert calls == [1, 1]


@in_virtual_time
async def test_what_is_skipped_is_told_every_ten_seconds_and_the_rest_when_the_channel_stops() -> (
    None
):
    recorder = Recorder()
    app = make_app(recorder, value_deserializer="int", filter=f"{HERE}:is_even")

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        began = now()
        for expected in ([2], [2, 1]):
            await send(test, *[1] * expected[-1])
            await until(
                lambda expected=expected: (
                    [one.records for one in recorder.of(RecordsSkipped)] == expected
                ),
                30,
            )
        assert 19.9 < now() - began < 21
        await send(test, 1, 1, 1)
        await test.settled()
        await asyncio.sleep(1)
    assert [one.records for one in recorder.of(RecordsSkipped)] == [2, 1, 3]


# -- where they do not go


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("filter", f"{HERE}:is_even"),
        ("max_record_age", "10m"),
        ("filter_headers", {"service": "hccm"}),
    ],
)
def test_spark_has_no_filter(key: str, value: object) -> None:
    app: App = make_app(**{key: value})

    @app.spark("orders")
    def count(df: Any, batch: Any) -> None: ...

    with pytest.raises(ConfigError) as caught:
        app.configure()
    (problem,) = caught.value.problems
    assert problem.startswith(f"code: [incoming.orders] {key}")
    assert "filter the DataFrame in it" in problem


@pytest.mark.parametrize("key", ["filter", "max_record_age", "unmatched", "broadcast"])
def test_memory_channels_have_none_of_these_keys(key: str) -> None:
    app = App({"memory": {"stage": {key: "x:y"}}})
    with pytest.raises(ConfigError, match="does not belong here but in"):
        app.configure()


@in_virtual_time
async def test_what_is_skipped_is_told_at_the_end_too() -> None:
    recorder = Recorder()
    app = make_app(
        recorder, value_deserializer="int", filter=f"{HERE}:is_even", max_record_age="1h"
    )

    @app.incoming("orders")
    async def handle(number: int) -> None: ...

    async with running(app) as test:
        await send(test, 1)
        test.broker.produce("orders", bytes(8), partition=0, timestamp_ms=0)
        await test.settled()
    assert {(event.why, event.records) for event in recorder.of(RecordsSkipped)} == {
        ("filter", 1),
        ("age", 1),
    }

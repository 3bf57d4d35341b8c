"""``failure_strategy = "delayed-retry-topic"``: tried again later through topics with a delay, then
dead-lettered.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from reactive_kafka import App, Batch, Headers, Message
from reactive_kafka.events import RecordDelayed, RecordPutOff
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    send,
    tp,
    until,
)

TOPICS = ["orders_retry_1000", "orders_retry_10000"]
LETTERS = "dead-letter-topic-orders"


def retrying_app(
    topics: list[str] = TOPICS,
    *,
    more: dict[str, Any] | None = None,
    recorder: Recorder | None = None,
    **orders: Any,
) -> App:
    return make_app(
        recorder,
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": topics, **(more or {})},
        commit_interval="100ms",
        **orders,
    )


Calls = list[tuple[bytes, str, float]]


def failing(app: App, times: int) -> Calls:
    """A handler that fails so often for each value; what it was called with, from which topic, and
    when.
    """
    calls: Calls = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append((message.payload, message.topic, now()))
        if sum(1 for value, *_ in calls if value == message.payload) <= times:
            raise ValueError("not yet")

    return calls


@in_virtual_time
async def test_a_record_is_tried_again_when_the_delay_of_its_topic_is_over() -> None:
    app = retrying_app()
    calls = failing(app, 2)
    async with running(app) as test:
        began = now()
        await send(test, b"x")
        await until(lambda: len(calls) == 3, 60)
        await until(lambda: test.broker.committed("billing").get(tp()) is not None)
    assert [topic for _, topic, _ in calls] == ["orders", *TOPICS]
    waits = [round(at - began, 1) for *_, at in calls]
    assert waits[0] < 0.5
    assert 1.0 <= waits[1] < 1.5
    assert 11.0 <= waits[2] < 12.0


@in_virtual_time
async def test_what_fails_in_every_topic_is_dead_lettered_as_a_record_of_its_first_one() -> None:
    app = retrying_app()
    calls = failing(app, 99)
    async with running(app) as test:
        began_ms = int(asyncio.get_running_loop().clock.wall() * 1000)  # type: ignore[attr-defined]
        test.broker.produce("orders", b"x", key=b"k", partition=0, timestamp_ms=777)
        await until(lambda: test.records(LETTERS), 60)
        (letter,) = test.records(LETTERS)
        headers = Headers(letter.headers)
        assert (letter.value, letter.key, headers.get("dead-letter-timestamp")) == (
            b"x",
            b"k",
            b"777",
        )
        assert (letter.timestamp or 0) > began_ms
        assert headers.get("dead-letter-topic") == b"orders"
        assert headers.get("dead-letter-offset") == b"0"
        await asyncio.sleep(60)
    assert len(calls) == 3


@in_virtual_time
async def test_a_record_that_is_not_due_blocks_none_that_is() -> None:
    app = retrying_app(["orders_retry_20000", "orders_retry_1000"], more={"max_retries": 2})
    calls = failing(app, 0)
    async with running(app) as test:
        began, wall_ms = now(), int(asyncio.get_running_loop().clock.wall() * 1000)  # type: ignore[attr-defined]
        for value, topic, age_ms in (
            (b"long", "orders_retry_20000", 0),
            # Behind it, in the same partition.
            (b"due", "orders_retry_20000", 20_000),
            (b"short", "orders_retry_1000", 0),
        ):
            test.broker.produce(topic, value, partition=0, timestamp_ms=wall_ms - age_ms)
        await until(lambda: len(calls) == 3, 60)
    assert [value for value, *_ in calls] == [b"due", b"short", b"long"]
    assert [round(at - began) for *_, at in calls] == [0, 1, 20]


@in_virtual_time
async def test_a_delay_survives_a_restart_of_the_service() -> None:
    broker, clock = make_broker(), asyncio.get_running_loop().clock  # type: ignore[attr-defined]
    first = retrying_app(["orders_retry_30000"])
    calls = failing(first, 1)
    async with running(first, broker=broker) as test:
        await send(test, b"x")
        await until(
            lambda: (
                broker.topics().get("orders_retry_30000")
                and broker.log(tp(topic="orders_retry_30000"))
            )
        )
        written = clock.wall()
        await asyncio.sleep(5)
    again = retrying_app(["orders_retry_30000"])
    later = failing(again, 0)
    async with running(again, broker=broker):
        await until(lambda: later, 60)
        assert 29.9 <= clock.wall() - written < 31
        await asyncio.sleep(60)
    await broker.close()
    assert len(calls) == len(later) == 1


@in_virtual_time
async def test_a_rebalance_neither_loses_nor_doubles_what_is_not_due() -> None:
    app = retrying_app(["orders_retry_10000"])
    calls = failing(app, 1)
    async with running(app, partitions=3) as test:
        for number in range(6):
            await send(test, b"%d" % number, partition=number % 3)
        await until(lambda: len(calls) == 6)
        await asyncio.sleep(3)
        group = "kafka-delayed-retry-topic-billing"
        test.broker.rebalance(group)
        await until(lambda: test.broker.generation(group) > 1)
        await until(lambda: len(calls) == 12, 60)
        await asyncio.sleep(30)
    assert len(calls) == 12


@in_virtual_time
async def test_a_record_that_gets_due_while_its_partition_waits_to_be_retained_is_tried_then() -> (
    None
):
    app = retrying_app(["orders_retry_5000"])
    calls = failing(app, 1)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: test.records("orders_retry_5000"))
        # It is held by now.
        await asyncio.sleep(1)
        hold = test.broker.hold("committed")
        test.broker.rebalance("kafka-delayed-retry-topic-billing")
        await hold.arrived()
        await asyncio.sleep(10)
        assert len(calls) == 1
        hold.release()
        await until(lambda: len(calls) == 2, 1)


@in_virtual_time
async def test_more_records_than_there_is_room_for_wait_in_the_topic_with_the_partition_paused() -> (
    None
):
    app = retrying_app(["orders_retry_20000"], max_in_flight=10)
    calls = failing(app, 1)
    async with running(app) as test:
        await send(test, *[b"%d" % number for number in range(50)])
        await until(lambda: len(calls) == 50, 60)
        await asyncio.sleep(5)
        retry = [
            one for one in facts(test).partitions if one.partition.topic == "orders_retry_20000"
        ]
        assert sum(one.queued for one in retry) <= 10
        assert any(one.paused for one in retry)
        await until(lambda: len(calls) == 100, 300)
        assert test.app.health().live.is_up


@in_virtual_time
async def test_an_undue_record_is_no_poison() -> None:
    app = retrying_app(["orders_retry_60000"], unprocessed_record_max_age="2s")
    calls = failing(app, 1)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(calls) == 2, 100)
        assert facts(test).state == "running"
        assert not facts(test).poison


@in_virtual_time
async def test_a_record_that_takes_longer_than_the_timeout_is_dead_lettered() -> None:
    app = retrying_app(["orders_retry_5000"], more={"max_retries": 100, "timeout": "22s"})
    calls = failing(app, 999)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: test.records(LETTERS), 100)
    # At 0, 5, 10, 15 and 20 s.
    assert len(calls) == 5


@in_virtual_time
async def test_batches_are_tried_again_too() -> None:
    app = retrying_app(["orders_retry_1000"], batch_max_wait="10ms")
    calls: list[tuple[bytes, str]] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        for message in batch:
            calls.append((message.payload, message.topic))
            if message.topic == "orders" and message.payload == b"bad":
                message.nack(ValueError("bad"))

    async with running(app) as test:
        await send(test, b"good", b"bad", b"good")
        await until(lambda: len(calls) == 4, 30)
    assert calls[-1] == (b"bad", "orders_retry_1000")


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_none_is_lost_in_any_order(ordering: str) -> None:
    app = retrying_app(["orders_retry_1000"], ordering=ordering, concurrency=4)
    calls = failing(app, 1)
    async with running(app, partitions=2) as test:
        for number in range(20):
            await test.send(
                "orders", b"%d" % number, key=b"%d" % (number % 3), partition=number % 2
            )
        await until(lambda: len(calls) == 40, 60)
        await until(
            lambda: (
                not facts(test).partitions or all(one.lag == 0 for one in facts(test).partitions)
            ),
            60,
        )
    assert {value for value, topic, _ in calls if topic != "orders"} == {
        b"%d" % number for number in range(20)
    }


@in_virtual_time
async def test_a_retry_keeps_its_partition_number_and_topics_are_made_with_as_many() -> None:
    app = retrying_app(["orders_retry_1000"])
    calls = failing(app, 1)
    async with running(app, partitions=3) as test:
        await send(test, b"x", partition=2)
        await until(lambda: len(calls) == 2, 30)
        assert test.broker.topics()["orders_retry_1000"] == 3
        assert [record.value for record in test.broker.log(tp(2, "orders_retry_1000"))] == [b"x"]


# -- by hand


@pytest.mark.parametrize(
    ("delay", "topic"),
    [
        (0, TOPICS[0]),
        ("500ms", TOPICS[0]),
        (1, TOPICS[0]),
        ("1001ms", TOPICS[1]),
        ("10s", TOPICS[1]),
        ("10", TOPICS[1]),
        (timedelta(seconds=1), TOPICS[0]),
        (timedelta(seconds=1, milliseconds=1), TOPICS[1]),
        # A time that has passed already.
        (-1, TOPICS[0]),
        (timedelta(days=-1), TOPICS[0]),
    ],
)
@in_virtual_time
async def test_a_handler_has_its_record_come_again_from_the_topic_with_the_nearest_delay(
    delay: float | str | timedelta, topic: str
) -> None:
    app, seen = retrying_app(list(reversed(TOPICS)), max_in_flight=1), list[tuple[str, float]]()
    answers: list[bool] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, now()))
        if len(seen) == 1:
            answers.append(await message.retry_later(delay))

    async with running(app) as test:
        await send(test, b"x", b"behind it")
        await until(lambda: len(seen) == 3, 60)
        await test.settled()
        assert facts(test).totals[tp()].nacked == {"delayed-retry-topic": 1}
        (retry,) = test.records(topic)
        assert Headers(retry.headers).get("delayed-retry-reason") == b"asked for by its handler"
    assert answers == [True]
    assert [name for name, _ in seen] == ["orders", "orders", topic]
    wait_s = int(topic.rpartition("_")[2]) / 1000
    assert wait_s <= round(seen[2][1] - seen[0][1], 3) < wait_s + 1


@in_virtual_time
async def test_a_record_that_is_put_off_is_no_warning_and_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    app, seen = retrying_app(recorder=recorder), list[str]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.topic)
        if len(seen) <= 3:
            message.retry_later("1s")

    with caplog.at_level(logging.INFO, logger="reactive_kafka"):
        async with running(app) as test:
            await send(test, b"x")
            await until(lambda: len(seen) == 4, 60)
            await test.settled()
            assert app.health().ready.is_up
    events = recorder.of(RecordPutOff)
    assert [(event.to, event.delay_s, event.error) for event in events] == [
        (TOPICS[0], 1.0, None)
    ] * 3
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert any("put off, next call in 1 s through" in record.message for record in caplog.records)


async def asks(message: Message[bytes]) -> None:
    message.retry_later("1s")


async def asks_by_another(message: Message[bytes]) -> None:
    await asks(message)


async def does_not_ask(message: Message[bytes]) -> None: ...


def put_off_warnings(app: App, handler: Any) -> list[str]:
    app.incoming("orders")(handler)
    app.configure()
    assert app._plan is not None
    return [warning for warning in app._plan.warnings if "retry_later()" in warning]


@pytest.mark.parametrize("handler", [asks, asks_by_another])
def test_a_channel_that_cannot_put_off_is_told_at_the_start_of_a_handler_that_asks(
    handler: Any,
) -> None:
    (warning,) = put_off_warnings(make_app(), handler)
    assert 'set failure_strategy = "delayed-retry-topic"' in warning
    assert handler.__name__ in warning
    assert put_off_warnings(retrying_app(), handler) == []
    assert put_off_warnings(make_app(), does_not_ask) == []


@in_virtual_time
async def test_a_record_may_come_again_as_often_as_its_handler_asks_and_a_failure_counts_that() -> (
    None
):
    app, seen = retrying_app(TOPICS[:1], more={"max_retries": 1, "timeout": "2s"}), list[str]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.topic)
        if len(seen) <= 5:
            message.retry_later("1s")
            return
        raise ValueError("no more")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: test.records(LETTERS), 60)
        (letter,) = test.records(LETTERS)
        assert Headers(letter.headers).get("dead-letter-reason") == b"no more"
        assert Headers(letter.headers).get("dead-letter-topic") == b"orders"
    assert seen == ["orders", *TOPICS[:1] * 5]


@pytest.mark.parametrize(
    ("settings", "delay", "problem"),
    [
        (
            {},
            "11s",
            "the longest retry delay is 10s; there are orders_retry_1000, orders_retry_10000",
        ),
        ({}, "soon", 'expected seconds, a timedelta, or a text such as "500ms", "5s", "2m", "1h"'),
        ({}, timedelta.max, "expected seconds, a timedelta, or a text such as "),
        ({}, True, "expected seconds, a timedelta, or a text such as "),
        ({}, timedelta(seconds=11), "the longest retry delay is 10s; there are "),
        (None, "1s", 'neither failure_strategy nor a route is "delayed-retry-topic"'),
    ],
)
@in_virtual_time
async def test_what_cannot_come_later_is_an_error_of_the_handlers(
    settings: dict[str, Any] | None, delay: float | str | timedelta, problem: str
) -> None:
    app, told = make_app() if settings is None else retrying_app(), list[ValueError]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        try:
            message.retry_later(delay)
        except ValueError as error:
            told.append(error)

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert facts(test).totals[tp()].nacked == {}
    assert str(told[0]).startswith(f"channel 'orders': retry_later({delay!r}): {problem}")


@in_virtual_time
async def test_the_event_of_a_delayed_record_has_its_topic_and_the_delay_in_seconds() -> None:
    recorder = Recorder()
    app = make_app(
        recorder,
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": TOPICS},
        commit_interval="100ms",
    )
    failing(app, 2)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(recorder.of(RecordDelayed)) == 2, 30)
        await test.settled(timeout=60)
    told = [(one.to, one.delay_s, one.offset) for one in recorder.of(RecordDelayed)]
    assert told == [("orders_retry_1000", 1.0, 0), ("orders_retry_10000", 10.0, 0)]
    assert "next try in 1 s" in recorder.of(RecordDelayed)[0].text()

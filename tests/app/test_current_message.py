"""What a handler has, told to whatever it calls: log lines, helpers that get no message, its
threads and tasks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from reactive_kafka import Batch, Message, current_batch, current_message
from tests.app.helpers import committed, in_virtual_time, make_app, running, send, tp, until
from tests.app.json_logs import JsonLines, logged_as_json
from tests.app.test_context_variables import tracing_app

Seen = tuple[int, int, Any, int]


def here() -> Seen | None:
    """Partition, offset, payload and attempt of what the handler has."""
    message = current_message()
    return (
        None
        if message is None
        else (message.partition, message.offset, message.payload, message.attempt)
    )


ORDERINGS: list[dict[str, Any]] = [
    {},
    {"ordering": "key"},
    {"ordering": "unordered", "concurrency": 3},
    {"ack": "pre"},
    {"commit_strategy": "latest"},
]


@pytest.mark.parametrize(
    ("shape", "orders"),
    [
        ("message", {"ack": "manual"}),
        *((shape, orders) for shape in ("payload", "message") for orders in ORDERINGS),
    ],
    ids=str,
)
@in_virtual_time
async def test_it_is_the_record_of_this_call_before_and_after_a_wait(
    shape: str, orders: dict[str, Any]
) -> None:
    app, seen = (
        make_app(value_deserializer="json", **orders),
        list[tuple[Any, Seen | None, Seen | None]](),
    )

    async def handler(given: Any) -> None:
        before = here()
        await asyncio.sleep(0.01 if before is not None and before[1] % 2 else 0)
        seen.append((given if shape == "payload" else given.payload, before, here()))
        message = current_message()
        if message is not None and orders.get("ack") == "manual":
            assert await message.ack()

    handler.__annotations__["given"] = int if shape == "payload" else Message[int]
    app.incoming("orders")(handler)
    assert here() is None
    async with running(app, partitions=2) as test:
        for partition in (0, 1):
            await send(test, *(10 * partition + number for number in range(8)), partition=partition)
        await test.settled()
        assert here() is None
        assert committed(test) == committed(test, 1) == 8
    assert len(seen) == 16
    for payload, before, after in seen:
        assert before == after == (payload // 10, payload % 10, payload, 1)


@in_virtual_time
async def test_an_attempt_has_its_number_and_the_next_record_nothing_of_it() -> None:
    app, seen = (
        make_app(value_deserializer="json", retry={"max_attempts": 3, "backoff": "1s"}),
        list[Seen | None](),
    )

    @app.incoming("orders")
    async def handler(number: int) -> None:
        seen.append(here())
        if number == 1 and len(seen) < 4:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await test.settled()
    assert seen == [(0, 0, 0, 1), (0, 1, 1, 1), (0, 1, 1, 2), (0, 1, 1, 3), (0, 2, 2, 1)]


@in_virtual_time
async def test_what_sets_context_variables_of_its_own_still_has_its_record() -> None:
    seen = list[Any]()
    places = list[Seen | None]()

    def value_of(value: bytes) -> str:
        places.append(here())
        return value.decode()

    async with running(tracing_app(seen, value_of)) as test:
        await send(test, b"a", b"b", b"c")
        await test.settled()
    assert seen == ["none"] * 3
    assert places == [(0, 0, b"a", 1), (0, 1, b"b", 1), (0, 2, b"c", 1)]


@in_virtual_time
async def test_where_calls_have_tasks_of_their_own_each_has_its_record() -> None:
    app, seen = make_app(value_deserializer="json", failure_strategy="ignore"), list[Seen | None]()

    @app.incoming("orders")
    async def handler(number: int) -> None:
        seen.append(here())
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async with running(app) as test:
        for number in range(3):
            await send(test, number)
            await test.settled()
    assert seen == [(0, number, number, 1) for number in range(3)]


@in_virtual_time
async def test_tasks_of_a_handler_have_its_record_and_one_that_is_left_behind_never_another() -> (
    None
):
    app = make_app(value_deserializer="json")
    inside, left = list[tuple[int, Seen | None]](), list[tuple[int, Seen | None]]()
    tasks, release = list[asyncio.Task[None]](), asyncio.Event()

    @app.incoming("orders")
    async def handler(number: int) -> None:
        async def look() -> None:
            await asyncio.sleep(0)
            inside.append((number, here()))

        async def look_late() -> None:
            await release.wait()
            left.append((number, here()))

        await asyncio.gather(look(), look())
        tasks.append(asyncio.create_task(look_late()))
        if number == 4:
            release.set()
            await asyncio.sleep(1)

    async with running(app) as test:
        await send(test, 0)
        await test.settled()
        await send(test, 1, 2, 3, 4)
        await test.settled()
        await asyncio.gather(*tasks)
    assert inside == [(number, (0, number, number, 1)) for number in range(5) for _ in range(2)]
    assert sorted(left) == [(number, (0, 4, 4, 1) if number == 4 else None) for number in range(5)]


IN_FLIGHT: list[dict[str, Any]] = [
    {},
    {"ordering": "key", "concurrency": 4},
    {"ordering": "unordered", "concurrency": 4},
    {"ack": "pre", "ordering": "unordered", "concurrency": 4},
]


@pytest.mark.parametrize("asks", ["task", "thread"])
@pytest.mark.parametrize("orders", IN_FLIGHT, ids=str)
async def test_tasks_and_threads_of_the_first_calls_in_flight_have_their_own_record(
    asks: str, orders: dict[str, Any]
) -> None:
    app, seen = make_app(value_deserializer="json", **orders), list[tuple[int, Seen | None]]()

    async def look(number: int) -> None:
        seen.append((number, here()))

    @app.incoming("orders")
    async def handler(number: int) -> None:
        # All calls that may be in flight are, before the first one asks.
        await asyncio.sleep(0)
        if asks == "task":
            await asyncio.create_task(look(number))
        else:
            seen.append((number, await asyncio.to_thread(here)))

    async with running(app) as test:
        await send(test, *range(12))
        await until(lambda: len(seen) == 12)
        await test.settled()
    assert sorted(seen) == [(number, (0, number, number, 1)) for number in range(12)]


@pytest.mark.parametrize("orders", IN_FLIGHT, ids=str)
@in_virtual_time
async def test_the_first_to_ask_in_a_later_call_gets_none_as_do_the_calls_in_flight_then(
    orders: dict[str, Any],
) -> None:
    app = make_app(value_deserializer="json", **orders)
    seen, ended = dict[int, Seen | None](), list[int]()
    at_once = orders.get("concurrency", 1)
    first, second, third = (range(number * at_once, (number + 1) * at_once) for number in range(3))

    async def look(number: int) -> None:
        seen[number] = here()

    @app.incoming("orders")
    async def handler(number: int) -> None:
        await asyncio.sleep(1)
        # Nobody asks in the first call of any worker.
        if number not in first:
            await asyncio.create_task(look(number))
        await asyncio.sleep(1)
        ended.append(number)

    async with running(app) as test:
        for numbers in (first, second, third):
            for number in numbers:
                await test.send("orders", number, key=f"k{number % at_once}", partition=0)
            await until(lambda: len(ended) == numbers.stop)  # noqa: B023
    assert [seen[number] for number in second] == [None] * at_once
    assert [seen[number] for number in third] == [(0, number, number, 1) for number in third]


@in_virtual_time
async def test_calls_that_begin_5_ms_after_the_first_to_ask_have_it_while_their_worker_stays_busy() -> (
    None
):
    app, seen = make_app(value_deserializer="json"), list[tuple[int, Seen | None]]()

    async def look(number: int) -> None:
        seen.append((number, here()))

    @app.incoming("orders")
    async def handler(number: int) -> None:
        await asyncio.sleep(0.006)
        if number >= 4:
            await asyncio.create_task(look(number))

    async with running(app) as test:
        await send(test, *range(8))
        await test.settled()
    assert seen == [(4, None), *((number, (0, number, number, 1)) for number in (5, 6, 7))]


@in_virtual_time
async def test_a_channel_that_a_handler_adds_has_its_own_records_and_not_that_of_the_handler() -> (
    None
):
    app, seen = make_app(value_deserializer="json"), list[Seen | None]()

    async def of_added(number: int) -> None:
        seen.append(here())
        await asyncio.create_task(look())

    async def look() -> None:
        seen.append(here())

    @app.incoming("orders")
    async def handler(number: int) -> None:
        settings = {
            "topic": "late",
            "group_id": "late",
            "auto_offset_reset": "earliest",
            "value_deserializer": "json",
        }
        await app.add_channel("late", settings, of_added)

    async with running(app) as test:
        await send(test, 7)
        await test.settled()
        assert here() is None
        test.broker.produce("late", b"1", partition=0)
        test.broker.produce("late", b"2", partition=0)
        await until(lambda: len(seen) == 4)
    assert seen == [(0, 0, 1, 1), (0, 0, 1, 1), (0, 1, 2, 1), (0, 1, 2, 1)]


@in_virtual_time
async def test_a_task_that_acks_after_its_handler_has_returned_has_the_message_until_then() -> None:
    app, seen = (
        make_app(value_deserializer="json", ack="manual"),
        list[tuple[int, Seen | None, Seen | None]](),
    )
    tasks = list[asyncio.Task[None]]()

    async def later(message: Message[int]) -> None:
        await asyncio.sleep(1)
        before = here()
        await message.ack()
        seen.append((message.payload, before, here()))

    @app.incoming("orders")
    async def handler(message: Message[int]) -> None:
        tasks.append(asyncio.create_task(later(message)))

    async with running(app) as test:
        await send(test, 0)
        await test.settled()
        await send(test, 1, 2)
        await test.settled()
    # The timers of the last two go off at once.
    assert sorted(seen) == [(number, (0, number, number, 1), None) for number in range(3)]


async def test_a_blocking_handler_has_it_in_its_thread_from_the_first_call_on() -> None:
    app, seen = make_app(value_deserializer="json"), list[tuple[int, Seen | None]]()

    @app.incoming("orders")
    def handler(number: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append((number, here()))

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await until(lambda: len(seen) == 3)
        await test.settled()
    assert seen == [(number, (0, number, number, 1)) for number in range(3)]


@in_virtual_time
async def test_a_task_that_iterates_over_a_channel_has_no_current_message() -> None:
    app, seen = make_app(value_deserializer="json"), list[Seen | None]()
    async with running(app) as test:

        async def consume() -> None:
            async for message in app.channel("orders"):
                seen.append(here())
                message.ack()

        task = asyncio.create_task(consume())
        await send(test, 1, 2)
        await until(lambda: committed(test) == 2)
        task.cancel()
    assert seen == [None, None]


@in_virtual_time
async def test_a_batch_is_its_own_and_has_no_message() -> None:
    app, seen = make_app(value_deserializer="json", batch_max_records=3), list[list[int]]()

    @app.incoming("orders")
    async def handler(batch: Batch[int]) -> None:
        now = current_batch()
        assert now is not None
        assert list(now) == list(batch)
        assert here() is None
        seen.append(now.payloads)

    async with running(app) as test:
        await send(test, 0, 1, 2)
        await test.settled()
        assert current_batch() is None
    assert seen == [[0, 1, 2]]


@in_virtual_time
async def test_a_deserializer_of_the_applications_own_has_the_record_that_it_reads(
    lines: JsonLines,
) -> None:
    app = make_app(value_deserializer=f"{__name__}:noting")

    @app.incoming("orders")
    async def handler(value: str) -> None: ...

    async with running(app) as test:
        await send(test, b"a", b"b")
        await test.settled()
    assert [line["offset"] for line in lines.of("decoding")] == [0, 1]


def noting(value: bytes) -> str:
    logging.getLogger("billing").info("decoding")
    return value.decode()


@pytest.fixture
def lines() -> Iterator[JsonLines]:
    with logged_as_json() as lines:
        yield lines


def test_json_lines_of_a_handler_say_which_record_it_has_and_those_of_others_do_not(
    lines: JsonLines,
) -> None:
    @in_virtual_time
    async def play() -> None:
        app = make_app(value_deserializer="json")

        @app.incoming("orders")
        async def handler(number: int) -> None:
            logging.getLogger("billing").info("got it")
            logging.getLogger("billing").info("mine", extra={"offset": "another", "order": 7})
            logging.getLogger("aiokafka.conn").warning("a library's")

        async with running(app, partitions=2) as test:
            logging.getLogger("billing").info("outside")
            await test.send("orders", 0, key="a\nb", partition=1)
            await test.send("orders", 1, partition=1)
            await test.settled()

    play()
    place = {"channel": "orders", "topic": "orders", "partition": 1}
    assert lines.of("got it") == [{**place, "offset": 0, "key": r"a\nb"}, {**place, "offset": 1}]
    assert lines.of("mine")[1] == {**place, "offset": "another", "order": 7}
    assert lines.of("a library's")[0] == lines.of("outside")[0] == {}


def test_json_lines_of_tasks_of_the_first_calls_say_which_record_they_are_of(
    lines: JsonLines,
) -> None:
    @in_virtual_time
    async def play() -> None:
        app = make_app(value_deserializer="json", ordering="unordered", concurrency=3)

        async def write() -> None:
            logging.getLogger("billing").info("from a task")

        @app.incoming("orders")
        async def handler(number: int) -> None:
            await asyncio.sleep(0)
            await asyncio.create_task(write())

        async with running(app) as test:
            await send(test, *range(9))
            await test.settled()

    play()
    assert sorted(line.get("offset", -1) for line in lines.of("from a task")) == list(range(9))


def test_json_lines_of_a_batch_name_its_first_record_and_how_many_there_are(
    lines: JsonLines,
) -> None:
    @in_virtual_time
    async def play() -> None:
        app = make_app(value_deserializer="json", batch_max_records=3)

        @app.incoming("orders")
        async def handler(batch: Batch[int]) -> None:
            logging.getLogger("billing").info("got them")

        async with running(app) as test:
            await send(test, 0, 1, 2)
            await test.settled()

    play()
    assert lines.of("got them") == [
        {"channel": "orders", "topic": tp().topic, "partition": 0, "offset": 0, "records": 3}
    ]

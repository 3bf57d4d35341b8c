"""What handlers get: payloads of many types, messages, batches; on the loop and in threads."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from reactive_kafka import App, Batch, Message
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    running,
    send,
    tp,
    until,
)


@dataclass
class Order:
    id: int
    amount: float = 0.0


class Click(BaseModel):
    page: str


@pytest.mark.parametrize(
    ("annotation", "sent", "got"),
    [
        (bytes, b"\xff raw", b"\xff raw"),
        (bytes | None, None, None),
        (str, "grüße", "grüße"),
        (dict, {"id": 1}, {"id": 1}),
        (dict[str, int], {"id": 1}, {"id": 1}),
        (int, 7, 7),
        (float, 2.5, 2.5),
        (Order, {"id": 1, "amount": 2}, Order(1, 2.0)),
        (Order, Order(3, 4.5), Order(3, 4.5)),
        (Order | None, None, None),
        (Click, {"page": "/"}, Click(page="/")),
        (list[Click], [{"page": "/"}], [Click(page="/")]),
        (Any, {"id": [1, 2]}, {"id": [1, 2]}),
    ],
)
async def test_a_payload_is_what_the_annotation_asks_for(
    annotation: Any, sent: object, got: object
) -> None:
    app, seen = make_app(), []

    async def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = annotation
    app.incoming("orders")(handler)
    async with running(app) as test:
        await test.send("orders", sent)
        await test.settled()
    assert seen == [got]


@pytest.mark.parametrize(
    ("deserializer", "sent", "raw"), [("int", 7, bytes(7) + b"\x07"), ("string", "a", b"a")]
)
async def test_a_configured_deserializer_reads_what_was_sent_in_its_format(
    deserializer: str, sent: object, raw: bytes
) -> None:
    app, seen = make_app(value_deserializer=deserializer), []

    @app.incoming("orders")
    async def handler(message: Message) -> None:  # type: ignore[type-arg]
        seen.append((message.payload, message.record.value))

    async with running(app) as test:
        await test.send("orders", sent)
        await test.settled()
    assert seen == [(sent, raw)]


async def test_a_message_has_its_metadata() -> None:
    app, seen = make_app(key_deserializer="string"), list[Message[Order]]()

    @app.incoming("orders")
    async def handler(message: Message[Order]) -> None:
        seen.append(message)

    async with running(app) as test:
        before = datetime.now(UTC)
        await test.send(
            "orders", Order(1), key="customer", headers=[("trace", b"1"), ("trace", b"2")]
        )
        await test.settled()
    (message,) = seen
    assert message.payload == Order(1)
    assert (message.topic, message.partition, message.offset, message.topic_partition) == (
        "orders",
        0,
        0,
        tp(),
    )
    assert (message.key, message.channel, message.attempt) == ("customer", "orders", 1)
    assert message.headers.get("trace") == b"2"
    assert message.headers.get_all("trace") == [b"1", b"2"]
    assert message.timestamp is not None
    assert abs((message.timestamp - before).total_seconds()) < 5
    assert message.record.value == b'{"id":1,"amount":0.0}'


async def test_a_blocking_handler_runs_in_threads_as_many_at_once_as_concurrency_says() -> None:
    app, threads, together = (
        make_app(ordering="unordered", concurrency=3),
        set[int](),
        threading.Barrier(3),
    )

    @app.incoming("orders")
    def handler(value: bytes) -> None:
        threads.add(threading.get_ident())
        together.wait(10)

    async with running(app) as test:
        await send(test, *[b""] * 3)
        await test.settled()
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_a_blocking_handler_keeps_the_order_of_its_partition() -> None:
    app, seen = make_app(concurrency=4), list[int]()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)

    async with running(app) as test:
        await send(test, *[b""] * 20)
        await test.settled()
    assert seen == list(range(20))


async def test_a_wrapper_that_returns_a_coroutine_is_awaited_on_the_loop() -> None:
    app, seen = make_app(), list[int]()

    async def handler(value: bytes) -> None:
        seen.append(threading.get_ident())

    app.incoming("orders")(lambda value: handler(value))
    async with running(app) as test:
        await send(test, b'"x"')
        await test.settled()
    assert seen == [threading.get_ident()]


async def test_one_handler_serves_two_channels() -> None:
    app = App(
        {
            "kafka": {"auto_offset_reset": "earliest"},
            "incoming": {"a": {"group_id": "g"}, "b": {"group_id": "g"}},
        }
    )
    seen: list[tuple[str, str]] = []

    @app.incoming("a")
    @app.incoming("b")
    async def handler(message: Message[str]) -> None:
        seen.append((message.channel, message.payload))

    async with running(app) as test:
        await test.send("a", "one")
        await test.send("b", "two")
        await test.settled()
    assert sorted(seen) == [("a", "one"), ("b", "two")]


@in_virtual_time
async def test_handlers_of_an_unordered_channel_run_at_once() -> None:
    app = make_app(ordering="unordered", concurrency=10)

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        await asyncio.sleep(10)

    async with running(app) as test:
        began = now()
        await send(test, *[b""] * 20)
        await test.settled(timeout=60)
        assert 20 <= now() - began < 21


async def test_ten_thousand_handlers_run_at_once() -> None:
    crowd = 10_000
    app = make_app(ordering="unordered", concurrency=crowd)
    inside = 0
    all_are_in = asyncio.Event()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        nonlocal inside
        inside += 1
        if inside == crowd:
            all_are_in.set()
        # No handler returns before all have started.
        await all_are_in.wait()

    async with running(app) as test:
        for number in range(crowd):
            test.broker.produce("orders", b"%d" % number)
        await test.settled(timeout=60)
    assert inside == crowd


@pytest.mark.parametrize("turns", [0, 1, 3])
@in_virtual_time
async def test_workers_that_share_a_lane_hand_out_each_record_once(turns: int) -> None:
    app, seen = make_app(ordering="unordered", concurrency=4), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        for _ in range(turns * (message.offset % 3)):
            await asyncio.sleep(0)
        seen.append(message.offset)

    async with running(app) as test:
        await send(test, *[b""] * 100)
        await test.settled()
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_workers_that_share_a_lane_leave_it_for_a_partition_with_little(
    ordering: str,
) -> None:
    app, done = make_app(ordering=ordering, concurrency=4), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.01)
        done.append(message.partition)

    async with running(app, partitions=2) as test:
        for number in range(800):
            await test.send("orders", b"", key=b"%d" % number, partition=0)
        await until(lambda: len(done) > 20)
        await test.send("orders", b"", partition=1)
        await until(lambda: 1 in done)
        assert done.index(1) < 60
        await test.settled()


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_workers_that_share_a_lane_make_place_for_one_whose_next_attempt_is_due(
    ordering: str,
) -> None:
    app, done = (
        make_app(ordering=ordering, concurrency=2, retry={"max_attempts": 2, "backoff": "100ms"}),
        list[int](),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.01)
        if message.offset == 0 and message.attempt == 1:
            raise ValueError("not yet")
        done.append(message.offset)

    async with running(app) as test:
        for number in range(400):
            await test.send("orders", b"", key=b"%d" % number, partition=0)
        await test.settled()
    assert 10 < done.index(0) < 60


@in_virtual_time
async def test_with_partition_ordering_partitions_run_beside_each_other_and_each_in_order() -> None:
    app, seen = make_app(concurrency=10), list[tuple[int, int]]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(1.0 + message.partition / 10)
        seen.append((message.partition, message.offset))

    async with running(app, partitions=2) as test:
        began = now()
        await send(test, b"", b"", b"", partition=0)
        await send(test, b"", b"", b"", partition=1)
        await test.settled(timeout=60)
        assert 3.3 <= now() - began < 4
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


# -- batches


@in_virtual_time
async def test_a_full_batch_does_not_wait() -> None:
    app, seen = (
        make_app(batch_max_records=3, batch_max_wait="20s"),
        list[tuple[float, list[bytes]]](),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        seen.append((now(), batch.payloads))

    async with running(app) as test:
        began = now()
        await send(test, b"a", b"b", b"c", b"d")
        await until(lambda: seen)
        assert now() - began < 1
        await test.settled(timeout=40)
    assert [payloads for _, payloads in seen] == [[b"a", b"b", b"c"], [b"d"]]
    assert 20 <= seen[1][0] - began < 21


@in_virtual_time
async def test_a_batch_waits_from_the_arrival_of_its_first_record() -> None:
    app, seen = make_app(batch_max_records=100, batch_max_wait="10s"), list[tuple[float, int]]()

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        seen.append((now(), len(batch)))

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=1)
        began = now()
        await asyncio.sleep(6)
        await send(test, b"", b"", partition=0)
        await test.settled(timeout=60)
    ((at, size),) = seen
    assert size == 3
    assert 10 <= at - began < 10.1


async def test_a_batch_may_be_settled_in_parts_and_handled_in_a_thread() -> None:
    """Row E7 of the faults."""
    app = make_app(failure_strategy="ignore", batch_max_records=4, batch_max_wait="50ms")

    @app.incoming("orders", ack="manual")
    def handler(batch: Batch[bytes]) -> None:
        assert isinstance(batch[0], Message)
        assert batch.ack_up_to(batch[1]).result()
        assert batch[2].nack(ValueError("bad")).result()
        assert batch.ack().result()
        assert not batch.ack().result()

    async with running(app) as test:
        await send(test, b"", b"", b"", b"")
        await test.settled()
        assert committed(test) == 4
        totals = facts(test).totals[tp()]
    assert (totals.acked, totals.nacked) == (3, {"ignore": 1})


async def test_batches_of_one_partition_follow_one_another() -> None:
    app, running_now, seen = (
        make_app(concurrency=3, batch_max_records=2, batch_max_wait="10ms"),
        [0],
        list[int](),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        running_now[0] += 1
        assert running_now[0] == 1
        await asyncio.sleep(0.001)
        seen.extend(message.offset for message in batch)
        running_now[0] -= 1

    async with running(app) as test:
        await send(test, *[b""] * 11)
        await test.settled()
    assert seen == list(range(11))


@pytest.mark.parametrize(
    "decorator", ["incoming", "outgoing", "on_assigned", "on_revoked", "on_start"]
)
async def test_what_is_decorated_while_the_application_runs_is_refused_and_not_kept_for_the_next_start(
    decorator: str,
) -> None:
    app, late = make_app(), list[bytes]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        """Only this one."""

    def decorate() -> None:
        if decorator == "on_start":
            app.on_start(late.clear)
        else:
            getattr(app, decorator)("orders")(late.append)

    async with running(app):
        with pytest.raises(
            RuntimeError, match=rf"@app.{decorator}.* while the application is running"
        ):
            decorate()
    async with running(app) as test:
        await send(test, b"x")
        await test.settled()


def test_a_handler_that_is_decorated_after_the_settings_were_read_counts() -> None:
    app = make_app()
    assert app.settings.incoming["orders"].group_id == "billing"
    assert not app.plan.incoming["orders"].has_handler

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        """It counts."""

    assert app.plan.incoming["orders"].has_handler

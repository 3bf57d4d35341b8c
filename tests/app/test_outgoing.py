"""What handlers return is sent, and the incoming record is acked once the broker has it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from reactive_kafka import App, FatalBrokerError, Headers, Message, Record, TransientBrokerError
from reactive_kafka.events import RecordIgnored, SendFailed
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)
from tests.app.sabotage import Sabotage


@dataclass
class Invoice:
    order: int


def sending_app(
    recorder: Recorder | None = None, *, orders: dict[str, Any] | None = None, **invoices: Any
) -> App:
    return App(
        {
            "incoming": {
                "orders": {"group_id": "billing", "auto_offset_reset": "earliest", **(orders or {})}
            },
            "outgoing": {"invoices": invoices, "audit": {"value_serializer": "string"}},
        },
        observer=recorder,
    )


async def test_a_returned_value_is_sent_and_none_sends_nothing() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: int) -> Invoice | None:
        return Invoice(order) if order % 2 else None

    async with running(app) as test:
        await send(test, 1, 2, 3)
        await test.settled()
        assert [json.loads(record.value or b"") for record in test.records("invoices")] == [
            {"order": 1},
            {"order": 3},
        ]
        assert committed(test) == 3
        assert app.facts().outgoing[0].sent == {"ok": 2, "failed": 0}


async def test_a_record_sets_key_headers_partition_timestamp_and_topic() -> None:
    app, at = sending_app(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> Record:
        return Record(
            {"a": 1}, key="k", headers=[("h", b"1")], partition=2, timestamp=at, topic="elsewhere"
        )

    async with running(app, partitions=3) as test:
        await send(test, b"")
        await test.settled()
        (record,) = test.broker.log(tp(2, "elsewhere"))
    assert (record.key, record.value, list(record.headers)) == (b"k", b'{"a":1}', [("h", b"1")])
    assert record.timestamp == at.timestamp() * 1000


@pytest.mark.parametrize("topic", ["", "a b"])
async def test_a_topic_that_cannot_exist_is_a_nack_and_not_the_channels_own(topic: str) -> None:
    app = sending_app(orders={"failure_strategy": "dead-letter-queue"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> Record:
        return Record(order, topic=topic)

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert test.records("invoices") == []
        (letter,) = test.records("dead-letter-topic-orders")
    reason = Headers(letter.headers).get("dead-letter-reason") or b""
    assert reason.startswith(f"channel 'invoices': the record's topic = {topic!r}: ".encode())


@in_virtual_time
async def test_the_order_is_acked_only_when_the_broker_has_the_invoice() -> None:
    app = sending_app(orders={"commit_interval": "100ms"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        confirmation = test.broker.hold("send", answer=True)
        await send(test, b"one")
        await confirmation.arrived()
        await asyncio.sleep(5)
        # Written, and the broker has not said so.
        assert test.records("invoices")
        assert committed(test) is None
        confirmation.release()
        await asyncio.sleep(0.2)
        assert committed(test) == 1


@in_virtual_time
async def test_without_waiting_for_the_write_handlers_go_on_and_acks_follow() -> None:
    app = sending_app(orders={"commit_interval": "100ms"}, wait_for_write=False, max_in_flight=2)
    seen: list[int] = []

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        seen.append(message.offset)
        return b"x"

    async with running(app) as test:
        first = test.broker.hold("send")
        await send(test, b"", b"", b"")
        await asyncio.sleep(1)
        assert seen == [0, 1, 2]
        assert committed(test) is None
        first.release()
        await test.settled()
        assert len(test.records("invoices")) == 3


@in_virtual_time
async def test_at_most_max_in_flight_wait_for_the_broker() -> None:
    app, seen = sending_app(wait_for_write=False, max_in_flight=2), list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        seen.append(message.offset)
        return b"x"

    async with running(app) as test:
        holds = [test.broker.hold("send") for _ in range(2)]
        await send(test, *[b""] * 10)
        await asyncio.sleep(1)
        # The third has been handled, and waits for room.
        assert seen == [0, 1, 2]
        assert app.facts().outgoing[0].in_flight == 2
        for hold in holds:
            hold.release()
        await test.settled()


@in_virtual_time
async def test_a_broker_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    recorder = Recorder()
    app = sending_app(recorder)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=3)
        await send(test, b"one", b"two")
        await until(lambda: len(recorder.of(SendFailed)) == 1)
        assert app.health().ready.status == "DOWN"
        assert app.health().live.status == "UP"
        await test.settled(timeout=30)
        assert [record.value for record in test.records("invoices")] == [b"one", b"two"]
        assert app.health().ready.status == "UP"
        assert app.facts().outgoing[0].sent["ok"] == 2
        # Both records are in one batch by the time of the last attempt.
        assert 3 <= app.facts().outgoing[0].sent["failed"] <= 6


async def test_a_value_that_cannot_be_written_is_a_nack() -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> object:
        return object()

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
    (event,) = recorder.of(RecordIgnored)
    assert event.reason.startswith("EncodeError: object cannot be written as JSON")


@pytest.mark.parametrize("topic", ["bad name!", "..", "x" * 250])
async def test_a_record_for_a_topic_that_can_never_be_is_a_nack_that_says_which_can(
    topic: str,
) -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> Record:
        return Record(b"", topic=topic)

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert topic not in test.broker.topics()
    reason = recorder.of(RecordIgnored)[0].reason
    assert reason.startswith("EncodeError: channel 'invoices': the record's topic = ")
    assert "letters, digits, dot, underscore and hyphen, at most 249" in reason


@pytest.mark.parametrize("wait", [True, False])
async def test_a_record_that_the_broker_refuses_is_a_nack(wait: bool) -> None:
    recorder = Recorder()
    app = sending_app(
        recorder,
        orders={"failure_strategy": "ignore"},
        wait_for_write=wait,
        **{"max.request.size": 1000},
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return b"x" * 2000

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
    assert recorder.of(RecordIgnored)[0].reason.startswith("RejectedRecordError: ")


async def test_a_header_of_text_is_a_nack_in_tests_as_it_is_on_kafka() -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> Record:
        return Record(b"", headers=[("trace", "abc")])  # type: ignore[list-item]

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert test.records("invoices") == []
    (event,) = recorder.of(RecordIgnored)
    assert event.reason == (
        "TypeError: Record: headers: ('trace', 'abc') is no pair of a str and bytes or None: "
        "encode the text, text.encode()"
    )


@pytest.mark.parametrize("wait", [True, False])
async def test_a_returned_value_that_makes_no_sense_is_a_nack_and_not_the_end_of_the_application(
    wait: bool,
) -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"}, wait_for_write=wait)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: int) -> Record:
        if order == 0:
            return Record(b"", headers=7)  # type: ignore[arg-type]
        if order == 1:
            return Record(b"", channel="nowhere")
        if order == 2:
            return Record(b"", timestamp=datetime(2026, 1, 1))
        return Record(b"fine")

    async with running(app) as test:
        await send(test, 0, 1, 2, 3)
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b"fine"]
    assert [event.offset for event in recorder.of(RecordIgnored)] == [0, 1, 2]


async def test_several_outgoing_channels_each_get_every_value_and_a_record_may_name_one() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    @app.outgoing("audit")
    async def handler(order: int) -> object:
        return "all" if order == 0 else Record("one", channel="audit")

    async with running(app) as test:
        await send(test, 0, 1)
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b"all"]
        assert sorted(record.value or b"" for record in test.records("audit")) == [b"all", b"one"]


@pytest.mark.parametrize("wait", [True, False])
async def test_a_value_that_one_of_several_channels_cannot_write_is_a_nack(wait: bool) -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"}, wait_for_write=wait)

    @app.incoming("orders")
    @app.outgoing("invoices")
    @app.outgoing("audit")
    async def handler(order: bytes) -> object:
        return {"audit": "wants strings"}

    async with running(app) as test:
        await send(test, b"", b"")
        await test.settled()
    assert len(recorder.of(RecordIgnored)) == 2
    assert (
        "audit" in recorder.of(RecordIgnored)[0].reason
        or "EncodeError" in recorder.of(RecordIgnored)[0].reason
    )


@in_virtual_time
async def test_a_write_that_is_cancelled_beside_another_one_is_no_success() -> None:
    recorder, loop = Recorder(), asyncio.get_running_loop()
    app = sending_app(recorder, orders={"failure_strategy": "ignore"})
    sabotage = Sabotage("write to audit-0", asyncio.CancelledError())

    @app.incoming("orders")
    @app.outgoing("invoices")
    @app.outgoing("audit")
    async def handler(order: bytes) -> object:
        return "both"

    loop.set_task_factory(sabotage)
    try:
        async with running(app) as test:
            await send(test, b"")
            await test.settled()
    finally:
        loop.set_task_factory(None)
    assert sabotage.hit == "write to audit-0"
    (event,) = recorder.of(RecordIgnored)
    assert (
        event.reason
        == "UnexpectedEndError: the task 'write to audit-0' was ended by CancelledError"
    )


async def test_a_send_that_fails_runs_the_handler_again_where_retries_are_configured() -> None:
    app, calls = sending_app(orders={"retry": {"max_attempts": 2, "backoff": "1ms"}}), list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> object:
        calls.append(message.attempt)
        return object() if message.attempt == 1 else b"fine"

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        assert len(test.records("invoices")) == 1
    assert calls == [1, 2]


async def test_a_handler_that_nacks_and_returns_a_value_keeps_its_verdict() -> None:
    app = sending_app(orders={"failure_strategy": "ignore"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        message.nack(ValueError("no"))
        return b"sent all the same"

    async with running(app) as test:
        await send(test, b"")
        await test.settled()
        totals = facts(test).totals[tp()]
        assert (totals.acked, totals.nacked) == (0, {"ignore": 1})


@pytest.mark.parametrize("mode", ["manual", "pre"])
async def test_other_ack_modes_send_and_leave_the_ack_alone(mode: str) -> None:
    app, kept = sending_app(), list[Message[bytes]]()

    @app.incoming("orders", ack=mode)
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> bytes:
        kept.append(message)
        return b"x"

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: test.records("invoices"))
        await settle_down()
        assert facts(test).partitions[0].in_flight == (1 if mode == "manual" else 0)
        kept[0].ack()
        await test.settled()


@in_virtual_time
async def test_a_stop_waits_for_what_is_on_its_way_to_the_broker() -> None:
    app = sending_app(wait_for_write=False)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        hold = test.broker.hold("send")
        await send(test, b"one")
        await hold.arrived()
        began = now()
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.sleep(3)
        assert not stopping.done()
        hold.release()
        await stopping
        assert now() - began < 4
        assert test.broker.committed("billing")[tp()].offset == 1


@in_virtual_time
async def test_an_outgoing_channel_without_a_broker_at_start_connects_later() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        await send(test, b"one")
        test.broker.fail_next("send", FatalBrokerError("no such topic"), times=2)
        await test.settled(timeout=30)
        assert [record.value for record in test.records("invoices")] == [b"one"]

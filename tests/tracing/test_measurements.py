"""The four metrics of the messaging conventions, as the SDK exports them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from reactive_kafka import (
    App,
    Batch,
    Later,
    Message,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.tracing.meter import meter_of
from tests.app.helpers import in_virtual_time, make_app, running, send, settle_down, until
from tests.config.values import tracing_settings
from tests.tracing.helpers import Measures, Spans, producers

OPERATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESS = "messaging.process.duration"
ORDERS = {
    "messaging.system": "kafka",
    "messaging.destination.name": "orders",
    "messaging.destination.partition.id": "0",
    "messaging.consumer.group.name": "billing",
    "server.address": "localhost",
    "server.port": 9092,
}
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


@in_virtual_time
async def test_each_call_of_a_handler_is_measured(measures: Measures) -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(value: int) -> None:
        await asyncio.sleep(2)

    async with running(app) as test:
        await send(test, 1, 2)
        await test.settled()
    point = measures.only(PROCESS)
    assert point.attributes == {**ORDERS, "messaging.operation.name": "process"}
    assert (point.value, point.count, point.bounds) == (4.0, 2, BUCKETS_S)
    consumed = measures.only(CONSUMED)
    assert consumed.attributes == {**ORDERS, "messaging.operation.name": "process"}
    assert consumed.value == 2


@in_virtual_time
async def test_a_record_is_consumed_once_and_processed_in_each_attempt(measures: Measures) -> None:
    app = make_app(retry={"max_attempts": 3, "backoff": "1s"}, failure_strategy="ignore")
    calls = list[int]()

    @app.incoming("orders")
    async def handler(value: int) -> None:
        calls.append(value)
        if len(calls) < 3:
            raise ValueError("bad")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert measures.only(CONSUMED).value == 1
    assert measures.only(PROCESS, error_type="ValueError").count == 2
    (succeeded,) = [point for point in measures.of(PROCESS) if "error.type" not in point.attributes]
    assert succeeded.count == 1


@pytest.mark.parametrize("takes_batches", [False, True])
@pytest.mark.parametrize("asks", [Later("1s"), TransientBrokerError("away")], ids=str)
@in_virtual_time
async def test_a_record_is_consumed_once_though_a_call_is_no_attempt(
    asks: Exception, takes_batches: bool, measures: Measures
) -> None:
    app = make_app(batch_max_wait="10ms")
    calls = list[object]()

    async def one(value: int) -> None:
        calls.append(value)
        if len(calls) < 3:
            raise asks

    async def many(batch: Batch[int]) -> None:
        await one(batch.payloads[0])

    app.incoming("orders")(many if takes_batches else one)
    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert len(calls) == 3
    assert measures.only(CONSUMED).value == 1


@in_virtual_time
async def test_a_record_that_goes_to_several_handlers_is_consumed_once(measures: Measures) -> None:
    app = make_app(broadcast=True)
    calls = list[str]()

    @app.incoming("orders", when=lambda message: message.payload != 1)
    async def none_of_ones(message: Message[int]) -> None: ...

    @app.incoming("orders")
    async def first(message: Message[int]) -> None:
        calls.append("first")

    @app.incoming("orders")
    async def second(message: Message[int]) -> None:
        calls.append("second")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert calls == ["first", "second"]
    assert measures.only(CONSUMED).value == 1


@in_virtual_time
async def test_a_batch_is_one_call_with_many_messages(measures: Measures) -> None:
    app = make_app(batch_max_wait="1s")

    @app.incoming("orders")
    async def handler(batch: Batch[int]) -> None: ...

    async with running(app, partitions=2) as test:
        for partition in (0, 1, 1):
            await send(test, 1, partition=partition)
        await test.settled()
    point = measures.only(PROCESS)
    assert point.count == 1
    assert point.attributes["messaging.destination.name"] == "orders"
    assert "messaging.destination.partition.id" not in point.attributes
    assert measures.only(CONSUMED).value == 3


@pytest.mark.parametrize("invoices", [{}, {"transactional_id": "t"}])
@in_virtual_time
async def test_each_request_of_a_producer_is_measured(
    invoices: dict[str, Any], measures: Measures
) -> None:
    app = App({"outgoing": {"invoices": invoices}})
    emitter = app.emitter("invoices")
    async with running(app):
        await emitter.send(b"x")
    sent = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.destination.name": "invoices",
        "messaging.destination.partition.id": "0",
        "server.address": "localhost",
        "server.port": 9092,
    }
    assert measures.only(SENT).attributes == sent
    assert measures.only(SENT).value == 1
    operation = measures.only(OPERATION)
    assert operation.attributes == {**sent, "messaging.operation.type": "send"}
    assert (operation.count, operation.bounds) == (1, BUCKETS_S)


@in_virtual_time
async def test_what_the_broker_refuses_was_attempted(measures: Measures) -> None:
    app = make_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"))
        with pytest.raises(RejectedRecordError):
            await emitter.send(b"x")
    error = "reactive_kafka.errors.RejectedRecordError"
    assert measures.only(SENT, error_type=error).value == 1
    assert measures.only(OPERATION, messaging_operation_name="send", error_type=error).count == 1


@in_virtual_time
async def test_a_dead_letter_is_a_message_that_is_sent(measures: Measures) -> None:
    app = make_app(failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(value: int) -> None:
        raise ValueError("bad")

    async with running(app) as test:
        await send(test, 1)
        await test.settled()
    assert measures.only(SENT).attributes["messaging.destination.name"] == (
        "dead-letter-topic-orders"
    )


@in_virtual_time
async def test_each_commit_is_measured(measures: Measures) -> None:
    app = make_app()

    @app.incoming("orders")
    async def handler(value: int) -> None: ...

    async with running(app) as test:
        test.broker.fail_next("commit", TransientBrokerError("away"))
        await send(test, 1)
        await test.settled()
        await until(lambda: len(measures.of(OPERATION)) == 2, 60)
    stored, failed = sorted(
        measures.of(OPERATION, messaging_operation_name="commit"),
        key=lambda point: "error.type" in point.attributes,
    )
    assert stored.attributes == {
        **ORDERS,
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
    }
    assert failed.attributes["error.type"] == "reactive_kafka.errors.TransientBrokerError"


@in_virtual_time
async def test_a_message_that_the_application_takes_is_received(measures: Measures) -> None:
    app = make_app()
    async with running(app) as test:
        taken = asyncio.ensure_future(anext(app.channel("orders").__aiter__()))
        await settle_down()
        await asyncio.sleep(3)
        await test.send("orders", 1)
        await taken
    receive = measures.only(OPERATION, messaging_operation_name="receive")
    assert receive.attributes["messaging.operation.type"] == "receive"
    assert receive.value >= 3
    assert measures.only(CONSUMED).attributes == {**ORDERS, "messaging.operation.name": "receive"}


@in_virtual_time
async def test_without_a_tracer_provider_headers_stay_as_they_are(measures: Measures) -> None:
    app = make_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: int) -> int:
        return value

    async with running(app) as test:
        await test.send("orders", 1, headers=[producers(7)])
        await test.settled()
        assert [record.headers for record in test.records("invoices")] == [()]
    assert measures.only(PROCESS).count == 1


@pytest.mark.parametrize(
    ("app", "left"),
    [
        ({"tracing": {"enabled": False}}, set()),
        ({"orders": {"tracing_enabled": False}}, {SENT, OPERATION}),
        ({"invoices": {"tracing_enabled": False}}, {CONSUMED, OPERATION, PROCESS}),
    ],
)
@in_virtual_time
async def test_what_is_turned_off_is_not_measured(
    app: dict[str, Any], left: set[str], measures: Measures, spans: Spans
) -> None:
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", **app.pop("orders", {})}
    invoices = app.pop("invoices", {})
    application = App({"incoming": {"orders": orders}, "outgoing": {"invoices": invoices}} | app)

    @application.incoming("orders")
    @application.outgoing("invoices")
    async def handler(value: int) -> int:
        return value

    async with running(application) as test:
        await send(test, 1)
        await test.settled()
    assert set(measures.metrics()) == left


def test_a_provider_that_is_disabled_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # A provider reads it when it is made.
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    provider = MeterProvider(shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", provider)
    assert meter_of(tracing_settings()) is None


def test_without_a_provider_nothing_is_measured() -> None:
    assert meter_of(tracing_settings(enabled=True)) is None

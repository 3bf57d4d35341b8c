"""``Record(origin=message)``: a refused output of a batch fails only the message it was made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    Message,
    Record,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.events import ChannelFailed, OutputLost, RecordIgnored
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import Rows, app_on, row
from tests.app.helpers import Recorder, committed, facts, in_virtual_time, running, send, tp, until

LETTERS = "dead-letter-topic-orders"


def batch_app(recorder: Recorder | None = None, **orders: Any) -> App:
    return App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "bytes",
                    "failure_strategy": "dead-letter-queue",
                    "commit_interval": "100ms",
                    "batch_max_records": 6,
                    "batch_max_wait": "1s",
                    **orders,
                }
            },
            "outgoing": {"invoices": {}},
        },
        observer=recorder,
    )


def values(test: TestApp, topic: str = "invoices") -> list[bytes | None]:
    return [record.value for record in test.records(topic)]


def output(message: Message[bytes], bad: bytes | None = None) -> Record:
    """The output of a message; that of *bad* cannot be encoded."""
    value: Any = object() if message.payload == bad else message.payload
    return Record(value, origin=message)


@pytest.mark.parametrize("yields", [True, False])
@in_virtual_time
async def test_only_the_origin_of_an_output_that_cannot_be_encoded_is_nacked(yields: bool) -> None:
    app, calls = batch_app(retry={"max_attempts": 3}), list[int]()
    if yields:

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def each(batch: Batch[bytes]) -> AsyncIterator[Record]:
            calls.append(len(batch))
            for message in batch:
                yield output(message, b"c")
    else:

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def whole(batch: Batch[bytes]) -> list[Record]:
            calls.append(len(batch))
            return [output(message, b"c") for message in batch]

    async with running(app) as test:
        await send(test, *[b"%c" % letter for letter in b"abcdef"])
        await test.settled()
        assert values(test) == [b"a", b"b", b"d", b"e", b"f"]
        assert values(test, LETTERS) == [b"c"]
        # Another attempt would write the others again.
        assert calls == [6]
        assert committed(test) == 6
        assert facts(test).totals[tp()].acked == 5


@in_virtual_time
async def test_only_the_origin_of_an_output_that_the_broker_refuses_is_nacked() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [
            Record(
                message.payload, topic="huge" if message.payload == b"c" else None, origin=message
            )
            for message in batch
        ]

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), of="huge")
        await send(test, *[b"%c" % letter for letter in b"abcdef"])
        await test.settled()
        assert values(test) == [b"a", b"b", b"d", b"e", b"f"]
        assert values(test, LETTERS) == [b"c"]
        assert committed(test) == 6


@in_virtual_time
async def test_no_further_output_of_a_message_is_sent_after_one_was_refused() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> AsyncIterator[Record]:
        for message in batch:
            for number in range(3):
                is_bad = (message.payload, number) == (b"b", 1)
                value: Any = object() if is_bad else message.payload + b"%d" % number
                yield Record(value, origin=message)

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        await test.settled()
        # "b0" had been handed over, and waits no more for its message: it may be dropped.
        assert [value for value in values(test) if value != b"b0"] == [
            *[b"a0", b"a1", b"a2"],
            *[b"c0", b"c1", b"c2"],
        ]
        assert values(test, LETTERS) == [b"b"]


@pytest.mark.parametrize("has_origins", [True, False])
@in_virtual_time
async def test_a_generator_is_not_pulled_on_after_an_output_of_the_whole_batch_was_refused(
    has_origins: bool,
) -> None:
    app, yielded = batch_app(), list[int]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> AsyncIterator[list[Record]]:
        for number in range(3):
            yielded.append(number)
            detail = Record(b"detail", origin=batch[0] if has_origins else None)
            yield [Record(b"summary", topic="huge"), detail]
            await asyncio.sleep(1)

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"), of="huge")
        await send(test, b"a")
        await test.settled()
        assert yielded == [0, 1]
        assert values(test, LETTERS) == [b"a"]


@in_virtual_time
async def test_outputs_without_an_origin_are_those_of_the_whole_batch() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        summary: Any = object()
        return [*(Record(message.payload, origin=message) for message in batch), Record(summary)]

    async with running(app) as test:
        await send(test, b"a", b"b")
        await test.settled()
        assert values(test, LETTERS) == [b"a", b"b"]


@in_virtual_time
async def test_the_batch_waits_for_the_writes_of_outputs_with_an_origin() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [output(message) for message in batch]

    async with running(app) as test:
        held = test.broker.hold("send", answer=True)
        await send(test, b"a", b"b")
        await held.arrived()
        await asyncio.sleep(2)
        assert committed(test) is None
        held.release()
        await test.settled()
        assert committed(test) == 2


@in_virtual_time
async def test_a_broker_that_is_away_fails_no_message() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [output(message) for message in batch]

    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=5)
        await send(test, b"a", b"b")
        await test.settled(60)
        assert (values(test), values(test, LETTERS)) == ([b"a", b"b"], [])


@in_virtual_time
async def test_with_fail_the_channel_stops_at_the_origin() -> None:
    recorder = Recorder()
    app = batch_app(recorder, failure_strategy="fail")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        return [output(message, b"b") for message in batch]

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        await until(lambda: facts(test).state == "failed")
        await until(lambda: committed(test) == 1)
        (failed,) = recorder.of(ChannelFailed)
        assert "orders-0 offset 1" in failed.reason


@in_virtual_time
async def test_a_message_of_another_batch_is_an_error_of_the_handler() -> None:
    recorder = Recorder()
    app = batch_app(recorder, failure_strategy="ignore", batch_max_records=1)
    first = list[Message[bytes]]()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> list[Record]:
        first.append(batch[0])
        return [Record(b"x", origin=first[0])]

    async with running(app) as test:
        await send(test, b"a", b"b")
        await test.settled()
        (ignored,) = recorder.of(RecordIgnored)
        assert ignored.offset == 1
        assert "no message of the batch" in ignored.reason


@in_virtual_time
async def test_an_output_that_is_refused_after_its_message_was_stored_is_lost_alone() -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, batch_max_wait="100ms", failure_strategy="ignore")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def store(batch: Batch[bytes]) -> list[Record]:
        async with batch.transaction() as connection:
            for message in batch:
                connection[message.offset] = 1
        return [output(message, b"1") for message in batch]

    async with running(app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: row(rows).position == 3)
        await until(lambda: len(values(test)) == 2)
        assert values(test) == [b"0", b"2"]
        assert {lost.offset for lost in recorder.of(OutputLost)} == {1}


@in_virtual_time
async def test_a_handler_of_single_messages_may_name_its_message() -> None:
    app = batch_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> Record:
        return output(message, b"b")

    async with running(app) as test:
        await send(test, b"a", b"b", b"c")
        await test.settled()
        assert (values(test), values(test, LETTERS)) == ([b"a", b"c"], [b"b"])


def test_an_origin_that_is_no_message_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Record\(origin=17\): expected a message"):
        Record(b"x", origin=17)  # type: ignore[arg-type]
    one: Any = type("Message", (), {"topic": "t", "partition": 0, "offset": 1})()
    # Where it was made from is no part of a record.
    assert Record(b"x", origin=one) == Record(b"x")

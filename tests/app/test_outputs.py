"""Many records of one call: lists, generators, batches; sources; and what outgoing channels pass
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import (
    App,
    Batch,
    EncodeError,
    Message,
    Record,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.events import ChannelFailed, RecordIgnored, Unwritten
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    committed,
    in_virtual_time,
    make_broker,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)


def sending_app(
    recorder: Recorder | None = None, *, orders: dict[str, Any] | None = None, **invoices: Any
) -> App:
    incoming = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "failure_strategy": "ignore",
        **(orders or {}),
    }
    return App(
        {"incoming": {"orders": incoming}, "outgoing": {"invoices": invoices}}, observer=recorder
    )


def values(test: TestApp, topic: str = "invoices") -> list[bytes | None]:
    return [record.value for record in test.records(topic)]


WAITS = pytest.mark.parametrize("wait", [True, False])


@WAITS
@in_virtual_time
async def test_all_that_a_handler_yields_is_written_before_its_record_is_acked(wait: bool) -> None:
    app = sending_app(orders={"commit_interval": "100ms"}, wait_for_write=wait)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> AsyncIterator[bytes | None]:
        for number in range(3):
            yield order + str(number).encode()
            yield None

    async with running(app) as test:
        await send(test, b"a")
        await test.settled()
        assert values(test) == [b"a0", b"a1", b"a2"]
        held = test.broker.hold("send", answer=True)
        await send(test, b"b")
        await held.arrived()
        await asyncio.sleep(2)
        assert committed(test) == 1
        held.release()
        await test.settled()
        assert values(test)[3:] == [b"b0", b"b1", b"b2"]


@WAITS
@in_virtual_time
async def test_a_generator_is_not_pulled_further_after_a_record_that_is_refused(wait: bool) -> None:
    recorder = Recorder()
    app, pulled, closed = (
        sending_app(recorder, wait_for_write=wait, max_in_flight=1),
        list[int](),
        list[bool](),
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> AsyncIterator[bytes]:
        try:
            for number in range(100):
                pulled.append(number)
                yield b"x"
        finally:
            closed.append(True)

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("too large"))
        await send(test, b"")
        await test.settled()
        assert len(pulled) < 5
        assert closed == [True]
    (ignored,) = recorder.of(RecordIgnored)
    assert "too large" in ignored.reason


@in_virtual_time
async def test_a_generator_that_raises_is_a_failure_and_what_it_yielded_before_is_written() -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"retry": {"max_attempts": 2, "backoff": "1ms"}})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> AsyncIterator[bytes]:
        yield str(message.attempt).encode()
        await asyncio.sleep(1)
        raise ValueError("in the middle")

    async with running(app) as test:
        await send(test, b"")
        await test.settled(timeout=20)
        assert values(test) == [b"1", b"2"]
    assert [event.reason for event in recorder.of(RecordIgnored)] == ["ValueError: in the middle"]


async def test_a_list_of_records_is_many_and_any_other_list_is_one() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: int) -> list[Any]:
        return [Record(order, key="k"), Record(order + 1)] if order else [1, 2]

    async with running(app) as test:
        await send(test, 5, 0)
        await test.settled()
        assert values(test) == [b"5", b"6", b"[1,2]"]


async def test_a_record_inside_of_another_value_is_a_nack_that_says_what_to_do() -> None:
    recorder = Recorder()
    app = sending_app(recorder)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: int) -> object:
        return [Record(1), 2] if order else {"a": Record(1)}

    async with running(app) as test:
        await send(test, 0, 1)
        await test.settled()
        assert values(test) == []
    assert len(recorder.of(RecordIgnored)) == 2
    assert all("Record" in event.reason for event in recorder.of(RecordIgnored))


@pytest.mark.parametrize("yields", [True, False])
@in_virtual_time
async def test_a_batch_is_acked_when_all_that_its_handler_made_of_it_is_written(
    yields: bool,
) -> None:
    app = sending_app(
        orders={"commit_interval": "100ms", "batch_max_records": 3, "batch_max_wait": "1s"}
    )

    if yields:

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def each(batch: Batch[bytes]) -> AsyncIterator[bytes]:
            for message in batch:
                yield message.payload
    else:

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def whole(batch: Batch[bytes]) -> list[Record]:
            return [Record(payload) for payload in batch.payloads]

    async with running(app) as test:
        held = test.broker.hold("send", answer=True)
        await send(test, b"a", b"b", b"c")
        await held.arrived()
        await asyncio.sleep(2)
        assert committed(test) is None
        held.release()
        await test.settled()
        assert values(test) == [b"a", b"b", b"c"]
        assert committed(test) == 3


async def test_a_batch_whose_output_is_refused_is_nacked() -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"batch_max_records": 2, "batch_max_wait": "10ms"})

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> bytes:
        return b"x"

    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("no"))
        await send(test, b"a", b"b")
        await test.settled()
    assert len(recorder.of(RecordIgnored)) == 2


async def test_the_keys_order_survives_writes_that_fail() -> None:
    app = sending_app(wait_for_write=False)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> Record:
        return Record(str(message.offset), key=message.payload)

    async with running(app, partitions=3) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=2)
        await send(test, *[b"a", b"b", b"c", b"d"] * 10)
        await test.settled(timeout=30)
        for key in (b"a", b"b", b"c", b"d"):
            of_key = [
                int(record.value or b"") for record in test.records("invoices") if record.key == key
            ]
            assert of_key == sorted(of_key)
            assert len(of_key) == 10


# -- what is passed on


async def test_the_incoming_key_and_the_named_headers_are_passed_on_unless_the_record_has_its_own() -> (
    None
):
    app = sending_app(propagate_key=True, propagate_headers=["trace", "tenant"])

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: int) -> Any:
        return Record(order, key="own", headers=[("tenant", b"mine")]) if order else order

    async with running(app) as test:
        headers = [("trace", b"1"), ("other", b"x"), ("tenant", b"t"), ("trace", b"2")]
        for value in (0, 1):
            await test.send("orders", value, key=b"theirs", headers=headers, partition=0)
        await test.settled()
        plain, own = test.records("invoices")
    assert (plain.key, list(plain.headers)) == (
        b"theirs",
        [("trace", b"1"), ("tenant", b"t"), ("trace", b"2")],
    )
    assert (own.key, list(own.headers)) == (
        b"own",
        [("trace", b"1"), ("trace", b"2"), ("tenant", b"mine")],
    )


def by_length(key: bytes | None, partitions: int) -> int:
    return 7 if key == b"wrong" else len(key or b"") % partitions


async def test_a_partitioner_of_the_users_chooses_and_a_partition_that_is_none_is_a_nack() -> None:
    recorder = Recorder()
    app = sending_app(recorder, partitioner=f"{__name__}:by_length")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(key: bytes) -> Record:
        return Record(key, key=key or None)

    async with running(app, partitions=3) as test:
        await send(test, b"", b"a", b"bb", b"wrong")
        await test.settled()
        logs = [
            [record.value for record in test.broker.log(tp(number, "invoices"))]
            for number in range(3)
        ]
    assert logs == [[b""], [b"a"], [b"bb"]]
    (ignored,) = recorder.of(RecordIgnored)
    assert "the partitioner chose 7" in ignored.reason


ODD_ENDS = {b"exit": SystemExit(3), b"stop": StopIteration(), b"cancel": asyncio.CancelledError()}


def odd(key: bytes | None, partitions: int) -> int:
    if key in ODD_ENDS:
        raise ODD_ENDS[key]
    return 0


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("key", ODD_ENDS)
@in_virtual_time
async def test_whatever_a_partitioner_raises_is_a_failure_of_its_record_alone(
    key: bytes, is_first: bool
) -> None:
    recorder = Recorder()
    app = App({"outgoing": {"invoices": {"partitioner": f"{__name__}:odd"}}}, observer=recorder)
    emitter = app.emitter("invoices")
    async with running(app) as test:
        if not is_first:
            await emitter.send(b"before")
        refused, after = emitter.send_nowait(b"odd", key=key), emitter.send_nowait(b"after")
        with pytest.raises(
            EncodeError, match=f"the partitioner raised {type(ODD_ENDS[key]).__name__}"
        ):
            await refused
        await after
        assert values(test)[-1:] == [b"after"]
        assert app.facts().outgoing[0].in_flight == 0
    assert recorder.of(ChannelFailed) == []


@in_virtual_time
async def test_a_record_waits_for_others_as_long_as_linger_says() -> None:
    app = sending_app(linger="2s")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    async with running(app) as test:
        began = now()
        await send(test, b"a")
        await test.settled(timeout=20)
        assert 2 <= now() - began < 8


# -- sources


@in_virtual_time
async def test_a_source_is_pulled_no_faster_than_the_broker_confirms_and_ends_with_the_application() -> (
    None
):
    app, pulled, closed = sending_app(max_in_flight=2), list[int](), list[bool]()

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[int]:
        try:
            for number in range(1000):
                pulled.append(number)
                yield number
        finally:
            closed.append(True)

    async with running(app) as test:
        hold = test.broker.hold("send")
        await hold.arrived()
        await asyncio.sleep(5)
        assert len(pulled) <= 4, "two are in flight, one waits"
        assert not closed
        hold.release()
        await until(lambda: len(values(test)) > 100)
    assert closed == [True]
    assert values(test)[:3] == [b"0", b"1", b"2"]


@in_virtual_time
async def test_an_outgoing_channel_that_fails_is_not_taken_for_an_incoming_one_of_its_name() -> (
    None
):
    outgoing = {"orders": {"topic": "copies"}}
    app = App(
        {
            "incoming": {"orders": {"group_id": "g"}},
            "outgoing": outgoing,
            "http": {"enabled": False},
        }
    )
    take_all(app)

    @app.outgoing("orders")
    async def source() -> AsyncIterator[bytes]:
        yield b""
        raise ValueError("empty")

    broker = make_broker()
    app._connector = broker.connector()
    run = app._new_run(exit_on_failure=True)
    await app._start(run)
    await asyncio.sleep(5)
    assert app.facts().outgoing[0].failure == "ValueError: empty"
    assert not app.facts().stopping
    assert not run.has_ended
    await app.stop()
    await broker.close()


@in_virtual_time
async def test_what_a_source_has_yielded_is_written_before_the_application_ends() -> None:
    app = sending_app()

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async with running(app) as test:
        hold = test.broker.hold("send")
        await hold.arrived()
        stopping = asyncio.create_task(app.stop())
        await asyncio.sleep(1)
        hold.release()
        await stopping
        assert values(test) == [b"one", b"two"]


@in_virtual_time
async def test_a_source_that_ignores_the_end_is_pulled_no_further_and_fails_nothing() -> None:
    recorder, closed = Recorder(), list[bool]()
    app = App({"outgoing": {"invoices": {}}}, observer=recorder)

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    pass
        finally:
            closed.append(True)

    async with running(app) as test:
        await asyncio.sleep(1.5)
        began = now()
        await app.stop()
        assert now() == began
        assert closed == [True]
        assert values(test) == [b"x"] * 3
    assert recorder.of(ChannelFailed) == []


@in_virtual_time
async def test_a_source_that_raises_fails_its_channels_and_nothing_else() -> None:
    recorder = Recorder()
    app = sending_app(recorder)

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError("the sensor is gone")

    async with running(app) as test:
        await until(lambda: recorder.of(ChannelFailed))
        await settle_down()
        assert values(test) == [b"one"]
        assert app.health().live.status == "DOWN"
    (failed,) = recorder.of(ChannelFailed)
    assert (failed.channel, failed.reason) == ("invoices", "ValueError: the sensor is gone")


# -- the end


@in_virtual_time
async def test_a_stop_says_what_could_not_be_written() -> None:
    recorder = Recorder()
    app = sending_app(recorder, orders={"drain_timeout": "3s"})

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[int]:
        for number in range(5):
            yield number

    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=1000)
        await asyncio.sleep(1)
        began = now()
        await app.stop()
        assert 9 < now() - began < 13
    (told,) = recorder.of(Unwritten)
    assert (told.channel, told.records, told.reason) == ("invoices", 5, "away")
    assert told.text() == "stop: 5 records could not be written: away"


@in_virtual_time
async def test_a_missing_topic_is_named_before_anything_is_sent_to_it() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        return order

    loop: Any = asyncio.get_running_loop()
    broker = MemoryBroker(loop.clock, auto_create=False)
    broker.create_topic("orders", 1)
    async with running(app, broker=broker):
        await until(lambda: app.health().ready.status == "DOWN")
        (down,) = [check for check in app.health().ready.checks if check.status == "DOWN"]
        assert "'invoices' does not exist" in str(down.data)
        broker.create_topic("invoices", 1)
        await until(lambda: app.health().ready.status == "UP", 30)
    await broker.close()


@in_virtual_time
async def test_an_empty_list_that_was_to_hold_records_sends_nothing_and_settles_its_record() -> (
    None
):
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> list[Record]:
        return [Record(order)] if order == b"full" else []

    async with running(app) as test:
        await send(test, b"empty", b"full", b"empty")
        await test.settled()
        assert values(test) == [b"full"]


@in_virtual_time
async def test_an_empty_list_that_is_yielded_or_made_by_a_source_is_no_record_either() -> None:
    app = sending_app()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> AsyncIterator[list[Record]]:
        yield []
        yield [Record(order)]

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[tuple[Record, ...]]:
        yield ()
        yield (Record(b"of the source"),)

    async with running(app) as test:
        await send(test, b"order")
        await until(lambda: len(values(test)) == 2)
        assert sorted(map(bytes, filter(None, values(test)))) == [b"of the source", b"order"]

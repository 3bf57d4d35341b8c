"""Emitters: what the application sends by itself, from the loop and from any thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reactive_kafka import (
    App,
    BufferFullError,
    ChannelClosedError,
    ConfigError,
    EncodeError,
    Message,
    Record,
    RecordMetadata,
    RejectedRecordError,
    Sending,
    TransientBrokerError,
)
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, now, running, settle_down, until


def emitting_app(**invoices: Any) -> App:
    return App({"outgoing": {"invoices": invoices}})


def values(test: TestApp) -> list[bytes | None]:
    return [record.value for record in test.records("invoices")]


async def test_send_returns_where_the_broker_has_stored_the_record() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    assert app.emitter("invoices") is emitter
    async with running(app, partitions=3) as test:
        first = await emitter.send({"a": 1}, key="k", headers=[("h", b"1")], partition=2)
        assert first == RecordMetadata("invoices", 2, 0)
        assert await emitter.send(Record({"a": 2}, partition=2)) == ("invoices", 2, 1)
        (record, _) = test.records("invoices")
        assert (record.key, record.value, list(record.headers)) == (b"k", b'{"a":1}', [("h", b"1")])


@in_virtual_time
async def test_send_waits_for_the_confirmation_and_nobody_elses() -> None:
    app = emitting_app()
    async with running(app) as test:
        held = test.broker.hold("send", answer=True)
        sending = asyncio.create_task(app.emitter("invoices").send(b"one"))
        await held.arrived()
        await asyncio.sleep(3)
        assert not sending.done()
        held.release()
        assert (await sending).offset == 0


@in_virtual_time
async def test_send_raises_after_its_timeout_and_the_record_is_not_written_later() -> None:
    app = emitting_app(send_timeout="5s")
    async with running(app) as test:
        await app.emitter("invoices").send(b"zero")
        test.broker.topic_away("invoices")
        began = now()
        with pytest.raises(
            TransientBrokerError, match="not confirmed within 5 s: topic 'invoices' of"
        ):
            await app.emitter("invoices").send(b"one")
        assert 4.9 < now() - began < 5.5
        test.broker.topic_back("invoices")
        await asyncio.sleep(60)
        assert values(test) == [b"zero"]
        assert app.facts().outgoing[0].in_flight == 0


async def test_what_can_never_be_sent_is_told_at_once() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        with pytest.raises(EncodeError):
            await emitter.send(object())
        with pytest.raises(EncodeError):
            emitter.send_nowait(object())
        with pytest.raises(TypeError, match="is no pair of a str and bytes"):
            emitter.send_nowait(b"x", headers=[("a", "text")])  # type: ignore[list-item]
        with pytest.raises(
            ConfigError, match=r"Record\(channel='audit'\) is sent to the channel 'invoices'"
        ):
            await emitter.send(Record(1, channel="audit"))
        with pytest.raises(TypeError, match="a Record says its key"):
            await emitter.send(Record(1), key="k")
        test.broker.fail_next("send", RejectedRecordError("too large"))
        with pytest.raises(RejectedRecordError, match="too large"):
            await emitter.send(b"x")
        assert app.facts().outgoing[0].in_flight == 0
        assert values(test) == []


@in_virtual_time
async def test_send_nowait_refuses_when_full_and_nothing_that_it_took_is_lost() -> None:
    app = emitting_app(max_in_flight=2)
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await emitter.send(b"first")
        test.broker.fail_next("send", TransientBrokerError("away"), times=3)
        sent = [emitter.send_nowait(b"a"), emitter.send_nowait(b"b")]
        with pytest.raises(
            BufferFullError, match=r"'invoices': 2 records wait for the broker \(max_in_flight\)"
        ):
            emitter.send_nowait(b"c")
        assert not sent[0].done()
        await emitter.flush()
        assert values(test) == [b"first", b"a", b"b"]
        assert [(await one).offset for one in sent] == [1, 2]
        emitter.send_nowait(b"c")
        await emitter.flush()
        assert values(test)[3:] == [b"c"]


@in_virtual_time
async def test_thousands_of_records_outlive_a_broker_that_is_away_for_30_s_in_their_order() -> None:
    app = emitting_app(max_in_flight=100, send_timeout="2m")
    emitter = app.emitter("invoices")
    most = 0
    async with running(app, partitions=3) as test:

        async def of_key(key: str) -> None:
            nonlocal most
            for number in range(1_000):
                if number == 300 and key == "0":
                    test.broker.topic_away("invoices")
                    asyncio.get_running_loop().call_later(30, test.broker.topic_back, "invoices")
                await emitter.send(number, key=key)
                most = max(most, app.facts().outgoing[0].in_flight)

        await asyncio.gather(*(of_key(str(number)) for number in range(5)))
        for number in range(5):
            of_one = [
                record.value
                for record in test.records("invoices")
                if record.key == str(number).encode()
            ]
            assert of_one == [str(number).encode() for number in range(1_000)]
    assert most <= 100


async def test_other_threads_send_wait_and_are_refused() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    found: list[Any] = []

    def work() -> None:
        found.append(emitter.send_nowait(b"from a thread").result(10))
        found.append(asyncio.run(emitter.send(b"from another loop")))
        asyncio.run(emitter.flush())
        try:
            emitter.send_nowait(object())
        except EncodeError as error:
            found.append(type(error))

    async with running(app, partitions=1) as test:
        await asyncio.to_thread(work)
        assert values(test) == [b"from a thread", b"from another loop"]
    assert found == [("invoices", 0, 0), ("invoices", 0, 1), EncodeError]


async def test_a_thread_waits_no_longer_than_it_says_also_while_the_loop_is_busy() -> None:
    app = emitting_app()
    began, found = threading.Event(), threading.Event()

    def work(sending: Sending) -> None:
        began.set()
        with pytest.raises(TimeoutError):
            sending.result(0.01)
        found.set()

    async with running(app):
        sending = app.emitter("invoices").send_nowait(b"x")
        waiting = asyncio.create_task(asyncio.to_thread(work, sending))
        await asyncio.sleep(0)
        assert began.wait(10)
        # The loop stands still meanwhile.
        assert found.wait(10)
        await waiting
        assert (await sending).offset == 0


def exits(value: object) -> bytes:
    raise SystemExit(3)


async def test_a_serializer_that_ends_the_process_does_so_where_it_was_asked() -> None:
    app = emitting_app(value_serializer=f"{__name__}:exits")
    emitter = app.emitter("invoices")
    found: list[object] = []

    def work() -> None:
        for send in (lambda: emitter.send_nowait(1), lambda: asyncio.run(emitter.send(1))):
            try:
                send()
            except SystemExit as error:
                found.append(error.code)

    async with running(app):
        await asyncio.to_thread(work)
    assert found == [3, 3]


def test_a_thread_that_waits_when_the_loop_ends_without_a_stop_is_told() -> None:
    app = App({"outgoing": {"invoices": {}}, "http": {"enabled": False}})
    found: list[type[Exception]] = []
    threads: list[threading.Thread] = []

    async def start() -> None:
        broker = MemoryBroker()
        app._connector = broker.connector()
        broker.fail_next("send", TransientBrokerError("away"), times=1000)
        await app.start()
        sending = app.emitter("invoices").send_nowait(b"x")

        def work() -> None:
            try:
                sending.result(10)
            except Exception as error:
                found.append(type(error))

        threads.append(threading.Thread(target=work))
        threads[0].start()
        await until(lambda: sending.followers)

    asyncio.run(start())
    threads[0].join()
    assert found == [ChannelClosedError]


def test_a_loop_that_has_ended_without_a_stop_is_told() -> None:
    app = App({"outgoing": {"invoices": {}}, "http": {"enabled": False}})
    emitter = app.emitter("invoices")

    async def start() -> Sending:
        broker = MemoryBroker()
        app._connector = broker.connector()
        broker.fail_next("send", TransientBrokerError("away"), times=1000)
        await app.start()
        return emitter.send_nowait(b"x")

    sending = asyncio.run(start())
    found: list[type[Exception]] = []

    def work() -> None:
        calls = (
            lambda: asyncio.run(emitter.send(b"y")),
            lambda: emitter.send_nowait(b"z"),
            lambda: asyncio.run(emitter.flush()),
            lambda: sending.result(10),
        )
        for call in calls:
            try:
                call()
            except Exception as error:
                found.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [ChannelClosedError] * 4


async def test_a_blocking_handler_emits() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {}},
        }
    )
    emitter, threads = app.emitter("invoices"), set[int]()

    @app.incoming("orders")
    def handler(message: Message[bytes]) -> None:
        threads.add(threading.get_ident())
        emitter.send_nowait(message.payload).result(10)

    async with running(app) as test:
        await test.send("orders", b"x")
        await test.settled()
        assert values(test) == [b"x"]
    assert threads != {threading.get_ident()}


async def test_an_emitter_works_while_its_application_runs_and_only_then() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    with pytest.raises(ChannelClosedError, match="the application is not running"):
        await emitter.send(b"")
    with pytest.raises(ChannelClosedError):
        emitter.send_nowait(b"")
    for _ in range(2):
        async with running(app):
            await emitter.send(b"")
    with pytest.raises(ChannelClosedError):
        await emitter.flush()


@in_virtual_time
async def test_what_waits_when_the_application_ends_is_told_so() -> None:
    app = emitting_app(max_in_flight=1)
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=1000)
        first = emitter.send_nowait(b"a")
        second = asyncio.create_task(emitter.send(b"b"))
        await settle_down()
        await app.stop()
        with pytest.raises(ChannelClosedError):
            await first
        with pytest.raises(ChannelClosedError):
            await second


async def test_a_channel_that_is_not_configured_is_named_with_what_is() -> None:
    app = emitting_app()
    app.emitter("invoice")
    with pytest.raises(
        ConfigError,
        match=r"app\.emitter\('invoice'\): no \[outgoing\.invoice\].*did you mean 'invoices'",
    ):
        app.configure()
    app = emitting_app()
    app.configure()
    with pytest.raises(ConfigError, match="did you mean 'invoices'"):
        app.emitter("invoice")
    with pytest.raises(ConfigError, match="expected the name of a channel"):
        app.emitter(3)  # type: ignore[arg-type]


async def test_a_topic_that_was_recreated_with_fewer_partitions_refuses_named_ones_only() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    async with running(app, partitions=4) as test:
        await asyncio.gather(*(emitter.send(b"", partition=number) for number in range(4)))
        test.broker.delete_topic("invoices")
        test.broker.create_topic("invoices", 1)
        with pytest.raises(RejectedRecordError, match="invoices-3 does not exist"):
            await emitter.send(b"x", partition=3)
        for number in range(8):
            await emitter.send(b"x", key=str(number))
        assert len(values(test)) == 8


async def test_a_sending_that_is_kept_for_its_result_keeps_no_record() -> None:
    app = emitting_app()
    async with running(app) as test:
        emitter = app.emitter("invoices")
        sent = [emitter.send_nowait(b"." * 1000, key="k") for _ in range(3)]
        await emitter.flush()
        assert [one.value for one in sent] == [None] * 3
        assert [await one for one in sent] == [("invoices", 0, offset) for offset in range(3)]
        assert values(test) == [b"." * 1000] * 3


async def test_an_emitter_sends_to_the_run_that_there_is() -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    for value in (b"one", b"two"):
        async with running(app) as test:
            for _ in range(2):
                await emitter.send_nowait(value)
            assert values(test) == [value] * 2
        with pytest.raises(ChannelClosedError):
            emitter.send_nowait(value)


async def test_a_key_that_is_no_text_is_told_the_second_time_too() -> None:
    app = emitting_app()
    async with running(app) as test:
        emitter = app.emitter("invoices")
        for _ in range(2):
            with pytest.raises(EncodeError):
                emitter.send_nowait(b"", key=object())
            await emitter.send_nowait(b"x", key="k")
        assert [record.key for record in test.records("invoices")] == [b"k", b"k"]


async def test_a_sending_that_has_failed_keeps_its_record_which_may_be_about_to_be_packed() -> None:
    app = emitting_app()
    async with running(app) as test:
        test.broker.fail_next("send", RejectedRecordError("no"))
        sending = app.emitter("invoices").send_nowait(b"x")
        with pytest.raises(RejectedRecordError):
            await sending
        assert sending.value == b"x"


NESTED = pytest.mark.parametrize(
    "value", [[Record(1)], [[Record(1)]], {"a": {"b": Record(1)}}, Record({"a": Record(1)})]
)


@NESTED
@in_virtual_time
async def test_an_emitter_sends_no_value_with_a_record_inside(value: Any) -> None:
    app = emitting_app()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        with pytest.raises(EncodeError, match="a Record is inside of"):
            await emitter.send(value)
        for _ in range(2):
            with pytest.raises(EncodeError, match="a Record is inside of"):
                emitter.send_nowait(value)
            emitter.send_nowait(b"from now on the quick way")
        await emitter.flush()
        assert values(test) == [b"from now on the quick way"] * 2

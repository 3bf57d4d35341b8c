"""The application under test: ready when its block begins, settled when it says so, and honest when it is not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from reactive_kafka import App, Message, TopicPartition, TransientBrokerError
from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.testing import FakeClock, MemoryBroker, NotSettledError, TestApp, record, run_in_virtual_time

CONFIG = {"incoming": {"orders": {"group_id": "billing"}}, "outgoing": {"invoices": {"topic": "invoices-v1"}}}


@dataclass
class Order:
    id: int


class Invoice(BaseModel):
    order: int


def billing() -> App:
    app = App(CONFIG)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def invoice(order: Order) -> Invoice:
        return Invoice(order=order.id)

    return app


async def test_it_runs_the_handlers_and_shows_what_was_produced_and_committed() -> None:
    async with TestApp(billing()) as test:
        written = await test.send("orders", Order(7), key="k", partition=2)
        assert written == (TopicPartition("orders", 2), 0)
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b'{"order":7}']
        assert test.records("invoices") == test.records("invoices-v1")
        assert test.committed("orders")[TopicPartition("orders", 2)] == 1
        assert test.records("nothing") == []


async def test_what_is_sent_in_the_block_is_read_though_the_channel_starts_at_the_latest_record() -> None:
    test = TestApp(billing())
    test.broker.produce("orders", b'{"id": 1}')  # before it runs
    async with test:
        await test.send("orders", {"id": 2})
        await test.settled()
        assert [record.value for record in test.records("invoices")] == [b'{"order":2}']


async def test_what_a_real_client_would_not_take_is_not_sent() -> None:
    async with TestApp(billing()) as test:
        with pytest.raises(
            RejectedRecordError, match=r"orders: headers: \('trace', 'abc'\) is no pair of a str and bytes"
        ):
            await test.send("orders", Order(7), headers=[("trace", "abc")])  # type: ignore[list-item]
        with pytest.raises(RejectedRecordError, match="key = 5: expected bytes or None"):
            test.broker.produce("orders", b"", key=5)  # type: ignore[arg-type]
        assert test.records("orders") == []


async def test_http_is_off() -> None:
    async with TestApp(billing()) as test:
        assert test.app.http is None


async def test_an_application_is_given_back_as_it_was() -> None:
    app = billing()
    app.configure(overrides={"kafka": {"commit_interval": "7s"}})
    async with TestApp(app, overrides={"incoming": {"orders": {"drain_timeout": "3s"}}}) as test:
        settings = test.app.settings.incoming["orders"]
        assert (settings.commit_interval_s, settings.drain_timeout_s) == (7.0, 3.0)
        assert not test.app.settings.http.enabled
    assert app.settings.http.enabled
    assert app.settings.incoming["orders"].commit_interval_s == 7.0
    assert app.settings.incoming["orders"].drain_timeout_s == 30.0
    assert app._connector is None


async def test_two_applications_share_a_group_on_one_broker() -> None:
    async with TestApp(billing()) as one, TestApp(billing(), broker=one.broker) as two:
        shares = [frozenset(test.app.channel("orders").assignment) for test in (one, two)]
        assert [len(share) for share in shares] == [2, 2]
        assert len(frozenset.union(*shares)) == 4


async def test_what_is_not_settled_is_named() -> None:
    app, kept = App(CONFIG), list[Message[bytes]]()

    @app.incoming("orders", ack="manual")
    async def keep(message: Message[bytes]) -> None:
        kept.append(message)

    async with TestApp(app) as test:
        await test.send("orders", b"", partition=1)
        with pytest.raises(
            NotSettledError,
            match=r"after 0.05 s: channel 'orders': orders-1 ends at 1, read up to 1, 1 in flight, 0 queued$",
        ):
            await test.settled(timeout=0.05)
        kept[0].ack()
        test.broker.fail_next("commit", TransientBrokerError("no"), times=15)
        with pytest.raises(NotSettledError, match="orders-1 ends at 1, committed is 0"):
            await test.settled(timeout=0.05)


async def test_a_channel_that_has_failed_will_not_settle_and_says_why_at_once() -> None:
    async with TestApp(billing()) as test:
        await test.send("orders", b"no order")
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotSettledError, match=r"channel 'orders' has failed: .*DecodeError"):
            await test.settled()
        assert asyncio.get_running_loop().time() - began < 2


async def test_a_start_that_does_not_get_its_partitions_says_so() -> None:
    broker = MemoryBroker()
    broker.down = True
    with pytest.raises(NotSettledError, match="channel 'orders' has no partitions yet"):
        async with TestApp(billing(), broker=broker, start_timeout_s=0.05):
            pass
    await asyncio.sleep(0)  # for what is ending
    assert len(asyncio.all_tasks()) == 1


async def test_a_block_that_raises_ends_at_once_whatever_is_in_flight() -> None:
    app = App(CONFIG)

    @app.incoming("orders")
    async def hangs(value: bytes) -> None:
        await asyncio.Event().wait()

    began = asyncio.get_running_loop().time()
    with pytest.raises(ZeroDivisionError):
        async with TestApp(app) as test:
            await test.send("orders", b"")
            await asyncio.sleep(0.01)
            raise ZeroDivisionError
    assert asyncio.get_running_loop().time() - began < 2
    await asyncio.sleep(0)  # for what is ending
    assert len(asyncio.all_tasks()) == 1


def test_it_runs_in_virtual_time() -> None:
    async def main(clock: FakeClock) -> None:
        app = App(CONFIG)

        @app.incoming("orders")
        async def slow(value: bytes) -> None:
            await asyncio.sleep(50)

        async with TestApp(app) as test:
            await test.send("orders", b"")
            await asyncio.sleep(51)
            await test.settled()
            assert clock.monotonic() > 50

    run_in_virtual_time(main)


async def test_a_channel_of_several_topics_asks_which_one_is_meant() -> None:
    app = App({"incoming": {"orders": {"group_id": "g", "topics": ["a", "b"]}}})

    @app.incoming("orders")
    async def handler(value: str) -> None: ...

    async with TestApp(app) as test:
        with pytest.raises(ValueError, match="'orders' reads a, b: name one of them"):
            await test.send("orders", "x")
        await test.send("b", "x")
        await test.settled()
        assert sum(test.committed("orders").values()) == 1


@pytest.mark.parametrize(
    ("deserializer", "value", "raw"),
    [
        (None, b"raw", b"raw"),
        (None, None, None),
        (None, "text", b"text"),
        (None, {"a": 1}, b'{"a":1}'),
        (None, Invoice(order=1), b'{"order":1}'),
        ("json", "text", b'"text"'),
        ("int", 1, b"\0\0\0\0\0\0\0\1"),
        ("string", "text", b"text"),
        ("json:loads", "text", b"text"),
    ],
)
async def test_values_are_written_in_the_format_that_the_channel_reads(
    deserializer: str | None, value: object, raw: bytes | None
) -> None:
    table = {"group_id": "g", **({"value_deserializer": deserializer} if deserializer else {})}
    async with TestApp(App({"incoming": {"orders": table}})) as test:
        await test.send("orders", value)
        assert [record.value for record in test.records("orders")] == [raw]


def test_values_and_keys_become_bytes() -> None:
    assert record({"id": 1}, key="k", offset=7).value == b'{"id": 1}'
    assert record("ü", key="k").key == b"k"
    assert record("ü").value == "ü".encode()
    assert record(b"raw").value == b"raw"


def test_a_tombstone_and_a_missing_key_stay_none() -> None:
    built = record(None, headers=[("a", None)], timestamp=None)
    assert (built.key, built.value, built.timestamp, built.headers) == (None, None, None, (("a", None),))

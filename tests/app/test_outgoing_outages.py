"""An outgoing channel whose brokers are away says so within five seconds, sent or not, and is well
again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import App, Record, TransientBrokerError
from reactive_kafka.events import BrokerAvailable, BrokerUnavailable
from reactive_kafka.testing import MemoryBroker, TestApp, VirtualTimeLoop
from tests.app.brokers import WrappedConnector
from tests.app.helpers import Recorder, in_virtual_time, make_broker, tp, until

NOTICED_S = 5.0
HEALED_S = 10.0


class TwoClusters(WrappedConnector):
    """Consumers are one cluster's, what is written is another's, as where channels name servers of
    their own.
    """

    def __init__(self, here: MemoryBroker, there: MemoryBroker) -> None:
        super().__init__(here.connector())
        self._there = there.connector()

    def producer(self, **named: Any) -> Any:
        return self._there.producer(**named)

    def transactional_producer(self, **named: Any) -> Any:
        return self._there.transactional_producer(**named)


@asynccontextmanager
async def two_clusters(app: App) -> AsyncIterator[tuple[MemoryBroker, MemoryBroker]]:
    here, there = make_broker(), make_broker()
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = TwoClusters(here, there), here._state.clock
    async with app:
        await until(lambda: app.health().status == "UP")
        yield here, there
    await here.close()
    await there.close()


@asynccontextmanager
async def running_without_creation(app: App) -> AsyncIterator[MemoryBroker]:
    """The application runs on a broker that creates no topics; that of its invoices is there."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    broker = MemoryBroker(loop.clock, auto_create=False)
    broker.create_topic("invoices", 1)
    async with TestApp(app, broker=broker):
        await until(lambda: app.health().status == "UP")
        yield broker
    await broker.close()


def reason(app: App, channel: str) -> str:
    return next(
        str(check.data["reason"]) for check in app.health().ready.checks if check.name == channel
    )


def with_emitter(recorder: Recorder, **invoices: Any) -> App:
    app = App({"outgoing": {"invoices": invoices}}, observer=recorder)
    app.emitter("invoices")
    return app


def with_handler(recorder: Recorder) -> App:
    app = App(
        {
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
            "outgoing": {"invoices": {}},
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    return app


KINDS = {
    "an emitter": with_emitter,
    "a handler": with_handler,
    "transactions": lambda recorder: with_emitter(recorder, transactional_id="billing"),
}


@pytest.mark.parametrize("down_s", [6.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_with_nothing_sent_it_is_not_ready_for_as_long_as_its_brokers_are_away(
    kind: str, down_s: float
) -> None:
    recorder = Recorder()
    app = KINDS[kind](recorder)
    async with two_clusters(app) as (_, there):
        await asyncio.sleep(3.3)
        there.down = True
        await asyncio.sleep(NOTICED_S)
        assert (app.health().live.status, app.health().ready.status) == ("UP", "DOWN")
        assert "down" in reason(app, "invoices")
        await asyncio.sleep(down_s - NOTICED_S)
        assert (app.health().live.status, app.health().ready.status) == ("UP", "DOWN")
        there.down = False
        await until(lambda: app.health().status == "UP", HEALED_S)
    assert {event.channel for event in recorder.of(BrokerUnavailable)} == {"invoices"}
    assert len(recorder.of(BrokerAvailable)) == 1


@pytest.mark.parametrize("kind", ["an emitter", "transactions"])
@in_virtual_time
async def test_a_send_that_was_given_up_leaves_no_reason_behind(kind: str) -> None:
    app = KINDS[kind](Recorder())
    async with two_clusters(app) as (_, there):
        there.down = True
        sending = asyncio.ensure_future(app.emitter("invoices").send(b"1"))
        await asyncio.sleep(20)
        assert app.health().ready.status == "DOWN"
        sending.cancel()
        await asyncio.wait([sending])
        there.down = False
        await until(lambda: app.health().status == "UP", HEALED_S)


@in_virtual_time
async def test_a_send_to_a_topic_that_does_not_exist_leaves_the_channel_ready_once_it_is_given_up() -> (
    None
):
    app = App({"outgoing": {"invoices": {"send_timeout": "5s"}}})
    emitter = app.emitter("invoices")
    async with running_without_creation(app):
        with pytest.raises(TransientBrokerError, match="topic 'invocies' does not exist"):
            await emitter.send(Record(b"1", topic="invocies"))
        await until(lambda: app.health().status == "UP", HEALED_S)


@in_virtual_time
async def test_a_channel_that_sends_nothing_is_ready_again_once_its_topic_is_there_again() -> None:
    app = App({"outgoing": {"invoices": {"send_timeout": "5s"}}})
    emitter = app.emitter("invoices")
    async with running_without_creation(app) as broker:
        broker.delete_topic("invoices")
        with pytest.raises(TransientBrokerError, match="topic 'invoices' does not exist"):
            await emitter.send(b"1")
        await asyncio.sleep(60)
        assert "topic 'invoices' does not exist" in reason(app, "invoices")
        # One that names another topic says nothing about the channel's own.
        with pytest.raises(TransientBrokerError, match="topic 'invocies' does not exist"):
            await emitter.send(Record(b"1", topic="invocies"))
        await asyncio.sleep(60)
        assert "topic 'invoices' does not exist" in reason(app, "invoices")
        broker.create_topic("invoices", 1)
        await until(lambda: app.health().status == "UP", HEALED_S)


@pytest.mark.parametrize("down_s", [3.0, 7.0, 13.0, 17.0, 22.0, 31.0, 50.0])
@in_virtual_time
async def test_what_waits_to_be_written_is_written_within_ten_seconds_of_the_end_of_an_outage(
    down_s: float,
) -> None:
    app = with_handler(Recorder())
    async with two_clusters(app) as (here, there):
        here.produce("orders", b"1", partition=0)
        await until(lambda: len(there.log(tp(0, "invoices"))) == 1)
        there.down = True
        here.produce("orders", b"2", partition=0)
        await asyncio.sleep(down_s)
        there.down = False
        await until(lambda: len(there.log(tp(0, "invoices"))) == 2, HEALED_S)
        await until(lambda: app.health().status == "UP", HEALED_S)


@in_virtual_time
async def test_dead_letters_of_another_cluster_that_is_away_are_named_before_any_is_written() -> (
    None
):
    recorder = Recorder()
    letters = {"topic": "dead", "bootstrap_servers": "elsewhere:9092"}
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "failure_strategy": "dead-letter-queue",
                    "dead_letter_queue": letters,
                }
            }
        },
        observer=recorder,
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("bad")

    async with two_clusters(app) as (here, there):
        there.down = True
        await asyncio.sleep(NOTICED_S)
        assert (app.health().live.status, app.health().ready.status) == ("UP", "DOWN")
        assert "dead letters" in reason(app, "orders")
        here.produce("orders", b"1", partition=0)
        await asyncio.sleep(60)
        there.down = False
        await until(lambda: here.committed("billing"), HEALED_S)
        await until(lambda: app.health().status == "UP", HEALED_S)


@in_virtual_time
async def test_a_partition_without_a_leader_holds_up_few_records_that_have_no_key() -> None:
    app = App({"outgoing": {"invoices": {}}})
    emitter = app.emitter("invoices")
    broker = make_broker(4)
    async with TestApp(app, broker=broker):
        await emitter.send(b"first")
        broker.leader_away(tp(0, "invoices"))
        sendings = []
        for _ in range(2000):
            sendings.append(asyncio.ensure_future(emitter.send(b"")))
            await asyncio.sleep(0.01)
        assert sum(not sending.done() for sending in sendings) < 10
        broker.leader_back(tp(0, "invoices"))
        await asyncio.gather(*sendings)
    await broker.close()


@in_virtual_time
async def test_a_broker_that_answers_no_check_in_time_is_away() -> None:
    app = with_emitter(Recorder())
    async with two_clusters(app) as (_, there):
        there.fail_next("check", TransientBrokerError("no answer"), 3)
        await asyncio.sleep(NOTICED_S)
        assert "no answer" in reason(app, "invoices")
        await until(lambda: app.health().status == "UP", HEALED_S)


@in_virtual_time
async def test_a_topic_that_was_looked_for_in_vain_is_looked_for_again_by_the_next_send() -> None:
    app = App({"outgoing": {"invoices": {"send_timeout": "2s"}}})
    emitter = app.emitter("invoices")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    broker = MemoryBroker(loop.clock, auto_create=False)
    async with TestApp(app, broker=broker):
        for _ in range(2):
            with pytest.raises(TransientBrokerError):
                await emitter.send(b"too early")
            await asyncio.sleep(10)
        broker.create_topic("invoices", 1)
        await emitter.send(b"in time")
        assert [record.value for record in broker.log(tp(0, "invoices"))] == [b"in time"]
    await broker.close()


def keyed(value: bytes) -> Any:
    return Record(value, key=value)


def unkeyed(value: bytes) -> Any:
    return value


@pytest.mark.parametrize("is_created_by_the_broker", [True, False])
@pytest.mark.parametrize("output", [{}, {"wait_for_write": True}, {"partitioner": "murmur2"}])
@pytest.mark.parametrize("make", [keyed, unkeyed])
@in_virtual_time
async def test_a_topic_that_comes_back_with_fewer_partitions_gets_what_waited_for_the_others(
    make: Any, output: dict[str, Any], is_created_by_the_broker: bool
) -> None:
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "concurrency": 8,
                    "ordering": "unordered",
                }
            },
            "outgoing": {"invoices": output},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> Any:
        return make(value)

    values = {b"%d" % number for number in range(100)}
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    broker = MemoryBroker(loop.clock, auto_create=is_created_by_the_broker)
    broker.create_topic("orders", 1)
    broker.create_topic("invoices", 8)
    async with TestApp(app, broker=broker) as test:
        for value in values:
            await test.send("orders", value)
        await test.settled()
        broker.delete_topic("invoices")
        for value in values:
            await test.send("orders", value)
        await asyncio.sleep(120)
        assert app.health().live.status == "UP"
        if not is_created_by_the_broker:
            assert app.health().ready.status == "DOWN"
            broker.create_topic("invoices", 2)
        async with asyncio.timeout(HEALED_S):
            await test.settled()
        await until(lambda: app.health().status == "UP", HEALED_S)
        written = [
            record.value
            for partition in range(broker.topics()["invoices"])
            for record in broker.log(tp(partition, "invoices"))
        ]
        assert sorted(written) == sorted(values)
    await broker.close()

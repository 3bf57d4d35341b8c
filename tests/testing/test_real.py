"""The same test in memory and on a real Kafka."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import App, Record, TopicPartition
from reactive_kafka.testing import FakeClock, MemoryBroker, TestApp
from reactive_kafka.testing.real_kafka import RealKafka
from tests.harness.kafka import inspector_of

CONFIG = {
    "incoming": {"real-orders": {"group_id": "real", "failure_strategy": "delayed-retry-topic"}},
    "outgoing": {"real-invoices": {}},
}
CONFIG["incoming"]["real-orders"]["delayed_retry"] = {"topics": ["real-orders_retry_100"]}  # type: ignore[index]


@pytest.mark.parametrize(
    "real", [False, pytest.param(True, marks=pytest.mark.kafka)], ids=["in memory", "on Kafka"]
)
async def test_a_test_is_the_same_in_memory_and_on_kafka(
    real: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if real:
        monkeypatch.setenv("REACTIVE_KAFKA_TEST_BOOTSTRAP", request.getfixturevalue("kafka"))
    app = App(CONFIG)

    @app.incoming("real-orders")
    @app.outgoing("real-invoices")
    async def invoice(number: int) -> Record:
        if number < 0 and len(test.handler(invoice).calls) < 2:
            raise ValueError("negative")
        return Record({"order": number}, key=str(number))

    # The second one sees nothing of the first.
    for _ in range(2):
        async with TestApp(app, real=real, start_timeout_s=30) as test:
            before = sum(test.committed("real-orders").values())
            await test.send("real-orders", -1)
            await test.settled(timeout=20)
            await test.send("real-orders", 7, key="a", headers=[("tenant", b"acme")])
            await test.settled(timeout=20)
            assert sorted((one.key, one.value) for one in test.records("real-invoices")) == [
                (b"-1", b'{"order":-1}'),
                (b"7", b'{"order":7}'),
            ]
            assert sorted(one.headers for one in test.records("real-orders")) == [
                (),
                (("tenant", b"acme"),),
            ]
            assert sum(test.committed("real-orders").values()) - before == 2
            assert [call.payload for call in test.handler(invoice).calls] == [-1, -1, 7]


@pytest.mark.kafka
async def test_nothing_is_asked_of_topics_that_the_application_has_nothing_to_do_with(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them that has no leader just now would hold up the test."""
    monkeypatch.setenv("REACTIVE_KAFKA_TEST_BOOTSTRAP", kafka)
    async with inspector_of(kafka) as inspector:
        for topic in ("seen-by-pattern", "not-ours"):
            await inspector.create_topic(topic, 1)
        app = App({"incoming": {"orders": {"group_id": "g", "pattern": "seen-by-.*"}}})
        cluster = RealKafka()
        app.configure(overrides=await cluster.overrides())
        await cluster.open(app)
        assert set(await cluster.ends()) == {TopicPartition("seen-by-pattern", 0)}
        await cluster.close()


async def test_records_that_the_cluster_has_deleted_are_not_waited_for() -> None:
    broker = MemoryBroker()
    for value in (b"deleted", b"kept"):
        broker.produce("audit", value, partition=0)
    broker.delete_records(TopicPartition("audit", 0), 1)
    cluster = RealKafka()
    cluster._connector = broker.connector()
    async with asyncio.timeout(5):
        assert [record.value for record in await cluster._read("audit")] == [b"kept"]


def test_a_real_kafka_and_one_in_memory_are_not_both_meant() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        TestApp(App(CONFIG), broker=MemoryBroker(), real=True)
    with pytest.raises(RuntimeError, match="has no MemoryBroker"):
        _ = TestApp(App(CONFIG), real=True).broker


async def test_a_real_kafka_has_no_virtual_time(virtual_time: FakeClock) -> None:
    with pytest.raises(RuntimeError, match="needs real time"):
        async with TestApp(App(CONFIG), real=True):
            pass


async def test_other_servers_than_those_of_the_test_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REACTIVE_KAFKA_TEST_BOOTSTRAP", "127.0.0.1:9")
    app = App(
        {"incoming": {"orders": {"group_id": "g", "bootstrap_servers": "kafka.internal:9092"}}}
    )
    with pytest.raises(ValueError, match="channel 'orders' has bootstrap_servers of its own"):
        async with TestApp(app, real=True):
            pass

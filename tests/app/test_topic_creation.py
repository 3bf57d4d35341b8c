"""``[topics.X] create = true``: an application creates the topics that it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from reactive_kafka import App, FatalBrokerError, Message, Record, TransientBrokerError
from reactive_kafka.events import TopicCreated
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import take_all
from tests.app.helpers import Recorder, in_virtual_time, now, running, send, until
from tests.app.test_reach import bare_broker

ORDERS = {"group_id": "billing", "auto_offset_reset": "earliest"}
TOPICS: Mapping[str, Any] = {
    "orders": {"partitions": 6, "create": True, "config": {"retention.ms": "1000"}},
    "invoices": {"partitions": 3, "create": True},
}


def app_of(
    topics: Mapping[str, Any],
    recorder: Recorder | None = None,
    *,
    orders: Mapping[str, Any] = ORDERS,
    **invoices: Any,
) -> App:
    app = App(
        {
            "incoming": {"orders": orders},
            "outgoing": {"invoices": invoices},
            "topics": topics,
        },
        observer=recorder,
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> Record:
        if message.payload == b"bad":
            raise ValueError("bad")
        return Record(message.payload)

    return app


def ready_text(app: App) -> str:
    return str(app.health().ready.to_json())


@in_virtual_time
async def test_a_missing_topic_is_created_as_it_is_declared() -> None:
    recorder, broker = Recorder(), bare_broker()
    app = app_of(TOPICS, recorder)
    async with running(app, broker=broker) as test:
        await send(test, b"x")
        await test.settled()
        assert app.health().ready.is_up
        assert [record.value for record in test.records("invoices")] == [b"x"]
    assert broker.topics() == {"orders": 6, "invoices": 3}
    assert broker._state.configs["orders"] == {"retention.ms": "1000"}
    created = {event.topic: event.partitions for event in recorder.of(TopicCreated)}
    assert created == {"orders": 6, "invoices": 3}
    await broker.close()


@in_virtual_time
async def test_a_topic_that_exists_is_left_alone_and_others_are_as_before() -> None:
    recorder, broker = Recorder(), bare_broker()
    broker.create_topic("orders", 2)
    app = app_of({**TOPICS, "invoices": {"partitions": 3}}, recorder)
    async with running(app, broker=broker):
        await until(lambda: "'invoices' does not exist" in ready_text(app))
    assert broker.topics() == {"orders": 2}
    assert recorder.of(TopicCreated) == []
    await broker.close()


@pytest.mark.parametrize("strategy", ["dead-letter-queue", "delayed-retry-topic"])
@in_virtual_time
async def test_topics_of_letters_are_created_as_they_are_declared(strategy: str) -> None:
    broker = bare_broker()
    letters = {"dead-letter-topic-orders": {"partitions": 4, "create": True}}
    retries = {"orders_retry_1000": {"create": True}}
    orders = {
        **ORDERS,
        "failure_strategy": strategy,
        "delayed_retry": {"topics": ["orders_retry_1000"]},
    }
    app = app_of({**TOPICS, **letters, **retries}, orders=orders)
    async with running(app, broker=broker) as test:
        await send(test, b"bad")
        await test.settled(60)
    found = broker.topics()
    assert found["dead-letter-topic-orders"] == 4
    if strategy == "delayed-retry-topic":
        # Nothing says how many, so there are as many as the channel's own topic has.
        assert found["orders_retry_1000"] == 6
    await broker.close()


@in_virtual_time
async def test_a_right_that_is_missing_is_told_and_waited_for() -> None:
    recorder, broker = Recorder(), bare_broker()
    app = app_of(TOPICS, recorder)
    denied = FatalBrokerError("the right CREATE on it is missing, or on the cluster")
    broker.fail_next("create_topic", denied, times=40)
    starting = asyncio.ensure_future(TestApp(app, broker=broker, start_timeout_s=200).__aenter__())
    await until(lambda: app._run is not None and app._run.channels is not None)
    began = now()
    await until(lambda: "right CREATE" in ready_text(app))
    assert now() - began < 5
    health = app.health()
    assert health.live.is_up
    reasons = {check.name: check.data["reason"] for check in health.ready.checks}
    assert "the topic 'orders' does not exist" in reasons["orders"]
    assert "the topic 'invoices' does not exist" in reasons["invoices"]
    await starting
    await until(lambda: app.health().ready.is_up, 60)
    assert broker.topics() == {"orders": 6, "invoices": 3}
    await app.stop()
    await broker.close()


@in_virtual_time
async def test_a_broker_that_is_away_at_the_start_is_waited_for() -> None:
    broker = bare_broker()
    app = app_of(TOPICS)
    broker.fail_next("topics", TransientBrokerError("away"), times=6)
    async with TestApp(app, broker=broker, start_timeout_s=100):
        await until(lambda: app.health().ready.is_up, 60)
    assert broker.topics() == {"orders": 6, "invoices": 3}
    await broker.close()


@in_virtual_time
async def test_several_applications_that_start_together_create_it_once() -> None:
    broker, recorder = bare_broker(), Recorder()
    apps = [app_of(TOPICS, recorder) for _ in range(3)]
    tests = [TestApp(app, broker=broker, start_timeout_s=60) for app in apps]
    await asyncio.gather(*(test.__aenter__() for test in tests))
    await until(lambda: all(app.health().ready.is_up for app in apps))
    for test in tests:
        await test.__aexit__(None, None, None)
    assert broker.topics() == {"orders": 6, "invoices": 3}
    assert len(recorder.of(TopicCreated)) == 2
    await broker.close()


@in_virtual_time
async def test_exactly_once_and_patterns_have_their_topics_as_well() -> None:
    broker = bare_broker()
    app = app_of(
        TOPICS,
        orders={**ORDERS, "pattern": "ord.*", "metadata_max_age_ms": 1000},
        transactional_id="billing",
    )
    async with TestApp(app, broker=broker, start_timeout_s=60) as test:
        broker.produce("orders", b"x", partition=0)
        await until(lambda: test.records("invoices"), 30)
    assert broker.topics() == {"orders": 6, "invoices": 3}
    await broker.close()


@in_virtual_time
async def test_an_emitter_that_is_asked_for_later_creates_the_topic_of_its_channel() -> None:
    broker = bare_broker()
    app = App({"outgoing": {"audit": {}}, "topics": {"audit": {"create": True}}})
    async with TestApp(app, broker=broker):
        assert broker.topics() == {}
        await app.emitter("audit").send(b"x")
        assert broker.topics() == {"audit": 1}
    await broker.close()


def test_a_topic_that_no_channel_uses_is_warned_of() -> None:
    app = App({"incoming": {"orders": ORDERS}, "topics": {**TOPICS, "other": {"create": False}}})
    take_all(app)
    (warning,) = (one for one in app.plan.warnings if "create" in one)
    assert "[topics.invoices]" in warning
    assert warning.endswith("create = true: has no effect: no channel reads or writes it")


def test_the_topics_of_letters_and_retries_are_used() -> None:
    orders = {
        **ORDERS,
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": ["orders_retry_1000"]},
        "dead_letter_queue": {"topic": "orders-letters"},
    }
    created = {"create": True}
    topics = {"orders_retry_1000": created, "orders-letters": created}
    app = App({"incoming": {"orders": orders}, "topics": topics})
    take_all(app)
    assert not [one for one in app.plan.warnings if "create" in one]


def test_what_is_no_boolean_is_refused() -> None:
    app = App({"incoming": {"orders": ORDERS}, "topics": {"orders": {"create": "yes, please"}}})
    with pytest.raises(ValueError, match=r"\[topics.orders\] create = 'yes, please'"):
        app.configure()


async def test_without_such_topics_nothing_is_wrapped() -> None:
    broker = MemoryBroker()
    app = app_of({"orders": {"partitions": 6}})
    async with running(app, broker=broker):
        assert app._run is not None
        assert app._run.channels is not None
        assert app._run.channels.incoming["orders"].services.connector is app._run.connector
    await broker.close()

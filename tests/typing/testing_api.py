"""As ``api.py``, for ``reactive_kafka.testing``: what the tests of an application write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from reactive_kafka import App, Committed, TopicPartition, TransientBrokerError
from reactive_kafka.testing import (
    DeadlockError,
    FakeClock,
    HandlerCall,
    HandlerSpy,
    MemoryBroker,
    NotSettledError,
    TestApp,
    VirtualTimeLoop,
    record,
    run_in_virtual_time,
)


async def an_application_in_memory(app: App) -> None:
    broker = MemoryBroker(partitions=1, auto_create=True)
    async with TestApp(
        app, broker=broker, overrides={"http": {"enabled": False}}, start_timeout_s=1.0
    ) as test:
        assert_type(test, TestApp)
        assert_type(test.app, App)
        assert_type(test.broker, MemoryBroker)
        sent = await test.send(
            "orders", {"id": 1}, key="a", headers=[("tenant", b"x")], partition=0
        )
        assert_type(sent.partition, TopicPartition)
        assert_type(sent.offset, int)
        assert_type(await test.settled(timeout=1.0), None)
        assert_type([one.value for one in test.records("invoices")], list[bytes | None])
        assert_type(test.committed("orders"), dict[TopicPartition, int])
        assert_type(test.handler(in_virtual_time), HandlerSpy)
        assert_type(test.handler(in_virtual_time).calls, list[HandlerCall])
    TestApp(app, config="of-tests.toml")
    TestApp(app, config={"incoming": {}}, real=True)


def a_broker_in_memory(broker: MemoryBroker) -> None:
    partition = TopicPartition("orders", 0)
    broker.create_topic("orders", 4)
    broker.produce("orders", b"{}", key=b"a")
    assert_type([stored.offset for stored in broker.log(partition)], list[int])
    assert_type(broker.end(partition), int)
    assert_type(broker.topics(), dict[str, int])
    assert_type(broker.committed("billing"), dict[TopicPartition, Committed])
    assert_type(broker.members("billing"), dict[str, frozenset[TopicPartition]])
    assert_type(broker.generation("billing"), int)
    assert_type(broker.down, bool)
    broker.fail_next("commit", TransientBrokerError("away"), times=2)
    broker.rebalance("billing")


async def in_virtual_time(clock: FakeClock) -> str:
    assert_type(clock.monotonic(), float)
    assert_type(clock.wall(), float)
    clock.advance(17.0)
    clock.jump_wall(-3600.0)
    return "done"


def time_that_a_test_turns() -> None:
    assert_type(run_in_virtual_time(in_virtual_time, seed=1), str)
    assert_type(run_in_virtual_time(in_virtual_time, clock=FakeClock(wall=0.0)), str)
    assert_type(VirtualTimeLoop(FakeClock()).clock, FakeClock)


def records_and_errors() -> None:
    built = record({"id": 1}, key="a", offset=3, headers=[("tenant", None)], timestamp=None)
    assert_type(built.offset, int)
    assert_type(built.value, bytes | None)
    assert_type(built.headers, Sequence[tuple[str, bytes | None]])
    of_time: type[RuntimeError] = DeadlockError
    of_a_test: type[AssertionError] = NotSettledError
    print(of_time, of_a_test)

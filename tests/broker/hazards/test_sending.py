"""H7: a send, and the producer's stop, that never return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest

from reactive_kafka.broker.aiokafka.closing import STOP_DEADLINE_S
from reactive_kafka.broker.client import Producer, Written
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import TopicPartition
from tests.broker.hazards.faults import Rig, ends_within, tasks_but
from tests.broker.members import producing

SEND_TIMEOUT_S = 1.0
MARGIN_S = 0.5


async def test_h7_naive_send_and_stop_go_on_past_the_request_timeout(rig: Rig) -> None:
    topic = await rig.create_topic(1)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=rig.bootstrap_servers, enable_idempotence=True, request_timeout_ms=500
    )
    await producer.start()
    await producer.send_and_wait(topic, b"before")
    rig.proxy.hold()
    send = asyncio.ensure_future(producer.send_and_wait(topic, b"x"))
    try:
        assert not await ends_within(send, 2.0)
        stop = asyncio.ensure_future(producer.stop())
        assert not await ends_within(stop, 0.5)
        assert not send.done()
    finally:
        rig.proxy.release()
        await asyncio.wait([send, stop], timeout=10)


@pytest.mark.parametrize(
    "cut", [lambda rig: rig.proxy.hold(), lambda rig: rig.broker.go_down()], ids=["frozen", "gone"]
)
async def test_h7_a_send_has_a_deadline_and_the_next_one_gets_a_new_client(
    rig: Rig, cut: Callable[[Rig], None]
) -> None:
    topic = await rig.create_topic(1)
    async with producing(rig, {"send_timeout_s": SEND_TIMEOUT_S}) as producer:
        await (await producer.send(topic, b"before"))
        first = client_of(producer)
        cut(rig)
        error, took = await failing_send(producer, topic)
        assert str(error) == f"{topic}: not confirmed within 1 s"
        assert took < SEND_TIMEOUT_S + MARGIN_S
        rig.proxy.release()
        rig.broker.come_up()
        written = await until_written(producer, topic)
        assert written.partition == TopicPartition(topic, 0)
        assert client_of(producer) is not first


async def test_h7_sends_fail_in_time_again_and_again_while_the_broker_is_frozen(rig: Rig) -> None:
    topic = await rig.create_topic(1)
    async with producing(rig, {"send_timeout_s": SEND_TIMEOUT_S}) as producer:
        await (await producer.send(topic, b"before"))
        rig.proxy.hold()
        for _ in range(3):
            _, took = await failing_send(producer, topic)
            assert took < SEND_TIMEOUT_S + MARGIN_S
        rig.proxy.release()
        await until_written(producer, topic)


async def test_h7_stop_has_a_deadline_and_leaves_nothing(rig: Rig) -> None:
    topic = await rig.create_topic(1)
    before = asyncio.all_tasks()
    async with producing(rig, {"send_timeout_s": 60.0}) as producer:
        await (await producer.send(topic, b"before"))
        rig.proxy.hold()
        confirmation = await producer.send(topic, b"x")
        began = time.monotonic()
        stop = asyncio.ensure_future(producer.stop())
        assert not await ends_within(stop, 0.1)
        stop.cancel()
        await asyncio.wait([stop])
        await producer.stop()  # waits for the one that was cancelled
        assert time.monotonic() - began < STOP_DEADLINE_S + 3
        assert confirmation.done()
        assert isinstance(confirmation.exception(), TransientBrokerError)
        assert not [task for task in tasks_but(before) if "aiokafka" in repr(task.get_coro())]


def client_of(producer: Producer) -> Any:
    return producer._producer  # type: ignore[attr-defined]


async def failing_send(producer: Producer, topic: str) -> tuple[TransientBrokerError, float]:
    """What a send fails with, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(TransientBrokerError) as caught:
        await (await producer.send(topic, b"x"))
    return caught.value, time.monotonic() - began


async def until_written(producer: Producer, topic: str) -> Written:
    """Send again and again, as an outgoing channel does, until the broker has it."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await (await producer.send(topic, b"after"))
            except TransientBrokerError:
                await asyncio.sleep(0.1)

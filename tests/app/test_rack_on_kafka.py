"""``client_rack`` on a cluster whose brokers are in no rack: it is reported that it has no effect."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App
from reactive_kafka.events import RackHasNoEffect
from tests.app.helpers import Recorder, until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("client_rack", [None, "a"])
async def test_a_channel_reports_once_that_its_rack_has_no_effect(
    kafka: str, client_rack: str | None
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(topic, b"1")
    recorder = Recorder()
    properties: dict[str, Any] = {} if client_rack is None else {"client_rack": client_rack}
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka, "auto_offset_reset": "earliest", **properties},
            "http": {"enabled": False},
            "incoming": {topic: {"group_id": topic, "consumers": 2, "commit_interval": "100ms"}},
        },
        observer=recorder,
    )

    @app.incoming(topic)
    async def handle(value: bytes) -> None: ...

    async with app:
        channel = app.channel(topic)
        await until(lambda: sum(one.committed or 0 for one in channel.facts().partitions) == 1, 60)
        if client_rack is not None:
            await until(lambda: recorder.of(RackHasNoEffect), 30)
    told = [event.reason for event in recorder.of(RackHasNoEffect)]
    expected = (
        f"client_rack = {client_rack!r} has no effect: no broker is in that rack, none of them has"
        " broker.rack set"
    )
    assert told == ([] if client_rack is None else [expected])

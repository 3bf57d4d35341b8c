"""A topic that cannot be written to is named at once, and not only when a send has waited for its
timeout (N2).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from reactive_kafka import App
from reactive_kafka.broker.kafka_connector import KafkaConnector
from tests.broker.hazards.faults import until
from tests.broker.members import inspecting, producing
from tests.broker.test_kafka import KafkaTestCluster
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

NAMED_S = 2.5


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """A Kafka that creates no topics by itself."""
    with KafkaCluster(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka.bootstrap_servers


@pytest.mark.parametrize("given", [{}, {"transactional_id": "own"}], ids=["plain", "transactional"])
async def test_a_missing_outgoing_topic_is_named_within_two_seconds_and_found_once_it_is_there(
    bare: str, given: dict[str, str]
) -> None:
    topic = f"missing-{uuid.uuid4().hex[:8]}"
    app = App(
        {
            "kafka": {"bootstrap_servers": bare},
            "outgoing": {"invoices": {"topic": topic, **given}},
            "http": {"enabled": False},
        }
    )
    emitter = app.emitter("invoices")
    reason = lambda: str(app.health().ready.to_json())  # noqa: E731
    async with app:
        began = time.monotonic()
        await until(lambda: f"topic '{topic}' does not exist" in reason(), "it is named", 20)
        took = time.monotonic() - began
        assert app.health().live.status == "UP"
        inspector = KafkaConnector(bare).inspector(properties={})
        await inspector.start()
        await inspector.create_topic(topic, 1)
        await inspector.stop()
        await until(lambda: app.health().ready.status == "UP", "it is ready", 20)
        await emitter.send({"number": 1})
    assert took < NAMED_S


async def test_a_topic_that_the_broker_creates_by_itself_is_created_by_asking(
    cluster: KafkaTestCluster,
) -> None:
    topic = f"new-{uuid.uuid4().hex[:8]}"
    async with producing(cluster) as producer:
        assert await producer.partitions(topic) >= 1
    async with inspecting(cluster) as inspector:
        assert topic in await inspector.topics()

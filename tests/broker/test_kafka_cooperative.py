"""Members with ``cooperative-sticky`` on a real Kafka pass the contract of cooperative clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.broker.contract import group
from tests.broker.contract_cooperative import CooperativeContract
from tests.broker.test_kafka import KafkaTestCluster

__all__ = ["group"]

pytestmark = pytest.mark.kafka


@pytest.fixture
async def cluster(kafka: str) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        cluster = KafkaTestCluster(kafka, admin)
        cluster.properties = {**cluster.properties, "assignors": ("cooperative-sticky",)}
        yield cluster
    finally:
        await admin.close()


class TestIncremental(CooperativeContract):
    """Only what moves is revoked. What is given up in one generation is assigned in the next."""

    generations_per_move = 2
    counts_every_generation = False

"""One real Spark for all tests that need it: it takes seconds to start."""

from collections.abc import AsyncIterator

import pytest_asyncio

from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.spark.session.kafka_source import fetch_connector
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.spark.session.supervisor import SessionLimits


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[SparkEngine]:
    fetch_connector()
    conf = {"spark.driver.memory": "1g"}
    engine = SparkEngine(
        SparkSettings(master="local[2]", conf=conf),
        ranges=True,
        limits=SessionLimits(cancel_s=5.0, answer_s=3.0),
    )
    await engine.start()
    await engine.run(lambda spark: None, timeout_s=60, description="wait until Spark is ready")
    yield engine
    await engine.stop()

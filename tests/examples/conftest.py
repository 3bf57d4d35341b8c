"""One Spark with Delta, and one PostgreSQL, for all examples."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.examples.delta import delta_conf
from tests.harness.postgres import Postgres, running_postgres


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spark(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A session like a service's, in this process; it is gone when the module's tests are over."""
    few_tasks = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.stats.collect": "false",
    }
    starts_sooner = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    elsewhere = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    conf = {**delta_conf(), **few_tasks, **starts_sooner, **elsewhere, "spark.driver.memory": "1g"}
    engine = SparkEngine(SparkSettings(master="local[2]", conf=conf))
    await engine.start()
    sessions: list[Any] = []
    await engine.run(sessions.append, timeout_s=60, description="hand the session to the tests")
    yield sessions[0]
    connection = sessions[0].sparkContext._gateway._gateway_client.get_thread_connection()
    # Of the tests' thread; those of the engine's threads go with them.
    if connection is not None:
        connection.close()
    await engine.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server

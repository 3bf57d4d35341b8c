"""The tests of the client and of killed members, on other versions of Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App
from reactive_kafka.broker.jars import KAFKA_VERSION
from reactive_kafka.testing.plugin import BOOTSTRAP_VARIABLE
from tests.faults.driver import REPOSITORY, create_topic, until
from tests.harness.kafka import KafkaCluster
from tests.harness.other_kafkas import OTHER_VERSIONS

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

CLASSIC = ("tests/broker/test_kafka.py", "tests/faults/test_kill.py")
CONSUMER = "tests/broker/test_kafka_consumer_protocol.py"
# Members of the consumer protocol in test_kill.py.
CONSUMER_KILLS = "unordered-consumer or partition-consumer"
RECORDS = 20


def has_consumer_protocol(version: str) -> bool:
    """True from 4.0 on, where members can join groups with it unless it is switched off."""
    return int(version.partition(".")[0]) >= 4


def suite(version: str) -> list[str]:
    """What pytest is told to run on a version."""
    if has_consumer_protocol(version):
        return [*CLASSIC, CONSUMER]
    return [*CLASSIC, "-k", f"not ({CONSUMER_KILLS})"]


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_suite_of_the_client_is_green_on_another_version(version: str) -> None:
    """Row A12 of the faults."""
    assert version != KAFKA_VERSION
    with KafkaCluster(version=version) as cluster:
        said = cluster.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--version"
        )
        assert version in said, said
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suite(version)],
            cwd=REPOSITORY,
            env={**os.environ, BOOTSTRAP_VARIABLE: cluster.bootstrap_servers},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("version", OTHER_VERSIONS)
async def test_a_channel_joins_its_group_with_the_newest_protocol_that_a_version_has(
    version: str,
) -> None:
    """Row A12 of the faults."""
    with KafkaCluster(version=version) as cluster:
        await create_topic(cluster.bootstrap_servers, "orders", 2)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(RECORDS):
                await producer.send("orders", b"%d" % number, partition=number % 2)
        orders = {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "commit_interval": "100ms",
            "value_deserializer": "bytes",
        }
        app = App(
            {
                "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
                "http": {"enabled": False},
                "incoming": {"orders": orders},
            }
        )
        handled: list[bytes] = []

        @app.incoming("orders")
        async def handle(value: bytes) -> None:
            handled.append(value)

        async with app:
            channel = app.channel("orders")
            await until(
                lambda: sum(one.committed or 0 for one in channel.facts().partitions) == RECORDS,
                30,
                "all is committed",
                lambda: str(app.health().to_json()),
            )
            assert app.health().status == "UP"
            protocol = channel.facts().protocol
    assert sorted(handled, key=int) == [b"%d" % number for number in range(RECORDS)]
    assert protocol == ("consumer" if has_consumer_protocol(version) else "classic")

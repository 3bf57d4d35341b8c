"""The tests of the client and of killed members, on other versions of Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reactive_kafka.broker.jars import KAFKA_VERSION
from reactive_kafka.testing.plugin import BOOTSTRAP_VARIABLE
from tests.faults.driver import REPOSITORY
from tests.harness.kafka import KafkaCluster
from tests.harness.other_kafkas import OTHER_VERSIONS

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

SUITE = ("tests/broker/test_kafka.py", "tests/faults/test_kill.py")


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
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE],
            cwd=REPOSITORY,
            env={**os.environ, BOOTSTRAP_VARIABLE: cluster.bootstrap_servers},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5000:]

"""A real Apache Kafka on this machine: starts, can be hurt, comes back, and leaves nothing
behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import inspecting
from reactive_kafka.broker.jars import KafkaUnavailableError
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.broker.local_kafka import brokers_known_to, local_kafka
from reactive_kafka.subscription import Topics
from tests.broker.members import PATIENCE_S, Member
from tests.harness.kafka import KafkaCluster
from tests.harness.proxy import Proxy

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        cluster.create_topic("kept", 2)
        yield cluster


def known(cluster: KafkaCluster, node: int = 1) -> dict[int, str]:
    host, _, port = cluster.address(node).rpartition(":")
    return brokers_known_to(host, int(port))


def topics(cluster: KafkaCluster) -> list[str]:
    return cluster.tool("org.apache.kafka.tools.TopicCommand", "--list").split()


def wait_until(fact: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_started_cluster_tells_clients_its_address(cluster: KafkaCluster) -> None:
    assert known(cluster) == {1: cluster.bootstrap_servers}


def test_a_killed_node_comes_back_on_its_port_with_its_data(cluster: KafkaCluster) -> None:
    pid, address = cluster.nodes[1].pid, cluster.bootstrap_servers
    cluster.kill()
    assert pid is not None
    assert not is_alive(pid)
    with pytest.raises(OSError, match="refused"):
        known(cluster)
    cluster.start_node(1)
    assert known(cluster) == {1: address}
    assert cluster.nodes[1].pid != pid
    assert "kept" in topics(cluster)


def test_a_terminated_node_ends_by_itself_and_comes_back(cluster: KafkaCluster) -> None:
    process = cluster.nodes[1].process
    cluster.terminate()
    assert process is not None
    assert cluster.nodes[1].pid is None
    assert process.returncode == 128 + signal.SIGTERM
    cluster.start_node(1)
    assert "kept" in topics(cluster)


def test_a_frozen_node_does_not_answer_until_it_thaws(cluster: KafkaCluster) -> None:
    cluster.freeze()
    try:
        with pytest.raises(TimeoutError):
            known(cluster)
    finally:
        cluster.thaw()
    wait_until(lambda: known(cluster) != {})


def test_a_failing_tool_says_why(cluster: KafkaCluster) -> None:
    with pytest.raises(KafkaUnavailableError, match="already exists"):
        cluster.create_topic("kept", 1)


def test_a_node_that_cannot_start_shows_the_end_of_its_log() -> None:
    cluster = KafkaCluster(properties={"log.retention.check.interval.ms": "-5"})
    with (
        pytest.raises(KafkaUnavailableError, match=r"log\.retention\.check\.interval\.ms"),
        cluster,
    ):
        pass
    assert cluster.nodes[1].pid is None
    assert not cluster.directory.exists()


def test_it_ends_with_the_process_that_started_it_even_if_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from reactive_kafka.broker.local_kafka import local_kafka\n"
        "with local_kafka() as address: print(address, flush=True); sys.stdin.read()"
    )
    # Killed, it leaves its data behind.
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as owner:
        assert owner.stdout is not None
        host, _, port = owner.stdout.readline().strip().rpartition(":")
        assert brokers_known_to(host, int(port)) == {1: f"{host}:{port}"}
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not listens(host, int(port)))


def listens(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def test_it_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with local_kafka() as address:
        assert list(tmp_path.iterdir())
    host, _, port = address.rpartition(":")
    assert not listens(host, int(port))
    assert list(tmp_path.iterdir()) == []


def test_three_nodes_replicate_and_outlive_one_of_them() -> None:
    with KafkaCluster(nodes=3) as cluster:
        directory = cluster.directory
        assert known(cluster) == {number: cluster.address(number) for number in (1, 2, 3)}
        cluster.create_topic("replicated", 3)
        cluster.kill(2)
        assert "replicated" in topics(cluster)
        cluster.start_node(2)
        wait_until(lambda: len(known(cluster, 2)) == 3)
    assert [node.pid for node in cluster.nodes.values()] == [None, None, None]
    assert not directory.exists()


async def test_old_records_stay_where_retention_of_a_week_has_deleted_them_elsewhere() -> None:
    often = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "100"}
    with KafkaCluster(properties=often) as cluster:
        cluster.create_topic("kept", 1)
        # two: between one's end and the other's every log was looked at.
        for name in ("before", "after"):
            cluster.create_topic(name, 1, config={"retention.ms": "604800000"})
        kept, before, after = (TopicPartition(name, 0) for name in ("kept", "before", "after"))
        connector = KafkaConnector(cluster.bootstrap_servers)
        producer = connector.producer(name="one", properties={})
        async with inspecting(connector, {}) as inspector:
            await producer.start()
            try:
                await (await producer.send("kept", b"old", timestamp_ms=1_000_000))
                for gone in (before, after):
                    await (await producer.send(gone.topic, b"old", timestamp_ms=1_000_000))
                    async with asyncio.timeout(PATIENCE_S):
                        while (await inspector.beginning_offsets([gone]))[gone] == 0:
                            pass
                assert await inspector.beginning_offsets([kept]) == {kept: 0}
            finally:
                await producer.stop()


async def test_clients_go_through_an_advertised_proxy_and_survive_a_reset() -> None:
    cluster = KafkaCluster()
    async with Proxy(cluster.address(1)) as proxy:
        cluster.advertised[1] = proxy.address
        # Blocks this loop, and with it the proxy: the start looks at the node itself.
        with cluster:
            assert cluster.bootstrap_servers == proxy.address
            cluster.create_topic("t", 4)
            connector = KafkaConnector(proxy.address)
            consumer = connector.consumer(
                name="one", subscription=Topics(("t",)), group_id="g", properties={}
            )
            member = Member(consumer)
            await consumer.start(member)
            producer = connector.producer(name="one", properties={})
            await producer.start()
            try:
                await member.until_assigned(4)
                await (await producer.send("t", b"before"))
                assert len(await member.take(1)) == 1
                assert proxy.reset_all() >= 2
                await (await producer.send("t", b"after"))
                assert len(await member.take(1)) == 1
            finally:
                await producer.stop()
                await consumer.stop()

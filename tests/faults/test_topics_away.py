"""A partition that nobody serves and a topic that is not there: readiness names them until they are
back.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.faults.driver import ODD_SERVICE, Life, create_topic, until
from tests.faults.history import Partition
from tests.faults.processes import cpu_s
from tests.faults.scenario import Scenario, member, playing
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

LOOKED_AT_S = 10.0
LOOKS_OFTEN = '"metadata.max.age.ms" = 1000'


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three nodes that create no topic by themselves."""
    with KafkaCluster(3, properties={"auto.create.topics.enable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster: KafkaCluster) -> KafkaCluster:
    """The same, all of them running."""
    for number, node in cluster.nodes.items():
        # A failed test has left it dead.
        if node.pid is None:
            cluster.start_node(number)
    return cluster


@asynccontextmanager
async def administrating(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def away_from_the_coordinator(scenario: Scenario) -> tuple[int, Partition]:
    """A node that does not coordinate the group, and a partition of which it has the only
    replica.
    """
    async with administrating(scenario.bootstrap) as admin:
        coordinator = await admin.find_coordinator(scenario.topic)
        (topic,) = await admin.describe_topics([scenario.topic])
    replicas = {one["partition"]: one["replicas"] for one in topic["partitions"]}
    return next(
        (nodes[0], (scenario.topic, number))
        for number, nodes in sorted(replicas.items())
        if nodes != [coordinator]
    )


async def says_why(life: Life, named: str, deadline_s: float) -> None:
    """Wait until readiness is DOWN for a reason that names a topic or a partition."""

    def is_named(body: dict[str, Any]) -> bool:
        return named in json.dumps(
            [check["data"].get("reason") for check in body.get("checks", [])]
        )

    await probe(life, 503, deadline_s, is_named)
    assert (await life.health("/health/live"))[0] == 200


async def probe(
    life: Life, status: int, deadline_s: float, is_right: Callable[[dict[str, Any]], bool]
) -> None:
    give_up = time.monotonic() + deadline_s
    while not ((answer := await life.health("/health/ready"))[0] == status and is_right(answer[1])):
        assert time.monotonic() < give_up, f"not within {deadline_s} s: {answer}: {life.tail()}"
        await asyncio.sleep(0.1)


async def work(scenario: Scenario, partitions: list[Partition], deadline_s: float = 10.0) -> None:
    """Send a record to each of them, and wait until all are handled."""
    wanted = scenario.done() + len(partitions)
    for tp in partitions:
        await scenario.load.send(tp, "work")
    await until(
        lambda: scenario.done() >= wanted,
        deadline_s,
        "all is handled",
        scenario.members[0].life.tail,
    )


async def test_a_partition_without_a_leader_is_not_ready_and_the_others_go_on(
    nodes: KafkaCluster, tmp_path: Path
) -> None:
    """Row B5 of the faults."""
    async with playing(nodes.bootstrap_servers, tmp_path, partitions=3) as scenario:
        # A commit waits for the dead node's copy of the group's log, and heartbeats behind it on
        # the same connection.
        life = member(scenario, "service", session_ms=30_000).start()
        await life.ready()
        await work(scenario, scenario.partitions)
        node, away = await away_from_the_coordinator(scenario)
        others = [tp for tp in scenario.partitions if tp != away]

        await asyncio.to_thread(nodes.kill, node)
        await says_why(life, f"{away[0]}-{away[1]}", 15)
        for _ in range(3):
            await work(scenario, others)
        # Still.
        await says_why(life, f"{away[0]}-{away[1]}", 1)

        await asyncio.to_thread(nodes.start_node, node)
        await life.ready(30)
        await work(scenario, [away])
        await until(scenario.all_is_committed, 10, "all is committed", life.tail)
        assert (await life.health("/health"))[0] == 200


async def test_a_service_is_not_ready_until_somebody_makes_its_topic(
    nodes: KafkaCluster, tmp_path: Path
) -> None:
    async with playing(nodes.bootstrap_servers, tmp_path) as scenario:
        scenario.topic = missing = f"missing-{uuid4().hex[:8]}"
        life = member(scenario, "service", channel=LOOKS_OFTEN).start()
        await says_why(life, missing, 15)
        partitions = await create_topic(nodes.bootstrap_servers, missing, 2)
        await life.ready(15)
        await work(scenario, partitions)
        assert (await life.health("/health"))[0] == 200


async def test_a_topic_that_is_deleted_under_work_costs_little_and_is_named(
    nodes: KafkaCluster, tmp_path: Path
) -> None:
    async with playing(nodes.bootstrap_servers, tmp_path, partitions=4) as scenario:
        channel = f'{LOOKS_OFTEN}\nrevoke_grace = "15s"'
        life = member(
            scenario, "service", channel=channel, options=["--log-all"], module=ODD_SERVICE
        ).start()
        await life.ready()
        for tp in scenario.partitions:
            await scenario.load.send(tp, "hang")
        await until(lambda: life.count("begin") == 4, 10, "all are in flight", life.tail)
        before = lines_of(life)
        async with administrating(scenario.bootstrap) as admin:
            await admin.delete_topics([scenario.topic])
        used, began = cpu_s(life.pid), time.monotonic()
        await asyncio.sleep(LOOKED_AT_S)
        share = (cpu_s(life.pid) - used) / (time.monotonic() - began)
        assert share < 0.1, f"{share:.0%} of a core, {lines_of(life) - before} lines: {life.tail()}"
        assert lines_of(life) - before < 50, life.tail()
        await says_why(life, scenario.topic, 15)


def lines_of(life: Life) -> int:
    return len(life.log.read_text(errors="replace").splitlines())

"""H17: an answer that is an error reads as "nothing is committed", and a new coordinator tells old
positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.aiokafka.offset_requests import fetch_request, positions_in
from tests.broker.hazards.faults import Rig, until
from tests.broker.members import Member, fill, inspecting, joined
from tests.broker.test_kafka import KafkaTestCluster
from tests.harness.kafka import KafkaCluster

ASKS_IN_VAIN = 3
LOADING = 14
OFFSET_FETCH = 9


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """Three nodes: two are not the coordinator of a group."""
    with KafkaCluster(3) as kafka:
        yield kafka


@pytest.fixture
async def cluster(three: KafkaCluster) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=three.bootstrap_servers)
    await admin.start()
    try:
        yield KafkaTestCluster(three.bootstrap_servers, admin)
    finally:
        await admin.close()


@pytest.fixture
async def partition(cluster: KafkaTestCluster) -> TopicPartition:
    topic = await cluster.create_topic(1)
    await fill(cluster, topic, {0: ["0", "1", "2"]})
    return TopicPartition(topic, 0)


def coordinator_of(member: Member) -> CoordinatorRequests:
    coordinator = member.consumer.owned.coordinator  # type: ignore[attr-defined]
    assert isinstance(coordinator, CoordinatorRequests)
    return coordinator


def another(node: int) -> int:
    """A node that is not the group's coordinator, as after the group has moved."""
    return node % 3 + 1


# -- naive


@pytest.mark.kafka
async def test_h17_naive_client_takes_the_error_of_a_wrong_coordinator_for_nothing_committed(
    cluster: KafkaTestCluster, group: str, partition: TopicPartition
) -> None:
    theirs = aiokafka.TopicPartition(*partition)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([theirs])
        await consumer.commit({theirs: OffsetAndMetadata(2, "")})
        assert await consumer.committed(theirs) == 2
        coordinator = consumer._coordinator
        coordinator.coordinator_id = another(coordinator.coordinator_id)
        assert await consumer.committed(theirs) is None
    finally:
        await consumer.stop()


# -- ours


@pytest.mark.kafka
async def test_h17_a_wrong_coordinator_is_looked_up_again_and_the_position_is_told(
    cluster: KafkaTestCluster, group: str, partition: TopicPartition
) -> None:
    async with joined(cluster, partition.topic, group) as member:
        await member.until_assigned(1)
        await member.consumer.commit({partition: Committed(2, "two")}, member.generation)
        coordinator = coordinator_of(member)
        assert coordinator.node is not None
        coordinator.node = another(coordinator.node)
        assert await member.consumer.committed([partition]) == {partition: Committed(2, "two")}


@pytest.mark.kafka
async def test_h17_positions_wait_for_a_commit_that_is_not_on_all_replicas_yet(
    three: KafkaCluster, cluster: KafkaTestCluster, group: str, partition: TopicPartition
) -> None:
    """The commit is in the coordinator's log, a replica is late: who reads now would repeat what is
    committed then.
    """
    async with joined(cluster, partition.topic, group) as member, inspecting(cluster) as inspector:
        await member.until_assigned(1)
        await member.consumer.commit({partition: Committed(1)}, member.generation)
        coordinator = coordinator_of(member).node
        assert coordinator is not None
        # The member's waits behind its commit.
        stranger = inspector.client  # type: ignore[attr-defined]
        three.freeze(coordinator % 3 + 1)
        try:
            commit = asyncio.ensure_future(
                member.consumer.commit({partition: Committed(2)}, member.generation)
            )
            await asyncio.wait([commit], timeout=0.5)
            unstable = fetch_request(group, [partition], is_stable=False)
            answer = await stranger.send(coordinator, unstable)
            assert positions_in(answer.values) == {partition: Committed(1)}
            asked = asyncio.ensure_future(
                stranger.send(coordinator, fetch_request(group, [partition]))
            )
            await asyncio.wait([asked], timeout=0.5)
            assert not commit.done()
            assert not asked.done()
        finally:
            three.thaw(coordinator % 3 + 1)
        await commit
        assert positions_in((await asked).values) == {partition: Committed(2)}
        assert await member.consumer.committed([partition]) == {partition: Committed(2)}


async def test_h17_an_answer_that_it_is_still_loading_is_asked_again(rig: Rig, group: str) -> None:
    topic = await rig.create_topic(1)
    async with joined(rig, topic, group) as member:
        (partition,) = await member.until_assigned(1)
        await member.consumer.commit({partition: Committed(0, "kept")}, member.generation)
        before = rig.proxy.answers.passed_bytes  # type: ignore[attr-defined]
        rig.broker.answer_with(OFFSET_FETCH, LOADING, ASKS_IN_VAIN)
        assert await member.consumer.committed([partition]) == {partition: Committed(0, "kept")}
        await until(lambda: rig.answers.passed_bytes > before, "it was asked")

"""Members of the consumer protocol (KIP-848) on a real Kafka pass the contract."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    LEAVES,
    UNCHANGED_TIMEOUT,
)
from reactive_kafka.broker.consumer.membership.heartbeat_pace import (
    ALL_OWNED_BEAT_S,
    QUICK_BEAT_S,
)
from reactive_kafka.broker.wire.definitions import CONSUMER_GROUP_HEARTBEAT
from reactive_kafka.errors import BrokerError, FatalBrokerError
from reactive_kafka.records import Committed, TopicPartition
from tests.broker.contract import CommitContract, GroupContract, LogContract, ReadingContract, group
from tests.broker.contract_assignments import (
    AutoCommitContract,
    PatternContract,
    SharedGroupContract,
)
from tests.broker.contract_cooperative import CooperativeContract
from tests.broker.contract_transactions import PositionsContract
from tests.broker.hazards.applications import running
from tests.broker.members import PATIENCE_S, Member, inspecting, joined
from tests.broker.test_kafka import KafkaTestCluster
from tests.harness.kafka import KafkaCluster

__all__ = ["group"]

pytestmark = pytest.mark.kafka


@pytest.fixture
async def cluster(kafka: str) -> AsyncIterator[KafkaTestCluster]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        cluster = KafkaTestCluster(kafka, admin)
        cluster.properties = {"group_protocol": "consumer"}
        yield cluster
    finally:
        await admin.close()


class TestContract(ReadingContract, CommitContract, GroupContract, LogContract, AutoCommitContract):
    """One group, one topic."""


class TestIncremental(CooperativeContract):
    """Only what moves is revoked."""

    generations_per_move = 1


class TestPatterns(PatternContract, SharedGroupContract):
    """Patterns."""


class TestPositions(PositionsContract):
    """Positions in transactions."""

    keeps_partitions = True


async def test_a_member_whose_pattern_fits_no_topic_any_more_stays_one(
    cluster: KafkaTestCluster, group: str
) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    topic = await cluster.create_topic(2, prefix)
    properties = {"metadata_max_age_ms": 300}
    async with joined(cluster, None, group, pattern=f"{prefix}-.*", properties=properties) as one:
        await one.until_assigned(2)
        await cluster.delete_topic(topic)
        await one.until(lambda: not one.owned)
        ends_at = one.consumer.session_ends_at()
        await one.poll_until(lambda poll: one.consumer.session_ends_at() > ends_at + 1, {})
        another = await cluster.create_topic(1, prefix)
        assert await one.until_assigned(1) == {TopicPartition(another, 0)}
        assert one.consumer.is_member()


async def test_a_group_is_moved_member_by_member_in_both_directions(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(6)
    everything = frozenset(TopicPartition(topic, number) for number in range(6))
    protocols = ["classic", "classic", "consumer", "consumer", "classic", "classic"]
    async with AsyncExitStack() as stack:
        members: list[Member] = []
        for number, protocol in enumerate(protocols):
            properties = {"group_protocol": protocol, "heartbeat_interval_ms": 200}
            member = await stack.enter_async_context(
                joined(cluster, topic, group, f"{protocol}-{number}", properties=properties)
            )
            assert member.consumer.group_protocol() == protocol
            members.append(member)
            if len(members) > 2:
                # The oldest member leaves, as in a rolling restart.
                await members.pop(0).consumer.stop()
            async with asyncio.timeout(PATIENCE_S):
                while not await _commit_all(members, everything, number + 1):
                    for one in members:
                        await one.consumer.poll({}, 0.05)
        stored = await members[0].consumer.committed(everything)
        assert set(stored.values()) == {Committed(len(protocols))}


async def test_a_member_whose_group_became_classic_without_it_converts_it_back(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(2)
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": 200}
    async with (
        joined(cluster, topic, group, "new") as new,
        joined(cluster, topic, group, "old", properties=classic) as old,
    ):
        await new.until_assigned(1)
        await old.until_assigned(1)
        events = len(new.events)
        await _remove(cluster, group, "new")
        await new.until(lambda: len(new.events) > events)
        async with asyncio.timeout(PATIENCE_S):
            while len(new.owned) != 1 or len(old.owned) != 1 or new.owned & old.owned:
                for member in (new, old):
                    # Raises what the group says.
                    await member.consumer.poll({}, 0.05)


async def _remove(cluster: KafkaTestCluster, group: str, client_id: str) -> None:
    """Take a member out of its group without a word to it, as when its session is over."""
    async with inspecting(cluster) as inspector:
        members = (await inspector.describe_group(group)).members
    [member_id] = [one.member_id for one in members if client_id in one.client_id]
    client = KafkaClient(ClientSettings(bootstrap_servers=cluster.bootstrap_servers))
    await client.bootstrap()
    try:
        leaving = {
            "group_id": group,
            "member_id": member_id,
            "member_epoch": LEAVES,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": UNCHANGED_TIMEOUT,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        answer = await CoordinatorRequests(client, group).ask(CONSUMER_GROUP_HEARTBEAT, leaving)
        assert answer["error_code"] == 0
    finally:
        await client.close()


async def _commit_all(
    members: list[Member], everything: frozenset[TopicPartition], offset: int
) -> bool:
    """Commit *offset* for all partitions, each by its owner. False: not all have an owner yet."""
    owned = [partition for member in members for partition in member.owned]
    if len(owned) != len(everything) or frozenset(owned) != everything:
        return False
    try:
        for member in members:
            positions = dict.fromkeys(member.owned, Committed(offset))
            await member.consumer.commit(positions, member.generation)
    except BrokerError:
        # A rebalance has begun meanwhile.
        return False
    return True


async def test_auto_takes_the_consumer_protocol_where_the_cluster_has_it(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    async with joined(cluster, topic, group, properties={"group_protocol": "auto"}) as member:
        await member.until_assigned(1)
        assert member.consumer.group_protocol() == "consumer"


async def test_auto_takes_the_classic_protocol_where_assignors_are_named(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    properties = {"group_protocol": "auto", "assignors": ("cooperative-sticky",)}
    async with joined(cluster, topic, group, properties=properties) as member:
        await member.until_assigned(1)
        assert member.consumer.group_protocol() == "classic"


async def test_auto_takes_the_classic_protocol_where_the_other_one_is_switched_off(
    group: str,
) -> None:
    """The broker knows its requests then, and refuses them."""
    with KafkaCluster() as kafka:
        kafka.tool(
            "org.apache.kafka.tools.FeatureCommand", "downgrade", "--feature", "group.version=0"
        )
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await admin.start()
        try:
            cluster = KafkaTestCluster(kafka.bootstrap_servers, admin)
            topic = await cluster.create_topic(1)
            async with joined(cluster, topic, group) as member:
                await member.until_assigned(1)
                assert member.consumer.group_protocol() == "classic"
        finally:
            await admin.close()


async def test_an_application_says_which_protocol_it_uses_and_what_has_no_effect_there(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    properties = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1000}
    async with running(cluster.bootstrap_servers, topic, group, properties) as diary:
        await diary.until_assigned(1)
        assert diary.facts.protocol == "consumer"
        assert diary.facts.warnings == (
            "no effect of session_timeout_ms, heartbeat_interval_ms: "
            "with the group protocol 'consumer' the broker decides",
        )
        data = diary.app.health().checks[0].data
        assert data["group_protocol"] == "consumer"
    classic = {**properties, "group_protocol": "classic"}
    async with running(cluster.bootstrap_servers, topic, group, classic) as diary:
        await diary.until_assigned(1)
        assert diary.facts.protocol == "classic"
        assert diary.facts.warnings == ()


async def test_a_member_knows_the_session_timeout_of_its_group(
    cluster: KafkaTestCluster, group: str
) -> None:
    """Kafka's default is 45 s. Our test broker has 6 s."""
    topic = await cluster.create_topic(1)
    async with joined(cluster, topic, group) as member:
        async with asyncio.timeout(PATIENCE_S):
            while member.consumer.session_ends_at() > asyncio.get_running_loop().time() + 6.0:
                await member.consumer.poll({}, 0.05)


@pytest.mark.parametrize("protocol", ["auto", "classic"])
async def test_a_member_knows_as_soon_as_it_has_joined_that_it_owns_all_partitions(
    cluster: KafkaTestCluster, group: str, protocol: str
) -> None:
    """Its heartbeats are rarer then."""
    topic = await cluster.create_topic(2)
    properties = {"group_protocol": protocol}
    async with joined(cluster, topic, group, "one", properties=properties) as one:
        await one.until_assigned(2)
        member = one.consumer.owned.group.member  # type: ignore[attr-defined]
        assert member.beat_interval_s == ALL_OWNED_BEAT_S
        async with joined(cluster, topic, group, "two", properties=properties) as two:
            await two.until_assigned(1)
            assert member.beat_interval_s == QUICK_BEAT_S


async def test_a_refused_assignor_is_told_by_polls_and_the_member_joins_when_it_is_right(
    cluster: KafkaTestCluster, group: str
) -> None:
    topic = await cluster.create_topic(1)
    async with joined(
        cluster, topic, group, properties={"group_protocol": "consumer", "assignor": "sticky"}
    ) as member:
        with pytest.raises(FatalBrokerError, match=r"UNSUPPORTED_ASSIGNOR.*'uniform' or 'range'"):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await member.consumer.poll({}, 0.05)

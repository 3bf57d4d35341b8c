"""A real Kafka understands our requests, and we understand its responses."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup

from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.wire.definitions import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.broker.wire.schema import Api, versions_of

pytestmark = pytest.mark.kafka

NOT_COORDINATOR = {14, 15, 16}
LATEST = -1


@pytest.fixture
async def client(kafka: str) -> AsyncIterator[KafkaClient]:
    client = KafkaClient(ClientSettings(bootstrap_servers=kafka))
    await client.bootstrap()
    try:
        yield client
    finally:
        await client.close()


def node_of(client: KafkaClient) -> int:
    node = client.get_random_node()
    assert node is not None
    return node


async def topic_with(kafka: str, client: KafkaClient, values: list[bytes]) -> tuple[str, bytes]:
    """Create a topic of one partition with these records. Return its name and id."""
    topic = f"wire-{uuid.uuid4().hex[:8]}"
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    created = await call(
        client, node_of(client), CREATE_TOPICS, {"topics": [wanted], "timeout_ms": 10_000}
    )
    (answer,) = created["topics"]
    assert answer["error_code"] == 0
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)
    return topic, answer["topic_id"]


async def coordinator_of(client: KafkaClient, group: str) -> int:
    """Find the coordinator of a group. A new cluster creates its topic for positions first."""
    asked = {"key_type": 0, "coordinator_keys": [group]}
    async with asyncio.timeout(30):
        while True:
            found = await call(client, node_of(client), FIND_COORDINATOR, asked, versions="4+")
            (coordinator,) = found["coordinators"]
            if coordinator["error_code"] == 0:
                await client.force_metadata_update()
                return int(coordinator["node_id"])
            assert coordinator["error_code"] in NOT_COORDINATOR


async def ask_coordinator(
    client: KafkaClient, group: str, api: Api, values: Any, **options: Any
) -> dict[str, Any]:
    """Ask until the coordinator has loaded the group."""
    node = await coordinator_of(client, group)
    async with asyncio.timeout(30):
        while True:
            answer = await call(
                client, node, api, values, group=ConnectionGroup.COORDINATION, **options
            )
            if not codes_in(answer) & NOT_COORDINATOR:
                return answer


def codes_in(answer: Any) -> set[int]:
    """Return the error codes of an answer and of everything in it."""
    if isinstance(answer, list):
        return set().union(*map(codes_in, answer))
    if not isinstance(answer, dict):
        return set()
    return {answer.get("error_code", 0)}.union(*map(codes_in, answer.values()))


async def test_the_broker_names_its_versions_itself_and_its_nodes(client: KafkaClient) -> None:
    node = node_of(client)
    values = {"client_software_name": "reactive-kafka", "client_software_version": "1"}
    answer = await call(client, node, API_VERSIONS, values, versions="3+")
    known = {api["api_key"]: (api["min_version"], api["max_version"]) for api in answer["api_keys"]}
    assert known[FETCH.key][1] >= 13
    metadata = await call(client, node, METADATA, {"topics": []}, versions="10+")
    cluster = await call(client, node, DESCRIBE_CLUSTER, {})
    assert metadata["cluster_id"] == cluster["cluster_id"]
    addresses = [
        (broker["broker_id"], broker["host"], broker["port"]) for broker in cluster["brokers"]
    ]
    assert addresses == [
        (broker["node_id"], broker["host"], broker["port"]) for broker in metadata["brokers"]
    ]


async def test_each_version_of_metadata_that_the_broker_has_tells_the_same(
    kafka: str, client: KafkaClient
) -> None:
    topic, _ = await topic_with(kafka, client, [])
    node = node_of(client)
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
    told = set()
    for version in versions_of(METADATA.request.versions):
        try:
            answer = await call(client, node, METADATA, asked, versions=str(version))
        except NoCommonVersionError:
            continue
        (found,) = answer["topics"]
        (partition,) = found["partitions"]
        told.add((found["name"], partition["leader_id"], *partition["replica_nodes"]))
    assert told == {(topic, node, node)}


async def test_records_are_fetched_up_to_the_end_of_the_log(
    kafka: str, client: KafkaClient
) -> None:
    topic, topic_id = await topic_with(kafka, client, [b"one", b"two", b"three"])
    node = node_of(client)
    wanted = {"partition_index": 0, "timestamp": LATEST}
    topics = [{"name": topic, "partitions": [wanted]}]
    found = await call(client, node, LIST_OFFSETS, {"replica_id": -1, "topics": topics})
    (offsets,) = found["topics"][0]["partitions"]
    assert (offsets["error_code"], offsets["offset"]) == (0, 3)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked = {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [partition]}],
    }
    answer = await call(client, node, FETCH, asked, versions="13+")
    assert answer["error_code"] == 0
    (read,) = answer["responses"]
    assert read["topic_id"] == topic_id
    (log,) = read["partitions"]
    assert (log["error_code"], log["high_watermark"]) == (0, 3)
    content = bytes(log["records"])
    assert [value in content for value in (b"one", b"two", b"three")] == [True, True, True]


async def test_positions_are_stored_and_told_by_name(kafka: str, client: KafkaClient) -> None:
    topic, _ = await topic_with(kafka, client, [b"one"])
    group = f"wire-{uuid.uuid4().hex[:8]}"
    position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "äöü"}
    commit = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [position]}],
    }
    stored = await ask_coordinator(client, group, OFFSET_COMMIT, commit, versions="2-9")
    assert stored["topics"][0]["partitions"] == [{"partition_index": 0, "error_code": 0}]
    asked = {"groups": [{"group_id": group, "topics": None}], "require_stable": True}
    answer = await ask_coordinator(client, group, OFFSET_FETCH, asked, versions="8-9")
    (told,) = answer["groups"][0]["topics"]
    assert told["name"] == topic
    (partition,) = told["partitions"]
    assert (partition["committed_offset"], partition["metadata"]) == (1, "äöü")


async def test_a_member_joins_and_leaves_a_group_of_the_consumer_protocol(
    kafka: str, client: KafkaClient
) -> None:
    topic, topic_id = await topic_with(kafka, client, [])
    group = f"wire-{uuid.uuid4().hex[:8]}"
    member = uuid.uuid4().hex
    join = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    answer = await ask_coordinator(client, group, CONSUMER_GROUP_HEARTBEAT, join)
    assert (answer["error_code"], answer["error_message"]) == (0, None)
    assert answer["member_epoch"] > 0
    beat = {"group_id": group, "member_id": member, "member_epoch": answer["member_epoch"]}
    async with asyncio.timeout(30):
        while not (assignment := answer["assignment"]) or not assignment["topic_partitions"]:
            answer = await ask_coordinator(client, group, CONSUMER_GROUP_HEARTBEAT, beat)
            beat["member_epoch"] = answer["member_epoch"]
    assert assignment["topic_partitions"] == [{"topic_id": topic_id, "partitions": [0]}]
    leave = {"group_id": group, "member_id": member, "member_epoch": -1}
    gone = await ask_coordinator(client, group, CONSUMER_GROUP_HEARTBEAT, leave)
    assert (gone["error_code"], gone["member_epoch"]) == (0, -1)

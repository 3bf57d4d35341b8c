"""Offsets of logs are asked for until the leader of each partition has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import aiokafka.errors as kafka_errors
import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.cluster_queries import KafkaQueries
from reactive_kafka.broker.aiokafka.log_offsets import LATEST, UNKNOWN_OFFSET, log_offsets
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import LIST_OFFSETS
from reactive_kafka.broker.wire.requests import Answer
from reactive_kafka.errors import TransientBrokerError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
UNKNOWN_TOPIC, NOT_LEADER, FORBIDDEN, OLD_FORMAT = 3, 6, 29, 43
VERSION = 4


class Client:
    """A client of two nodes, each of which leads one partition.

    Attributes:
        codes: Partition -> the error codes of its first answers.
        away: How often node 1 is away first.
        leaders: Partition -> its leader, from the next metadata on.
    """

    def __init__(self) -> None:
        self.codes: dict[int, list[int]] = {0: [], 1: []}
        self.away = 0
        self.leaders: dict[TopicPartition, int | None] = {FIRST: 1, SECOND: 2}
        self.known = dict(self.leaders)
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.added: list[str] = []
        # It reads what matches a pattern.
        self.asks_for_all_topics = False
        self.cluster = SimpleNamespace(
            leader_for_partition=lambda wanted: self.known[wanted],
            partitions_for_topic=self._numbers,
        )

    def _numbers(self, topic: str) -> set[int]:
        return {partition for _, partition in self.known if self.known[topic, partition]}

    def add_topic(self, topic: str) -> None:
        self.added.append(topic)

    async def force_metadata_update(self) -> bool:
        self.known = dict(self.leaders)
        return True

    async def send(self, node: int, request: Any) -> Answer:
        prepared = request.prepare({LIST_OFFSETS.key: (1, VERSION)})
        values = codec.decode(LIST_OFFSETS.request, VERSION, prepared.encode())
        self.asked.append((node, values))
        if node == 1 and self.away:
            self.away -= 1
            raise kafka_errors.NodeNotReadyError
        rows = []
        for row in values["topics"][0]["partitions"]:
            number = row["partition_index"]
            codes = self.codes[number]
            code = codes.pop(0) if codes else 0
            offset = UNKNOWN_OFFSET if code else 10 + number
            rows.append({"partition_index": number, "error_code": code, "offset": offset})
        answered = {"topics": [{"name": "orders", "partitions": rows}]}
        return Answer(LIST_OFFSETS, VERSION, codec.encode(LIST_OFFSETS.response, VERSION, answered))


async def any_may_be_created(partitions: Collection[TopicPartition]) -> None:
    """What an inspector checks: nothing."""


async def ends(client: Client) -> dict[TopicPartition, int]:
    return await log_offsets(client, {FIRST: LATEST, SECOND: LATEST}, 1, any_may_be_created)


async def test_each_leader_is_asked_for_its_partition() -> None:
    client = Client()
    assert await ends(client) == {FIRST: 10, SECOND: 11}
    assert [node for node, _ in client.asked] == [1, 2]
    assert all(values["isolation_level"] == 1 for _, values in client.asked)


async def test_only_a_partition_whose_leader_has_moved_is_asked_for_again() -> None:
    client = Client()
    client.codes[0] = [NOT_LEADER]
    client.leaders[FIRST] = 2
    assert await ends(client) == {FIRST: 10, SECOND: 11}
    assert [node for node, _ in client.asked] == [1, 2, 2]


async def test_a_node_that_is_away_is_asked_again() -> None:
    client = Client()
    client.away = 2
    assert await ends(client) == {FIRST: 10, SECOND: 11}


async def test_the_leader_of_a_topic_that_is_not_known_yet_is_looked_up() -> None:
    client = Client()
    client.known[FIRST] = None
    client.known[SECOND] = -1
    assert await ends(client) == {FIRST: 10, SECOND: 11}
    assert client.added == ["orders"]


async def test_a_leader_that_refuses_ends_it() -> None:
    client = Client()
    client.codes[1] = [FORBIDDEN]
    with pytest.raises(kafka_errors.TopicAuthorizationFailedError, match="orders-1"):
        await ends(client)


async def test_a_log_without_times_has_no_offset_for_one() -> None:
    client = Client()
    client.codes[0] = [OLD_FORMAT]
    assert await log_offsets(client, {FIRST: 5}, 0, any_may_be_created) == {FIRST: UNKNOWN_OFFSET}


class Queries(KafkaQueries):
    """The questions of a consumer with this client."""

    def __init__(self, client: Client) -> None:
        self._client = client


@pytest.mark.parametrize("is_pattern", [True, False])
async def test_a_topic_that_is_deleted_meanwhile_is_told_at_once(is_pattern: bool) -> None:
    """A consumer of a pattern would read nothing else any more if it asked for that topic alone."""
    client = Client()
    client.asks_for_all_topics = is_pattern
    client.codes[0] = [UNKNOWN_TOPIC]
    client.leaders[FIRST] = None
    async with asyncio.timeout(1):
        with pytest.raises(TransientBrokerError, match="no such partition: orders-0"):
            await Queries(client).end_offsets([FIRST, SECOND])
    assert client.added == ([] if is_pattern else ["orders"])

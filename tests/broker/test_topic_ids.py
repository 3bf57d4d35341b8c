"""Brokers are asked for the ids of topics: those that do not answer hold up nobody for long."""

from __future__ import annotations

import asyncio
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from reactive_kafka.broker.aiokafka.topic_ids import (
    MOST_ASKED,
    OTHERS_S,
    TopicIdQuestion,
    topic_ids,
    topic_ids_of_all,
)
from reactive_kafka.broker.wire.codec import decode, encode
from reactive_kafka.broker.wire.definitions import METADATA
from reactive_kafka.broker.wire.requests import Request
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import TopicIds
from tests.app.helpers import in_virtual_time, now

ID = bytes(15) + b"\x01"
OTHER_ID = bytes(15) + b"\x02"
TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER_TEXT = "AAAAAAAAAAAAAAAAAAAAAg"
UNKNOWN_TOPIC = 3
KAFKA_2_7 = 9


class Client:
    """A client whose brokers answer after some seconds, or raise.

    Args:
        brokers: Node -> what it does.
        highest: The highest version of Metadata that they have.
    """

    def __init__(self, brokers: dict[int, float | BaseException], highest: int = 13) -> None:
        self._brokers = brokers
        self._highest = highest
        self.asked = list[int]()
        self.ids = dict[str, bytes]()
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=node) for node in brokers]
        )

    def get_random_node(self) -> int | None:
        return next(iter(self._brokers), None)

    async def send(self, node: int, request: Request) -> Any:
        self.asked.append(node)
        prepared = request.prepare({METADATA.key: (0, self._highest)})
        answers = self._brokers[node]
        if isinstance(answers, BaseException):
            raise answers
        await asyncio.sleep(answers)
        values = decode(METADATA.request, prepared.API_VERSION, prepared.encode())
        assert not values["allow_auto_topic_creation"]
        answer = {
            "brokers": [{"node_id": broker} for broker in self._brokers],
            "cluster_id": "a-cluster",
            "topics": [self._topic(topic["name"]) for topic in values["topics"]],
        }
        content = encode(METADATA.response, prepared.API_VERSION, answer)
        return prepared.RESPONSE_TYPE.decode(BytesIO(content))

    def _topic(self, name: str) -> dict[str, Any]:
        if name.startswith("missing"):
            return {"name": name, "error_code": UNKNOWN_TOPIC, "topic_id": ID}
        return {"name": name, "topic_id": self.ids.get(name, ID)}


@in_virtual_time
async def test_all_brokers_that_answer_are_heard_and_a_frozen_one_costs_a_second() -> None:
    client = Client({1: 0.01, 2: 1000.0, 3: 0.1, 4: KafkaConnectionError("refused")})
    began = now()
    answers = await topic_ids_of_all(client, ["orders"])
    assert sorted(answer.broker for answer in answers) == [1, 3]
    assert {answer.ids["orders"] for answer in answers} == {TEXT}
    assert {answer.alive for answer in answers} == {frozenset({1, 2, 3, 4})}
    assert now() - began <= 0.01 + OTHERS_S + 0.01


@in_virtual_time
async def test_one_broker_that_answers_late_is_enough() -> None:
    client = Client({1: KafkaConnectionError("refused"), 2: 3.0})
    assert [answer.broker for answer in await topic_ids_of_all(client, ["orders"])] == [2]


@in_virtual_time
async def test_where_no_broker_answers_that_is_said_after_the_deadline() -> None:
    client, began = Client({1: 1000.0, 2: KafkaConnectionError("refused")}), now()
    with pytest.raises(TransientBrokerError, match="no broker answers"):
        await topic_ids_of_all(client, ["orders"], 5.0)
    assert now() - began == pytest.approx(5.0, abs=0.1)
    with pytest.raises(TransientBrokerError, match="no broker is known"):
        await topic_ids_of_all(Client({}), ["orders"])


@in_virtual_time
async def test_brokers_that_are_too_old_have_no_ids() -> None:
    client = Client({1: 0.0, 2: 0.0}, highest=KAFKA_2_7)
    assert await topic_ids_of_all(client, ["orders"]) == []
    assert await topic_ids(client, TopicIdQuestion(["orders"])) == []
    assert await topic_ids_of_all(client, []) == []


@in_virtual_time
@pytest.mark.parametrize("highest", [10, 11, 12, 13, 99])
async def test_a_broker_gives_the_ids_of_topics_that_exist(highest: int) -> None:
    client = Client({1: 0.0}, highest=highest)
    question = TopicIdQuestion(["orders", "missing", "bills"])
    for id_, text in ((ID, TEXT), (ID, TEXT), (OTHER_ID, OTHER_TEXT)):
        client.ids["orders"] = id_
        assert await topic_ids(client, question) == [
            TopicIds(1, {"orders": text, "bills": TEXT}, frozenset({1}), "a-cluster")
        ]


@in_virtual_time
async def test_in_a_large_cluster_some_brokers_are_asked() -> None:
    client = Client(dict.fromkeys(range(100), 0.0))
    assert len(await topic_ids_of_all(client, ["orders"])) == MOST_ASKED == len(set(client.asked))

"""Asks for the ids of topics: a recreated topic has another id."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from random import sample
from typing import Any

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.metadata_requests import WITH_IDS, metadata_in, metadata_request
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import Answer
from reactive_kafka.broker.wire.types import NO_UUID
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import TopicIds

MOST_ASKED = 16
"""How many brokers are asked at once, at most."""
OTHERS_S = 1.0
"""How long other brokers may take after the first answer: a frozen one delays a start by that."""


class TopicIdQuestion:
    """Asks brokers for the ids of some topics.

    A channel asks again and again, and usually gets the same bytes. Those are read only once.

    Args:
        topics: Their names.
    """

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = topics
        self._read: tuple[int, bytes] | None = None
        # Of these bytes: the ids, the brokers, and the id of the cluster.
        self._known: tuple[dict[str, str], frozenset[int], str | None] = ({}, frozenset(), None)

    async def ask(self, client: Any, node: int, deadline_s: float) -> TopicIds | None:
        """Return the answer of one broker; None: it is older than 2.8 and has no ids.

        Raises:
            TransientBrokerError: No answer within the deadline.
        """
        request = metadata_request(self.topics, WITH_IDS)
        doing = "asking for the ids of topics"
        try:
            answer: Answer = await within(deadline_s, client.send(node, request), doing)
        except NoCommonVersionError:
            return None
        if self._read != (answer.version, answer.content):
            metadata = metadata_in(answer)
            alive = frozenset(broker["node_id"] for broker in metadata["brokers"])
            self._known = (ids_in(metadata), alive, metadata["cluster_id"] or None)
            self._read = (answer.version, answer.content)
        return TopicIds(node, *self._known)


async def topic_ids(
    client: Any, question: TopicIdQuestion, deadline_s: float = CALL_DEADLINE_S
) -> list[TopicIds]:
    """Return the ids that one random broker knows. A broker before 2.8 has none."""
    if not question.topics:
        return []
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the ids of topics: no broker is known")
    answer = await question.ask(client, node, deadline_s)
    return [] if answer is None else [answer]


async def topic_ids_of_all(
    client: Any, topics: Collection[str], deadline_s: float = CALL_DEADLINE_S
) -> list[TopicIds]:
    """Return what each broker says: the first within the deadline, others within a second of it.

    In a large cluster only some brokers are asked, chosen at random: each may need a connection.

    Raises:
        TransientBrokerError: No broker has answered.
    """
    question = TopicIdQuestion(topics)
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    if not (topics and nodes):
        return await topic_ids(client, question, deadline_s)
    requests = [
        asyncio.create_task(question.ask(client, node, deadline_s))
        for node in sample(nodes, min(MOST_ASKED, len(nodes)))
    ]
    try:
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(requests, timeout=OTHERS_S)
        if not any(_has_answered(request) for request in requests):
            await asyncio.wait(requests)
    finally:
        await cancel([request for request in requests if not request.done()])
    answered = [request.result() for request in requests if _has_answered(request)]
    if not answered:
        raise TransientBrokerError("asking for the ids of topics: no broker answers")
    return [answer for answer in answered if answer is not None]


def _has_answered(request: asyncio.Task[TopicIds | None]) -> bool:
    return request.done() and not request.cancelled() and request.exception() is None


def ids_in(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return topic -> its id in the form of Kafka's own tools, for topics that exist."""
    return {
        topic["name"]: urlsafe_b64encode(topic["topic_id"]).decode().rstrip("=")
        for topic in metadata["topics"]
        if not topic["error_code"] and topic["topic_id"] != NO_UUID
    }

"""Whether a topic exists, and whether this client may write to it: asked before anything is
written.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.protocol.metadata import MetadataRequest

from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.topic_ids import TopicIdQuestion
from reactive_kafka.errors import TransientBrokerError

CREATED_WITHIN_S = 1.0
"""How long a topic that does not exist is asked for again: brokers may be creating it, because it
was asked for.
"""
ASK_AGAIN_S = 0.1
TOPIC_AUTHORIZATION_FAILED = 29
WRITE = 4
"""``AclOperation.WRITE``; an answer has the operations that are allowed as bits."""
NOT_TOLD = -(2**31)
"""In the place of these bits: the broker does not tell them."""


async def until_writable(client: Any, topic: str) -> None:
    """Ask a broker for a topic until it exists. A broker that creates topics by themselves creates
    it.

    Raises:
        aiokafka.errors.BrokerResponseError: The topic's own error, if that has not passed within
            CREATED_WITHIN_S; or the right to write to it is missing.
        TransientBrokerError: No broker is known.
    """
    # Its own metadata has the topic from now on.
    client.add_topic(topic)
    loop = asyncio.get_running_loop()
    until = loop.time() + CREATED_WITHIN_S
    while True:
        code, operations = await _ask(client, topic)
        if code == 0:
            break
        error = class_for(code)
        if not error.retriable or loop.time() >= until:
            raise error(topic)
        await asyncio.sleep(ASK_AGAIN_S)
    if operations != NOT_TOLD and not operations & 1 << WRITE:
        # What the broker would answer the first record with.
        raise class_for(TOPIC_AUTHORIZATION_FAILED)(topic)


async def _ask(client: Any, topic: str) -> tuple[int, int]:
    """The error code of a topic, and the bits of what this client may do with it."""
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError(f"asking for topic {topic!r}: no broker is known")
    try:
        answer = await client.send(node, TopicIdQuestion([topic], creates=True, tells_rights=True))
    except NotImplementedError:
        # So aiokafka says that the broker does not speak this version: it is before 2.8.
        answer = await client.send(node, MetadataRequest([topic], True))
        return answer.topics[0][0], NOT_TOLD
    code, *_, operations, _ = answer.topics[0]
    return code, operations

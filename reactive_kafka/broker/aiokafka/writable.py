"""Asks whether a topic exists and may be written to, before anything is written."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.metadata_requests import ask_metadata
from reactive_kafka.errors import TransientBrokerError

CREATED_WITHIN_S = 1.0
"""How long a missing topic is asked for again: a broker may be creating it because it was asked."""
ASK_AGAIN_S = 0.1
TOPIC_AUTHORIZATION_FAILED = 29
WRITE = 4
"""The bit of ``AclOperation.WRITE`` among the operations that an answer allows."""
NOT_TOLD = -(2**31)
"""What the broker returns instead of the operations, if it does not tell them."""


async def until_writable(client: Any, topic: str) -> None:
    """Ask a broker for a topic until it exists. A broker with auto-creation creates it.

    Raises:
        aiokafka.errors.BrokerResponseError: The topic's own error, if it has not passed within
            CREATED_WITHIN_S. Or the right to write to the topic is missing.
        TransientBrokerError: No broker is known.
    """
    # From now on the client's own metadata has the topic.
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
        # The broker would answer the first record with this error.
        raise class_for(TOPIC_AUTHORIZATION_FAILED)(topic)


async def _ask(client: Any, topic: str) -> tuple[int, int]:
    """Return a topic's error code, and the bits of what this client may do with it."""
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError(f"asking for topic {topic!r}: no broker is known")
    metadata = await ask_metadata(client, node, [topic], creates=True, tells_rights=True)
    (found,) = metadata["topics"]
    return found["error_code"], found["topic_authorized_operations"]

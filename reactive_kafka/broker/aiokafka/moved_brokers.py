"""Finds brokers that have moved to other addresses.

A client asks the bootstrap servers when it starts. If it reaches none of the brokers that it knows,
it has to ask them again. A new client would not be the member of the group that the old one was: it
would have to wait until the old one's session has ended.

Source: KIP-899, KIP-1102.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from math import inf

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_log import as_ours
from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.aiokafka.metadata_requests import ask_metadata
from reactive_kafka.broker.wire.errors import MessageDecodeError

LOOK_EVERY_S = 5.0
"""The bootstrap servers are asked at most this often."""


class MovedBrokers:
    """Looks for the brokers of one client, in the background."""

    def __init__(self) -> None:
        self._looked_at = -inf
        self._looking: asyncio.Task[None] | None = None

    def look(self, client: KafkaClient) -> None:
        """Ask the bootstrap servers where the brokers are now, unless they were asked recently.

        Args:
            client: No broker answers it. The answer replaces the brokers that it knows.
        """
        is_looking = self._looking is not None and not self._looking.done()
        if is_looking or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        with as_ours():
            self._looking = asyncio.create_task(_look(client), name="look for moved brokers")

    def close(self) -> None:
        """End a search that is running."""
        if self._looking is not None:
            self._looking.cancel()


async def answers_soon(client: KafkaClient, within_s: float) -> bool:
    """True if any broker that *client* knows answers an empty request.

    All are asked at once: one that is frozen says nothing about the others.
    """
    with as_ours():
        requests = [
            asyncio.create_task(ask_metadata(client, broker.nodeId, []), name="is a broker there")
            for broker in client.cluster.brokers()
        ]
    try:
        for answer in asyncio.as_completed(requests, timeout=within_s):
            try:
                await answer
            except (kafka_errors.KafkaError, MessageDecodeError):
                continue
            return True
    except TimeoutError:
        pass
    finally:
        # Also those that have ended: their errors have to be looked at.
        await cancel(requests)
    return False


async def _look(client: KafkaClient) -> None:
    # If the bootstrap servers do not answer either, the next look asks them again.
    with suppress(kafka_errors.KafkaConnectionError):
        await client.find_moved_brokers()

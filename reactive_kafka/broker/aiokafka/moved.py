"""Whether brokers answer, and where they have moved to.

aiokafka asks the bootstrap servers when it starts, and never again: a client that reaches none of
the brokers that it knows would never find others. One that is made in its place would, but it would
not be the member of the group that the old one was: the group would have it wait until the old
one's session has ended.

Source: KIP-899, KIP-1102.
"""

from __future__ import annotations

import asyncio
import copy
import time
from math import inf
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataRequest

from reactive_kafka.broker.aiokafka.closing import cancel
from reactive_kafka.broker.aiokafka.setup import as_ours

LOOK_EVERY_S = 5.0
"""How often the bootstrap servers are asked at most."""


class MovedBrokers:
    """Looks for the brokers of one client, in the background."""

    def __init__(self) -> None:
        self._looked_at = -inf
        self._looking: asyncio.Task[None] | None = None

    def look(self, client: Any) -> None:
        """Ask where the brokers are now, unless that was asked lately: none answers that *client*
        knows.

        Args:
            client: An ``AIOKafkaClient``. What it knows of the brokers is replaced by the answer.
        """
        is_looking = self._looking is not None and not self._looking.done()
        if is_looking or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        with as_ours():
            self._looking = asyncio.create_task(_look(client), name="look for moved brokers")

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()


async def answers_soon(client: Any, within_s: float) -> bool:
    """Whether any broker that *client* (an ``AIOKafkaClient``) knows answers a request for nothing.

    All of them are asked at once: one that is frozen says nothing about the others.
    """
    with as_ours():
        asked = [
            asyncio.create_task(
                client.send(broker.nodeId, MetadataRequest([])), name="is a broker there"
            )
            for broker in client.cluster.brokers()
        ]
    try:
        for answer in asyncio.as_completed(asked, timeout=within_s):
            try:
                await answer
            except kafka_errors.KafkaError:
                continue
            return True
    except TimeoutError:
        pass
    finally:
        await cancel([one for one in asked if not one.done()])
    return False


async def _look(client: Any) -> None:
    # A copy asks, with connections and metadata of its own: the answer names no topics, and the
    # client would take those that it reads for deleted.
    asking = copy.copy(client)
    asking.cluster = ClusterMetadata(metadata_max_age_ms=client._metadata_max_age_ms)
    asking._conns = {}
    try:
        await asking.bootstrap()
    except kafka_errors.KafkaConnectionError:
        # They do not answer either.
        return
    finally:
        for connection in asking._conns.values():
            connection.close()
    if found := asking.cluster._brokers:
        client.cluster._brokers = found
        client.force_metadata_update()

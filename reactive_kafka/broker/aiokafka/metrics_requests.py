"""Asks a broker which metrics it wants of a client, and pushes them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiokafka import codec

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.client_metrics import (
    ClientCounts,
    MetricsSubscription,
    PushAnswer,
)
from reactive_kafka.broker.wire.definitions import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.tasks import Flag

PUSHING = "pushing metrics"
"""The connection for pushes. A broker hands them to a plugin, which may be slow, and answers the
requests of a connection one after the other: on this one no fetch waits for that.
"""
DEADLINE_S = 30.0
"""How long an answer may take. A question is sent by the connection for fetches, and its answer
comes after that of the fetch before it.
"""
NO_COMPRESSION = 0
Compress = Callable[[bytes], bytes]
COMPRESSIONS: Mapping[int, tuple[Callable[[], bool], Compress]] = {
    1: (codec.has_gzip, codec.gzip_encode),
    2: (codec.has_snappy, codec.snappy_encode),
    3: (codec.has_lz4, codec.lz4_encode),
    4: (codec.has_zstd, codec.zstd_encode),
}
"""Kafka's number of a compression -> whether its library is there, and what compresses."""


class MetricsRequests:
    """The broker that a client pushes its metrics to. See ``MetricsReceiver``.

    It stays the same broker while it answers.

    Args:
        client: Of the consumer.
        counts: What the client counts.
        member_id: Returns the id of the member in its group, if it has one.
    """

    def __init__(
        self, client: KafkaClient, counts: ClientCounts, member_id: Callable[[], str | None]
    ) -> None:
        self.counts = counts
        self._client = client
        self._member_id = member_id
        self._node: int | None = None
        self._connected = Flag()

    @property
    def member_id(self) -> str | None:
        return self._member_id()

    def connected(self) -> None:
        """Count a connection that the client has made."""
        self.counts.connections += 1
        self._connected.set()

    async def reconnected(self) -> None:
        self._connected.clear()
        await self._connected.wait()

    async def subscription(self, instance_id: bytes) -> MetricsSubscription | None:
        node = self._connected_node()
        values = {"client_instance_id": instance_id}
        asking = call(self._client, node, GET_TELEMETRY_SUBSCRIPTIONS, values)
        try:
            answer = await self._answer(asking, "asking which metrics are wanted")
        except NoCommonVersionError:
            return None
        self._node = node
        return MetricsSubscription(
            error_code=answer["error_code"],
            throttle_s=answer["throttle_time_ms"] / 1000,
            instance_id=answer["client_instance_id"],
            subscription_id=answer["subscription_id"],
            push_interval_s=answer["push_interval_ms"] / 1000,
            most_bytes=answer["telemetry_max_bytes"],
            is_delta=answer["delta_temporality"],
            prefixes=tuple(answer["requested_metrics"]),
            compressions=tuple(answer["accepted_compression_types"]),
        )

    async def compressed(
        self, payload: bytes, subscription: MetricsSubscription
    ) -> tuple[int, bytes]:
        number = best_compression(subscription.compressions)
        if number == NO_COMPRESSION:
            return number, payload
        _, compress = COMPRESSIONS[number]
        return number, await asyncio.to_thread(compress, payload)

    async def push(
        self, subscription: MetricsSubscription, packed: tuple[int, bytes], *, is_last: bool
    ) -> PushAnswer:
        number, payload = packed
        values = {
            "client_instance_id": subscription.instance_id,
            "subscription_id": subscription.subscription_id,
            "terminating": is_last,
            "compression_type": number,
            "metrics": payload,
        }
        if self._node is None:
            raise TransientBrokerError("no broker has been asked which metrics are wanted")
        pushing = call(self._client, self._node, PUSH_TELEMETRY, values, group=PUSHING)
        answer = await self._answer(pushing, "pushing metrics")
        return PushAnswer(answer["error_code"], answer["throttle_time_ms"] / 1000)

    async def _answer(self, asking: Awaitable[Mapping[str, Any]], doing: str) -> Mapping[str, Any]:
        """Await an answer. After an error another broker may be asked."""
        node = self._node
        self._node = None
        answer = await within(DEADLINE_S, asking, doing)
        self._node = node
        return answer

    def _connected_node(self) -> int:
        """Return a broker that the client has a connection to: this opens no other one."""
        nodes = self._client.connected_nodes()
        if not nodes:
            raise TransientBrokerError("no broker is connected")
        if self._node is not None and self._node in nodes:
            return self._node
        return random.choice(sorted(nodes))


def best_compression(accepted: Sequence[int]) -> int:
    """Return the first of the accepted compressions that this process can write."""
    for number in accepted:
        known = COMPRESSIONS.get(number)
        if known is not None and known[0]():
            return number
    return NO_COMPRESSION

"""Creates the clients of an application, for a cluster or for the embedded broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.auto_commit import with_auto_commit
from reactive_kafka.broker.client import Consumer, Inspector, Producer
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.subscription import Subscription

if TYPE_CHECKING:
    from reactive_kafka.broker.client import TransactionalProducer
    from reactive_kafka.broker.embedded import EmbeddedBroker

EMBEDDED = "embedded"
EMBEDDED_DEFAULTS = {"session_timeout_ms": 6_000}
"""Shorter than Kafka's: the embedded broker lets the next member of an empty group wait for nearly
all of the last one's session.
"""


class KafkaConnector:
    """Connects through aiokafka. ``bootstrap_servers = "embedded"`` starts the embedded broker.

    A channel's own properties may name other servers. *embedded_at* is called with the address of
    the embedded broker when it starts.
    """

    def __init__(
        self, bootstrap_servers: str, embedded_at: Callable[[str], object] | None = None
    ) -> None:
        # Started when it is needed first.
        self.embedded: EmbeddedBroker | None = None
        self._bootstrap_servers = bootstrap_servers
        self._embedded_at = embedded_at
        # Servers and group -> its members that could not say that they leave.
        self._left_behind: defaultdict[tuple[str, str | None], MembersLeftBehind]
        self._left_behind = defaultdict(MembersLeftBehind)

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        from reactive_kafka.broker.aiokafka.kafka_consumer import AiokafkaConsumer

        with_address, is_embedded = self._with_address(properties)
        if is_embedded:
            with_address = {**EMBEDDED_DEFAULTS, **with_address}
        left_behind = self._left_behind[self._servers(properties), group_id]
        consumer = AiokafkaConsumer(name, subscription, group_id, with_address, left_behind)
        return with_auto_commit(consumer, properties)

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """Create a producer, idempotent and with ``acks = "all"`` unless told otherwise."""
        from reactive_kafka.broker.aiokafka.kafka_producer import AiokafkaProducer

        return AiokafkaProducer(name, self._with_address(properties)[0])

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        if self._servers(properties) == EMBEDDED:
            raise FatalBrokerError("the embedded broker has no transactions")
        from reactive_kafka.broker.aiokafka.kafka_transactional_producer import (
            AiokafkaTransactionalProducer,
        )

        return AiokafkaTransactionalProducer(
            name, transactional_id, self._with_address(properties)[0]
        )

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        from reactive_kafka.broker.aiokafka.kafka_inspector import AiokafkaInspector

        with_address, is_embedded = self._with_address(properties)
        create = self.embedded.create_topic if is_embedded and self.embedded is not None else None
        return AiokafkaInspector(with_address, create)

    def bootstrap(self, servers: str | None = None) -> str:
        """Return the address that clients use. The first call may start the embedded broker."""
        servers = servers or self._bootstrap_servers
        if servers != EMBEDDED:
            return servers
        if self.embedded is None:
            from reactive_kafka.broker.embedded import EmbeddedBroker

            self.embedded = EmbeddedBroker()
            if self._embedded_at is not None:
                self._embedded_at(self.embedded.bootstrap_servers)
        return self.embedded.bootstrap_servers

    def _with_address(self, properties: Mapping[str, object]) -> tuple[dict[str, Any], bool]:
        """Return the properties with an address, and whether it is that of the embedded broker."""
        servers = self._servers(properties)
        return {**properties, "bootstrap_servers": self.bootstrap(servers)}, servers == EMBEDDED

    def _servers(self, properties: Mapping[str, object]) -> str:
        return str(properties.get("bootstrap_servers") or self._bootstrap_servers)

    async def close(self) -> None:
        embedded = self.embedded
        self.embedded = None
        if embedded is not None:
            embedded.close()

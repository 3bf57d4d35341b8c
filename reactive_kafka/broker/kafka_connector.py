"""Makes the clients of an application, for a cluster or for the broker inside the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Consumer, Inspector, Producer
from reactive_kafka.broker.passing import committing
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.subscription import Subscription

if TYPE_CHECKING:
    from reactive_kafka.broker.client import TransactionalProducer
    from reactive_kafka.broker.embedded import EmbeddedBroker

EMBEDDED = "embedded"
EMBEDDED_DEFAULTS = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
"""The mock broker lets the next member of an empty group wait for nearly as long as the last one's
session.
"""


class KafkaConnector:
    """Connects through aiokafka. ``bootstrap_servers = "embedded"`` starts a broker in this
    process, for development.

    A channel's own properties may name other servers. *embedded_at* is told the address of that
    broker when it starts.
    """

    def __init__(
        self, bootstrap_servers: str, embedded_at: Callable[[str], object] | None = None
    ) -> None:
        # The broker inside this process, once it was needed.
        self.embedded: EmbeddedBroker | None = None
        self._bootstrap_servers = bootstrap_servers
        self._embedded_at = embedded_at

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        from reactive_kafka.broker.aiokafka.kafka_consumer import AiokafkaConsumer

        there, is_embedded = self._reaching(properties)
        there = {**(EMBEDDED_DEFAULTS if is_embedded else {}), **there}
        return committing(AiokafkaConsumer(name, subscription, group_id, there), properties)

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """A producer that waits for all in-sync replicas and is idempotent, unless *properties* say
        otherwise.
        """
        from reactive_kafka.broker.aiokafka.kafka_producer import AiokafkaProducer

        return AiokafkaProducer(name, self._reaching(properties)[0])

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> TransactionalProducer:
        if self._servers(properties) == EMBEDDED:
            raise FatalBrokerError("the embedded broker has no transactions")
        from reactive_kafka.broker.aiokafka.kafka_transactional_producer import (
            AiokafkaTransactionalProducer,
        )

        return AiokafkaTransactionalProducer(name, transactional_id, self._reaching(properties)[0])

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        from reactive_kafka.broker.aiokafka.kafka_inspector import AiokafkaInspector

        there, is_embedded = self._reaching(properties)
        create = self.embedded.create_topic if is_embedded and self.embedded is not None else None
        return AiokafkaInspector(there, create)

    def bootstrap(self, servers: str | None = None) -> str:
        """The address that clients use; starts the embedded broker at the first call that needs
        it.
        """
        servers = servers or self._bootstrap_servers
        if servers != EMBEDDED:
            return servers
        if self.embedded is None:
            from reactive_kafka.broker.embedded import EmbeddedBroker

            self.embedded = EmbeddedBroker()
            if self._embedded_at is not None:
                self._embedded_at(self.embedded.bootstrap_servers)
        return self.embedded.bootstrap_servers

    def _reaching(self, properties: Mapping[str, object]) -> tuple[dict[str, Any], bool]:
        """The properties with an address, and whether that is the embedded broker's."""
        servers = self._servers(properties)
        return {**properties, "bootstrap_servers": self.bootstrap(servers)}, servers == EMBEDDED

    def _servers(self, properties: Mapping[str, object]) -> str:
        return str(properties.get("bootstrap_servers") or self._bootstrap_servers)

    async def close(self) -> None:
        embedded = self.embedded
        self.embedded = None
        if embedded is not None:
            embedded.close()

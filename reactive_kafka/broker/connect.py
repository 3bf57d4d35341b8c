"""Makes the clients of an application, for a cluster or for the broker inside the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Consumer, Producer

if TYPE_CHECKING:
    from reactive_kafka.broker.embedded import EmbeddedBroker

EMBEDDED = "embedded"


class KafkaConnector:
    """Connects through aiokafka. ``bootstrap_servers = "embedded"`` starts a broker in this process, for development.

    Args:
        bootstrap_servers: The application's; a channel's own properties may name others.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._embedded: EmbeddedBroker | None = None

    def consumer(
        self, *, name: str, topics: Sequence[str], group_id: str | None, properties: Mapping[str, object]
    ) -> Consumer:
        """A consumer of *topics* in the group."""
        from reactive_kafka.broker.aiokafka_client import AiokafkaConnector

        there = self._address(properties)
        return AiokafkaConnector(there["bootstrap_servers"]).consumer(
            name=name, topics=topics, group_id=group_id, properties=there
        )

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """A producer."""
        from reactive_kafka.broker.aiokafka_client import AiokafkaConnector

        there = self._address(properties)
        return AiokafkaConnector(there["bootstrap_servers"]).producer(name=name, properties=there)

    def bootstrap(self, servers: str | None = None) -> str:
        """The address that clients use; starts the embedded broker at the first call that needs it."""
        servers = servers or self._bootstrap_servers
        if servers != EMBEDDED:
            return servers
        if self._embedded is None:
            from reactive_kafka.broker.embedded import EmbeddedBroker

            self._embedded = EmbeddedBroker()
        return self._embedded.bootstrap_servers

    def _address(self, properties: Mapping[str, object]) -> dict[str, Any]:
        given = properties.get("bootstrap_servers")
        return {**properties, "bootstrap_servers": self.bootstrap(None if given is None else str(given))}

    async def close(self) -> None:
        """Stop the embedded broker, if there is one."""
        if self._embedded is not None:
            self._embedded.close()
            self._embedded = None

"""Makes the clients of a cluster with aiokafka."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.aiokafka.consumer import AiokafkaConsumer
from reactive_kafka.broker.aiokafka.inspector import AiokafkaInspector
from reactive_kafka.broker.aiokafka.producer import AiokafkaProducer
from reactive_kafka.broker.client import Consumer, Inspector, Producer
from reactive_kafka.subscription import Subscription


class AiokafkaConnector:
    """Connects to a cluster.

    Args:
        bootstrap_servers: ``host:port`` of brokers, with commas between them.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        """A consumer. See :meth:`Connector.consumer`."""
        return AiokafkaConsumer(
            name=name,
            subscription=subscription,
            group_id=group_id,
            properties={"bootstrap_servers": self._bootstrap_servers, **properties},
        )

    def producer(self, *, name: str, properties: Mapping[str, object]) -> Producer:
        """A producer that waits for all in-sync replicas and is idempotent, unless *properties* say otherwise."""
        return AiokafkaProducer(name=name, properties={"bootstrap_servers": self._bootstrap_servers, **properties})

    def inspector(self, *, properties: Mapping[str, object]) -> Inspector:
        """Somebody who looks at the cluster from outside."""
        return AiokafkaInspector({"bootstrap_servers": self._bootstrap_servers, **properties})

    async def close(self) -> None:
        """Nothing is held by the connector itself."""

"""The client of aiokafka's producer: ours, with the private names that the producer calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import fields

import aiokafka.errors as kafka_errors
from aiokafka import AIOKafkaProducer

from reactive_kafka.broker.aiokafka.client_arguments import create_client
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient

OF_CLIENTS = frozenset(field.name for field in fields(ClientSettings))


class ProducerClient(KafkaClient):
    """What aiokafka's producer uses in place of its ``AIOKafkaClient``."""

    @property
    def _client_id(self) -> str:
        return self.settings.client_id

    @property
    def _bootstrap_servers(self) -> str | Sequence[str]:
        # OpenTelemetry's instrumentation of aiokafka reads it.
        return self.settings.bootstrap_servers

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Asks until the topic is known.

        Raises:
            UnknownTopicOrPartitionError: It is not known within the ``request_timeout_ms``.
            TopicAuthorizationFailedError: This client may not know it.
        """
        # None: the topic is not known. It is asked for from now on.
        numbers: set[int] | None = self.cluster.partitions_for_topic(topic)
        until = time.monotonic() + self.settings.request_timeout_s
        while numbers is None:
            self.add_topic(topic)
            await self.force_metadata_update()
            numbers = self.cluster.partitions_for_topic(topic)
            if numbers is not None:
                break
            if time.monotonic() > until:
                raise kafka_errors.UnknownTopicOrPartitionError()
            if topic in self.cluster.unauthorized_topics:
                raise kafka_errors.TopicAuthorizationFailedError(topic)
            await asyncio.sleep(self.settings.retry_backoff_ms / 1000)
        return numbers

    async def _maybe_wait_metadata(self) -> None:
        """Wait until a running update of the metadata has ended. Without one, return at once."""
        if self.is_updating:
            await self.force_metadata_update()


def create_producer(arguments: dict[str, object]) -> AIOKafkaProducer:
    """Create a producer of aiokafka with a client of ours, without starting it.

    Raises:
        FatalBrokerError: As :func:`create_client`.
    """
    of_client = {name: value for name, value in arguments.items() if name in OF_CLIENTS}
    settings = create_client(ClientSettings, of_client)
    producer = create_client(AIOKafkaProducer, arguments)
    # The producer holds on to this cluster in several places.
    client = ProducerClient(settings, cluster=producer.client.cluster)
    producer.client = client
    producer._sender.client = client
    return producer

"""aiokafka's rebalance callbacks, passed on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from aiokafka.abc import ConsumerRebalanceListener

from reactive_kafka.broker.client import RebalanceListener
from reactive_kafka.records import TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.broker.aiokafka.consumer import AiokafkaConsumer


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes rebalances on. aiokafka swallows what a listener raises, so it is kept and raised by the next poll."""

    def __init__(self, consumer: AiokafkaConsumer, listener: RebalanceListener) -> None:
        self._consumer = consumer
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """What we have is about to go."""
        self._consumer.is_in_listener = True
        try:
            await self._listener.on_revoked(_ours(revoked))
            await self._consumer.stay_out_if_fenced()
        except Exception as error:
            self._consumer.listener_error = error
        finally:
            self._consumer.is_in_listener = False
            self._consumer.let_go()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Partitions are ours, and flow when the listener says where they begin."""
        self._consumer.is_in_listener = True
        try:
            self._consumer.has_joined = True
            self._consumer.hold(assigned)
            await self._listener.on_assigned(_ours(assigned), self._consumer.generation)
        except Exception as error:
            self._consumer.listener_error = error
        finally:
            self._consumer.is_in_listener = False


def _ours(partitions: Collection[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(partition.topic, partition.partition) for partition in partitions)

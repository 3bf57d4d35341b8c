"""Makes the clients of one in-memory broker."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.memory.consumer import MemoryConsumer
from reactive_kafka.broker.memory.inspector import MemoryInspector
from reactive_kafka.broker.memory.producer import MemoryProducer
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.subscription import Subscription


class MemoryConnector:
    """Makes clients of one in-memory broker."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> MemoryConsumer:
        """A consumer. See :meth:`Connector.consumer`."""
        return MemoryConsumer(
            self._state,
            name=name,
            subscription=subscription,
            group_id=group_id,
            properties=properties,
        )

    def producer(self, *, name: str, properties: Mapping[str, object]) -> MemoryProducer:
        """A producer."""
        return MemoryProducer(self._state, properties=properties)

    def inspector(self, *, properties: Mapping[str, object]) -> MemoryInspector:
        """Somebody who looks from outside."""
        return MemoryInspector(self._state)

    async def close(self) -> None:
        """Nothing: the broker belongs to whoever made it, and may serve others."""

"""Makes the clients of one in-memory broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from reactive_kafka.broker.memory.consumer import MemoryConsumer
from reactive_kafka.broker.memory.inspector import MemoryInspector
from reactive_kafka.broker.memory.producer import MemoryProducer
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.subscription import Subscription

AssignmentKind = Literal["eager", "cooperative"]


class MemoryConnector:
    """Makes clients of one in-memory broker; see :class:`reactive_kafka.broker.client.Connector`.

    Args:
        assignment: What its consumers do in a rebalance: let go of everything, or only of what another member gets.
    """

    def __init__(self, state: MemoryState, assignment: AssignmentKind = "eager") -> None:
        self._state = state
        self._is_cooperative = assignment == "cooperative"

    def consumer(
        self, *, name: str, subscription: Subscription, group_id: str | None, properties: Mapping[str, object]
    ) -> MemoryConsumer:
        return MemoryConsumer(
            self._state,
            name=name,
            subscription=subscription,
            group_id=group_id,
            properties=properties,
            is_cooperative=self._is_cooperative,
        )

    def producer(self, *, name: str, properties: Mapping[str, object]) -> MemoryProducer:
        return MemoryProducer(self._state, properties=properties)

    def inspector(self, *, properties: Mapping[str, object]) -> MemoryInspector:
        return MemoryInspector(self._state)

    async def close(self) -> None:
        """Nothing: the broker belongs to whoever made it, and may serve others."""

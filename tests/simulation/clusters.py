"""Several in-memory clusters for one application: a client goes to the one that its
``bootstrap_servers`` name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.testing import MemoryBroker


class Clusters:
    """A connector for an application whose channels have brokers of their own.

    Args:
        brokers: Address -> the broker that answers there.
    """

    def __init__(self, brokers: Mapping[str, MemoryBroker]) -> None:
        self._connectors: dict[str, Connector] = {
            address: one.connector() for address, one in brokers.items()
        }

    def _of(self, properties: Mapping[str, object]) -> Any:
        return self._connectors[str(properties["bootstrap_servers"])]

    def consumer(self, *, properties: Mapping[str, object], **named: Any) -> Any:
        return self._of(properties).consumer(properties=properties, **named)

    def producer(self, *, properties: Mapping[str, object], **named: Any) -> Any:
        return self._of(properties).producer(properties=properties, **named)

    def transactional_producer(self, *, properties: Mapping[str, object], **named: Any) -> Any:
        return self._of(properties).transactional_producer(properties=properties, **named)

    def inspector(self, *, properties: Mapping[str, object]) -> Any:
        return self._of(properties).inspector(properties=properties)

    async def close(self) -> None:
        """The brokers belong to the scenario."""

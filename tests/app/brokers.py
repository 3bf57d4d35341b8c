"""What tests script in a broker in memory and read from it, and brokers whose clients are wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.client import BatchRefusedError as BatchRefusedError
from reactive_kafka.broker.client import Connector, Consumer, inspecting
from reactive_kafka.broker.client import SomePositionsUnknownError as SomePositionsUnknownError
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.broker.memory.broker import AssignmentKind as AssignmentKind
from reactive_kafka.broker.memory.memory_positions import CommitEntry as CommitEntry
from reactive_kafka.broker.memory.partition_log import StoredRecord as StoredRecord
from reactive_kafka.broker.memory.scripted_faults import Call as Call
from reactive_kafka.broker.memory.scripted_faults import Hold as Hold
from reactive_kafka.broker.memory.scripted_faults import Request as Request
from reactive_kafka.broker.memory.scripted_faults import ScriptedFault as ScriptedFault
from reactive_kafka.testing import MemoryBroker


class WrappedConsumer(ClientWrapper[Consumer]):
    """The consumer of a channel; a test overrides the methods that it is about."""


class WrappedConnector(ClientWrapper[Connector]):
    """The clients of a broker; a test overrides the makers of those that it is about."""


class BrokerWithWrappedConsumers(MemoryBroker):
    """A broker whose applications get each consumer as :meth:`wrapped` returns it."""

    def wrapped(self, consumer: Consumer) -> WrappedConsumer:
        return WrappedConsumer(consumer)

    def connector(self, *, assignment: AssignmentKind = "eager") -> Any:
        return _WrappingConnector(super().connector(assignment=assignment), self)


class _WrappingConnector(WrappedConnector):
    def __init__(self, inner: Connector, broker: BrokerWithWrappedConsumers) -> None:
        super().__init__(inner)
        self._broker = broker

    def consumer(self, **named: Any) -> Any:
        return self._broker.wrapped(self._inner.consumer(**named))


async def commit_from_outside(
    broker: MemoryBroker, group: str, positions: Mapping[TopicPartition, Committed]
) -> None:
    """Store positions of a group as a tool does that is no member of it."""
    async with inspecting(broker.connector(), {}) as inspector:
        await inspector.commit(group, positions)

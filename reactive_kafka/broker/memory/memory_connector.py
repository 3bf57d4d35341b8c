"""Creates the clients of one in-memory broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from reactive_kafka.broker.auto_commit import with_auto_commit
from reactive_kafka.broker.client import Consumer
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.memory.heartbeat_member import HeartbeatMember
from reactive_kafka.broker.memory.member import Member
from reactive_kafka.broker.memory.memory_consumer import MemoryConsumer
from reactive_kafka.broker.memory.memory_inspector import MemoryInspector
from reactive_kafka.broker.memory.memory_producer import MemoryProducer
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.broker.memory.memory_transactional_producer import MemoryTransactionalProducer
from reactive_kafka.subscription import Subscription


class MemoryConnector:
    """Creates the clients of one in-memory broker.

    Args:
        state: The broker.
        kind: The class of consumers whose properties do not name a ``group_protocol``, or ``auto``.
    """

    def __init__(self, state: MemoryState, kind: type[Member] | type[HeartbeatMember]) -> None:
        self._state = state
        self._kind = kind
        # Group -> its members that could not say that they leave.
        self._left_behind: defaultdict[str | None, MembersLeftBehind]
        self._left_behind = defaultdict(MembersLeftBehind)

    def consumer(
        self,
        *,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, object],
    ) -> Consumer:
        kind = self._kind_for(properties)
        left_behind = self._left_behind[group_id]
        consumer = MemoryConsumer(
            self._state, kind, name, subscription, group_id, properties, left_behind
        )
        return with_auto_commit(consumer, properties)

    def _kind_for(self, properties: Mapping[str, object]) -> type[Member] | type[HeartbeatMember]:
        protocol = properties.get("group_protocol")
        if protocol == HeartbeatMember.protocol:
            return HeartbeatMember
        if protocol == Member.protocol and self._kind is HeartbeatMember:
            return Member
        return self._kind

    def producer(self, *, name: str, properties: Mapping[str, object]) -> MemoryProducer:
        return MemoryProducer(self._state, properties)

    def transactional_producer(
        self, *, name: str, transactional_id: str, properties: Mapping[str, object]
    ) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self._state, transactional_id, properties)

    def inspector(self, *, properties: Mapping[str, object]) -> MemoryInspector:
        return MemoryInspector(self._state, properties)

    async def close(self) -> None:
        """Do nothing: the broker belongs to its creator, and may serve other connectors."""

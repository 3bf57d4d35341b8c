"""The way of a member's heartbeats to the in-memory coordinator, which tests can hold up or cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.consumer.membership.group_parts import LEAVE_DEADLINE_S, TopicView
from reactive_kafka.broker.memory.consumer_coordinator import (
    SESSION_S,
    UNKNOWN_MEMBER_ID,
    refused,
)
from reactive_kafka.broker.wire.definitions import CONSUMER_GROUP_HEARTBEAT
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.tasks import Flag

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState

HeartbeatValues = Mapping[str, Any]


class CoordinatorConnection:
    """Carries the heartbeats of one member to its group.

    Args:
        state: The broker.
        group: The name of the group.
        heartbeat: Answers a heartbeat, as the coordinator.
    """

    def __init__(
        self,
        state: MemoryState,
        group: str,
        heartbeat: Callable[[HeartbeatValues], HeartbeatValues],
    ) -> None:
        self._state = state
        self._group = group
        self._heartbeat = heartbeat
        # While True, nothing gets through.
        self.is_cut = False
        # The process has crashed: what its tasks send at their end reaches nobody.
        self.is_dead = False
        # Cleared while the member is frozen: it sends nothing.
        self._runs = Flag()
        self._runs.set()
        self._thawing: asyncio.TimerHandle | None = None

    def freeze(self, seconds: float) -> None:
        """Send nothing for so long, or until :meth:`thaw`."""
        self.thaw()
        self._runs.clear()
        self._thawing = asyncio.get_running_loop().call_later(seconds, self.thaw)

    def thaw(self) -> None:
        """Send what waits."""
        if self._thawing is not None:
            self._thawing.cancel()
            self._thawing = None
        self._runs.set()

    async def ask(
        self,
        api: Api,
        values: HeartbeatValues | Callable[[int], HeartbeatValues],
        *,
        deadline_s: float = 5.0,
    ) -> HeartbeatValues:
        if api is not CONSUMER_GROUP_HEARTBEAT or callable(values):
            raise ValueError(f"no member in memory sends requests of kind {api.key}")
        await self._runs.wait()
        if self.is_dead:
            return refused(UNKNOWN_MEMBER_ID)
        if self.is_cut:
            raise TransientBrokerError("the member is cut off from its group")
        return await self._state.faults.ask(
            "heartbeat", lambda: self._heartbeat(values), self._group
        )

    def coordinator_moved(self) -> None:
        """Do nothing: there is one broker."""

    def leave_deadline_s(self) -> float:
        return LEAVE_DEADLINE_S

    async def session_timeout_s(self) -> float | None:
        return SESSION_S

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        names = {topic_id: topic for topic, (topic_id, _) in self._state.topic_ids().items()}
        return {topic_id: names[topic_id] for topic_id in ids if topic_id in names}

    async def look_up(self, topics: Collection[str]) -> TopicView:
        raise ValueError("no member assigns in the consumer protocol")

"""aiokafka's consumer behind the seam.

The rooms next to it use private attributes of aiokafka (the package caps its version): what it fetched, its
coordinator, and one request built by hand. docs/internals.md names each trap, H1 to H17, and the test that shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import aiokafka

from reactive_kafka.broker.aiokafka import group_positions
from reactive_kafka.broker.aiokafka.asking import Sparing, anybody_answers, silent_leaders
from reactive_kafka.broker.aiokafka.closing import close
from reactive_kafka.broker.aiokafka.membership import Assignment, Membership
from reactive_kafka.broker.aiokafka.reading import Reader, has_expected_internals
from reactive_kafka.broker.aiokafka.setup import (
    CALL_DEADLINE_S,
    CONSUMER_DEFAULTS,
    CONSUMER_FIXED,
    client_properties,
    connect,
    theirs,
    within,
)
from reactive_kafka.broker.client import Poll, RebalanceListener, Sight
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription


class AiokafkaConsumer(Assignment):
    """A member of a group, or a static assignment."""

    def __init__(
        self, name: str, subscription: Subscription, group_id: str | None, properties: Mapping[str, Any]
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        super().__init__(
            is_static=isinstance(subscription, Partitions),
            read_committed=properties.get("isolation_level") == "read_committed",
        )
        self._name = name
        self._subscription = subscription
        self._group_id = group_id
        self._joins = None if self.is_static else group_id
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._reader = Reader(self)
        self._membership = Membership(self, self._joins, properties.get("group_instance_id"), self._reader.wake)
        self._to_close: aiokafka.AIOKafkaConsumer | None = None  # from before it connects
        self._closing: asyncio.Task[None] | None = None

    async def start(self, listener: RebalanceListener) -> None:
        arguments = client_properties(self._properties, self._name)
        client = self._to_close = aiokafka.AIOKafkaConsumer(group_id=self._group_id, **{**arguments, **CONSUMER_FIXED})
        await connect(client, self.stop)
        client._fetcher._client = Sparing(client._client)
        self._reader.is_fast = has_expected_internals(client)
        self._client = client
        self._membership.listener = listener
        self._subscribe(client, self._membership)

    def _subscribe(self, client: aiokafka.AIOKafkaConsumer, listener: Membership) -> None:
        if isinstance(self._subscription, Partitions):
            partitions = theirs(sorted(self._subscription.partitions))
            client.assign(partitions)
            listener.assign(partitions)
        elif isinstance(self._subscription, Pattern):
            # The client's own subscribe() takes a pattern as text only, and matches the beginning of a name with it. Of
            # a pattern it calls nothing but match().
            pattern = SimpleNamespace(match=self._subscription.reads)
            client._subscription.subscribe_pattern(pattern=pattern, listener=listener)
            client._client.set_topics([])
        else:
            client.subscribe(topics=list(self._subscription.topics), listener=listener)

    async def stop(self) -> None:
        client, self._to_close, self._client = self._to_close, None, None
        self.let_go()
        self._reader.wake()
        if client is not None:
            # In a task of its own, so that who is cancelled while it waits leaves nothing half closed (H6).
            self._closing = asyncio.create_task(self._close(client, asyncio.current_task()), name="close a consumer")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self, client: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None) -> None:
        is_in_listener = await self._membership.close(caller)
        await close(client, caller, group_id=self._joins, is_in_listener=is_in_listener)

    async def poll(self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None) -> Poll:
        with self.client._subscription.fetch_context():
            pass  # tells the client that we poll; a cancelled await in here would break its idle time for ever (H3)
        await self._membership.raise_errors()
        return await self._reader.poll(budgets, timeout_s, most)

    def wake(self) -> None:
        self._reader.wake()

    def is_member(self) -> bool:
        return self._membership.is_member()

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await group_positions.commit(self, self._group_id, offsets, generation)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return await group_positions.committed(self, self._group_id, partitions)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        client, topics = self.client._client, self._subscription.topics
        forbidden = client.cluster.unauthorized_topics.intersection(topics)
        missing = {
            topic for topic in topics if topic not in forbidden and not client.cluster.partitions_for_topic(topic)
        }
        return Sight(frozenset(missing), frozenset(forbidden), await silent_leaders(client, partitions))

    async def check(self) -> None:
        if not await within(CALL_DEADLINE_S, anybody_answers(self.client._client), "asking any broker"):
            raise TransientBrokerError("no broker answers")

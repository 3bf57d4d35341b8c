"""aiokafka's consumer behind the seam, as a member or a static assignment.

The rooms next to it use private attributes of aiokafka (the package caps its version): what it
fetched, its coordinator, and one request built by hand. docs/internals.md names each trap, H1 to
H22, and the test that shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any

import aiokafka

from reactive_kafka.broker.aiokafka import group_positions
from reactive_kafka.broker.aiokafka.asking import (
    Sparing,
    anybody_answers,
    known_topics,
    partitions_of,
    silent_leaders,
)
from reactive_kafka.broker.aiokafka.closing import close
from reactive_kafka.broker.aiokafka.connecting import connect, why_away
from reactive_kafka.broker.aiokafka.fetched.looks import look_quickly
from reactive_kafka.broker.aiokafka.fetched.reading import (
    MOST_UNPACKED_BYTES,
    Reader,
    has_expected_internals,
)
from reactive_kafka.broker.aiokafka.membership import Assignment, Membership
from reactive_kafka.broker.aiokafka.moved import MovedBrokers
from reactive_kafka.broker.aiokafka.pacing import pace_joins
from reactive_kafka.broker.aiokafka.patience import Patience
from reactive_kafka.broker.aiokafka.setup import (
    CALL_DEADLINE_S,
    CONSUMER_DEFAULTS,
    CONSUMER_FIXED,
    client_properties,
    made,
    theirs,
    within,
)
from reactive_kafka.broker.client import Poll, RebalanceListener, Sight
from reactive_kafka.broker.transactional import TransactionId
from reactive_kafka.errors import (
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicIds, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription

STANDS_S = 10.0
"""How long the client's fetcher may go without a look at answers with nothing."""


class AiokafkaConsumer(Assignment):
    """A member of a group, or a static assignment."""

    def __init__(
        self,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, Any],
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        read_committed = properties.get("isolation_level") == "read_committed"
        super().__init__(
            is_static=isinstance(subscription, Partitions), read_committed=read_committed
        )
        self._name = name
        self._subscription = subscription
        self._whole = subscription.whole if isinstance(subscription, Partitions) else ()
        self._group_id = group_id
        self._joins = None if self.is_static else group_id
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._fetch_wait_s = float(self._properties["fetch_max_wait_ms"]) / 1000
        # What a request may take in all begins with the first time that it is sent.
        self._stands_s = min(
            STANDS_S, float(self._properties.get("request_timeout_ms", 40_000)) / 4000
        )
        self._reader = Reader(self, self._properties.pop("max_unpacked_bytes", MOST_UNPACKED_BYTES))
        instance_id = properties.get("group_instance_id")
        self._membership = Membership(self, self._joins, instance_id, self._reader.wake)
        # With each client another one.
        self._patience: Patience | None = None
        # When, for the ids of which topics.
        self._ids_asked: tuple[float, frozenset[str]] = -inf, frozenset()
        # From before it connects.
        self._to_close: aiokafka.AIOKafkaConsumer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._moves = MovedBrokers()

    async def start(self, listener: RebalanceListener) -> None:
        given = client_properties(self._properties, self._name)
        arguments = {**given, **CONSUMER_FIXED, "group_id": self._group_id}
        client = self._to_close = made(aiokafka.AIOKafkaConsumer, arguments)
        self._patience = Patience(
            client._client,
            session_s=float(self._properties["session_timeout_ms"]) / 1000,
            fetch_wait_s=self._fetch_wait_s,
            follows_leaders=not self._properties.get("client_rack"),
        )
        await connect(client, arguments, self.stop)
        if self._whole:
            await known_topics(client, self._subscription.topics, self.stop)
        look = self._reader.answers.note
        fetcher = client._fetcher
        # Where one of their names is gone nothing may read them: its error would end the client's
        # task for fetches.
        self._reader.is_fast = is_known = has_expected_internals(client)
        known = fetcher if is_known else None
        fetcher._client = Sparing(client._client, look, self._fetch_wait_s, known, self._stands_s)
        self._reader.answers.portions = look_quickly(fetcher)
        self._client = client
        if self._joins is not None:
            pace_joins(client._coordinator)
        self._membership.listener = listener
        self._subscribe(client, self._membership)

    def _subscribe(self, client: aiokafka.AIOKafkaConsumer, listener: Membership) -> None:
        if isinstance(self._subscription, Partitions):
            partitions = theirs(
                sorted({*self._subscription.partitions, *partitions_of(client, self._whole)})
            )
            client.assign(partitions)
            if self._whole:
                # Also those without a partition.
                client._client.set_topics(self._subscription.topics)
            listener.assign(partitions)
        elif isinstance(self._subscription, Pattern):
            # The client's own subscribe() takes a pattern as text only, and matches the beginning
            # of a name with it. Of a pattern it calls nothing but match().
            pattern = SimpleNamespace(match=self._subscription.reads)
            client._subscription.subscribe_pattern(pattern=pattern, listener=listener)
            client._client.set_topics([])
        else:
            client.subscribe(topics=list(self._subscription.topics), listener=listener)

    async def stop(self) -> None:
        client = self._to_close
        self._to_close = None
        self._client = None
        self._moves.close()
        self.let_go()
        self._reader.wake()
        if client is not None:
            # In a task of its own, so that who is cancelled while it waits leaves nothing half
            # closed (H6).
            self._closing = asyncio.create_task(
                self._close(client, asyncio.current_task()), name="close a consumer"
            )
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(
        self, client: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None
    ) -> None:
        is_in_listener = await self._membership.close(caller)
        await close(client, caller, group_id=self._joins, is_in_listener=is_in_listener)

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        with self.client._subscription.fetch_context():
            # Tells the client that we poll; a cancelled await in here would break its idle time for
            # ever (H3)
            pass
        await self._membership.raise_errors()
        return await self._reader.poll(budgets, timeout_s, most)

    def wake(self) -> None:
        self._reader.wake()

    def is_member(self) -> bool:
        return self._membership.is_member()

    def session_ends_at(self) -> float:
        return (
            inf if self._joins is None or self._patience is None else self._patience.session_ends_at
        )

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await group_positions.commit(self, self._group_id, offsets, generation)

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        await group_positions.commit_in(self, self._group_id, transaction, offsets, generation)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        return await group_positions.committed(self, self._group_id, partitions)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        client = self.client._client
        topics = self._subscription.topics
        forbidden = client.cluster.unauthorized_topics.intersection(topics)
        missing = {
            topic
            for topic in topics
            if topic not in forbidden and not client.cluster.partitions_for_topic(topic)
        }
        silent = await silent_leaders(client, partitions, self.client._fetcher._client.was_answered)
        return Sight(frozenset(missing), frozenset(forbidden), silent, self.held_up())

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        if of_all:
            return await super().topic_ids(topics, of_all=True)
        # A broker answers a fetch with an error as soon as a topic that it asks for is deleted. So
        # while all of them stand no topic has another id. To ask each time would be a sixth of all
        # that a channel sends at rest.
        asked_at, names = self._ids_asked
        now = asyncio.get_running_loop().time()
        wanted = frozenset(topics)
        ours = {one.topic for one in self.client.assignment()}
        if (
            names == wanted
            and wanted <= ours
            and self.client._fetcher._client.all_stand_since() <= asked_at
        ):
            return []
        answers = await super().topic_ids(topics)
        self._ids_asked = now, wanted
        return answers

    async def check(self) -> None:
        client = self.client._client
        fetches = self.client._fetcher._client
        is_known = not self._whole and fetches.keeps_known(self._subscription.topics)
        if not is_known and not await within(
            CALL_DEADLINE_S, anybody_answers(client), "asking any broker"
        ):
            self._moves.look(client)
            raise TransientBrokerError(f"no broker answers{why_away(client)}")
        self._membership.add(partitions_of(self.client, self._whole))

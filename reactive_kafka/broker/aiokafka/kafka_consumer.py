"""aiokafka's consumer behind the seam, as a member of a group or as a static assignment.

The modules next to this one use private attributes of aiokafka (the package caps its version): what
it has fetched, and requests that are built by hand. docs/internals.md names each
trap, H1 to H22, and the test that shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

import aiokafka

from reactive_kafka.broker.aiokafka import group_positions
from reactive_kafka.broker.aiokafka.client_arguments import (
    CONSUMER_DEFAULTS,
    CONSUMER_FIXED,
    client_arguments,
    create_client,
)
from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.closing import close
from reactive_kafka.broker.aiokafka.cluster_queries import (
    KafkaQueries,
    anybody_answers,
    know_topics,
    partitions_of,
    silent_leaders,
)
from reactive_kafka.broker.aiokafka.connecting import connect, why_away
from reactive_kafka.broker.aiokafka.connection_deadlines import ConnectionDeadlines
from reactive_kafka.broker.aiokafka.fetch_client import FetchClient
from reactive_kafka.broker.aiokafka.fetched.fetch_planning import plan_fetches_quickly
from reactive_kafka.broker.aiokafka.fetched.record_poller import (
    MOST_UNPACKED_BYTES,
    RecordPoller,
    has_expected_internals,
)
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests, has_consumer_protocol
from reactive_kafka.broker.aiokafka.member_partitions import MemberPartitions
from reactive_kafka.broker.aiokafka.metrics_requests import MetricsRequests
from reactive_kafka.broker.aiokafka.moved_brokers import MovedBrokers
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.broker.client import ByteRoom, Poll, RebalanceListener, Sight, TransactionId
from reactive_kafka.broker.client_metrics import ClientCounts, MetricsReceiver
from reactive_kafka.broker.consumer.membership.classic_group.assignors.named_assignors import (
    DEFAULT_ASSIGNORS,
    assignors_named,
)
from reactive_kafka.broker.consumer.membership.classic_group.classic_membership import (
    ClassicGroupMembership,
)
from reactive_kafka.broker.consumer.membership.classic_group.member_rules import (
    ClassicGroupMember,
    ClassicMemberSettings,
)
from reactive_kafka.broker.consumer.membership.consumer_group.member import (
    ConsumerGroupMember,
    ConsumerMemberSettings,
    new_member_id,
)
from reactive_kafka.broker.consumer.membership.consumer_group.membership import (
    ConsumerGroupMembership,
)
from reactive_kafka.broker.consumer.membership.group_parts import GroupMembership
from reactive_kafka.broker.consumer.membership.static_assignment import StaticAssignment
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.records import Committed, TopicIds, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription

CLASSIC = "classic"
CONSUMER = "consumer"
AUTO = "auto"
"""The values of ``group_protocol``."""
MAX_POLL_INTERVAL_MS = 300_000
"""Kafka's default of ``max.poll.interval.ms``."""

IDLE_FETCHES_S = 10.0
"""How long idle fetches may be repeated before aiokafka's fetcher sees an answer again."""


class AiokafkaConsumer(KafkaQueries):
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
        self.owned = OwnedPartitions(
            self,
            is_static=isinstance(subscription, Partitions),
            read_committed=properties.get("isolation_level") == "read_committed",
        )
        self._name = name
        self._subscription = subscription
        self._whole_topics = subscription.whole if isinstance(subscription, Partitions) else ()
        self._group_id = group_id
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._protocol = str(self._properties.pop("group_protocol", AUTO))
        self._assignor: str | None = self._properties.pop("assignor", None)
        # None: none were named.
        self._assignors: Sequence[str] | None = self._properties.pop("assignors", None)
        self._fetch_wait_s = float(self._properties["fetch_max_wait_ms"]) / 1000
        # A quarter of the request timeout, which counts from the first time that a fetch is sent.
        request_timeout_ms = float(self._properties.get("request_timeout_ms", 40_000))
        self._idle_fetches_s = min(IDLE_FETCHES_S, request_timeout_ms / 4000)
        self._poller = RecordPoller(
            self.owned, self._properties.pop("max_unpacked_bytes", MOST_UNPACKED_BYTES)
        )
        self._reader = MemberPartitions(self.owned, self._poller.wake)
        self._static: StaticAssignment | None = None
        # The protocol with which the group was joined.
        self._joined_protocol = CLASSIC
        # When the ids of topics were asked for last, and of which topics.
        self._ids_asked: tuple[float, frozenset[str]] = (-inf, frozenset())
        # Set before the client connects, so that stop() also closes a half connected one.
        self._to_close: aiokafka.AIOKafkaConsumer | None = None
        self._closing: asyncio.Task[None] | None = None
        self._moved_brokers = MovedBrokers()
        self._counts = ClientCounts()
        # None: the client has not started.
        self._metrics: MetricsRequests | None = None

    async def start(self, listener: RebalanceListener) -> None:
        arguments = {**client_arguments(self._properties, self._name), **CONSUMER_FIXED}
        client = create_client(aiokafka.AIOKafkaConsumer, arguments)
        self._to_close = client
        self._metrics = MetricsRequests(client._client, self._counts, self._member_id)
        ConnectionDeadlines(
            client._client,
            session_s=float(self._properties["session_timeout_ms"]) / 1000,
            rebalance_s=float(self._properties["rebalance_timeout_ms"]) / 1000,
            fetch_wait_s=self._fetch_wait_s,
            follows_leaders=not self._properties.get("client_rack"),
            on_connected=self._metrics.connected,
        )
        await connect(client, arguments, self.stop)
        if self._whole_topics:
            await know_topics(client, self._subscription.topics, self.stop)
        self._take_over_fetching(client)
        # The client reads what we assign, which is nothing as yet.
        client._subscription.assign_from_user([])
        # With an empty list it asks for the metadata of all topics, for a pattern.
        client._client.set_topics(list(self._subscription.topics))
        self._client = client
        requests = None
        if self._group_id is not None:
            requests = CoordinatorRequests(client._client, self._group_id)
        self.owned.coordinator = requests
        if isinstance(self._subscription, Partitions):
            static = StaticAssignment(self._reader, listener)
            known = partitions_of(client, self._whole_topics)
            static.start({*self._subscription.partitions, *known})
            self._static = static
        elif requests is not None:
            self._joined_protocol = await self._protocol_of(client)
            self._join(client, requests, listener)

    def _join(
        self,
        client: aiokafka.AIOKafkaConsumer,
        requests: CoordinatorRequests,
        listener: RebalanceListener,
    ) -> None:
        """Join the group."""
        max_poll_interval_ms = self._properties.get("max_poll_interval_ms", MAX_POLL_INTERVAL_MS)
        max_poll_interval_s = float(max_poll_interval_ms) / 1000
        group: GroupMembership
        if self._joined_protocol == CONSUMER:
            consumer_member = ConsumerGroupMember(self._consumer_settings(requests.group_id))
            group = ConsumerGroupMembership(
                consumer_member, requests, self._reader, max_poll_interval_s
            )
        else:
            classic_member = ClassicGroupMember(self._classic_settings(requests.group_id))
            group = ClassicGroupMembership(
                classic_member, requests, self._reader, max_poll_interval_s
            )
        self.owned.group = group
        cluster = client._client.cluster
        group.start(listener, self._topics_to_read(cluster))
        cluster.add_listener(self._metadata_changed)

    async def _protocol_of(self, client: aiokafka.AIOKafkaConsumer) -> str:
        """Return the protocol with which the group is joined.

        If a consumer that needs the consumer protocol cannot find out whether the cluster has it,
        it joins: the answer says why not.
        """
        if self._protocol != AUTO:
            return self._protocol
        if self._assignors is not None:
            # The consumer protocol would ignore them: there the broker assigns.
            return CLASSIC
        has_consumer = await has_consumer_protocol(client._client)
        return CONSUMER if has_consumer else CLASSIC

    def _consumer_settings(self, group_id: str) -> ConsumerMemberSettings:
        properties = self._properties
        return ConsumerMemberSettings(
            group_id,
            new_member_id(),
            int(properties["rebalance_timeout_ms"]),
            instance_id=properties.get("group_instance_id"),
            rack=properties.get("client_rack") or None,
            assignor=self._assignor,
        )

    def _classic_settings(self, group_id: str) -> ClassicMemberSettings:
        properties = self._properties
        try:
            assignors = assignors_named(self._assignors or DEFAULT_ASSIGNORS)
        except FormatError as error:
            raise FatalBrokerError(f"assignors: {error}") from error
        return ClassicMemberSettings(
            group_id,
            assignors,
            rebalance_timeout_ms=int(properties["rebalance_timeout_ms"]),
            session_timeout_ms=int(properties["session_timeout_ms"]),
            heartbeat_interval_ms=int(properties["heartbeat_interval_ms"]),
            instance_id=properties.get("group_instance_id"),
            rack=properties.get("client_rack") or None,
        )

    def _metadata_changed(self, cluster: Any) -> None:
        """Subscribe to the topics that match a pattern now, and tell which partitions there are."""
        group = self.owned.group
        if group is None:
            return
        topics = self._topics_to_read(cluster)
        group.subscribe(topics)
        known = {topic: cluster.partitions_for_topic(topic) for topic in topics}
        group.topics_seen({topic: numbers for topic, numbers in known.items() if numbers})

    def _topics_to_read(self, cluster: Any) -> list[str]:
        if isinstance(self._subscription, Pattern):
            return [topic for topic in cluster.topics() if self._subscription.reads(topic)]
        return list(self._subscription.topics)

    def _take_over_fetching(self, client: aiokafka.AIOKafkaConsumer) -> None:
        """Put our parts between aiokafka's fetcher and its connections."""
        fetcher = client._fetcher
        # If one of the private names is gone, nothing may read them: the error would end the
        # client's task for fetches.
        is_known = has_expected_internals(client)
        self._poller.is_fast = is_known
        fetcher._client = FetchClient(
            client._client,
            self._poller.responses.note,
            self._fetch_wait_s,
            fetcher if is_known else None,
            self._idle_fetches_s,
            self._counts.fetches,
        )
        self._poller.responses.fetch_size = plan_fetches_quickly(fetcher)

    async def stop(self) -> None:
        client = self._to_close
        self._to_close = None
        self._client = None
        self._moved_brokers.close()
        self.owned.let_go()
        self._poller.wake()
        if client is not None:
            # In a separate task, so that a caller that is cancelled while it waits leaves nothing
            # half closed (H6).
            self._closing = asyncio.create_task(
                self._close(client, asyncio.current_task()), name="close a consumer"
            )
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(
        self, client: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None
    ) -> None:
        if self.owned.group is not None:
            await self.owned.group.close(caller)
        if self._static is not None:
            await self._static.close(caller)
        await close(client)

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        fetch_task = self.client._fetcher._fetch_task
        if fetch_task.done():
            cause = None if fetch_task.cancelled() else fetch_task.exception()
            raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause
        if self._static is not None:
            self._static.raise_errors()
        if self.owned.group is not None:
            self.owned.group.note_poll()
            self.owned.group.raise_errors()
        return await self._poller.poll(budgets, timeout_s, most, byte_room)

    def wake(self) -> None:
        self._poller.wake()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self.owned.start_at(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.owned.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.owned.resume(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return self.owned.positions()

    def is_member(self) -> bool:
        return self.owned.group is None or self.owned.group.is_member()

    def group_protocol(self) -> str | None:
        return None if self.owned.group is None else self._joined_protocol

    def session_ends_at(self) -> float:
        return inf if self.owned.group is None else self.owned.group.session_ends_at()

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await group_positions.commit(self.owned, offsets, generation)
        self._counts.commits.note(loop.time() - began_at)

    async def commit_in(
        self,
        transaction: TransactionId,
        offsets: Mapping[TopicPartition, Committed],
        generation: int,
    ) -> None:
        await group_positions.commit_in(self.owned, transaction, offsets, generation)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed | None]:
        return await group_positions.committed(self.owned, partitions)

    def metrics_receiver(self) -> MetricsReceiver | None:
        return self._metrics

    def _member_id(self) -> str | None:
        if self.owned.group is None or not self.owned.group.is_member():
            return None
        return self.owned.group.commit_identity().member_id or None

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
        return Sight(frozenset(missing), frozenset(forbidden), silent, self.owned.held_up())

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        if of_all:
            return await super().topic_ids(topics, of_all=True)
        # A broker answers a fetch with an error as soon as one of its topics is deleted. So while
        # idle fetches name all of our partitions, no topic can have got another id. Asking each
        # time would be a sixth of all requests of a channel at rest.
        asked_at, asked_topics = self._ids_asked
        now = asyncio.get_running_loop().time()
        wanted = frozenset(topics)
        assigned = {partition.topic for partition in self.client.assignment()}
        is_same_question = asked_topics == wanted and wanted <= assigned
        if is_same_question and self.client._fetcher._client.all_idle_since() <= asked_at:
            return []
        answers = await super().topic_ids(topics)
        self._ids_asked = (now, wanted)
        return answers

    async def check(self) -> None:
        client = self.client._client
        fetches = self.client._fetcher._client
        # Whole topics may get partitions, which only new metadata shows.
        is_known = not self._whole_topics and fetches.keeps_known(self._subscription.topics)
        if not is_known and not await within(
            CALL_DEADLINE_S, anybody_answers(client), "asking any broker"
        ):
            self._moved_brokers.look(client)
            raise TransientBrokerError(f"no broker answers{why_away(client)}")
        if self._static is not None:
            self._static.add(partitions_of(self.client, self._whole_topics))

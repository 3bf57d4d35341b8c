"""Our consumer behind the seam, as a member of a group or as a static assignment.

It has the connections and the metadata of a ``KafkaClient``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from reactive_kafka.broker.aiokafka import group_positions
from reactive_kafka.broker.aiokafka.client_arguments import (
    CONSUMER_DEFAULTS,
    OF_CONSUMERS,
    client_arguments,
    create_client,
)
from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.client_log import as_ours
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
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.fetched.batch_reader import MOST_UNPACKED_BYTES, BatchFormat
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests, cluster_features
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.aiokafka.metrics_requests import MetricsRequests
from reactive_kafka.broker.aiokafka.moved_brokers import MovedBrokers
from reactive_kafka.broker.aiokafka.node_connections import ClientConnections
from reactive_kafka.broker.aiokafka.owned_partitions import OwnedPartitions
from reactive_kafka.broker.client import ByteRoom, Poll, RebalanceListener, Sight, TransactionId
from reactive_kafka.broker.client_metrics import ClientCounts, MetricsReceiver
from reactive_kafka.broker.consumer.fetching.fetch_settings import (
    ISOLATION_LEVELS,
    FetchSettings,
    rack_problem,
)
from reactive_kafka.broker.consumer.fetching.node_fetcher import NodeFetcher
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.broker.consumer.fetching.record_poller import RecordPoller
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
from reactive_kafka.broker.consumer.membership.left_behind import MembersLeftBehind
from reactive_kafka.broker.consumer.membership.protocol_choice import (
    AUTO,
    CLASSIC,
    CONSUMER,
    configured_protocol,
    has_consumer_protocol,
)
from reactive_kafka.broker.consumer.membership.static_assignment import StaticAssignment
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.records import Committed, TopicIds, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription

MAX_POLL_INTERVAL_MS = 300_000
"""Kafka's default of ``max.poll.interval.ms``."""

IDLE_FETCHES_S = 10.0
"""How long idle fetches may be repeated before the fetcher sees an answer again."""


class AiokafkaConsumer(KafkaQueries):
    """A member of a group, or a static assignment."""

    def __init__(
        self,
        name: str,
        subscription: Subscription,
        group_id: str | None,
        properties: Mapping[str, Any],
        left_behind: MembersLeftBehind,
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        self._name = name
        self._subscription = subscription
        self._whole_topics = subscription.whole if isinstance(subscription, Partitions) else ()
        self._group_id = group_id
        self._left_behind = left_behind
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._protocol = str(self._properties.pop("group_protocol", AUTO))
        self._assignor: str | None = self._properties.pop("assignor", None)
        # None: none were named.
        self._assignors: Sequence[str] | None = self._properties.pop("assignors", None)
        # A quarter of the request timeout, which counts from the first time that a fetch is sent.
        request_timeout_ms = float(self._properties.get("request_timeout_ms", 40_000))
        self._idle_fetches_s = min(IDLE_FETCHES_S, request_timeout_ms / 4000)
        self._record_format = BatchFormat(
            self._properties.pop("max_unpacked_bytes", MOST_UNPACKED_BYTES)
        )
        self._connections: ClientConnections | None = None
        self._fetcher: NodeFetcher | None = None
        self._reads = ReadPartitions(self._reading_changed, self.wake, self._leader_of)
        self._poller = RecordPoller(self._reads)
        self.owned = OwnedPartitions(
            self._reads,
            lambda: self.is_closed,
            is_static=isinstance(subscription, Partitions),
        )
        self._static: StaticAssignment | None = None
        # The protocol with which the group was joined.
        self._joined_protocol = CLASSIC
        # When the ids of topics were asked for last, and of which topics.
        self._ids_asked: tuple[float, frozenset[str]] = (-inf, frozenset())
        # Set before the client connects, so that stop() also closes a half connected one.
        self._to_close: KafkaClient | None = None
        self._closing: asyncio.Task[None] | None = None
        self._moved_brokers = MovedBrokers()
        self._counts = ClientCounts()
        # None: the client has not started.
        self._metrics: MetricsRequests | None = None

    @property
    def fetcher(self) -> NodeFetcher:
        """Fetches for this consumer. TransientBrokerError: it has not started."""
        if self._fetcher is None or self.is_closed:
            raise TransientBrokerError("the client is not started")
        return self._fetcher

    async def start(self, listener: RebalanceListener) -> None:
        try:
            settings = FetchSettings.of(self._properties, self._idle_fetches_s)
        except ValueError as error:
            raise FatalBrokerError(f"the client cannot be made: {error}") from error
        self._isolation_level = ISOLATION_LEVELS[settings.isolation_level]
        arguments = {
            name: value
            for name, value in client_arguments(self._properties, self._name).items()
            if name not in OF_CONSUMERS
        }
        client_settings = create_client(ClientSettings, arguments)
        deadlines = ConnectionDeadlines(
            request_timeout_s=client_settings.request_timeout_s,
            session_s=float(self._properties["session_timeout_ms"]) / 1000,
            rebalance_s=float(self._properties["rebalance_timeout_ms"]) / 1000,
            fetch_wait_s=settings.fetch_max_wait_ms / 1000,
            follows_leaders=not settings.client_rack,
        )
        client = KafkaClient(client_settings, deadlines, on_connected=self._connected)
        self._to_close = client
        self._metrics = MetricsRequests(client, self._counts, self._member_id)
        await connect(client, client.bootstrap, arguments, self.stop)
        try:
            await self._begin(client, settings, listener)
        except BaseException:
            # The caller makes another consumer, and does not stop one that has not started.
            await self.stop()
            raise

    async def _begin(
        self, client: KafkaClient, settings: FetchSettings, listener: RebalanceListener
    ) -> None:
        """Begin to fetch, and get partitions: as a member, or at once."""
        if self._whole_topics:
            await know_topics(client, self._subscription.topics)
        # With an empty list it asks for the metadata of all topics, for a pattern.
        client.set_topics(list(self._subscription.topics))
        self._client = client
        self._begin_fetching(client, settings)
        requests = None
        if self._group_id is not None:
            requests = CoordinatorRequests(client, self._group_id)
        self.owned.coordinator = requests
        if isinstance(self._subscription, Partitions):
            static = StaticAssignment(self._reads, listener)
            known = partitions_of(client, self._whole_topics)
            static.start({*self._subscription.partitions, *known})
            self._static = static
        elif requests is not None:
            self._joined_protocol = await self._protocol_of(client)
            self._join(client, requests, listener)

    def _connected(self) -> None:
        if self._metrics is not None:
            self._metrics.connected()

    def _begin_fetching(self, client: KafkaClient, settings: FetchSettings) -> None:
        connections = ClientConnections(client)
        self._connections = connections
        # Its tasks are ours, also in what the client logs in them.
        with as_ours():
            fetcher = NodeFetcher(
                self._reads,
                connections,
                self._record_format,
                settings,
                self._poller.records_came,
                self._counts.fetches,
            )
        self._fetcher = fetcher
        connections.on_metadata(fetcher.metadata_came)

    def _reading_changed(self) -> None:
        if self._fetcher is not None:
            self._fetcher.changed()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        return None if self._connections is None else self._connections.leader_of(partition)

    def _join(
        self,
        client: KafkaClient,
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
                consumer_member, requests, self._reads, max_poll_interval_s, self._left_behind
            )
        else:
            classic_member = ClassicGroupMember(self._classic_settings(requests.group_id))
            group = ClassicGroupMembership(
                classic_member, requests, self._reads, max_poll_interval_s, self._left_behind
            )
        self.owned.group = group
        cluster = client.cluster
        group.start(listener, self._topics_to_read(cluster))
        cluster.add_listener(self._metadata_changed)

    async def _protocol_of(self, client: KafkaClient) -> str:
        """Return the protocol with which the group is joined.

        If the configuration asks for the consumer protocol and the cluster does not have it, the
        answer to the first heartbeat says so.
        """
        configured = configured_protocol(self._protocol, self._assignors)
        if configured is not None:
            return configured
        try:
            features = await cluster_features(client)
        except TransientBrokerError as error:
            # A broker at the bootstrap address has answered. The one that it names may be away.
            raise TransientBrokerError(f"{error}{why_away(client)}") from error.__cause__
        return CONSUMER if has_consumer_protocol(features) else CLASSIC

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
        beat_ms = properties.get("heartbeat_interval_ms")
        return ClassicMemberSettings(
            group_id,
            assignors,
            rebalance_timeout_ms=int(properties["rebalance_timeout_ms"]),
            session_timeout_ms=int(properties["session_timeout_ms"]),
            heartbeat_interval_ms=None if beat_ms is None else int(beat_ms),
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

    async def stop(self) -> None:
        client = self._to_close
        self._to_close = None
        self._client = None
        self._moved_brokers.close()
        self._reads.let_go()
        self._poller.wake()
        if client is not None:
            # In a separate task, so that a caller that is cancelled while it waits leaves nothing
            # half closed.
            self._closing = asyncio.create_task(
                self._close(client, asyncio.current_task()), name="close a consumer"
            )
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self, client: KafkaClient, caller: asyncio.Task[Any] | None) -> None:
        try:
            if self.owned.group is not None:
                await self.owned.group.close(caller)
            if self._static is not None:
                await self._static.close(caller)
            if self._fetcher is not None:
                await self._fetcher.close()
        finally:
            # The end of the loop cancels this task.
            await close(client)

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: ByteRoom | None = None,
    ) -> Poll:
        fetcher = self.fetcher
        fetcher.raise_errors()
        if self._static is not None:
            self._static.raise_errors()
        if self.owned.group is not None:
            self.owned.group.note_poll()
            self.owned.group.raise_errors()
        return await self._poller.poll(fetcher, budgets, timeout_s, most, byte_room)

    def wake(self) -> None:
        self._poller.wake()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._reads.start_at(positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._reads.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._reads.resume(partitions)

    def positions(self) -> dict[TopicPartition, int]:
        return self._reads.positions()

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
        client = self.client
        topics = self._subscription.topics
        forbidden = client.cluster.unauthorized_topics.intersection(topics)
        missing = {
            topic
            for topic in topics
            if topic not in forbidden and not client.cluster.partitions_for_topic(topic)
        }
        silent = await silent_leaders(client, partitions, self.fetcher.was_answered)
        held_up = self._reads.held_up() if self.fetcher.settings.read_committed else {}
        racks = [broker.rack for broker in client.cluster.brokers()]
        problem = rack_problem(self.fetcher.settings.client_rack, racks)
        return Sight(frozenset(missing), frozenset(forbidden), silent, held_up, problem)

    async def topic_ids(self, topics: Collection[str], *, of_all: bool = False) -> list[TopicIds]:
        if of_all:
            return await super().topic_ids(topics, of_all=True)
        # A broker answers a fetch with an error as soon as one of its topics is deleted. So while
        # idle fetches name all of our partitions, no topic can have got another id. Asking each
        # time would be a sixth of all requests of a channel at rest.
        asked_at, asked_topics = self._ids_asked
        now = asyncio.get_running_loop().time()
        wanted = frozenset(topics)
        read_topics = {partition.topic for partition in self._reads.states}
        is_same_question = asked_topics == wanted and wanted <= read_topics
        if is_same_question and self.fetcher.all_idle_since() <= asked_at:
            return []
        answers = await super().topic_ids(topics)
        self._ids_asked = (now, wanted)
        return answers

    async def check(self) -> None:
        client = self.client
        if not self._is_in_touch() and not await within(
            CALL_DEADLINE_S, anybody_answers(client), "asking any broker"
        ):
            self._moved_brokers.look(client)
            raise TransientBrokerError(f"no broker answers{why_away(client)}")
        if self._static is not None:
            self._static.add(partitions_of(client, self._whole_topics))

    def _is_in_touch(self) -> bool:
        """True if a broker has answered recently, and all topics are known from recent metadata."""
        # Whole topics may get partitions, which only new metadata shows.
        return (
            not self._whole_topics
            and self.fetcher.has_fresh_metadata()
            and all(map(self.client.cluster.partitions_for_topic, self._subscription.topics))
        )

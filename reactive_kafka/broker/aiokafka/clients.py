"""aiokafka's consumer behind the seam: as a member or a static assignment, and as an inspector, who stays outside.

The rooms next to it use private attributes of aiokafka (the package caps its version): what it fetched, its
coordinator, and one request built by hand. docs/internals.md names each trap, H1 to H21, and the test that shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeGroupsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from reactive_kafka.broker.aiokafka import group_positions
from reactive_kafka.broker.aiokafka.asking import (
    Questions,
    Sparing,
    anybody_answers,
    known_topics,
    partitions_of,
    silent_leaders,
)
from reactive_kafka.broker.aiokafka.closing import STOP_DEADLINE_S, close, finish
from reactive_kafka.broker.aiokafka.connecting import connect, why_away
from reactive_kafka.broker.aiokafka.fetched.reading import MOST_UNPACKED_BYTES, Reader, has_expected_internals
from reactive_kafka.broker.aiokafka.group_positions import (
    NO_MEMBER,
    OffsetFetch,
    UnstableOffsetsError,
    commit_request,
    error_of,
    positions,
)
from reactive_kafka.broker.aiokafka.membership import Assignment, Membership
from reactive_kafka.broker.aiokafka.patience import Patience
from reactive_kafka.broker.aiokafka.setup import (
    CALL_DEADLINE_S,
    CONSUMER_DEFAULTS,
    CONSUMER_FIXED,
    client_properties,
    made,
    theirs,
    translate,
    within,
)
from reactive_kafka.broker.client import GroupDescription, GroupMember, Poll, RebalanceListener, Sight, members_share
from reactive_kafka.broker.commit_parts import parts_of
from reactive_kafka.broker.transactional import TransactionId
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    MetadataTooLargeError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Subscription

ASK_DEADLINE_S = 20.0  # a new cluster makes its topic of positions at the first question for a group: that takes long
RETRY_S = 0.2
UNSTABLE_S = 1.0  # a plain commit is stored by then
MOST_REPLICAS = 3
ASK_AGAIN = (
    kafka_errors.GroupCoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorForGroupError,
    kafka_errors.GroupLoadInProgressError,
)
HAS_MEMBERS = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)
NO_ANSWER = (kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError, kafka_errors.RequestTimedOutError)


class AiokafkaConsumer(Assignment):
    """A member of a group, or a static assignment."""

    def __init__(
        self, name: str, subscription: Subscription, group_id: str | None, properties: Mapping[str, Any]
    ) -> None:
        if group_id is None and not isinstance(subscription, Partitions):
            raise ValueError(f"channel {name!r} needs a group_id")
        read_committed = properties.get("isolation_level") == "read_committed"
        super().__init__(is_static=isinstance(subscription, Partitions), read_committed=read_committed)
        self._name = name
        self._subscription = subscription
        self._whole = subscription.whole if isinstance(subscription, Partitions) else ()
        self._group_id = group_id
        self._joins = None if self.is_static else group_id
        self._properties = {**CONSUMER_DEFAULTS, **properties}
        self._fetch_wait_s = float(self._properties["fetch_max_wait_ms"]) / 1000
        self._reader = Reader(self, self._properties.pop("max_unpacked_bytes", MOST_UNPACKED_BYTES))
        self._membership = Membership(self, self._joins, properties.get("group_instance_id"), self._reader.wake)
        self._patience: Patience | None = None  # with each client another one
        self._to_close: aiokafka.AIOKafkaConsumer | None = None  # from before it connects
        self._closing: asyncio.Task[None] | None = None

    async def start(self, listener: RebalanceListener) -> None:
        arguments = client_properties(self._properties, self._name)
        arguments = {**arguments, **CONSUMER_FIXED, "group_id": self._group_id}
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
        client._fetcher._client = Sparing(client._client, self._reader.answers.note, self._fetch_wait_s)
        self._reader.is_fast = has_expected_internals(client)
        self._client = client
        self._membership.listener = listener
        self._subscribe(client, self._membership)

    def _subscribe(self, client: aiokafka.AIOKafkaConsumer, listener: Membership) -> None:
        if isinstance(self._subscription, Partitions):
            partitions = theirs(sorted({*self._subscription.partitions, *partitions_of(client, self._whole)}))
            client.assign(partitions)
            if self._whole:
                client._client.set_topics(self._subscription.topics)  # also those without a partition
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

    def session_ends_at(self) -> float:
        return inf if self._joins is None or self._patience is None else self._patience.session_ends_at

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        await group_positions.commit(self, self._group_id, offsets, generation)

    async def commit_in(
        self, transaction: TransactionId, offsets: Mapping[TopicPartition, Committed], generation: int
    ) -> None:
        await group_positions.commit_in(self, self._group_id, transaction, offsets, generation)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        return await group_positions.committed(self, self._group_id, partitions)

    async def look(self, partitions: Collection[TopicPartition]) -> Sight:
        client, topics = self.client._client, self._subscription.topics
        forbidden = client.cluster.unauthorized_topics.intersection(topics)
        missing = {
            topic for topic in topics if topic not in forbidden and not client.cluster.partitions_for_topic(topic)
        }
        silent = await silent_leaders(client, partitions, self.client._fetcher._client.was_answered)
        return Sight(frozenset(missing), frozenset(forbidden), silent, self.held_up())

    async def check(self) -> None:
        client, fetches = self.client._client, self.client._fetcher._client
        is_known = not self._whole and fetches.keeps_known(self._subscription.topics)
        if not is_known and not await within(CALL_DEADLINE_S, anybody_answers(client), "asking any broker"):
            raise TransientBrokerError(f"no broker answers{why_away(client)}")
        self._membership.add(partitions_of(self.client, self._whole))


class AiokafkaInspector(Questions):
    """A consumer that joins no group, and asks: properties for a group's member are passed over."""

    deadline_s = ASK_DEADLINE_S

    def __init__(self, properties: Mapping[str, Any], create: Callable[[str, int], None] | None = None) -> None:
        ours = ("bootstrap_servers", "client_id", "security_protocol", "isolation_level", "request_timeout_ms")
        self._properties = {
            name: value for name, value in properties.items() if name in ours or name.startswith(("ssl_", "sasl_"))
        }
        self._create = create  # creates a topic (name, partitions), for a broker that does not take requests for it

    async def start(self) -> None:
        arguments = client_properties(self._properties, "inspector")
        arguments = {**arguments, "group_id": None, "enable_auto_commit": False}
        self._client = made(aiokafka.AIOKafkaConsumer, arguments)
        await connect(self._client, arguments, self.stop)

    async def stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await finish(client.stop(), STOP_DEADLINE_S)

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Not needed: there is no pattern, and a topic that was just created is waited for."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        if partitions is None:
            everything = await self._ask_positions(group_id, None)
            if everything.topics is not None:
                return positions(everything)
            partitions = [partition for those in (await self.topics()).values() for partition in those]
        return positions(await self._ask_positions(group_id, partitions)) if partitions else {}

    async def _ask_positions(self, group_id: str, partitions: Collection[TopicPartition] | None) -> Any:
        request = OffsetFetch(group_id, partitions)
        return await within(ASK_DEADLINE_S, self._ask_coordinator(group_id, request), f"asking for group {group_id!r}")

    async def describe_group(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest([group_id])
        try:
            answer = await within(ASK_DEADLINE_S, self._ask_coordinator(group_id, request), f"asking for {group_id!r}")
        except BrokerError as error:
            if isinstance(error.__cause__, kafka_errors.IncompatibleBrokerVersion):
                return GroupDescription(None, "", ())
            raise
        _, _, state, protocol_type, _, members, *_ = answer.groups[0]
        return GroupDescription(state, protocol_type, tuple(GroupMember(*member[:3]) for member in members))

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        if not offsets:
            return
        requests = [commit_request(group_id, NO_MEMBER, part) for part in parts_of(group_id, offsets)]
        doing = f"commit for group {group_id!r}"
        try:
            async with asyncio.timeout(ASK_DEADLINE_S):
                for request in requests:
                    await self._ask_coordinator(group_id, request)
        except TimeoutError as error:
            raise OutcomeUnknownError(f"{doing}: no answer within {ASK_DEADLINE_S:g} s") from error
        except NO_ANSWER as error:
            raise OutcomeUnknownError(f"{doing}: {error}") from error
        except HAS_MEMBERS as error:
            raise TransientBrokerError(members_share(group_id)) from error
        except kafka_errors.OffsetMetadataTooLargeError as error:
            raise MetadataTooLargeError(f"{doing}: its metadata is too long for the broker") from error
        except kafka_errors.KafkaError as error:
            raise translate(error) from error

    async def create_topic(self, topic: str, partitions: int) -> None:
        client = self.client._client
        if self._create is not None:
            self._create(topic, partitions)
            return
        await within(ASK_DEADLINE_S, client.fetch_all_metadata(), "asking for the brokers")
        replicas = min(MOST_REPLICAS, len(client.cluster.brokers()))
        wanted: Any = (topic, partitions, replicas, [], [])
        request = CreateTopicsRequest([wanted], int(ASK_DEADLINE_S * 1000), False)
        node = client.cluster.controller.nodeId if client.cluster.controller else client.get_random_node()
        answer = await within(ASK_DEADLINE_S, client.send(node, request), f"creating topic {topic!r}")
        for _, error_code, *said in answer.topic_errors:
            if error_code:
                error = kafka_errors.for_code(error_code)(*[text for text in said if text])
                if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
                    raise FatalBrokerError(f"{error}: the right CREATE on it is missing, or on the cluster") from error
                raise translate(error) from error

    async def _ask_coordinator(self, group_id: str, request: Any) -> Any:
        """The answer of the broker that keeps the group; asked again while that one is still being found."""
        client = self.client._client
        unstable_until = asyncio.get_running_loop().time() + UNSTABLE_S
        while True:
            found = await client.send(client.get_random_node(), FindCoordinatorRequest(group_id, 0))
            error = error_of(found)
            if error is None:
                answer = await client.send(found.coordinator_id, request)
                error = error_of(answer)
                if error is None:
                    return answer
            if not issubclass(error, ASK_AGAIN):
                raise error()
            if error is UnstableOffsetsError and asyncio.get_running_loop().time() > unstable_until:
                request.is_to_be_stable = False  # who only looks does not wait for the end of a transaction
            await asyncio.sleep(RETRY_S)

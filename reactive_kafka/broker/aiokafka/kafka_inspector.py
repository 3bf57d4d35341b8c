"""aiokafka's consumer as an inspector, which asks without joining a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.protocol.admin import DescribeConfigsRequest, DescribeGroupsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from reactive_kafka.broker.aiokafka import topic_changes
from reactive_kafka.broker.aiokafka.client_arguments import client_arguments, create_client
from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.closing import STOP_DEADLINE_S, finish
from reactive_kafka.broker.aiokafka.cluster_queries import KafkaQueries
from reactive_kafka.broker.aiokafka.connecting import connect
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.group_listing import (
    CONSUMER,
    SHARE,
    classic_member,
    describe_newer,
    list_groups,
)
from reactive_kafka.broker.aiokafka.group_positions import (
    UNSTABLE_OFFSET_COMMIT,
    error_of,
    positions,
)
from reactive_kafka.broker.aiokafka.offset_requests import OffsetFetch, commit_request
from reactive_kafka.broker.aiokafka.topic_changes import TOPIC_RESOURCE
from reactive_kafka.broker.client import (
    NO_CONFIG,
    UNKNOWN_GROUP,
    GroupDescription,
    GroupHasMembersError,
    GroupListing,
    members_share,
)
from reactive_kafka.broker.commit_sizes import split_commit
from reactive_kafka.broker.consumer.membership.group_parts import NOBODY
from reactive_kafka.errors import (
    BrokerError,
    MetadataTooLargeError,
    OutcomeUnknownError,
    TransientBrokerError,
)
from reactive_kafka.records import Committed, TopicPartition

# A new cluster creates its topic for positions at the first question about a group, which takes
# long.
ASK_DEADLINE_S = 20.0
RETRY_S = 0.2
# A commit without a transaction is stored by then.
UNSTABLE_S = 1.0
ASK_AGAIN = frozenset({14, 15, 16, UNSTABLE_OFFSET_COMMIT})
"""Codes of a coordinator that is being found, loads a group, or has not stored everything yet."""
HAS_MEMBERS = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)
NO_ANSWER = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
)


class AiokafkaInspector(KafkaQueries):
    """A consumer that joins no group. Properties for members of a group are ignored.

    Args:
        properties: The client properties of a channel.
        create: Creates a topic (name, partitions) at a broker that has no request for it.
    """

    deadline_s = ASK_DEADLINE_S

    def __init__(
        self, properties: Mapping[str, Any], create: Callable[[str, int], None] | None = None
    ) -> None:
        ours = (
            "bootstrap_servers",
            "client_id",
            "security_protocol",
            "isolation_level",
            "request_timeout_ms",
        )
        self._properties = {
            name: value
            for name, value in properties.items()
            if name in ours or name.startswith(("ssl_", "sasl_"))
        }
        self._create = create

    async def start(self) -> None:
        arguments = client_arguments(self._properties, "inspector")
        arguments = {**arguments, "group_id": None, "enable_auto_commit": False}
        self._client = create_client(aiokafka.AIOKafkaConsumer, arguments)
        await connect(self._client, arguments, self.stop)

    async def stop(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            await finish(client.stop(), STOP_DEADLINE_S)

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: there is no pattern, and a topic that was just created is waited for."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        if partitions is None:
            everything = await self._ask_positions(group_id, None)
            if everything.topics is not None:
                return positions(everything)
            topics = await self.topics()
            partitions = [partition for of_topic in topics.values() for partition in of_topic]
        if not partitions:
            return {}
        return positions(await self._ask_positions(group_id, partitions))

    async def _ask_positions(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> Any:
        request = OffsetFetch(group_id, partitions)
        return await within(
            ASK_DEADLINE_S,
            self._ask_coordinator(group_id, request),
            f"asking for group {group_id!r}",
        )

    async def describe_group(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest([group_id])
        try:
            answer = await within(
                ASK_DEADLINE_S, self._ask_coordinator(group_id, request), f"asking for {group_id!r}"
            )
        except BrokerError as error:
            if isinstance(error.__cause__, kafka_errors.IncompatibleBrokerVersion):
                return GroupDescription(None, "", ())
            raise
        _, _, state, protocol_type, _, members, *_ = answer.groups[0]
        if state == UNKNOWN_GROUP:
            # That is also the answer for a group of a newer protocol.
            newer = await self._describe_newer(group_id)
            if newer is not None:
                return newer
        return GroupDescription(state, protocol_type, tuple(map(classic_member, members)))

    async def _describe_newer(self, group_id: str) -> GroupDescription | None:

        async def ask(request: Any) -> Any:
            return await within(
                ASK_DEADLINE_S, self._ask_coordinator(group_id, request), f"asking for {group_id!r}"
            )

        for kind in (CONSUMER, SHARE):
            found = await describe_newer(group_id, kind, ask)
            if found is not None:
                return found
        return None

    async def list_groups(self) -> list[GroupListing]:
        return await list_groups(self.client._client)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        if not offsets:
            return
        requests = [
            commit_request(group_id, NOBODY, part) for part in split_commit(group_id, offsets)
        ]
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
            raise GroupHasMembersError(members_share(group_id)) from error
        except kafka_errors.OffsetMetadataTooLargeError as error:
            raise MetadataTooLargeError(
                f"{doing}: its metadata is too long for the broker"
            ) from error
        except kafka_errors.KafkaError as error:
            raise translate(error) from error

    async def topic_configs(
        self, topics: Collection[str], names: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        if not topics:
            return {}
        client = self.client._client
        node = client.get_random_node()
        if node is None:
            raise TransientBrokerError("asking for the configs of topics: no broker is known")
        request = DescribeConfigsRequest(
            [(TOPIC_RESOURCE, topic, sorted(names)) for topic in sorted(topics)]
        )
        try:
            answer = await within(
                ASK_DEADLINE_S, client.send(node, request), "asking for the configs of topics"
            )
        except BrokerError as error:
            if isinstance(error.__cause__, kafka_errors.IncompatibleBrokerVersion):
                return {}
            raise
        found = {}
        for error_code, _, _, topic, entries in answer.resources:
            if not error_code:
                found[topic] = {name: value for name, value, *_ in entries}
        return found

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        client = self.client._client
        if self._create is not None:
            self._create(topic, partitions)
            return
        await topic_changes.create_topic(client, topic, partitions, replication_factor, config)

    async def add_partitions(self, topic: str, total: int) -> None:
        await topic_changes.add_partitions(self.client._client, topic, total)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await topic_changes.set_topic_config(self.client._client, topic, config)

    async def replication_factors(self, topics: Collection[str]) -> dict[str, int]:
        return await topic_changes.replication_factors(self.client._client, topics)

    async def _ask_coordinator(self, group_id: str, request: Any) -> Any:
        """Return the answer of the group's coordinator. Asks until it is found and loaded."""
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
            if error.errno not in ASK_AGAIN:
                raise error()
            if (
                error.errno == UNSTABLE_OFFSET_COMMIT
                and asyncio.get_running_loop().time() > unstable_until
            ):
                # An inspector does not wait for the end of a transaction.
                request.is_to_be_stable = False
            await asyncio.sleep(RETRY_S)

"""Our client as an inspector, which asks without joining a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka import topic_changes
from reactive_kafka.broker.aiokafka.client_arguments import client_arguments, create_client
from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.closing import close
from reactive_kafka.broker.aiokafka.cluster_queries import KafkaQueries
from reactive_kafka.broker.aiokafka.connecting import connect
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.group_listing import (
    CONSUMER,
    SHARE,
    describe_newer,
    describe_request,
    description,
    list_groups,
)
from reactive_kafka.broker.aiokafka.group_positions import UNSTABLE_OFFSET_COMMIT, error_of
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.broker.aiokafka.offset_requests import (
    commit_request,
    fetch_all_request,
    fetch_request,
    positions_in,
)
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
from reactive_kafka.broker.consumer.fetching.fetch_settings import ISOLATION_LEVELS
from reactive_kafka.broker.consumer.membership.group_parts import NOBODY
from reactive_kafka.broker.wire.definitions import DESCRIBE_CONFIGS, FIND_COORDINATOR
from reactive_kafka.broker.wire.errors import MessageDecodeError, NoCommonVersionError
from reactive_kafka.broker.wire.requests import Answer, Request, call
from reactive_kafka.errors import (
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
    MessageDecodeError,
)


class AiokafkaInspector(KafkaQueries):
    """A client that joins no group. Properties for members of a group are ignored.

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
        level = arguments.pop("isolation_level", "read_uncommitted")
        self._isolation_level = ISOLATION_LEVELS[level]
        client = KafkaClient(create_client(ClientSettings, arguments))
        self._client = client
        await connect(client, client.bootstrap, arguments, self.stop)

    async def stop(self) -> None:
        client = self._client
        self._client = None
        if client is not None:
            await close(client)

    async def _check_existence(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: there is no pattern, and a topic that was just created is waited for."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        if partitions is None:
            try:
                return await self._ask_positions(
                    group_id,
                    fetch_all_request(group_id),
                    fetch_all_request(group_id, is_stable=False),
                )
            except NoCommonVersionError:
                # The broker wants the partitions named.
                topics = await self.topics()
            partitions = [partition for of_topic in topics.values() for partition in of_topic]
        if not partitions:
            return {}
        return await self._ask_positions(
            group_id,
            fetch_request(group_id, partitions),
            fetch_request(group_id, partitions, is_stable=False),
        )

    async def _ask_positions(
        self, group_id: str, request: Request, unstable_request: Request
    ) -> dict[TopicPartition, Committed]:
        """Ask for positions, and at last for those that are not final. See _ask_coordinator."""
        asking = self._ask_coordinator(group_id, request, unstable_request)
        return positions_in(await within(ASK_DEADLINE_S, asking, f"asking for group {group_id!r}"))

    async def describe_group(self, group_id: str) -> GroupDescription:
        try:
            answer = await self._ask_about(group_id, describe_request(group_id))
        except NoCommonVersionError:
            return GroupDescription(None, "", ())
        found = description(answer)
        if found.state == UNKNOWN_GROUP:
            # That is also the answer for a group of a newer protocol.
            newer = await self._describe_newer(group_id)
            if newer is not None:
                return newer
        return found

    async def _describe_newer(self, group_id: str) -> GroupDescription | None:
        for kind in (CONSUMER, SHARE):
            found = await describe_newer(group_id, kind, partial(self._ask_about, group_id))
            if found is not None:
                return found
        return None

    async def _ask_about(self, group_id: str, request: Request) -> Mapping[str, Any]:
        asking = self._ask_coordinator(group_id, request)
        return await within(ASK_DEADLINE_S, asking, f"asking for {group_id!r}")

    async def list_groups(self) -> list[GroupListing]:
        return await list_groups(self.client)

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
        client = self.client
        node = client.get_random_node()
        if node is None:
            raise TransientBrokerError("asking for the configs of topics: no broker is known")
        values = {
            "resources": [
                {
                    "resource_type": TOPIC_RESOURCE,
                    "resource_name": topic,
                    "configuration_keys": sorted(names),
                }
                for topic in sorted(topics)
            ]
        }
        asking = call(client, node, DESCRIBE_CONFIGS, values)
        try:
            answer = await within(ASK_DEADLINE_S, asking, "asking for the configs of topics")
        except NoCommonVersionError:
            return {}
        return {
            result["resource_name"]: {
                config["name"]: config["value"] for config in result["configs"]
            }
            for result in answer["results"]
            if not result["error_code"]
        }

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
        *,
        only_checks: bool = False,
    ) -> None:
        client = self.client
        if self._create is not None:
            # The embedded broker asks for no rights.
            if not only_checks:
                self._create(topic, partitions)
            return
        await topic_changes.create_topic(
            client, topic, partitions, replication_factor, config, only_checks=only_checks
        )

    async def add_partitions(self, topic: str, total: int) -> None:
        await topic_changes.add_partitions(self.client, topic, total)

    async def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        await topic_changes.set_topic_config(self.client, topic, config)

    async def replication_factors(self, topics: Collection[str]) -> dict[str, int]:
        return await topic_changes.replication_factors(self.client, topics)

    async def _ask_coordinator(
        self, group_id: str, request: Request, unstable_request: Request | None = None
    ) -> Mapping[str, Any]:
        """Return the answer of the group's coordinator. Asks until it is found and loaded.

        *unstable_request* is sent instead if positions are not final for long. An inspector does
        not wait for the end of a transaction.

        Raises:
            aiokafka.errors.KafkaError: The answer is another error, or there is none.
            NoCommonVersionError: The coordinator does not have this request.
        """
        client = self.client
        unstable_until = asyncio.get_running_loop().time() + UNSTABLE_S
        while True:
            node = client.get_random_node()
            # From version 4 on the request is for several groups.
            found = await call(client, node, FIND_COORDINATOR, {"key": group_id}, versions="0-3")
            error = error_of(found)
            if error is None:
                answer: Answer = await client.send(found["node_id"], request)
                error = error_of(answer.values)
                if error is None:
                    return answer.values
            if error.errno not in ASK_AGAIN:
                raise error()
            if (
                error.errno == UNSTABLE_OFFSET_COMMIT
                and unstable_request is not None
                and asyncio.get_running_loop().time() > unstable_until
            ):
                request = unstable_request
            await asyncio.sleep(RETRY_S)

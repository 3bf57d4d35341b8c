"""Creates topics and changes them, with the client of an inspector."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.errors import BrokerError, FatalBrokerError, TransientBrokerError

DEADLINE_S = 20.0
MOST_REPLICAS = 3
# Kafka's number for topics among the resources with configs.
TOPIC_RESOURCE = 2
SET = 0
NAME = String("utf-8")


# aiokafka is untyped.
class IncrementalAlterConfigsResponse_v0(Response):  # type: ignore[misc]
    """Source: IncrementalAlterConfigsResponse.json of Kafka."""

    API_KEY = 44
    API_VERSION = 0
    _RESOURCE = (
        ("error_code", Int16),
        ("error_message", NAME),
        ("resource_type", Int8),
        ("resource_name", NAME),
    )
    SCHEMA = Schema(("throttle_time_ms", Int32), ("responses", Array(*_RESOURCE)))


# aiokafka is untyped.
class IncrementalAlterConfigsRequest_v0(RequestStruct):  # type: ignore[misc]
    """Source: IncrementalAlterConfigsRequest.json of Kafka. Spoken by Kafka 2.3 and newer."""

    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = IncrementalAlterConfigsResponse_v0
    _CONFIG = (("name", NAME), ("operation", Int8), ("value", NAME))
    _RESOURCE = (("resource_type", Int8), ("resource_name", NAME), ("configs", Array(*_CONFIG)))
    SCHEMA = Schema(("resources", Array(*_RESOURCE)), ("validate_only", Boolean))


class IncrementalAlterConfigs(Request[IncrementalAlterConfigsRequest_v0]):  # type: ignore[misc]
    """Sets configs of a topic, and leaves its other configs alone.

    aiokafka has only the older request, which resets all configs that it does not name.
    """

    API_KEY = 44

    def __init__(self, topic: str, config: Mapping[str, str]) -> None:
        self._topic = topic
        self._config = config

    def build(self, version: Any) -> Any:
        configs = [(name, SET, value) for name, value in sorted(self._config.items())]
        return version([(TOPIC_RESOURCE, self._topic, configs)], False)


async def create_topic(
    client: Any,
    topic: str,
    partitions: int,
    replication_factor: int | None,
    config: Mapping[str, str],
) -> None:
    """Create a topic. See :meth:`reactive_kafka.broker.client.Inspector.create_topic`."""
    await within(DEADLINE_S, client.fetch_all_metadata(), "asking for the brokers")
    replicas = replication_factor or min(MOST_REPLICAS, len(client.cluster.brokers()))
    wanted: Any = (topic, partitions, replicas, [], sorted(config.items()))
    request = CreateTopicsRequest([wanted], int(DEADLINE_S * 1000), False)
    answer = await _ask_controller(client, request, f"creating topic {topic!r}")
    for _, error_code, *said in answer.topic_errors:
        _raise_if(error_code, said, "CREATE on it is missing, or on the cluster")


async def add_partitions(client: Any, topic: str, total: int) -> None:
    """Give a topic more partitions. See :class:`reactive_kafka.broker.client.Inspector`."""
    # The brokers choose where the new partitions are.
    request = CreatePartitionsRequest([(topic, (total, None))], int(DEADLINE_S * 1000), False)
    answer = await _ask_controller(client, request, f"adding partitions to topic {topic!r}")
    for _, error_code, *said in answer.topic_errors:
        _raise_if(error_code, said, "ALTER on it is missing")


async def set_topic_config(client: Any, topic: str, config: Mapping[str, str]) -> None:
    """Set configs of a topic. See :class:`reactive_kafka.broker.client.Inspector`."""
    request = IncrementalAlterConfigs(topic, config)
    answer = await _ask_controller(client, request, f"setting configs of topic {topic!r}")
    for error_code, text, *_ in answer.responses:
        _raise_if(error_code, [text], "ALTER_CONFIGS on it is missing")


async def replication_factors(client: Any, topics: Collection[str]) -> dict[str, int]:
    """Return topic -> the smallest number of replicas that one of its partitions has."""
    known = ClusterMetadata()
    known.need_all_topic_metadata = True
    node = client.get_random_node()
    if node is None:
        raise TransientBrokerError("asking for the replicas of topics: no broker is known")
    request = MetadataRequest(sorted(topics), False)
    known.update_metadata(
        await within(DEADLINE_S, client.send(node, request), "asking for the replicas of topics")
    )
    return {
        topic: min(len(partition.replicas) for partition in partitions.values())
        for topic, partitions in known._partitions.items()
        if partitions
    }


async def _ask_controller(client: Any, request: Any, doing: str) -> Any:
    controller = client.cluster.controller
    node = controller.nodeId if controller else client.get_random_node()
    if node is None:
        raise TransientBrokerError(f"{doing}: no broker is known")
    try:
        return await within(DEADLINE_S, client.send(node, request), doing)
    except BrokerError as error:
        if isinstance(error.__cause__, kafka_errors.IncompatibleBrokerVersion):
            raise FatalBrokerError(f"{doing}: the broker has no such request") from error
        raise


def _raise_if(error_code: int, said: Collection[str | None], right: str) -> None:
    """Raise the error of an answer. *right* says which right may be missing."""
    if not error_code:
        return
    error = class_for(error_code)(*[text for text in said if text])
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        raise FatalBrokerError(f"{error}: the right {right}") from error
    raise translate(error) from error

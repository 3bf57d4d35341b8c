"""Creates topics and changes them, with the client of an inspector."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.metadata_requests import ask_metadata
from reactive_kafka.broker.wire.codec import Values
from reactive_kafka.broker.wire.definitions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
)
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.errors import FatalBrokerError, TransientBrokerError

DEADLINE_S = 20.0
MOST_REPLICAS = 3
# Kafka's number for topics among the resources with configs.
TOPIC_RESOURCE = 2
SET = 0


async def create_topic(
    client: Any,
    topic: str,
    partitions: int,
    replication_factor: int | None,
    config: Mapping[str, str],
    *,
    only_checks: bool,
) -> None:
    """Create a topic. See :meth:`reactive_kafka.broker.client.Inspector.create_topic`."""
    await within(DEADLINE_S, client.fetch_all_metadata(), "asking for the brokers")
    replicas = replication_factor or min(MOST_REPLICAS, len(client.cluster.brokers()))
    values = {
        "topics": [
            {
                "name": topic,
                "num_partitions": partitions,
                "replication_factor": replicas,
                "configs": [{"name": name, "value": config[name]} for name in sorted(config)],
            }
        ],
        "timeout_ms": int(DEADLINE_S * 1000),
        "validate_only": only_checks,
    }
    answer = await _ask_controller(client, CREATE_TOPICS, values, f"creating topic {topic!r}")
    for result in answer["topics"]:
        _raise_if(result, "CREATE on it is missing, or on the cluster")


async def add_partitions(client: Any, topic: str, total: int) -> None:
    """Give a topic more partitions. See :class:`reactive_kafka.broker.client.Inspector`."""
    values = {
        # The brokers choose where the new partitions are.
        "topics": [{"name": topic, "count": total, "assignments": None}],
        "timeout_ms": int(DEADLINE_S * 1000),
    }
    doing = f"adding partitions to topic {topic!r}"
    answer = await _ask_controller(client, CREATE_PARTITIONS, values, doing)
    for result in answer["results"]:
        _raise_if(result, "ALTER on it is missing")


async def set_topic_config(client: Any, topic: str, config: Mapping[str, str]) -> None:
    """Set configs of a topic, and leave its other configs alone.

    See :class:`reactive_kafka.broker.client.Inspector`.
    """
    configs = [
        {"name": name, "config_operation": SET, "value": config[name]} for name in sorted(config)
    ]
    values = {
        "resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": configs}]
    }
    doing = f"setting configs of topic {topic!r}"
    answer = await _ask_controller(client, INCREMENTAL_ALTER_CONFIGS, values, doing)
    for result in answer["responses"]:
        _raise_if(result, "ALTER_CONFIGS on it is missing")


async def replication_factors(client: Any, topics: Collection[str]) -> dict[str, int]:
    """Return topic -> the smallest number of replicas that one of its partitions has."""
    node = client.get_random_node()
    doing = "asking for the replicas of topics"
    if node is None:
        raise TransientBrokerError(f"{doing}: no broker is known")
    metadata = await within(DEADLINE_S, ask_metadata(client, node, topics), doing)
    return {
        topic["name"]: min(len(partition["replica_nodes"]) for partition in topic["partitions"])
        for topic in metadata["topics"]
        if topic["partitions"] and not topic["error_code"]
    }


async def _ask_controller(client: Any, api: Api, values: Values, doing: str) -> dict[str, Any]:
    controller = client.cluster.controller
    node = controller.nodeId if controller else client.get_random_node()
    if node is None:
        raise TransientBrokerError(f"{doing}: no broker is known")
    try:
        return await within(DEADLINE_S, call(client, node, api, values), doing)
    except NoCommonVersionError as error:
        raise FatalBrokerError(f"{doing}: {error}") from error


def _raise_if(result: Mapping[str, Any], right: str) -> None:
    """Raise the error of a result, if it is one. *right* says which right may be missing."""
    if not result["error_code"]:
        return
    text = [result["error_message"]] if result["error_message"] else []
    error = class_for(result["error_code"])(*text)
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
        raise FatalBrokerError(f"{error}: the right {right}") from error
    raise translate(error) from error

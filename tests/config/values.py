"""Settings as rooms get them, made without a configuration, for tests of those rooms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.config.client_properties import CONSUMER, PRODUCER, SIDES
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.config.secrets import Secret
from reactive_kafka.config.settings import HttpSettings, OutgoingSettings, SparkSettings
from reactive_kafka.config.tables import (
    DeadLetterSettings,
    DelayedRetrySettings,
    RestartSettings,
    RetrySettings,
    SchemaRegistrySettings,
    SparkChannelSettings,
    TopicSettings,
    TracingSettings,
)


def secret_of(text: str, file: Path | None = None) -> Secret:
    """A secret, of a file if one is given."""
    return Secret(text, None if file is None else str(file))


def http_settings(**values: Any) -> HttpSettings:
    return HttpSettings(**values)


def outgoing_settings(**values: Any) -> OutgoingSettings:
    return OutgoingSettings(**values)


def assigned_partition(partition: TopicPartition, start: int | None = None) -> AssignedPartition:
    return AssignedPartition(partition=partition, start=start)


def properties_of_consumers() -> list[str]:
    """The names, as aiokafka spells them, of the client properties that consumers have."""
    return sorted(name for name, sides in SIDES.items() if sides >= CONSUMER)


def properties_of_producers() -> list[str]:
    """The same of producers."""
    return sorted(name for name, sides in SIDES.items() if sides >= PRODUCER)


def spark_channel_settings(**values: Any) -> SparkChannelSettings:
    return SparkChannelSettings(**values)


def schema_registry_settings(**values: Any) -> SchemaRegistrySettings:
    return SchemaRegistrySettings(**values)


def spark_settings(**values: Any) -> SparkSettings:
    return SparkSettings(**values)


def retry_settings(**values: Any) -> RetrySettings:
    return RetrySettings(**values)


def restart_settings(**values: Any) -> RestartSettings:
    return RestartSettings(**values)


def dead_letter_settings(**values: Any) -> DeadLetterSettings:
    return DeadLetterSettings(**values)


def delayed_retry_settings(**values: Any) -> DelayedRetrySettings:
    return DelayedRetrySettings(**values)


def topic_settings(**values: Any) -> TopicSettings:
    return TopicSettings(**values)


def tracing_settings(**values: Any) -> TracingSettings:
    return TracingSettings(**values)

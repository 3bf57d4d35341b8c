"""Settings as rooms get them, made without a configuration, for tests of those rooms."""

from __future__ import annotations

from typing import Any

from reactive_kafka.config.secrets import Secret
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.config.tables import (
    DeadLetterSettings,
    DelayedRetrySettings,
    RestartSettings,
    RetrySettings,
    TopicSettings,
    TracingSettings,
)


def secret_of(text: str) -> Secret:
    return Secret(text)


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

"""The arguments with which aiokafka's clients are created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reactive_kafka.broker.aiokafka.credentials import TLS_SETTINGS, Tokens, tls_context
from reactive_kafka.config.secrets import revealed
from reactive_kafka.errors import (
    FatalBrokerError,
    describe,
)

T = TypeVar("T")

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "session_timeout_ms": 45_000,
    # If it were as short as a session, members would be removed while draining.
    "rebalance_timeout_ms": 60_000,
    "metadata_max_age_ms": 30_000,
    "fetch_max_wait_ms": 500,
    # Kafka's default is 50 MB. So much would be read long after it came, from newly allocated
    # memory. And two answers are held: one is being read while the next one comes.
    "fetch_max_bytes": 8_000_000,
}
OUR_PROPERTIES = ("group_protocol", "assignor", "assignors", "enable_metrics_push")
"""Properties that aiokafka does not have."""
OF_CONSUMERS = frozenset(
    {
        *OUR_PROPERTIES,
        "auto_commit_interval_ms",
        "auto_offset_reset",
        "check_crcs",
        "client_rack",
        "enable_auto_commit",
        "exclude_internal_topics",
        "fetch_max_bytes",
        "fetch_max_wait_ms",
        "fetch_min_bytes",
        "group_instance_id",
        "heartbeat_interval_ms",
        "isolation_level",
        "max_partition_fetch_bytes",
        "max_poll_interval_ms",
        "max_poll_records",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    }
)
"""Properties of our consumers and of their channels. Connections do not have them."""


def client_arguments(properties: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return keyword arguments for aiokafka: with an SSL context.

    Raises:
        FatalBrokerError: A TLS file is missing or cannot be used. The text names the key and the
            file.
    """
    arguments = {"client_id": f"reactive-kafka-{name}"} | {
        name: revealed(value) for name, value in properties.items() if name not in OUR_PROPERTIES
    }
    tls_settings = {name: arguments.pop(name) for name in TLS_SETTINGS if name in arguments}
    check_hostname = bool(arguments.pop("ssl_check_hostname", True))
    uses_tls = bool(tls_settings) or "SSL" in str(arguments.get("security_protocol", ""))
    if uses_tls and "ssl_context" not in arguments:
        arguments["ssl_context"] = tls_context(tls_settings, check_hostname=check_hostname)
    if (provider := arguments.get("sasl_oauth_token_provider")) is not None:
        arguments["sasl_oauth_token_provider"] = Tokens(provider)
    return arguments


def create_client(kind: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """Create a client of aiokafka, without starting it.

    Raises:
        FatalBrokerError: The client refuses its arguments, or misses a library. The caller tries it
            again like a broker that is away: only the operator can change it, and everything else
            continues until then.
    """
    try:
        return kind(**arguments)
    except Exception as error:
        raise FatalBrokerError(f"the client cannot be made: {describe(error)}") from error

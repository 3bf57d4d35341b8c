"""Starts a client, and says why that was not possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.client_log import is_ours
from reactive_kafka.broker.aiokafka.connect_failures import (
    OPEN_THE_WAY,
    ConnectFailure,
    check_protocol,
)
from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient
from reactive_kafka.errors import BrokerError, FatalBrokerError, describe

START_DEADLINE_S = 20.0

NAMED_ARGUMENTS = ("bootstrap_servers", "security_protocol", "sasl_mechanism")
"""The arguments that errors name."""
MOST_REASONS = 2
"""How many failed attempts an error names."""


async def connect(
    client: KafkaClient,
    start: Callable[[], Awaitable[None]],
    arguments: Mapping[str, Any],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Start *client* with *start*. If it cannot connect, call *close* and raise.

    The text of the error has the reasons of the last failed attempts, and those of the *arguments*
    that say where and how to connect. Without *close* the client would log that it was left open.

    Raises:
        FatalBrokerError: Certificates or credentials were refused. Or the error is none of the
            client's: a name that cannot be encoded, a missing library, a token provider that
            raises.
        TransientBrokerError: No broker could be reached in time.
    """
    given = [f"{name} = {arguments[name]!r}" for name in NAMED_ARGUMENTS if arguments.get(name)]
    with_arguments = f", with {' and '.join(given)}" if given else ""
    failures = client.failures
    log_token = is_ours.set(True)
    try:
        await within(START_DEADLINE_S, start(), "connecting")
    except BrokerError as error:
        await close()
        is_refused = any(failure.is_refusal for failure in failures)
        kind = FatalBrokerError if is_refused else type(error)
        text = _explain(error, failures, arguments.get("security_protocol"))
        raise kind(f"{text}{with_arguments}") from error.__cause__
    except Exception as error:
        await close()
        raise FatalBrokerError(f"connecting: {describe(error)}{with_arguments}") from error
    except BaseException:
        await close()
        raise
    finally:
        is_ours.reset(log_token)


def _explain(error: BrokerError, failures: Sequence[ConnectFailure], protocol: str | None) -> str:
    """Return the error's text with the reasons of the last failed attempts."""
    cause = error.__cause__
    reasons = list(dict.fromkeys(failure.text for failure in failures))[-MOST_REASONS:]
    if not reasons and isinstance(cause, kafka_errors.KafkaConnectionError):
        reasons = [f"the broker has not answered what it was asked: {check_protocol(protocol)}"]
    elif not reasons and isinstance(cause, TimeoutError):
        reasons = [f"correct bootstrap_servers, or {OPEN_THE_WAY}"]
    if not reasons:
        return str(error)
    is_connection_error = isinstance(cause, kafka_errors.KafkaConnectionError)
    text = "no broker can be used" if is_connection_error and failures else str(error)
    return f"{text} ({'; '.join(reasons)})"


def why_away(client: KafkaClient) -> str:
    """Return `` (REASON)`` if the last attempt of *client* to connect failed, or an empty text."""
    failure = client.last_failure
    return f" ({failure.text})" if failure is not None else ""

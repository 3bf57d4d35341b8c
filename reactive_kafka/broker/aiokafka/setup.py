"""What all clients of aiokafka share: errors translated, arguments, deadlines, and how they connect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.helpers import create_ssl_context

from reactive_kafka.broker.aiokafka.logs import StartupReasons
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    NotOwnerError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import TopicPartition

T = TypeVar("T")

START_DEADLINE_S = 20.0
CALL_DEADLINE_S = 5.0

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "rebalance_timeout_ms": 60_000,  # H10: by default as short as the session, and fenced while draining
    "metadata_max_age_ms": 30_000,
}
CONSUMER_FIXED: Mapping[str, Any] = {
    "enable_auto_commit": False,  # H12: what is committed, and where reading begins, is decided by us
    "auto_offset_reset": "none",
}
ASSIGNORS = {one.name: one for one in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)}
TLS_FILES = ("ssl_cafile", "ssl_capath", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")

FATAL = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.InvalidTopicError,
    kafka_errors.InvalidGroupIdError,
    kafka_errors.InconsistentGroupProtocolError,
    kafka_errors.InvalidSessionTimeoutError,
)
REJECTED = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidTimestampError,
    kafka_errors.PolicyViolationError,
)
NOT_OWNER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalStateError,
)
COORDINATOR_MOVED = (
    kafka_errors.GroupCoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorForGroupError,
    kafka_errors.RequestTimedOutError,
)


def translate(error: BaseException) -> BrokerError:
    """The error of ours that says who must act; raise it ``from`` the client's."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ours = ((NOT_OWNER, NotOwnerError), (FATAL, FatalBrokerError), (REJECTED, RejectedRecordError))
    return next((kind for theirs, kind in ours if isinstance(error, theirs)), TransientBrokerError)(text)


def client_properties(properties: Mapping[str, Any], name: str) -> dict[str, Any]:
    """aiokafka's keyword arguments: TLS files become an SSL context, assignor names their classes.

    Args:
        name: Of the client, where its properties do not have a ``client_id``.

    Raises:
        FatalBrokerError: A TLS file is missing, or cannot be used; it names the key and the file.
    """
    arguments = {"client_id": f"reactive-kafka-{name}", **properties}
    of_tls = (*TLS_FILES, "ssl_cadata", "ssl_password")
    ssl = {name.removeprefix("ssl_"): arguments.pop(name) for name in of_tls if name in arguments}
    check_hostname = arguments.pop("ssl_check_hostname", True)
    if "ssl_context" not in arguments and (ssl or "SSL" in str(arguments.get("security_protocol", ""))):
        context = arguments["ssl_context"] = _tls_context(ssl, properties)
        context.check_hostname = bool(check_hostname)
    names = arguments.get("partition_assignment_strategy")
    if names is not None:
        names = [names] if isinstance(names, str) else names
        classes = tuple(ASSIGNORS[name] if isinstance(name, str) else name for name in names)
        arguments["partition_assignment_strategy"] = classes
    return arguments


def _tls_context(ssl: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
    try:
        return create_ssl_context(**ssl)
    except (OSError, ValueError) as error:  # asked for again with the next attempt: it may be being replaced
        files = [name for name in TLS_FILES if properties.get(name)]
        missing = [name for name in files if not os.access(str(properties[name]), os.R_OK)]
        which = ", ".join(f"{name} = {str(properties[name])!r}" for name in missing or files)
        raise FatalBrokerError(f"TLS cannot be set up with {which}: {error}") from error


async def within(deadline_s: float, call: Awaitable[T], doing: str) -> T:
    """Await a call of the client under a deadline (H5: its own retries have none), its errors translated."""
    try:
        async with asyncio.timeout(deadline_s):
            return await call
    except TimeoutError as error:
        raise TransientBrokerError(f"{doing}: no answer within {deadline_s:g} s") from error
    except (kafka_errors.KafkaError, kafka_errors.IllegalOperation, kafka_errors.ConsumerStoppedError) as error:
        raise translate(error) from error
    except OSError as error:
        raise TransientBrokerError(f"{doing}: {error}") from error


async def connect(client: Any, close: Callable[[], Awaitable[None]]) -> None:
    """Start a client of any kind; one that cannot connect is closed, or it would log that it was left open.

    The error says why it could not be started, as far as the client's log does.
    """
    with StartupReasons() as log:
        try:
            await within(START_DEADLINE_S, client.start(), "connecting")
        except BrokerError as error:
            await close()
            raise log.explain(error) from error.__cause__
        except BaseException:
            await close()
            raise


def theirs(partitions: Collection[TopicPartition]) -> list[Any]:
    """The same partitions as the client's own type."""
    return [aiokafka.TopicPartition(*partition) for partition in partitions]


def our_keys(answers: Mapping[Any, T]) -> dict[TopicPartition, T]:
    """partition -> the client's answer for it."""
    return {TopicPartition(partition.topic, partition.partition): answer for partition, answer in answers.items()}


def _say_when_closed(send: Any) -> Any:
    """A connection's method that raises KafkaConnectionError for uvloop's RuntimeError, as it does for OSError.

    Writing to a socket that the broker has closed raises OSError under asyncio's loop, and aiokafka knows that. Under
    uvloop's it raises RuntimeError, which passes every ``except`` of aiokafka's: it comes out of a commit, and it ends
    the client's own tasks. It happens whenever a request is sent between the end of a broker and the news of it.

    Source: aio-libs/aiokafka#1038, open.
    """

    @wraps(send)
    def sends(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except kafka_errors.KafkaError:  # a RuntimeError itself
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            broken = f"Connection at {self.host}:{self.port} broken: {error}"
            raise kafka_errors.KafkaConnectionError(broken) from error

    return sends


for _name in ("send", "_send_sasl_token"):
    setattr(AIOKafkaConnection, _name, _say_when_closed(getattr(AIOKafkaConnection, _name)))

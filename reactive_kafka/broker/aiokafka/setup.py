"""What all clients of aiokafka start from: its errors translated, its arguments, deadlines, its log kept sane."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.helpers import create_ssl_context

from reactive_kafka.broker.aiokafka.connection import say_when_closed
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    NotOwnerError,
    RejectedRecordError,
    TransientBrokerError,
)

T = TypeVar("T")

START_DEADLINE_S = 20.0
CALL_DEADLINE_S = 5.0
STOP_DEADLINE_S = 5.0
LEAVE_DEADLINE_S = 2.0

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
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
TLS_FILES = ("ssl_cafile", "ssl_capath", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
SSL_PROPERTIES = {
    "ssl_cafile": "cafile",
    "ssl_capath": "capath",
    "ssl_cadata": "cadata",
    "ssl_certfile": "certfile",
    "ssl_keyfile": "keyfile",
    "ssl_password": "password",
    "ssl_crlfile": "crlfile",
}

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
DENIED = ("AuthenticationFailed", "UnsupportedSaslMechanism")  # parts of names of errors that are only logged
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
    if isinstance(error, NOT_OWNER):
        return NotOwnerError(text)
    if isinstance(error, FATAL):
        return FatalBrokerError(text)
    if isinstance(error, REJECTED):
        return RejectedRecordError(text)
    return TransientBrokerError(text)


def client_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """aiokafka's keyword arguments: TLS files become an SSL context, assignor names their classes.

    Raises:
        FatalBrokerError: A TLS file is missing, or cannot be used; it names the key and the file.
    """
    arguments = dict(properties)
    ssl = {argument: arguments.pop(name) for name, argument in SSL_PROPERTIES.items() if name in arguments}
    check_hostname = arguments.pop("ssl_check_hostname", True)
    if "ssl_context" not in arguments and (ssl or "SSL" in str(arguments.get("security_protocol", ""))):
        context = _tls_context(ssl, properties)
        context.check_hostname = bool(check_hostname)
        arguments["ssl_context"] = context
    names = arguments.pop("partition_assignment_strategy", None)
    if names is not None:
        names = [names] if isinstance(names, str) else names
        arguments["partition_assignment_strategy"] = tuple(
            ASSIGNORS[name] if isinstance(name, str) else name for name in names
        )
    return arguments


def _tls_context(ssl: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
    try:
        return create_ssl_context(**ssl)
    except (OSError, ValueError) as error:  # asked for again with the next attempt: it may be being replaced
        files = [name for name in TLS_FILES if properties.get(name)]
        missing = [name for name in files if not os.access(str(properties[name]), os.R_OK)]
        which = ", ".join(f"{name} = {str(properties[name])!r}" for name in missing or files)
        raise FatalBrokerError(f"TLS cannot be set up with {which}: {error}") from error


async def within(deadline_s: float, call: Coroutine[Any, Any, T], doing: str) -> T:
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


_starting: ContextVar[StartupReasons | None] = ContextVar("_starting", default=None)


class StartupReasons(logging.Handler):
    """Keeps what the client logs while it connects: its exception does not say why it could not.

    Of several clients that connect at the same time, each is told only what was logged on its own behalf.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []
        self.is_over = False  # the tasks that the client has started meanwhile keep the variable for good

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        if _starting.get() is self:
            self.reasons.append(record.getMessage())

    def __enter__(self) -> StartupReasons:
        logging.getLogger("aiokafka").addHandler(self)
        self._token = _starting.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        _starting.reset(self._token)
        logging.getLogger("aiokafka").removeHandler(self)

    def explain(self, error: BrokerError) -> BrokerError:
        """The error with the last reasons added; fatal where credentials are the reason."""
        if not self.reasons:
            return error
        text = f"{error} ({'; '.join(dict.fromkeys(self.reasons[-2:]))})"
        is_denied = any(text in reason for text in DENIED for reason in self.reasons)
        kind = FatalBrokerError if is_denied else type(error)
        explained = kind(text)
        explained.__cause__ = error.__cause__
        return explained


class SaslFilter(logging.Filter):
    """Drops what the client logs at DEBUG about authentication: it prints the password's bytes (H8)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be logged."""
        return "Sasl" not in record.getMessage()


logging.getLogger("aiokafka.conn").addFilter(SaslFilter())
say_when_closed()


class QuietFilter(logging.Filter):
    """Passes one warning a second from each place in the client's code: in an outage it logs each attempt of each task.

    What is logged while a client connects all passes: it is the reason that our own error gives.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be logged."""
        starting = _starting.get()
        if record.levelno < logging.WARNING or (starting is not None and not starting.is_over):
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._passed_at.get(place, -1.0) < 1.0:
            return False
        self._passed_at[place] = now
        return True


_quiet = QuietFilter()
for _name in (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
):
    logging.getLogger(_name).addFilter(_quiet)

"""What all clients of aiokafka share: errors translated, arguments, deadlines, and what they
log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from reactive_kafka.broker.aiokafka.credentials import TLS_SETTINGS, Tokens, tls_context
from reactive_kafka.broker.aiokafka.error_classes import code_of
from reactive_kafka.broker.error_codes import Act
from reactive_kafka.config.secrets import revealed
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    NotOwnerError,
    RejectedRecordError,
    TransientBrokerError,
    describe,
)
from reactive_kafka.records import TopicPartition

T = TypeVar("T")

CALL_DEADLINE_S = 5.0

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    # H10: by default as short as the session, and fenced while draining.
    "rebalance_timeout_ms": 60_000,
    "metadata_max_age_ms": 30_000,
    "fetch_max_wait_ms": 500,
    # 50 MB by default. Those are read long after they came, out of memory that is new each time;
    # and two of them are held, while one is taken from and the next one comes.
    "fetch_max_bytes": 8_000_000,
    # 200 by default: its fetcher looks around then, woken for all that there is to do.
    "consumer_timeout_ms": 5_000,
}
CONSUMER_FIXED: Mapping[str, Any] = {
    # H12: what is committed, and where reading begins, is decided by us.
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
}
ASSIGNORS = {
    one.name: one
    for one in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}

NOT_OWNER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalStateError,
)
TO_CHANGE: Mapping[int, str] = {
    23: (
        "other members of the group divide the partitions in another way: set partition.assignment.strategy to one of "
        "theirs, or give this channel a group_id of its own"
    ),
    26: "session.timeout.ms is not between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    29: "a right on the topic is missing (READ, or WRITE for what is written)",
    30: "the right READ on the group is missing",
    31: "the right WRITE on a topic is missing, or IDEMPOTENT_WRITE on the cluster",
    53: "the right WRITE on the transactional id is missing",
    81: "the group has as many members as the broker's group.max.size allows",
    87: "the topic is compacted and the record has no key, or the broker's schema validation rejects it",
}
"""Error code -> what the operator or the sender can change, where the name of the error does not
say that.
"""
KIND_OF: Mapping[Act, type[BrokerError]] = {
    Act.RETRY: TransientBrokerError,
    Act.NEW_CLIENT: TransientBrokerError,
    Act.REJOIN: NotOwnerError,
    Act.OPERATOR: FatalBrokerError,
    Act.REFUSE_RECORD: RejectedRecordError,
    Act.REFUSE: FatalBrokerError,
}
"""What to do about an error code -> our error for it; a refused write is a RejectedRecordError."""
COORDINATOR_MOVED = (
    kafka_errors.GroupCoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorForGroupError,
    kafka_errors.RequestTimedOutError,
)


# What the client logs at DEBUG about authentication has the password's bytes (H8).
logging.getLogger("aiokafka.conn").addFilter(lambda record: "Sasl" not in record.getMessage())


_AWAY = "BrokerUnavailable"
_LOST = "SessionOver Rebalanced"
_WRITES = "SendFailed Unwritten TransactionAborted BrokerUnavailable"
_NO_TOPIC = "TopicMissing NothingMatches NotWritable"
TOLD_BY_US: Mapping[str, str] = {
    'Unable connect to "': _AWAY,
    "Unable connect to node": _AWAY,
    'Unable to request metadata from "': _AWAY,
    "Unable to request metadata from node": _AWAY,
    "Unable to update metadata from": _AWAY,
    "Error sending %s to node": _AWAY,
    "Group Coordinator Request failed": _AWAY,
    "Marking the coordinator dead": _AWAY,
    "Attempt to join group failed due to fatal error": _AWAY,
    "Failed fetch messages from": _AWAY,
    "Failed fetch offsets from": _AWAY,
    "Not authorized to read from topic": f"{_AWAY} ReadFailed",
    "Heartbeat session expired": _LOST,
    "Heartbeat send request failed": f"{_AWAY} {_LOST}",
    "Heartbeat failed for group %s: coordinator": f"{_AWAY} {_LOST}",
    "Heartbeat failed for group %s because it is rebalancing": "Rebalanced",
    "Heartbeat failed for group %s: generation id is not": "Rebalanced",
    "Heartbeat failed: local member_id was not recognized": "Rebalanced",
    "No partition metadata for topic": _NO_TOPIC,
    "Topic %s not found in cluster metadata": _NO_TOPIC,
    "Topic %s is not available during auto-create": _NO_TOPIC,
    "Topic %s is not authorized for this client": f"{_NO_TOPIC} {_AWAY}",
    "Got error produce response": _WRITES,
    "Cannot send %r to": _WRITES,
    "Could not send %r": _WRITES,
}
"""How lines of the client begin that say less than our own events -> the names of these events.

A line that says more stays in the log. tests/broker/test_client_log.py has the decision about each
line of the client.
"""
_TOLD_BY_US = tuple(TOLD_BY_US)
is_ours: ContextVar[bool] = ContextVar("is_ours", default=False)
"""Set where a client of ours starts or is called, and kept by the tasks that it starts; an
application may have others.
"""


class QuietFilter(logging.Filter):
    """Passes one warning a second from each place in the client's code: in an outage it logs each
    attempt.

    What our own events tell is a matter of debugging.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if is_ours.get() and str(record.msg).startswith(_TOLD_BY_US):
            record.levelno = logging.DEBUG
            record.levelname = "DEBUG"
            return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        place = (record.pathname, record.lineno)
        now = time.monotonic()
        if now - self._passed_at.get(place, -1.0) < 1.0:
            return False
        self._passed_at[place] = now
        return True


LOGGERS = (
    "aiokafka",
    "aiokafka.admin.client",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.consumer.subscription_state",
    "aiokafka.coordinator.assignors.abstract",
    "aiokafka.coordinator.assignors.range",
    "aiokafka.coordinator.assignors.roundrobin",
    "aiokafka.coordinator.assignors.sticky.partition_movements",
    "aiokafka.coordinator.assignors.sticky.sticky_assignor",
    "aiokafka.helpers",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
)
"""The loggers of the client. A filter sees only the lines of the logger that it is attached to."""
_quiet = QuietFilter()
for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_quiet)


@contextmanager
def as_ours() -> Iterator[None]:
    """Mark what the client logs in this block, and in tasks that start in it, as being about a
    client of ours.
    """
    kept = is_ours.set(True)
    try:
        yield
    finally:
        is_ours.reset(kept)


def translate(error: BaseException, *, is_write: bool = False) -> BrokerError:
    """The error of ours that says who must act; raise it ``from`` the client's.

    Args:
        error: What the client raised.
        is_write: It is the answer to records that were sent. A code that Kafka does not call
            retriable refuses these records; of any other request only an operator can mend it.
    """
    code = code_of(error)
    # Its own begin with the class.
    text = str(error) if isinstance(error, kafka_errors.KafkaError) else describe(error)
    if code is None:
        kinds = (
            (NOT_OWNER, NotOwnerError),
            (kafka_errors.AuthenticationFailedError, FatalBrokerError),
        )
        return next(
            (kind for theirs, kind in kinds if isinstance(error, theirs)), TransientBrokerError
        )(text)
    if f"[Error {code.code}]" not in text:
        text = f"{text} ([Error {code.code}] {code.name})"
    if (what := TO_CHANGE.get(code.code)) is not None:
        text = f"{text}: {what}"
    if is_write and not code.is_retriable and code.act not in (Act.NEW_CLIENT, Act.OPERATOR):
        return RejectedRecordError(text)
    return KIND_OF.get(code.act, TransientBrokerError)(text)


def client_properties(properties: Mapping[str, Any], name: str) -> dict[str, Any]:
    """aiokafka's keyword arguments: TLS files become an SSL context, assignor names their classes.

    Where a TLS file is missing, or cannot be used, FatalBrokerError names the key and the file.
    """
    arguments = {"client_id": f"reactive-kafka-{name}"} | {
        name: revealed(value) for name, value in properties.items()
    }
    given = {name: arguments.pop(name) for name in TLS_SETTINGS if name in arguments}
    check_hostname = bool(arguments.pop("ssl_check_hostname", True))
    if "ssl_context" not in arguments and (
        given or "SSL" in str(arguments.get("security_protocol", ""))
    ):
        arguments["ssl_context"] = tls_context(given, check_hostname=check_hostname)
    if (provider := arguments.get("sasl_oauth_token_provider")) is not None:
        arguments["sasl_oauth_token_provider"] = Tokens(provider)
    names = arguments.get("partition_assignment_strategy")
    if names is not None:
        names = [names] if isinstance(names, str) else names
        classes = tuple(ASSIGNORS[name] if isinstance(name, str) else name for name in names)
        arguments["partition_assignment_strategy"] = classes
    return arguments


def made(kind: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """A client of aiokafka's, not started.

    FatalBrokerError: it refuses what it is given, or misses a library. Tried again like a broker
    that is away: nobody but the operator can mend it, and until then everything else goes on.
    """
    try:
        return kind(**arguments)
    except Exception as error:
        raise FatalBrokerError(f"the client cannot be made: {describe(error)}") from error


async def within(deadline_s: float, call: Awaitable[T], doing: str, *, is_write: bool = False) -> T:
    """Await a call of the client under a deadline (H5: its own retries have none), its errors
    translated.

    *is_write*: as in :func:`translate`.
    """
    try:
        with as_ours():
            async with asyncio.timeout(deadline_s):
                return await call
    except TimeoutError as error:
        raise TransientBrokerError(f"{doing}: no answer within {deadline_s:g} s") from error
    except (
        kafka_errors.KafkaError,
        kafka_errors.IllegalOperation,
        kafka_errors.ConsumerStoppedError,
    ) as error:
        raise translate(error, is_write=is_write) from error
    except OSError as error:
        raise TransientBrokerError(f"{doing}: {error}") from error


def theirs(partitions: Collection[TopicPartition]) -> list[Any]:
    """The same partitions as the client's own type."""
    return [aiokafka.TopicPartition(*partition) for partition in partitions]


def our_keys(answers: Mapping[Any, T]) -> dict[TopicPartition, T]:
    """partition -> the client's answer for it."""
    return {
        TopicPartition(partition.topic, partition.partition): answer
        for partition, answer in answers.items()
    }

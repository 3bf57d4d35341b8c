"""One commit as one request, and what its answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.commit import OffsetCommitRequest

from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, COORDINATOR_MOVED, NOT_OWNER, translate
from reactive_kafka.broker.static_assignment import members_share
from reactive_kafka.errors import MetadataTooLargeError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition

NO_MEMBER = ("", -1)
"""Member and generation of a commit by somebody who has not joined the group."""


async def send_commit(coordinator: Any, member: tuple[str, int], offsets: Mapping[TopicPartition, Committed]) -> None:
    """Send it once, in the name of *member* (its id, its generation).

    Raises:
        MetadataTooLargeError: It takes less beside a position; those of other partitions are stored.
        OutcomeUnknownError: No answer, or not in time.
        NotOwnerError: The broker refuses this member or generation.
        BrokerError: Anything else that it says.
    """
    by_topic: dict[str, list[tuple[int, int, str]]] = {}
    for partition, position in offsets.items():
        by_topic.setdefault(partition.topic, []).append((partition.partition, position.offset, position.metadata))
    member_id, generation = member
    request = OffsetCommitRequest(
        coordinator.group_id,
        generation,
        member_id,
        OffsetCommitRequest.DEFAULT_RETENTION_TIME,
        list(by_topic.items()),
    )
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            response = await coordinator._send_req(request)
    except TimeoutError as error:
        raise OutcomeUnknownError(f"commit: no answer within {CALL_DEADLINE_S:g} s") from error
    except kafka_errors.KafkaError as error:
        raise OutcomeUnknownError(f"commit: {type(error).__name__}: {error}") from error
    _raise_errors(coordinator, response, is_member=member != NO_MEMBER)


def _raise_errors(coordinator: Any, response: Any, *, is_member: bool) -> None:
    errors = [
        (TopicPartition(topic, partition), kafka_errors.for_code(code))
        for topic, partitions in response.topics
        for partition, code in partitions
        if code != 0
    ]
    if not errors:
        return
    if any(issubclass(kind, COORDINATOR_MOVED) for _, kind in errors):
        coordinator.coordinator_dead()
    partition, kind = min(errors, key=_urgency)
    if issubclass(kind, kafka_errors.RebalanceInProgressError):
        raise TransientBrokerError(f"commit of {partition}: a rebalance is in progress") from kind()
    if issubclass(kind, NOT_OWNER) and not is_member:
        raise TransientBrokerError(f"commit of {partition}: {members_share(coordinator.group_id)}") from kind()
    if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError):
        too_large = [partition for partition, one in errors if one is kind]
        what = f"commit of {partition}: its metadata is too long for the broker"
        raise MetadataTooLargeError(what, too_large) from kind()
    error = translate(kind())
    raise type(error)(f"commit of {partition}: {error}") from kind()


def _urgency(error: tuple[TopicPartition, type[Exception]]) -> int:
    """Which of several errors is told: one that ends the ownership, else one that shorter metadata does not mend."""
    kind = error[1]
    return 0 if issubclass(kind, NOT_OWNER) else 2 if issubclass(kind, kafka_errors.OffsetMetadataTooLargeError) else 1

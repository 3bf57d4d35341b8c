"""What a group has stored: a commit as one request, what its answer means, and asking for positions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.commit import OffsetCommitRequest

from reactive_kafka.broker.aiokafka.assignment import Assignment
from reactive_kafka.broker.aiokafka.offset_fetch import OffsetFetch, error_of, positions
from reactive_kafka.broker.aiokafka.setup import CALL_DEADLINE_S, COORDINATOR_MOVED, NOT_OWNER, translate, within
from reactive_kafka.broker.client import NO_GROUP, members_share
from reactive_kafka.errors import FatalBrokerError, MetadataTooLargeError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition

RETRY_S = 0.1
"""Between two questions, while the coordinator is being found or still loads."""
NO_MEMBER = ("", -1)
"""Member and generation of a commit by somebody who has not joined the group."""


async def commit(
    consumer: Assignment, group_id: str | None, offsets: Mapping[TopicPartition, Committed], generation: int
) -> None:
    """One request, with the member and generation of the assignment it was made for (H4).

    The client's own commit checks ownership once and then retries, with the generation of the moment; the
    broker checks member and generation but not who owns a partition, so a late retry overwrites another's.
    A static assignment commits to the group without being in it.
    """
    coordinator = _coordinator(consumer, group_id)
    member = NO_MEMBER if consumer.is_static else (coordinator.member_id, generation)
    consumer.check_owner(offsets, generation)
    await within(CALL_DEADLINE_S, coordinator.ensure_coordinator_known(), "finding the group's coordinator")
    consumer.check_owner(offsets, generation)  # again: finding it took its time
    try:
        async with asyncio.timeout(CALL_DEADLINE_S):
            response = await coordinator._send_req(commit_request(coordinator.group_id, member, offsets))
    except TimeoutError as error:
        raise OutcomeUnknownError(f"commit: no answer within {CALL_DEADLINE_S:g} s") from error
    except kafka_errors.KafkaError as error:
        raise OutcomeUnknownError(f"commit: {type(error).__name__}: {error}") from error
    _raise_errors(coordinator, response, is_member=member != NO_MEMBER)


async def committed(
    consumer: Assignment, group_id: str | None, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Committed | None]:
    ask = _ask(_coordinator(consumer, group_id), partitions)
    known = await within(CALL_DEADLINE_S, ask, "asking for committed positions")
    return {partition: known.get(partition) for partition in partitions}


async def _ask(coordinator: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
    request = OffsetFetch(coordinator.group_id, partitions)
    while partitions:
        try:
            await coordinator.ensure_coordinator_known()
            answer = await coordinator._send_req(request)
            error = error_of(answer)
            if error is None:
                return positions(answer)
            if issubclass(error, COORDINATOR_MOVED):
                coordinator.coordinator_dead()
            raise error()
        except kafka_errors.KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)
    return {}


def _coordinator(consumer: Assignment, group_id: str | None) -> Any:
    if group_id is None:
        raise FatalBrokerError(NO_GROUP)
    return consumer.client._coordinator


def commit_request(group_id: str, member: tuple[str, int], offsets: Mapping[TopicPartition, Committed]) -> Any:
    """A commit in the name of *member* (its id, its generation)."""
    by_topic: dict[str, list[tuple[int, int, str]]] = {}
    for (topic, number), position in offsets.items():
        by_topic.setdefault(topic, []).append((number, position.offset, position.metadata))
    member_id, generation = member
    retention = OffsetCommitRequest.DEFAULT_RETENTION_TIME
    return OffsetCommitRequest(group_id, generation, member_id, retention, list(by_topic.items()))


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
